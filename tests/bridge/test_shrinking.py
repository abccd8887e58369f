"""Gangs that give nodes back: which, when, and where nobody would answer, none."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from slinky.bridge.keys import SLURM_NODE
from slinky.bridge.looks import next_moment
from slinky.bridge.memory import Known
from slinky.bridge.placement import Slot
from slinky.bridge.plan import JobView, PodView, Snapshot, plan
from slinky.bridge.shrinking import MOST_AT_ONCE, SHRINK_SECONDS, Shrinking, answers, nodes_in_use, places_left
from slinky.bridge.submission import Submission
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Meta, Pod
from slinky.kube.objects import PodSpec, PodStatus
from slinky.slurm import Allocation, AuthenticationError, Node, NodeAllocation, RefusedError, UnavailableError
from tests.kube.virtual_time import run_in_virtual_time

KEY = WorkloadKey("PodGroup", "ns", "ring")
SINK = "10.0.0.1:6818"
JOB = JobView(job_id=7, state="running", tasks=4)


class Servers:
    """Slurm with one job over n0, n1, n2, and the executor."""

    def __init__(self, states: list[str] | None = None) -> None:
        self.jobs = self.nodes = self
        self.states = ["IDLE", "EXTERNAL"] if states is None else states
        self.kept: list[list[str]] = []
        self.asked = 0
        self.refuses = False
        self.bad_tokens = 0  # shrinks that fail for the token
        self.down = 0  # questions that are not answered
        self.more = 0  # nodes

    async def allocation(self, job_id: int) -> Allocation:
        self.asked += 1
        if self.down:
            self.down -= 1
            raise UnavailableError("slurmctld is not there")
        names = ("n0", "n1", "n2", *(f"m{number}" for number in range(self.more)))
        return Allocation(job_id, [NodeAllocation(node=name) for name in names if not self.kept or name in self.kept[-1]])

    async def get(self, name: str) -> Node:
        return Node(name=name, address="10.0.0.1", port=6818, node_states=self.states)

    async def shrink(self, _: int, nodes: list[str]) -> None:
        if self.refuses:
            raise RefusedError("no")
        if self.bad_tokens:
            self.bad_tokens -= 1
            raise AuthenticationError("token expired", number=1007)
        self.kept.append(nodes)


def pod(name: str, node: str, phase: str = "Running") -> Pod:
    return Pod(
        metadata=Meta(name=name, uid=name, annotations={SLURM_NODE: node}),
        spec=PodSpec(node_name=f"k-{node}"),
        status=PodStatus(phase=phase),
    )


PODS = [pod("a", "n0"), pod("b", "n0", "Succeeded"), pod("c", "n1", "Succeeded"), pod("d", "n2")]
VIEWS = [PodView(uid=each.metadata.uid, state="over" if each.is_over else "bound", job_id=7, rank=rank) for rank, each in enumerate(PODS)]


def known() -> Known:
    slots = [Slot(node=node, rank=rank, local_rank=0) for rank, node in enumerate(("n0", "n0", "n1", "n2"))]
    return Known(job_id=7, submission=Submission(job_id=7, tasks=4), slots=slots)


def looked(servers: Servers, seconds: float, sink: str = SINK, *, may_come: bool = False, job: JobView = JOB, views: Any = VIEWS) -> Known:
    """As often as a reconciler might."""
    memory = known()
    me: Any = servers

    async def story() -> None:
        shrinking = Shrinking(me, me, sink)
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            with suppress(UnavailableError, AuthenticationError):  # as the queue does
                await shrinking.look(PODS, views, job, memory, KEY, lambda: may_come)
            await asyncio.sleep(1)

    run_in_virtual_time(story())
    return memory


def test_nodes_without_pods_are_given_back_once_after_a_while() -> None:
    early = Servers()
    looked(early, SHRINK_SECONDS - 1)
    assert not early.asked
    servers = Servers()
    memory = looked(servers, 100)
    assert servers.kept == [["n0", "n2"]]
    assert servers.asked == 1
    assert memory.given_back == 1, "the slot that is empty on a node which is kept is still there"


def test_a_shrink_that_failed_for_the_token_is_tried_again() -> None:
    servers = Servers()
    servers.bad_tokens = 2
    looked(servers, 100)
    assert servers.kept == [["n0", "n2"]]


def test_nothing_is_given_back_that_others_may_come_for() -> None:
    servers = Servers()
    looked(servers, 100, may_come=True)
    starts = [*VIEWS[:3], PodView(uid="d", state="waiting", job_id=7)]
    looked(servers, 100, views=starts)
    looked(servers, 100, job=JobView(job_id=7, state="ending", tasks=4))
    looked(servers, 100, job=JobView(job_id=7, state="running", tasks=2))
    looked(servers, 100, job=JobView(job_id=7, state="running", tasks=4, suspended=True))
    assert not servers.asked
    assert not servers.kept


def test_a_slurm_that_does_not_answer_is_asked_again() -> None:
    servers = Servers()
    servers.down = 2
    looked(servers, 100)
    assert servers.kept == [["n0", "n2"]]


def test_nothing_is_given_back_of_a_job_that_may_be_anothers_by_now() -> None:
    servers, own = Servers(), False
    me: Any = servers

    async def is_still_own(_: Known) -> bool:
        return own

    async def story() -> None:
        nonlocal own
        shrinking, memory = Shrinking(me, me, SINK, is_still_own), known()
        for seconds in range(40):
            own = seconds > 25
            await shrinking.look(PODS, VIEWS, JOB, memory, KEY, lambda: False)
            assert own or not servers.asked
            await asyncio.sleep(1)

    run_in_virtual_time(story())
    assert servers.kept == [["n0", "n2"]]


def test_without_a_sink_an_external_node_is_kept_and_it_is_not_asked_again_and_again() -> None:
    servers = Servers()
    assert looked(servers, 100, sink="").given_back == 0
    assert looked(servers, 100, sink="10.0.0.2:6818").given_back == 0
    assert not servers.kept
    assert servers.asked == 2
    looked(Servers([]), 100, sink="")


def test_a_node_with_a_slurmd_needs_no_sink() -> None:
    servers = Servers(["IDLE"])
    looked(servers, 100, sink="")
    assert servers.kept == [["n0", "n2"]]


def test_many_nodes_go_a_few_at_a_time() -> None:
    servers = Servers()
    servers.more = 40
    looked(servers, 60)
    assert [len(kept) for kept in servers.kept] == [43 - MOST_AT_ONCE, 43 - 2 * MOST_AT_ONCE, 2]
    assert servers.kept[-1] == ["n0", "n2"]


def test_of_many_nodes_the_rest_is_due_by_itself() -> None:
    servers, memory = Servers(), known()
    servers.more = 40
    me: Any = servers

    async def story() -> None:
        shrinking, loop = Shrinking(me, me, SINK), asyncio.get_running_loop()
        await asyncio.sleep(1)
        for _ in range(10):
            await shrinking.look(PODS, VIEWS, JOB, memory, KEY, lambda: False)
            if not (moment := next_moment(memory, loop.time(), 600)):
                return
            await asyncio.sleep(moment - loop.time() + 0.05)
        raise AssertionError("it is looked at for ever")

    run_in_virtual_time(story())
    assert servers.kept[-1] == ["n0", "n2"]


def test_what_slurm_refuses_is_kept() -> None:
    servers = Servers()
    servers.refuses = True
    assert looked(servers, 100).given_back == 0


def test_nodes_go_by_slurms_names_and_dying_pods_use_theirs() -> None:
    assert nodes_in_use(PODS) == {"n0", "n2"}
    dying = PodView(uid="d", state="bound", job_id=7, deleting=True)
    assert places_left([*VIEWS[:3], dying], JOB) == 2
    assert places_left([PodView(uid="x", state="waiting", job_id=7)], JOB) is None
    assert places_left([PodView(uid="x", state="waiting"), *VIEWS], JOB) == 2, "who has no label is none of its own"


@pytest.mark.parametrize(("port", "answered"), [(6818, True), (6819, False)])
def test_the_sink_is_known_by_address_and_port(port: int, answered: bool) -> None:
    node = Node(name="n", address="10.0.0.1", port=port, node_states=["EXTERNAL"])
    assert answers(node, ("10.0.0.1", 6818)) is answered
    assert not answers(node, None)


def test_who_comes_after_slots_are_gone_is_set_apart() -> None:
    smaller = JobView(job_id=7, state="running", tasks=2)
    pods = [PodView(uid="a", state="bound", job_id=7), PodView(uid="d", state="bound", job_id=7), PodView(uid="e", state="waiting")]
    [action] = plan(Snapshot(pods=pods, size=2, job=smaller, elastic=True))
    assert type(action).__name__ == "SetApart"
