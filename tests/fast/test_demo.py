"""What the demo makes of what it sees, and how it draws that: without servers. `UPDATE_GOLDEN=1 pytest tests/fast/test_demo.py` draws the pictures anew: look at them."""

import io
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from slinky.cli.demo.board import board
from slinky.cli.demo.lives import Life, Link, Phase, Sighting, dependencies, grown, held_by_prologs, job_sighting, line, pod_sighting
from slinky.cli.demo.timeline import Chapter, timeline
from slinky.kube import Pod
from slinky.kube.objects import Condition, ContainerState, ContainerStatus, Meta, PodSpec, PodStatus
from slinky.kube.objects.pod import Running, Terminated
from slinky.slurm import Job, JobStatus
from tests.explain.worlds import NOW

GOLDEN = Path(__file__).parent / "golden"
WAITING, PLACED, RUNNING, ENDING, OVER = Phase


def life(
    name: str, job_id: int, node: str, *turns: tuple[Phase, float], pod: bool = True, rank: int = -1, why: str = "", end: str = ""
) -> Life:
    """What came of it, by its turns."""
    found: Life | None = None
    for phase, at in turns:
        told = {
            "nodes": (node,) if node and phase is not WAITING else (),
            "why": why if phase in (WAITING, PLACED) else "",
            "outcome": end if phase in (ENDING, OVER) else "",
        }
        found = grown(found, Sighting(key=name, name=name, is_pod=pod, phase=phase, job_id=job_id, rank=rank, **told), at)  # type: ignore[arg-type]
    assert found
    return found


def story() -> list[Life]:
    ranks = [
        life(
            f"ring-{rank}",
            3,
            f"node-{rank // 2}",
            (WAITING, 1),
            (PLACED, 2.2),
            (RUNNING, 3.5 + rank / 10),
            (OVER, 15),
            rank=rank,
            end="Succeeded",
        )
        for rank in range(4)
    ]
    return [
        *ranks,
        life("prepare", 4, "node-0", (WAITING, 4), (PLACED, 16), (RUNNING, 16.4), (ENDING, 20), (OVER, 20.3), pod=False, end="COMPLETED"),
        life("train", 5, "node-0", (WAITING, 5), (PLACED, 21), (RUNNING, 22.3), (OVER, 26), end="Succeeded"),
        life("publish", 6, "node-0", (WAITING, 6), (PLACED, 27), (RUNNING, 27.3), (OVER, 30), pod=False, end="COMPLETED"),
        life("low-0", 7, "node-0", (WAITING, 31), (PLACED, 31.5), (RUNNING, 33), (ENDING, 37), (OVER, 45), end="SlurmPreempted"),
        life("low-1", 8, "node-1", (WAITING, 31), (PLACED, 31.5), (RUNNING, 33), (ENDING, 37), (OVER, 45), end="SlurmPreempted"),
        life("urgent", 9, "node-0", (WAITING, 36), (PLACED, 36.6), (RUNNING, 46), (OVER, 52), end="Succeeded"),
        life("urgent", 10, "node-1", (WAITING, 36), (PLACED, 36.6), (RUNNING, 45.4), pod=False),
        life('a<b> & "c"', 11, "", (WAITING, 40), why="Resources"),
    ]


LINKS = [
    *dependencies(5, "afterok:4(unfulfilled)"),
    *dependencies(6, "afterok:5"),
    Link("preempts", 9, 7, 36.6),
    Link("preempts", 10, 8, 36.6),
]
CHAPTERS = [Chapter("A gang in rank order", 0.5), Chapter("afterok across both", 16), Chapter("Preemption with grace", 31)]


def golden(file: str, told: str) -> None:
    answer = GOLDEN / file
    if os.environ.get("UPDATE_GOLDEN"):
        answer.write_text(told)
    assert told == answer.read_text()


def drawn(lives: list[Life], now: float, width: int, height: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(board(lives, ["node-0", "node-1"], now, width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_picture() -> None:
    golden("demo-timeline.svg", timeline("A <story> & its end", story(), LINKS, CHAPTERS, 55))


def test_the_picture_is_xml_that_fetches_nothing_and_has_a_bar_for_every_phase() -> None:
    told = timeline("A <story> & its end", story(), LINKS, CHAPTERS, 55)
    root = ElementTree.fromstring(told)
    classes = [element.get("class", "") for element in root.iter()]
    assert sum(kind == "pod placed" for kind in classes) == 8 + 1  # one in the legend
    assert sum(kind.startswith("link") for kind in classes) == 4 + 2
    assert "http" not in told.replace("http://www.w3.org/2000/svg", "")
    dark = told.partition("prefers-color-scheme: dark")[2].partition("</style>")[0]
    assert ".pod { color:" in dark
    assert ".pod { fill:" not in dark, "what comes later would fill what is hollow"


def test_no_name_and_no_bar_lies_on_another() -> None:
    """Fifty that begin at the same moment, at the right edge too."""
    crowd = [life(f"pod-{number}", number, "node-0", (WAITING, number % 3), (RUNNING, 40 + number % 5), (OVER, 49)) for number in range(50)]
    root = ElementTree.fromstring(timeline("crowd", crowd, [], [], 50))
    spots = [(element.get("x"), element.get("y")) for element in root.iter() if element.tag.endswith("text")]
    assert len(set(spots)) == len(spots)


def test_nothing_at_all_is_a_picture_too() -> None:
    ElementTree.fromstring(timeline("nothing", [], [], [], 0))


@pytest.mark.parametrize(("width", "now"), [(110, 42.0), (80, 14.0)])
def test_the_view(width: int, now: float) -> None:
    """As of a moment: what came later has not happened."""
    seen = [at(found, now) for found in story() if found.start <= now]
    told = drawn(seen, now, width)
    assert max(map(len, told.splitlines())) <= width
    golden(f"demo-view-{width}.txt", told)


def at(found: Life, now: float) -> Life:
    """A life as it was then."""
    before: Life | None = None
    last = found.last
    for span in found.spans:
        if span.start <= now:
            nodes = last.nodes if span.phase is not WAITING else ()
            outcome = last.outcome if span.phase is ENDING else ""
            seen = Sighting(
                key=last.key,
                name=last.name,
                is_pod=last.is_pod,
                phase=span.phase,
                job_id=last.job_id,
                rank=last.rank,
                nodes=nodes,
                outcome=outcome,
            )
            before = grown(before, seen, span.start)
    assert before
    return found if found.ended is not None and found.ended <= now else before


def test_the_view_is_no_higher_than_the_terminal_and_drops_the_oldest_that_are_over() -> None:
    crowd = [life(f"p{number:02}", number, "node-0", (RUNNING, number), (OVER, number + 1)) for number in range(20)]
    told = drawn([*crowd, life("lives", 99, "node-1", (RUNNING, 0))], 22, 100, 14)
    assert len(told.splitlines()) <= 14
    assert "pod lives" in told
    assert "p19" in told
    assert "p00" not in told


# What is seen becomes lives


def pod(node: str = "", *, states: tuple[ContainerState, ...] = (), deleted: bool = False, **more: object) -> Pod:
    statuses = tuple(ContainerStatus(name="c", state=state) for state in states)
    meta = Meta(name="p", uid="u", deletion_timestamp=NOW if deleted else None)
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(container_statuses=statuses, **more))  # type: ignore[arg-type]


RUNS, ENDED = ContainerState(running=Running()), ContainerState(terminated=Terminated())
NOT_FREE = Condition(type="slinky.slurm.net/Slurm", status="False", reason="NodeNotFree")


@pytest.mark.parametrize(
    ("seen", "job", "phase"),
    [
        (pod(), None, WAITING),
        (pod(), JobStatus("7", ["PENDING"]), WAITING),
        (pod(), JobStatus("7", ["RUNNING"]), PLACED),  # by Slurm; not bound yet
        (pod(conditions=(NOT_FREE,)), None, PLACED),
        (pod("n"), None, PLACED),
        (pod("n", states=(RUNS,)), None, RUNNING),
        (pod("n", states=(RUNS,)), JobStatus("7", ["PREEMPTED"]), RUNNING),  # Slurm is done with it; its containers are not
        (pod("n", states=(RUNS,), deleted=True), None, ENDING),
        (pod("n", states=(RUNS, ENDED), deleted=True), None, ENDING),
        (pod("n", states=(ENDED,), deleted=True), None, OVER),
        (pod("n", states=(ENDED,), phase="Succeeded"), None, OVER),
        (pod(deleted=True), None, OVER),
    ],
)
def test_a_pods_phase_is_what_its_containers_do(seen: Pod, job: JobStatus | None, phase: Phase) -> None:
    assert pod_sighting(seen, job).phase is phase


def test_who_was_preempted_says_so_whatever_the_eviction_wrote_on_the_pod() -> None:
    evicted = Condition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
    gone = pod("n", states=(ENDED,), deleted=True, conditions=(evicted,))
    assert pod_sighting(gone, JobStatus("7", ["PREEMPTED"])).outcome == "PREEMPTED"
    assert pod_sighting(gone, JobStatus("7", ["CANCELLED"])).outcome == "EvictionByEvictionAPI"


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        (["PENDING"], WAITING),
        (["RUNNING", "CONFIGURING"], PLACED),  # its prolog waits
        (["RUNNING"], RUNNING),
        (["COMPLETED", "COMPLETING"], ENDING),
        (["COMPLETED"], OVER),
        (["PREEMPTED"], OVER),
    ],
)
def test_a_jobs_phase(states: list[str], phase: Phase) -> None:
    seen = job_sighting(Job(job_id=7, name="j", nodes="node-[0-1]"), JobStatus("7", states))
    assert seen.phase is phase
    assert seen.nodes == (() if phase is WAITING else ("node-0", "node-1"))


def test_a_job_whose_prolog_waits_has_not_begun_whatever_slurm_says() -> None:
    said = "job 7 waits on node-1 for team/low-1 (job 6 does not have the node any more)\njob 8 waits on node-0 for team/x\njob 8 begins on node-0 after 3.1 s"
    assert held_by_prologs(said) == {7: "team/low-1 (job 6 does not have the node any more)"}
    assert held_by_prologs("") == {}
    record, status = Job(job_id=7, name="j", nodes="node-1"), JobStatus("7", ["RUNNING"])
    seen = job_sighting(record, status, "team/low-1 (job 6 …)")
    assert (seen.phase, seen.why) == (PLACED, "team/low-1")
    found = grown(grown(life("j", 7, "node-1", (WAITING, 1), (RUNNING, 2), pod=False), seen, 2.5), job_sighting(record, status), 9)
    assert found.pieces(12) == [(WAITING, 1, 2), (PLACED, 2, 9), (RUNNING, 9, 12)]


def test_a_life_keeps_what_a_later_look_does_not_tell() -> None:
    found = life("p", 7, "node-0", (WAITING, 1), (RUNNING, 2), (RUNNING, 3), (OVER, 4), end="Succeeded")
    assert [(phase, start, until) for phase, start, until in found.pieces(9)] == [(WAITING, 1, 2), (RUNNING, 2, 4)]
    after = grown(found, Sighting(key="p", name="p", is_pod=True, phase=RUNNING), 8)
    assert (after.ended, after.last.phase, after.last.nodes, after.last.job_id, after.last.outcome) == (
        4,
        OVER,
        ("node-0",),
        7,
        "Succeeded",
    )
    assert line(after) == "pod p (job 7) is over: Succeeded"


def test_lines_for_who_has_no_terminal() -> None:
    assert line(life("ring-1", 3, "node-0", (RUNNING, 1), rank=1)) == "pod ring-1 (job 3, rank 1) runs on node-0"
    assert (
        line(life("j", 4, "node-0", (WAITING, 1), pod=False, why="Dependency afterok:3"))
        == "sbatch j (4) waits in Slurm's queue: Dependency afterok:3"
    )


def test_dependencies_as_slurm_writes_them() -> None:
    assert dependencies(9, "afterok:7(unfulfilled),afterany:8") == [Link("afterok", 7, 9), Link("afterany", 8, 9)]
    assert dependencies(9, "") == []
