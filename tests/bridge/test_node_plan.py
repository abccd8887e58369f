"""The registration's plan, tried on generated histories against a Slurm of few words: nodes are labelled and unlabelled, change, are drained by people, get jobs, and the bridge dies half-way. At no moment
may a rule be broken, and when nothing more happens everything must come to rest as Kubernetes wants it."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slinky.bridge.node_description import Hybrid, Unregistrable, Wanted, Wish
from slinky.bridge.node_mark import birth_reason, mark_for, owner_of
from slinky.bridge.node_plan import (
    Create,
    Delete,
    Down,
    Drain,
    Mark,
    NodeAction,
    NodeSnapshot,
    Refuse,
    Regroup,
    Resume,
    Undrain,
    Update,
    Wait,
    has_same_shape,
    plan_node,
)
from slinky.bridge.node_reasons import LEAVING, OURS, RENEWING
from slinky.slurm import Node, NodeDescription, NodeGres

CLUSTER = "c1"
MARK = mark_for(CLUSTER)


def described(cpus: int = 8, feature: str = "bridge", gpus: int = 0, address: str = "10.0.0.1", topology: str = "") -> NodeDescription:
    gres = [NodeGres(name="gpu", count=gpus)] if gpus else []
    return NodeDescription(name="n", address=address, cpus=cpus, real_memory=1000, features=[feature], gres=gres, topology=topology)


def in_slurm(wanted: NodeDescription | None = None, *states: str, **fields: Any) -> Node:
    wanted = wanted or described()
    made = Node(
        name="n",
        node_states=list(states or ("IDLE", "EXTERNAL", "DYNAMIC_NORM")),
        address=wanted.address,
        cpus=wanted.cpus or 0,
        real_memory=wanted.real_memory or 0,
        features=wanted.features,
        gres=",".join(gres.words()[0] for gres in wanted.gres),
    )
    return msgspec.structs.replace(made, **({"extra": MARK} | fields))


def plan_for(wish: Wish, found: Node | None, **more: Any) -> NodeAction | None:
    return plan_node(NodeSnapshot(name="n", wish=wish, found=found, cluster=CLUSTER, **more))


IDLE = ("IDLE", "EXTERNAL")
BUSY = ("MIXED", "EXTERNAL")
DRAINED = ("IDLE", "EXTERNAL", "DRAIN")
DRAINING = ("ALLOCATED", "EXTERNAL", "DRAIN")
LEAVES, RENEWS = f"{LEAVING} x", f"{RENEWING} x"


def test_a_node_that_is_wanted_is_made_and_then_left_alone() -> None:
    assert plan_for(Wanted(described()), None) == Create(described())
    assert plan_for(Wanted(described()), in_slurm()) is None
    assert plan_for(None, None) is None


def test_one_born_without_its_mark_is_marked_before_anything_else() -> None:
    born = in_slurm(None, *IDLE, extra="", reason=birth_reason(CLUSTER))
    for wish in (Wanted(described()), Wanted(described(cpus=4)), None, Unregistrable("no")):
        assert plan_for(wish, born) == Mark(MARK)


def test_a_node_that_leaves_is_drained_waited_for_and_deleted() -> None:
    assert isinstance(plan_for(None, in_slurm(None, *BUSY)), Drain)
    assert isinstance(plan_for(None, in_slurm(None, *DRAINING, reason=LEAVES)), Wait)
    assert isinstance(plan_for(None, in_slurm(None, "IDLE", "EXTERNAL", "DRAIN", "COMPLETING", reason=LEAVES)), Wait)
    assert isinstance(plan_for(None, in_slurm(None, *DRAINED, reason=LEAVES), named=True), Wait)
    assert plan_for(None, in_slurm(None, *DRAINED, reason=LEAVES)) == Delete(again=False)
    assert plan_for(None, in_slurm(None, *DRAINED, reason="admin")) == Delete(again=False)
    assert plan_for(None, in_slurm(None, "DOWN", "EXTERNAL")) == Delete(again=False)
    cordoned = plan_for(None, in_slurm(None, *DRAINING, reason=f"{OURS} cordoned in Kubernetes"))
    assert isinstance(cordoned, Drain) and cordoned.reason.startswith(LEAVING), "an uncordon must not bring it back while it leaves"


def test_wanted_again_only_our_drain_is_undone() -> None:
    for reason in (LEAVES, RENEWS):
        assert plan_for(Wanted(described()), in_slurm(None, *DRAINING, reason=reason)) == Undrain()
    for reason in ("broken fan", f"{OURS} cordoned", ""):
        assert plan_for(Wanted(described()), in_slurm(None, *DRAINED, reason=reason)) is None


def test_after_a_change_of_features_slurm_reckons_the_partitions_anew_before_the_node_is_used_again() -> None:
    """Also by the next process: the mark says that it has not been done."""
    changed = msgspec.structs.replace(in_slurm(), extra=mark_for(CLUSTER, "topo-switch:s1", ungrouped=True))
    wish = Wanted(described(topology="topo-switch:s1"))
    assert plan_for(wish, changed) == Regroup(mark_for(CLUSTER, "topo-switch:s1"))
    action = plan_for(Wanted(described(topology="topo-switch:s2")), changed)
    assert isinstance(action, Update)
    assert action.change.extra == mark_for(CLUSTER, "topo-switch:s2", ungrouped=True)


def test_features_address_and_topology_change_in_place_also_under_jobs() -> None:
    action = plan_for(Wanted(described(feature="gpu", address="10.0.0.2", topology="topo-switch:s1")), in_slurm(None, *BUSY))
    assert isinstance(action, Update)
    change = action.change
    assert change.features == change.features_act == ["gpu"]
    assert (change.address, change.topology_str, change.extra) == (
        ["10.0.0.2"],
        "topo-switch:s1",
        mark_for(CLUSTER, "topo-switch:s1", ungrouped=True),
    )
    assert plan_for(Wanted(described(topology="t")), in_slurm(extra=mark_for(CLUSTER, "t"), topology="in Slurm's words")) is None


def test_another_shape_is_made_anew_when_its_jobs_have_ended() -> None:
    smaller, larger = Wanted(described(cpus=4)), Wanted(described(cpus=16, gpus=8))
    assert isinstance(plan_for(smaller, in_slurm()), Drain)
    assert isinstance(plan_for(smaller, in_slurm(None, *BUSY)), Drain)
    assert plan_for(larger, in_slurm(None, *BUSY)) == Wait("free", "it has grown, and its jobs have not ended")
    assert isinstance(plan_for(smaller, in_slurm(None, *DRAINING, reason=RENEWS)), Wait)
    assert isinstance(plan_for(smaller, in_slurm(None, *DRAINED, reason=RENEWS), named=True), Wait)
    assert plan_for(smaller, in_slurm(None, *DRAINED, reason=RENEWS)) == Delete(again=True)
    waiting = plan_for(smaller, in_slurm(), may_renew=False)
    assert isinstance(waiting, Wait) and waiting.until == "room"
    held_back = plan_for(smaller, in_slurm(None, *DRAINED, reason="broken fan"))
    assert isinstance(held_back, Wait) and held_back.until == "resumed" and "broken fan" in held_back.why


@pytest.mark.parametrize(
    ("written", "same"),
    [("gpu:8", True), ("gpu:8(S:0-1)", True), ("gpu:h100:8", False), ("gpu:4", False), ("", False), ("gpu:8,nic:1", False)],
)
def test_gres_are_compared_as_slurm_writes_them(written: str, same: bool) -> None:
    assert has_same_shape(in_slurm(gres=written), described(gpus=8)) is same


def test_thousands_of_gres_are_read() -> None:
    wanted = described()
    wanted.gres = [NodeGres(name="shard", type="big", count=4096)]
    assert has_same_shape(in_slurm(gres="shard:big:4K"), wanted)


@pytest.mark.parametrize(
    "foreign",
    [
        in_slurm(extra="", cpus=99),  # registered by hand
        in_slurm(extra=mark_for("c2")),
        in_slurm(extra="", reason=birth_reason("c2")),
        in_slurm(extra='{"rack": 4}'),
        in_slurm(None, "IDLE", "DYNAMIC_NORM"),  # it has a slurmd, whatever its mark says
        in_slurm(None, "DOWN", "NOT_RESPONDING", extra=""),
    ],
)
def test_others_nodes_are_left_alone_and_the_name_is_refused(foreign: Node) -> None:
    assert isinstance(plan_for(Wanted(described()), foreign), Refuse)
    assert isinstance(plan_for(Unregistrable("no"), foreign), Refuse)
    assert plan_for(None, foreign) is None
    assert plan_for(Hybrid("n"), foreign) is None


def test_an_external_node_that_nobody_marked_is_taken_over_only_if_it_is_just_what_is_wanted() -> None:
    unmarked = in_slurm(extra="")
    assert plan_for(Wanted(described()), unmarked) == Mark(MARK)
    for other in (described(cpus=4), described(feature="x"), described(gpus=1), described(address="10.9.9.9")):
        refused = plan_for(Wanted(other), unmarked)
        assert isinstance(refused, Refuse) and "was not registered by this bridge and has other" in refused.why
    assert plan_for(None, unmarked) is None


def test_a_registered_node_that_cannot_be_described_any_more_stays_and_is_told_of() -> None:
    assert plan_for(Unregistrable("no"), in_slurm(None, *BUSY)) == Refuse("no")
    assert plan_for(Unregistrable("no"), in_slurm(None, *DRAINED, reason=LEAVES)) == Delete(again=False)


def test_one_that_something_is_against_is_drained_before_it_is_in_any_partition() -> None:
    """Slurm makes no node drained, and gives it jobs at once."""
    wanted, hold = Wanted(described()), f"{OURS} occupied: x"
    made = plan_for(wanted, None, hold=hold)
    assert isinstance(made, Create)
    assert made.description.features == []
    bare = msgspec.structs.replace(described(), features=[])
    assert plan_for(wanted, in_slurm(bare), hold=hold) == Drain(hold)
    update = plan_for(wanted, in_slurm(bare, *DRAINED, reason=hold), hold=hold)
    assert isinstance(update, Update) and update.change.features == ["bridge"]
    assert plan_for(wanted, in_slurm(None, *DRAINED, reason=hold), hold=hold) is None
    assert plan_for(wanted, in_slurm(None, *DRAINED, reason=RENEWS), hold=hold) == Drain(hold), "not in use in between"


def test_a_node_that_kubernetes_has_lost_is_put_down_so_that_its_jobs_let_it_go() -> None:
    draining = in_slurm(None, *DRAINING, reason=LEAVES)
    assert isinstance(plan_for(None, draining), Wait), "somebody may have made it anew in a moment"
    assert isinstance(plan_for(None, in_slurm(None, *BUSY), lost=True), Drain)
    down = plan_for(None, draining, lost=True)
    assert isinstance(down, Down) and down.reason.startswith(LEAVING)
    assert plan_for(None, in_slurm(None, "DOWN", "EXTERNAL", "DRAIN", reason=LEAVES), lost=True) == Delete(again=False)
    assert plan_for(Wanted(described()), in_slurm(None, "DOWN", "EXTERNAL", "DRAIN", reason=LEAVES)) == Resume(), "it is there again"


def test_other_sockets_or_threads_are_another_shape() -> None:
    wanted = described()
    wanted.sockets_per_board, wanted.cores_per_socket, wanted.threads_per_core = 2, 4, 1
    assert has_same_shape(in_slurm(sockets=2, threads=1), wanted)
    assert not has_same_shape(in_slurm(sockets=1, threads=1), wanted)
    assert not has_same_shape(in_slurm(sockets=2, threads=2), wanted)
    assert has_same_shape(in_slurm(sockets=2, threads=1), described()), "sockets that nobody asks for are no reason to make it anew"


def test_a_hybrid_node_is_never_touched() -> None:
    for found in (None, in_slurm(), in_slurm(None, *DRAINED, reason=LEAVES), in_slurm(extra="")):
        assert plan_for(Hybrid("n"), found) is None


class History(RuleBasedStateMachine):
    """One name in a Slurm that does what real ones were seen to do: any change takes away the reason of a node that is not drained; a busy node is not deleted; EXTERNAL nodes are born idle."""

    @initialize(
        foreign=st.sampled_from(["", "by hand", "slurmd", "c2", "same"]),
        wish=st.sampled_from([None, Wanted(described())]),
    )
    def begin(self, foreign: str, wish: Wish) -> None:
        self.wish = wish
        self.found: Node | None = {
            "": None,
            "by hand": in_slurm(described(cpus=99), *IDLE, extra=""),
            "slurmd": in_slurm(None, "IDLE", extra=""),
            "c2": in_slurm(None, *IDLE, extra=mark_for("c2")),
            "same": in_slurm(None, *IDLE, extra=""),
        }[foreign]
        self.foreign = self.found if foreign in ("by hand", "slurmd", "c2") else None
        self.jobs = 0
        self.named = False

    # What the world does

    @rule(wish=st.sampled_from([None, Unregistrable("no"), Hybrid("n"), *(Wanted(described(c, f)) for c in (4, 8) for f in "ab")]))
    def kubernetes_changes(self, wish: Wish) -> None:
        self.wish = wish

    @rule()
    @precondition(lambda self: self.found and "DRAIN" not in self.found.states and "DOWN" not in self.found.states and self.jobs < 2)
    def a_job_starts(self) -> None:
        self.jobs += 1

    @rule()
    @precondition(lambda self: self.jobs)
    def a_job_ends(self) -> None:
        self.jobs -= 1

    @rule(named=st.booleans())
    def a_job_names_it(self, named: bool) -> None:
        self.named = named

    @rule()
    @precondition(lambda self: self.found and not self.foreign)
    def somebody_drains_it(self) -> None:
        self.drain("broken fan")

    @rule()
    @precondition(lambda self: self.found and not self.foreign)
    def somebody_resumes_it(self) -> None:
        self.undrain()

    @rule()
    def slurm_forgets_everything(self) -> None:
        self.found = self.foreign = None
        self.jobs = 0

    @rule(lost=st.booleans())
    def the_bridge_takes_a_step(self, lost: bool) -> None:
        self.step(half=lost)

    # What the bridge does

    def step(self, *, half: bool = False) -> bool:
        action = plan_for(self.wish, self.seen(), named=self.named)
        found, drained_by_others = self.found, self.is_drained_by_others()
        if action is None or isinstance(action, Refuse | Wait):
            return False
        assert not isinstance(self.wish, Hybrid)
        assert self.foreign is None, f"{action} touches somebody else's node"
        match action:
            case Create(description):
                assert found is None
                self.found = in_slurm(description, *IDLE, extra="" if half else MARK, reason=birth_reason(CLUSTER) if half else "")
            case Mark(mark):
                self.change(extra=mark)
            case Update(change):
                assert change.features
                self.change(features=change.features)
            case Drain(reason):
                self.drain(reason)
            case Undrain():
                assert not drained_by_others
                self.undrain()
            case Delete(again):
                assert not self.jobs, "a busy node is deleted"
                assert not self.named
                assert not (again and drained_by_others)
                self.found = None
        return True

    def seen(self) -> Node | None:
        if self.found is None:
            return None
        base = "MIXED" if self.jobs else "IDLE"
        return msgspec.structs.replace(self.found, node_states=[base, *self.found.states[1:]])

    def is_drained_by_others(self) -> bool:
        return self.found is not None and "DRAIN" in self.found.states and not self.found.reason.startswith(OURS)

    def change(self, **fields: Any) -> None:
        assert self.found
        reason = self.found.reason if "DRAIN" in self.found.states else ""
        self.found = msgspec.structs.replace(self.found, reason=reason, **fields)

    def drain(self, reason: str) -> None:
        assert self.found
        states = [word for word in self.found.states if word != "DRAIN"]
        self.found = msgspec.structs.replace(self.found, node_states=[*states, "DRAIN"], reason=reason)

    def undrain(self) -> None:
        assert self.found
        states = [word for word in self.found.states if word != "DRAIN"]
        self.found = msgspec.structs.replace(self.found, node_states=states, reason="")

    # What must hold

    @invariant()
    def others_nodes_are_as_they_were(self) -> None:
        if self.foreign is not None:
            assert self.found == self.foreign

    def teardown(self) -> None:
        """No job is left and nobody drains any more: it comes to rest, as Kubernetes wants it."""
        if not hasattr(self, "found"):
            return
        self.jobs, self.named = 0, False
        if self.is_drained_by_others() and not self.foreign:
            self.undrain()
        for _ in range(8):
            if not self.step():
                break
        else:
            pytest.fail("it does not come to rest")
        if self.foreign is not None or isinstance(self.wish, Hybrid | Unregistrable):
            return
        ours = self.found is not None and owner_of(self.found, CLUSTER) == "ours"
        if isinstance(self.wish, Wanted):
            refused = isinstance(plan_for(self.wish, self.seen()), Refuse)  # unmarked, and no longer what is wanted
            assert refused or (
                ours and self.found and has_same_shape(self.found, self.wish.description) and "DRAIN" not in self.found.states
            )
        else:
            assert not ours, "a node of ours is left over"


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=300, stateful_step_count=25, deadline=None)


def test_what_slurm_left_out_when_it_made_the_node_is_told_and_not_tried_again() -> None:
    wanted = described(gpus=4)
    wanted.gres = [*wanted.gres, NodeGres(name="fpga", count=2)]
    born = in_slurm(None, *IDLE, gres="gpu:4", extra="", reason=birth_reason(CLUSTER))
    marked = plan_for(Wanted(wanted), born)
    assert marked == Mark(mark_for(CLUSTER, gres=["fpga", "gpu"]))
    found = in_slurm(gres="gpu:4", extra=marked.mark)
    told = plan_for(Wanted(wanted), found)
    assert isinstance(told, Refuse)
    assert "registered without fpga" in told.why
    assert "GresTypes" in told.why
    assert plan_for(Wanted(described(gpus=4)), found) is None, "it is not asked for any more"
    wanted.gres = [NodeGres(name="gpu", count=2), NodeGres(name="fpga", count=2)]
    assert isinstance(plan_for(Wanted(wanted), found), Drain), "the rest of it has changed"


def test_a_gres_that_came_after_the_node_was_made_is_no_such_thing() -> None:
    wanted = described(gpus=4)
    wanted.gres = [*wanted.gres, NodeGres(name="hca", count=2)]
    assert isinstance(plan_for(Wanted(wanted), in_slurm(gres="gpu:4")), Drain)
