"""The overview: both sides on one screen, cut to its height; a side that is down is said."""

from rich.console import Console

from slinky.explain.facts import Facts
from slinky.explain.top import view
from slinky.explain.troubles import kube_trouble
from tests.explain.worlds import STAMP, facts, job, node, number, pod


def drawn(seen: Facts, height: int = 40) -> str:
    console = Console(width=160, height=height, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(view(seen, height))
    return captured.get()


def test_queue_nodes_and_pods() -> None:
    runs = job(7, "RUNNING", "None", nodes="w1", start_time=number(STAMP - 3661))
    queue = (job(8, reason="Priority", priority=number(5)), job(9, reason="JobHeldUser", priority=number(50)), runs)
    pods = (pod(job=7, spec={"nodeName": "w1"}, status={"phase": "Running"}), pod("a", job=8), pod("b", job=8))
    text = drawn(facts({"pods": pods}, {"queue": queue, "nodes": (node(alloc_cpus=4, gres_used="gpu:1(IDX:0)"), node("w2", "DOWN"))}))
    assert "jobs: 2 pending, 1 running   pods with a job: 2 pending, 1 running   bridge: led by bridge-0" in text
    rows = [line.split() for line in text.splitlines()]
    assert [row[1] for row in rows if len(row) > 2 and row[1].isdigit()] == ["7", "9", "8"]  # what runs, then by priority
    assert "1:01:01" in text and "team/train-0 Running" in text and "2 of team: 2 Pending" in text
    assert "4/16" in text and "1/4" in text


def test_a_long_queue_is_cut_to_the_screen() -> None:
    text = drawn(facts(slurm={"queue": tuple(job(number) for number in range(1, 500))}), 30)
    assert len(text.splitlines()) == 30  # all of it, and no more
    assert "more)" in text


def test_a_side_that_is_down_is_said_and_the_other_is_shown() -> None:
    down = kube_trouble(OSError("refused"), "pods")
    text = drawn(facts({"troubles": (down,), "unread": frozenset({"pods", "lease"}), "lease": None}, {"queue": (job(7),)}))
    assert "kubernetes-unreachable: pods: refused" in text
    assert "bridge: not known" in text and "team/train-0" in text
