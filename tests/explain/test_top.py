"""The overview: both sides on one screen, cut to its height; a side that is down is said."""

from rich.console import Console

from slinky.explain.facts import MOST_COUNTED, Facts
from slinky.explain.top import HELP, Shown, keys, press, view
from slinky.explain.troubles import kube_trouble
from tests.explain.worlds import STAMP, claim_lease, facts, job, node, number, pod


def drawn(seen: Facts, height: int = 40, shown: Shown | None = None, width: int = 160) -> str:
    console = Console(width=width, height=height, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(view(seen, height, shown))
    return captured.get()


def test_queue_nodes_and_pods() -> None:
    runs = job(7, "RUNNING", "None", nodes="w1", start_time=number(STAMP - 3661))
    queue = (job(8, reason="Priority", priority=number(5)), job(9, reason="Priority", priority=number(50)), runs)
    pods = (pod(job=7, spec={"nodeName": "w1"}, status={"phase": "Running"}), pod("a", job=8), pod("b", job=8))
    text = drawn(facts({"pods": pods}, {"queue": queue, "nodes": (node(alloc_cpus=4, gres_used="gpu:1(IDX:0)"), node("w2", "DOWN"))}))
    assert "bridge: led by bridge-0   jobs: 2 pending, 1 running   pods with a job: 2 pending, 1 running" in text
    rows = [line.split() for line in text.splitlines()]
    assert [row[1] for row in rows if len(row) > 2 and row[1].isdigit()] == ["7", "9", "8"]  # what runs, then by priority
    assert "1:01:01" in text and "team/train-0 Running" in text and "2 of team: 2 Pending" in text
    assert "4/16" in text and "1/4" in text


def test_pods_that_wait_without_a_job_are_counted() -> None:
    assert "waiting without a job" not in drawn(facts())
    text = drawn(facts({"without_job": 16}))
    assert text.splitlines()[0].rstrip().endswith("pods with a job: none   waiting without a job: 16")
    assert f"waiting without a job: {MOST_COUNTED} or more" in drawn(facts({"without_job": MOST_COUNTED}))


def test_a_narrow_terminal_with_jobs_in_many_states_still_shows_the_leader() -> None:
    states = ("RUNNING", "PENDING", "COMPLETED", "CANCELLED", "FAILED", "PREEMPTED", "TIMEOUT")
    queue = tuple(job(number, state) for number, state in enumerate(states, 1))
    assert "bridge: led by bridge-0" in drawn(facts(slurm={"queue": queue}), width=80)


def test_a_long_queue_is_cut_to_the_screen() -> None:
    text = drawn(facts(slurm={"queue": tuple(job(number) for number in range(1, 500))}), 30)
    assert len(text.splitlines()) == 30  # all of it, and no more
    assert "more)" in text


def shown_jobs(text: str) -> list[int]:
    rows = [line.split() for line in text.splitlines()]
    return [int(row[1]) for row in rows if len(row) > 2 and row[1].isdigit()]


def test_running_jobs_do_not_hide_the_queue() -> None:
    running = tuple(job(number, "RUNNING", "None", nodes="w1") for number in range(1, 300))
    waiting = (job(400, reason="Priority"), job(401, reason="Priority", priority=number(900)), job(402, reason="JobHeldUser", hold=True))
    numbers = shown_jobs(drawn(facts(slurm={"queue": (*running, *waiting)}), 30))
    assert numbers[0] == 299, "running jobs come first, the latest at the top"
    assert numbers[-3:] == [401, 400, 402], "the next to start first, held jobs last"


def test_waiting_jobs_do_not_hide_the_running_ones() -> None:
    waiting = tuple(job(number) for number in range(1, 300))
    numbers = shown_jobs(drawn(facts(slurm={"queue": (*waiting, job(900, "RUNNING", "None", nodes="w1"))}), 30))
    assert numbers[0] == 900
    assert len(numbers) > 10


def test_keys_scroll_and_choose() -> None:
    queue = tuple(job(number) for number in range(1, 100))
    shown = Shown()
    for key in keys("\x1b[B\x1b[B\x1b[6~kw"):
        found = press(shown, key, 10)
        assert found is not None
        shown = found
    assert shown == Shown("waiting", 0), "another choice begins at the top"
    scrolled = press(press(shown, "j", 10) or shown, " ", 10)
    assert scrolled == Shown("waiting", 11)
    assert shown_jobs(drawn(facts(slurm={"queue": queue}), 30, scrolled))[0] == 12
    assert press(Shown("all", 5), "\x1b[H", 10) == Shown("all", 0)
    assert press(Shown("all", 0), "k", 10) == Shown("all", 0)
    assert press(shown, "q", 10) is None
    assert press(shown, "x", 10) == shown


def test_scrolling_stops_at_the_last_page() -> None:
    queue = tuple(job(number) for number in range(1, 100))
    assert shown_jobs(drawn(facts(slurm={"queue": queue}), 30, Shown("all", 5000)))[-1] == 99


def test_on_a_terminal_the_keys_are_named() -> None:
    text = drawn(facts(slurm={"queue": tuple(job(number) for number in range(1, 100))}), 30, Shown())
    assert len(text.splitlines()) == 30
    assert "q quit" in text.splitlines()[-1] and "scroll" in text.splitlines()[-1]


def test_the_line_of_keys_fits_an_old_terminal() -> None:
    last = drawn(facts(slurm={"queue": (job(1),)}), 30, Shown(), width=80).splitlines()[-1]
    assert last.rstrip() == HELP
    assert len(HELP) <= 80


def test_the_title_counts_the_jobs_of_the_kind_that_is_shown() -> None:
    queue = (*(job(n, "RUNNING", "None", nodes="w1") for n in range(1, 60)), *(job(n) for n in range(100, 220)))
    assert "queue (179 jobs, " in drawn(facts(slurm={"queue": queue}), 30, Shown())
    waiting = drawn(facts(slurm={"queue": queue}), 30, Shown("waiting", 5))
    assert f"queue (120 waiting jobs, {120 - len(shown_jobs(waiting))} more, from 6)" in waiting
    running = drawn(facts(slurm={"queue": queue}), 30, Shown("running"))
    assert f"queue (59 running jobs, {59 - len(shown_jobs(running))} more)" in running


def test_of_more_jobs_than_are_read_the_title_says_how_they_are_sorted() -> None:
    """Of 5,000 jobs those from the offset on were read, and all of these are on the screen."""
    read = tuple(job(n) for n in range(1031, 1051))
    text = drawn(facts(slurm={"queue": read, "counts": {"PENDING": 5000}}), 22, Shown("waiting", 1030))
    assert "from 1031, too many to sort by priority: by job id)" in text
    assert shown_jobs(text)[0] == 1031
    assert "sort" not in drawn(facts(slurm={"queue": read, "counts": {"PENDING": 20}}), 22, Shown("waiting"))


def test_a_side_that_is_down_is_said_and_the_other_is_shown() -> None:
    down = kube_trouble(OSError("refused"), "pods")
    text = drawn(facts({"troubles": (down,), "unread": frozenset({"pods", "lease"}), "lease": None}, {"queue": (job(7),)}))
    assert "kubernetes-unreachable: pods: refused" in text
    assert "bridge: not known" in text and "team/train-0" in text


def test_a_bridge_that_does_nothing_is_said_beside_its_leader_and_below() -> None:
    text = drawn(facts({"claim": claim_lease(4711)}, {"queue": (job(7),)}))
    assert "bridge: led by bridge-0, does nothing" in text
    assert "bridge-claim-conflict: Slurm job 4711 carries claim 9.zz.4" in text
    assert "does nothing" not in drawn(facts({"claim": claim_lease()}, {"queue": (job(7),)}))
