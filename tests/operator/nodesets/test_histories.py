"""Random histories: whatever happens, and however late the operator hears of it, no job is killed that nobody allowed to be, no admin's drain is undone, and in the end all is as written."""

import datetime as dt
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.operator.nodesets import marks
from tests.operator.nodesets.world import FAN, SILENT, World

NUMBERS = st.integers(0, 2)
Happening = tuple[str, object]


def _scaled(world: World, replicas: int) -> None:
    world.spec["replicas"] = replicas


def _changed(world: World, revision: str) -> None:
    world.revision = revision


def _turn(world: World, seen: tuple[bool, bool]) -> None:
    """Of the operator, which has seen what there is, or not all of it."""
    pods, slurm = seen
    if pods:
        world.see_pods()
    if slurm:
        world.hear()
    world.turn()


def _jobs(world: World, started: tuple[set[int], bool]) -> None:
    """They may be suspended at once: their nodes then look idle."""
    numbers, suspended = started
    for number in sorted(numbers):
        job = world.start_job(f"workers-{number}")
        if job and suspended:
            world.suspend(job)


def _answers(world: World, answers: bool) -> None:
    world.answers = answers
    world.hear()


def _deleted(world: World, number: int) -> None:
    """A pod, by somebody else, with its jobs."""
    pod = world.pods.get(f"workers-{number}")
    if pod is not None:
        pod.leaving, pod.version = True, pod.version + 1
        for job in [job for job in world.jobs.values() if job.uid == pod.uid]:
            world.end_job(job.id)


def _time(world: World, seconds: int) -> None:
    world.now += dt.timedelta(seconds=seconds)


def _end_one(world: World, which: int) -> None:
    if world.jobs:
        world.end_job(sorted(world.jobs)[which % len(world.jobs)])


def _goes_down(world: World, how: tuple[int, str]) -> None:
    world.goes_down(f"workers-{how[0]}", how[1])


HAPPENINGS: dict[str, tuple[Callable[[World, object], None], st.SearchStrategy[object]]] = {
    "the operator has a turn": (_turn, st.tuples(st.booleans(), st.booleans())),  # type: ignore[dict-item]
    "pods go on": (lambda world, _: world.kubelets(), st.none()),
    "jobs start": (_jobs, st.tuples(st.sets(NUMBERS, min_size=1), st.booleans())),  # type: ignore[dict-item]
    "a job ends": (_end_one, NUMBERS),  # type: ignore[dict-item]
    "it is scaled": (_scaled, st.sampled_from([0, 0, 1, 2, 3])),  # type: ignore[dict-item]
    "its template changes": (_changed, st.sampled_from(["r0", "r1", "r2"])),  # type: ignore[dict-item]
    "Slurm answers or not": (_answers, st.booleans()),  # type: ignore[dict-item]
    "Slurm forgets a node": (lambda world, number: world.slurm_forgets(f"workers-{number}"), NUMBERS),
    "the operator is restarted": (lambda world, _: world.restart(), st.none()),
    "an admin drains": (lambda world, number: world.admin_drains(f"workers-{number}"), NUMBERS),
    "an admin resumes": (lambda world, number: world.admin_resumes(f"workers-{number}"), NUMBERS),
    "a node goes down": (_goes_down, st.tuples(NUMBERS, st.sampled_from([FAN, SILENT]))),  # type: ignore[dict-item]
    "a node comes back": (lambda world, number: world.comes_back(f"workers-{number}"), NUMBERS),
    "a Kubernetes node is cordoned or not": (lambda world, number: world.cordoned.symmetric_difference_update({f"k{number}"}), NUMBERS),
    "somebody deletes a pod": (_deleted, NUMBERS),  # type: ignore[dict-item]
    "time goes by": (_time, st.sampled_from([1, 40, 90])),  # type: ignore[dict-item]
}
OFTEN = ["the operator has a turn"] * 6 + ["pods go on"] * 2 + ["jobs start"] * 2

HISTORY = st.lists(
    st.sampled_from([*OFTEN, *HAPPENINGS]).flatmap(lambda name: st.tuples(st.just(name), HAPPENINGS[name][1])), min_size=15, max_size=45
)


@settings(max_examples=100)
@given(history=HISTORY, deadline=st.sampled_from([None, None, 60]), leaves=st.sampled_from([None, None, None, 5, 15]))
def test_no_job_is_killed_no_admins_drain_is_undone_and_in_the_end_all_is_as_written(
    history: list[Happening], deadline: int | None, leaves: int | None
) -> None:
    world = World()
    world.spec["drainDeadlineSeconds"] = deadline
    settle(world)
    for moment, (name, how) in enumerate(history):
        if moment == leaves:
            world.deleted = True
        HAPPENINGS[name][0](world, how)
        holds(world)
    calm(world)


def holds(world: World) -> None:
    assert not world.killed, world.killed
    for name in world.admin_drained:
        assert "DRAIN" in world.slurm[name].states, name
    for name in world.admin_downed - world.admin_drained:
        assert "DOWN" in world.slurm[name].states, name
        assert FAN in world.slurm[name].reason, world.slurm[name]


def settle(world: World) -> None:
    """Everything is seen, and time goes by, until nothing more is to be done."""
    quiet = 0
    for _ in range(80):
        world.now += dt.timedelta(seconds=40)
        world.kubelets()
        for pod in world.pods.values():
            if pod.running and pod.name not in world.slurm:
                world.register(pod)
        world.see_pods()
        world.hear()
        quiet = 0 if world.turn() or any(not pod.running for pod in world.pods.values()) else quiet + 1
        holds(world)
        if quiet > 1:
            return


def calm(world: World) -> None:
    """Slurm answers, jobs end, and the operator sees everything: then all becomes as it is written."""
    world.answers = True
    world.spec["drainDeadlineSeconds"] = None
    for job in list(world.jobs):
        world.end_job(job)
    settle(world)
    if world.deleted:
        assert world.let_go, world.pods
        assert not world.slurm
        return
    assert len(world.pods) == world.spec["replicas"], world.pods
    for pod in world.pods.values():
        node = world.slurm[pod.name]
        wanted = pod.name in world.admin_drained or pod.node in world.cordoned
        assert pod.revision == world.revision
        assert ("DRAIN" in node.states) == wanted, (pod, node)
        assert FAN not in node.reason or wanted or pod.name in world.admin_downed, (
            pod,
            node,
        )  # it stays behind our reason while that lasts
        assert (pod.annotations.get(marks.CORDON) == "true") == (pod.node in world.cordoned), pod
    assert not world.turn(), "it does not come to rest"
