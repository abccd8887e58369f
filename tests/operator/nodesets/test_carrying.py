"""Carrying out: what is looked at once more right before it is done, and what is remembered of it."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.kube import AlreadyExistsError, ConflictError, ForbiddenError, Pod
from slinky.kube.errors import Status
from slinky.operator.nodesets.acts import Act, CreateClaim, CreatePod, DeletePod, DeleteSlurmNode, Drain, Resume, SetTopology
from slinky.operator.nodesets.carrying import Carrier
from slinky.operator.nodesets.creation import BACKOFF, Creation, slow_start
from slinky.operator.nodesets.memory import REFUSED_SECONDS, TAKEN_SECONDS, UNSEEN_SECONDS, Memory
from slinky.operator.nodesets.slurm_marks import refusal_of
from slinky.slurm import Node as SlurmNode
from slinky.slurm import RefusedError, UnavailableError
from tests.operator.nodesets.scene import in_slurm

FREE = DeletePod("workers-0", "u0", "scale-in: drained", on_word="workers-0")
OURS = "slurm-operator: x"


class FakeNodes:
    """Slurm's, which writes down what it is told."""

    def __init__(self, refuses: bool = False) -> None:
        self.told: list[tuple[str, ...]] = []
        self.reasons: dict[str, str] = {}
        self._refuses = refuses

    async def _take(self, what: str, names: Any) -> None:
        if not names:
            return
        if self._refuses:
            raise RefusedError("no")
        self.told.append((what, *sorted(names)))

    async def drain(self, names: Any, reason: str) -> None:
        await self._take("drain", names)
        self.reasons |= dict.fromkeys(names, reason)

    async def undrain(self, names: Any) -> None:
        await self._take("undrain", names)

    async def resume(self, names: Any) -> None:
        await self._take("resume", names)

    async def update(self, names: Any, change: Any) -> None:
        await self._take("update", names)
        self.reasons |= dict.fromkeys(names, change.reason)

    async def delete(self, names: Any) -> None:
        await self._take("delete", [names] if isinstance(names, str) else names)


class FakeSlurmClient:
    def __init__(self, nodes: FakeNodes) -> None:
        self.nodes = nodes


class FakeCluster:
    """`next_look` is what a look shows; None where Slurm does not answer."""

    def __init__(self, next_look: list[SlurmNode] | None, *, refuses: bool = False) -> None:
        self.nodes = {"workers-0": in_slurm("workers-0", "IDLE", "DRAIN", reason=OURS)}
        self._next = next_look
        self.nodes_told = FakeNodes(refuses)
        self.slurm = FakeSlurmClient(self.nodes_told)
        self.looks_anew = False

    def look_anew(self) -> None:
        self.looks_anew = True

    async def look(self) -> None:
        if self._next is None:
            raise UnavailableError("nobody is there")
        self.nodes = {node.name: node for node in self._next}


class FakeKube:
    def __init__(self, *, taken_by: str = "", changed: bool = False, quota: int = 1000) -> None:
        self.quota, self.asked = quota, 0
        self.deleted: list[tuple[str, str, str]] = []
        self.made: list[str] = []
        self._taken_by, self._changed = taken_by, changed

    async def delete(self, _resource: Any, name: str, _namespace: str, *, uid: str, resource_version: str, **_: Any) -> None:
        if self._changed:
            raise ConflictError("DELETE", name, Status(code=409, message="it has changed"))
        self.deleted.append((name, uid, resource_version))

    async def create(self, _resource: Any, body: dict[str, Any], _namespace: str) -> None:
        self.asked += 1
        if len(self.made) >= self.quota:
            raise ForbiddenError("POST", "pods", Status(code=403, message="exceeded quota: few"))
        if self._taken_by:
            raise AlreadyExistsError("POST", "pods", Status(code=409, message="it is there"))
        self.made.append(body["metadata"]["name"])

    async def get(self, _resource: Any, _name: str, _namespace: str) -> Any:
        owner = {"apiVersion": "x", "kind": "NodeSet", "name": "o", "uid": self._taken_by, "controller": True}
        return msgspec.convert({"metadata": {"name": "workers-0", "ownerReferences": [owner]}}, Pod)


async def carried(
    *acts: Act, kube: FakeKube | None = None, cluster: FakeCluster | None = None, memory: Memory | None = None, leads: bool = True
) -> Carrier:
    carrier = Carrier(
        kube or FakeKube(),  # type: ignore[arg-type]
        cluster,  # type: ignore[arg-type]
        "hpc",
        memory or Memory(),
        at_once=4,
        may_act=lambda: leads,
    )
    await carrier.carry_out(
        list(acts), lambda act: {"metadata": {"name": act.name}}, lambda act: {"metadata": {"name": act.name}}, {"uid": "nodeset"}
    )
    return carrier


@pytest.mark.parametrize(
    ("look", "goes"),
    [
        ([in_slurm("workers-0", "IDLE", "DRAIN", reason=OURS)], True),
        ([in_slurm("workers-0", "IDLE")], False),
        ([in_slurm("workers-0", "DOWN", reason="broken fan")], False),
        ([in_slurm("workers-0", "ALLOCATED", "DRAIN", reason=OURS)], False),
        ([], False),
        (None, False),
    ],
)
async def test_a_pod_goes_only_if_slurm_still_has_its_node_drained_and_free(look: list[SlurmNode] | None, goes: bool) -> None:
    kube = FakeKube()
    carrier = await carried(FREE, kube=kube, cluster=FakeCluster(look))
    assert bool(kube.deleted) is goes
    assert bool(carrier.deleted) is goes


async def test_without_a_client_no_pod_goes_on_slurms_word() -> None:
    kube = FakeKube()
    await carried(FREE, kube=kube)
    assert kube.deleted == []


async def test_a_pod_is_deleted_under_its_uid_and_the_version_that_was_judged() -> None:
    kube = FakeKube()
    await carried(DeletePod("workers-0", "u0", "x", version="7"), kube=kube)
    assert kube.deleted == [("workers-0", "u0", "7")]
    changed = await carried(DeletePod("workers-0", "u0", "x", version="7"), kube=FakeKube(changed=True))
    assert (changed.deleted, changed.problems, changed.again) == ([], [], True), "and it is looked at again"


async def test_a_drain_that_an_admin_took_over_meanwhile_is_not_undone() -> None:
    taken, ours = (
        FakeCluster([in_slurm("workers-0", "IDLE", "DRAIN", reason="bad disk")]),
        FakeCluster([in_slurm("workers-0", "IDLE", "DRAIN", reason=OURS)]),
    )
    down = FakeCluster([in_slurm("workers-0", "DOWN", reason=OURS)])
    for cluster in (taken, ours, down):
        await carried(Resume(("workers-0",)), cluster=cluster)
    assert [cluster.nodes_told.told for cluster in (taken, ours, down)] == [[], [("undrain", "workers-0")], [("resume", "workers-0")]]


async def test_an_admin_who_drained_a_node_a_moment_before_us_keeps_his_reason() -> None:
    cluster = FakeCluster([in_slurm("workers-0", "IDLE", "DRAIN", reason="bad disk"), in_slurm("workers-1", "IDLE")])
    await carried(Drain(("workers-0", "workers-1"), OURS), cluster=cluster)
    assert cluster.nodes_told.told == [("drain", "workers-1")]
    silent = FakeCluster(None)
    carrier = await carried(Drain(("workers-0",), OURS), cluster=silent)
    assert (silent.nodes_told.told, [one.reason for one in carrier.problems]) == ([], ["SlurmNotAnswering"])


async def test_what_an_admin_said_of_a_node_that_is_down_stays_behind_our_drain_and_comes_back_after_it() -> None:
    down = FakeCluster([in_slurm("workers-0", "DOWN", reason="broken fan"), in_slurm("workers-1", "DOWN", reason="Not responding")])
    await carried(Drain(("workers-0", "workers-1"), OURS), cluster=down)
    assert down.nodes_told.reasons == {"workers-0": f"{OURS}; before: broken fan", "workers-1": OURS}
    drained = FakeCluster([in_slurm("workers-0", "DOWN", "DRAIN", reason=f"{OURS}; before: broken fan")])
    await carried(Drain(("workers-0",), "slurm-operator: y"), cluster=drained)
    assert drained.nodes_told.reasons == {"workers-0": "slurm-operator: y; before: broken fan"}
    await carried(Resume(("workers-0",)), cluster=drained)
    assert drained.nodes_told.told[1:] == [("undrain", "workers-0"), ("update", "workers-0")]
    assert drained.nodes_told.reasons == {"workers-0": "broken fan"}
    half_done = FakeCluster([in_slurm("workers-0", "DOWN", reason=f"{OURS}; before: broken fan")])
    await carried(Resume(("workers-0",)), cluster=half_done)
    assert half_done.nodes_told.told == [("update", "workers-0")], "it was down before us, and stays so"
    back = FakeCluster([in_slurm("workers-0", "IDLE", "DRAIN", reason=f"{OURS}; before: broken fan")])
    await carried(Resume(("workers-0",)), cluster=back)
    assert back.nodes_told.told == [("undrain", "workers-0")]


async def test_what_slurm_refuses_is_said_and_not_asked_again_at_once() -> None:
    memory, act = Memory(), SetTopology(("workers-0",), "tree:s1")
    carrier = await carried(act, cluster=FakeCluster([], refuses=True), memory=memory)
    assert carrier.problems[0].reason == "SlurmRefuses"
    now = time.monotonic()
    assert memory.lately_refused(now) == {refusal_of(act)}
    assert memory.lately_refused(now + REFUSED_SECONDS + 1) == frozenset()


async def test_records_are_deleted_in_one_request_but_those_that_an_admin_took_and_one_by_one_where_one_is_refused() -> None:
    acts = [DeleteSlurmNode(f"workers-{number}", renewed=True) for number in (0, 1, 2, 10)]
    seen = [in_slurm(act.name, "IDLE", "DRAIN", reason="bad disk" if act.name == "workers-1" else OURS) for act in acts]
    content, refusing = FakeCluster(seen), FakeCluster(seen, refuses=True)
    await carried(*acts, cluster=content)
    assert content.nodes_told.told == [("delete", "workers-0", "workers-10", "workers-2")]
    carrier = await carried(*acts, cluster=refusing)
    assert {one.reason for one in carrier.problems} == {"SlurmRefuses"}
    assert len(carrier.problems) == 3


@pytest.mark.parametrize("refuses", [False, True])
async def test_after_records_were_deleted_slurm_is_asked_for_all_of_them(refuses: bool) -> None:
    """It does not count that as a change."""
    cluster = FakeCluster([in_slurm("workers-0", "DOWN")], refuses=refuses)
    await carried(DeleteSlurmNode("workers-0"), cluster=cluster)
    assert cluster.looks_anew
    other = FakeCluster([in_slurm("workers-0", "IDLE")])
    await carried(Drain(("workers-0",), "x"), cluster=other)
    assert not other.looks_anew


async def test_a_name_that_is_another_ones_is_said_and_one_of_our_own_is_no_trouble() -> None:
    ours = await carried(CreatePod("workers-0", 0), kube=FakeKube(taken_by="nodeset"))
    taken = await carried(CreatePod("workers-0", 0), kube=FakeKube(taken_by="another"))
    assert ([one.reason for one in ours.problems], [one.reason for one in taken.problems]) == ([], ["NameTaken"])


async def test_a_quota_that_is_used_up_costs_one_request_and_then_none_until_its_time_or_a_change() -> None:
    wanted, kube, memory = [CreatePod(f"workers-{number}", number) for number in range(19)], FakeKube(quota=0), Memory()
    memory.creation.begins(1)
    first = await carried(*wanted, kube=kube, memory=memory)
    again = await carried(*wanted, kube=kube, memory=memory)
    assert kube.asked == 1
    assert [one.message for one in first.problems] == [one.message for one in again.problems]
    assert "exceeded quota: few. 19 workers wait" in first.problems[0].message
    memory.creation.begins(2)
    await carried(*wanted, kube=kube, memory=memory)
    assert kube.asked == 2, "what is another NodeSet now is asked for at once"


async def test_pods_are_created_slowly_at_first_and_all_of_them_where_none_is_refused() -> None:
    wanted, memory = [CreatePod(f"workers-{number}", number) for number in range(19)], Memory()
    kube = FakeKube(quota=5)
    carrier = await carried(*wanted, kube=kube, memory=memory)
    assert (len(carrier.created), kube.asked) == (5, 7), "1 and 2 and 4, of which two were refused"
    assert "14 workers wait" in carrier.problems[0].message
    free = FakeKube()
    memory.creation.begins("other")
    carrier = await carried(*wanted, kube=free, memory=memory)
    assert (len(carrier.created), free.asked, carrier.problems) == (19, 19, [])


async def test_a_claim_that_is_refused_keeps_its_pod_back() -> None:
    kube = FakeKube(quota=0)
    carrier = await carried(CreateClaim("scratch-workers-0", 0, pod="workers-0"), CreatePod("workers-0", 0), kube=kube)
    assert (kube.asked, kube.made) == (1, [])
    assert "1 worker waits" in carrier.problems[0].message


async def test_a_name_that_is_taken_is_asked_for_once_a_minute_and_keeps_no_other_back() -> None:
    memory, taken = Memory(), FakeKube(taken_by="another")
    await carried(CreatePod("workers-0", 0), kube=taken, memory=memory)
    free = FakeKube()
    carrier = await carried(CreatePod("workers-0", 0), CreatePod("workers-1", 1), kube=free, memory=memory)
    assert (free.made, [one.reason for one in carrier.problems]) == (["workers-1"], ["NameTaken"])
    assert memory.lately_taken(time.monotonic() + TAKEN_SECONDS + 1) == {}


@given(st.integers(0, 5000))
def test_a_slow_start_has_all_in_their_order(count: int) -> None:
    parts = [list(part) for part in slow_start(range(count))]
    assert [one for part in parts for one in part] == list(range(count))
    assert all(len(part) == 2**number for number, part in enumerate(parts[:-1]))


def test_refusals_are_farther_and_farther_apart_up_to_a_limit() -> None:
    creation, now, waits = Creation(), 100.0, []
    for _ in range(12):
        creation.was_refused("no", 3, now)
        waits.append(creation.waits(now))
        now += waits[-1] + 0.001
        assert not creation.waits(now)
    assert waits[0] <= BACKOFF.first and BACKOFF.most / 2 <= min(waits[-3:]) <= max(waits) <= BACKOFF.most
    creation.went_well()
    assert (creation.waits(0.0), creation.trouble) == (0.0, None)


async def test_nothing_is_done_once_another_process_leads() -> None:
    kube, cluster = FakeKube(), FakeCluster([in_slurm("workers-0", "IDLE", "DRAIN", reason=OURS)])
    await carried(
        FREE, CreatePod("workers-1", 1), Drain(("workers-0",), "x"), Resume(("workers-0",)), kube=kube, cluster=cluster, leads=False
    )
    assert (kube.deleted, kube.made, cluster.nodes_told.told) == ([], [], [])


def test_what_is_not_seen_within_its_time_is_forgotten() -> None:
    memory = Memory()
    memory.created("workers-0", 0.0)
    memory.deleted("u1", 0.0)
    assert memory.unseen_creations({}, 1.0) == {"workers-0"}
    assert memory.unseen_deletions({"u1"}, 1.0) == {"u1"}
    assert memory.is_waiting
    assert memory.unseen_creations({}, UNSEEN_SECONDS + 1) == frozenset()
    assert memory.unseen_deletions({"u1"}, UNSEEN_SECONDS + 1) == frozenset()
    assert not memory.is_waiting
