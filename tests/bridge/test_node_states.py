"""Nodes' states on both sides, tried on generated histories: people cordon and uncordon, drain and resume, nodes become not ready and come back, the bridge is started again, Slurm forgets. Whatever happens, nobody's act but the bridge's own is undone, whoever
takes back what the bridge did has the last word, and it all comes to rest."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slinky.bridge.keys import CORDONED_FOR_SLURM, EXTERNAL_NODE, OVERRULED, SLURM_NODE_NAME
from slinky.bridge.node_look import NodeLook
from slinky.bridge.node_mark import birth_reason, mark_for
from slinky.bridge.node_mirror import Mirror, MirrorSnapshot, plan_mirror
from slinky.bridge.node_names import NodeNames
from slinky.bridge.node_plan import Down, Drain, Resume, Undrain
from slinky.bridge.node_reasons import CORDONED, FLAPPING, LEAVING, NOT_READY, OCCUPIED, OURS, OUT_OF_SERVICE, RENEWING, is_by_others
from slinky.bridge.node_settings import NodeSettings
from slinky.bridge.node_states import Cause, Overruled, StateSnapshot, Trouble, cause_of, plan_state
from slinky.bridge.node_troubles import Troubles
from slinky.bridge.settings import Settings
from slinky.kube import Node as KubeNode
from slinky.kube.objects import Taint
from slinky.slurm import Node

SETTINGS = Settings(partition="bridge", nodes=NodeSettings(not_ready_seconds=40, flap_changes=6, flap_seconds=600, taint="none"))
SHUT_DOWN = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


def a_node(
    *, cordoned: bool = False, ready: bool = True, annotations: dict[str, str] | None = None, hybrid: bool = False, shut_down: bool = False
) -> KubeNode:
    labels = {SLURM_NODE_NAME: "n"} if hybrid else {EXTERNAL_NODE: ""}
    status = {
        "allocatable": {"cpu": "8", "memory": "1000Mi"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    spec = {"unschedulable": cordoned, "taints": [SHUT_DOWN] if shut_down else []}
    return msgspec.convert(
        {"metadata": {"name": "n", "labels": labels, "annotations": annotations or {}}, "spec": spec, "status": status}, KubeNode
    )


def in_slurm(*states: str, reason: str = "", **more: Any) -> Node:
    fields: dict[str, Any] = {"extra": mark_for("c1"), "features": ["bridge"], "cpus": 8, "real_memory": 1000, "address": "10.0.0.1"}
    return Node(name="n", node_states=list(states or ("IDLE", "EXTERNAL")), reason=reason, **(fields | more))


CORDON = Cause(CORDONED, " in Kubernetes")


def state(found: Node, cause: Cause | None, **more: bool) -> object:
    return plan_state(StateSnapshot(found=found, cause=cause, **more))


# Kubernetes → Slurm


def test_what_is_against_a_node_is_said_in_the_order_of_its_weight() -> None:
    everything = Trouble(not_ready=True, flapping=True, occupied=True, deserted=True)
    assert cause_of(a_node(shut_down=True), everything) == Cause(OUT_OF_SERVICE, " in Kubernetes", down=True)
    deserted = cause_of(a_node(cordoned=True), everything)
    assert deserted and deserted.down
    for trouble, cordoned, kind in (
        (Trouble(not_ready=True, occupied=True), True, OCCUPIED),
        (Trouble(not_ready=True, flapping=True), True, CORDONED),
        (Trouble(not_ready=True, flapping=True), False, FLAPPING),
        (Trouble(not_ready=True), False, NOT_READY),
    ):
        found = cause_of(a_node(cordoned=cordoned), trouble)
        assert found and found.kind == kind and not found.down
    assert cause_of(a_node(), Trouble()) is None


def test_a_cordon_that_the_bridge_made_for_slurm_is_nothing_against_the_node() -> None:
    assert cause_of(a_node(cordoned=True, annotations={CORDONED_FOR_SLURM: "DRAIN: fan"}), Trouble()) is None


def test_a_cordoned_node_is_drained_and_in_use_again_after_it() -> None:
    assert state(in_slurm(), CORDON) == Drain(f"{CORDONED} in Kubernetes")
    drained = in_slurm("MIXED", "EXTERNAL", "DRAIN", reason=CORDON.reason)
    assert state(drained, CORDON) is None
    assert state(drained, None) == Undrain()


def test_a_drain_by_somebody_else_is_left_as_it_is() -> None:
    for found in (
        in_slurm("IDLE", "EXTERNAL", "DRAIN", reason="fan"),
        in_slurm("DOWN", "EXTERNAL", reason="fan"),
        in_slurm("IDLE", "DRAIN", reason="Kill task failed"),
        in_slurm("IDLE", "EXTERNAL", "FAIL"),
    ):
        assert state(found, CORDON) is None
        assert state(found, None) is None


def test_who_resumes_what_the_bridge_drained_has_the_last_word() -> None:
    assert state(in_slurm(), CORDON, was_ours=True) == Overruled()
    assert state(in_slurm(), CORDON, overruled=True) is None


def test_a_node_that_the_registration_removes_or_makes_anew_is_not_resumed_meanwhile() -> None:
    """What the original did: drain to remove it, and undrain in the same breath."""
    for reason in (LEAVING, RENEWING):
        found = in_slurm("MIXED", "EXTERNAL", "DRAIN", reason=f"{reason} x")
        assert state(found, None, registering=True) is None
        assert state(found, CORDON, registering=True) is None


def test_only_what_cannot_go_on_is_put_down_and_never_a_node_with_a_slurmd() -> None:
    out = Cause(OUT_OF_SERVICE, " in Kubernetes", down=True)
    assert state(in_slurm(), out) == Down(out.reason)
    assert state(in_slurm("MIXED", "EXTERNAL", "DRAIN", reason=f"{NOT_READY} x"), out) == Down(out.reason)
    assert state(in_slurm("IDLE"), out, hybrid=True) == Drain(out.reason)
    down = in_slurm("DOWN", "EXTERNAL", reason=out.reason)
    assert state(down, out) is None
    assert state(down, Cause(NOT_READY, "")) is None, "it stays down until nothing is against it"
    assert state(down, None) == Resume()
    assert state(in_slurm("DOWN", "DRAIN", reason=CORDON.reason), None, hybrid=True) == Undrain()


def test_a_node_with_a_slurmd_that_went_down_while_it_was_drained_is_not_undrained_again_and_again() -> None:
    """Slurm leaves the reason of the drain where it is."""
    down = in_slurm("DOWN", "NOT_RESPONDING", reason=CORDON.reason, extra="")
    assert state(down, None, hybrid=True) is None
    assert is_by_others(down)
    assert not is_by_others(in_slurm("DOWN", "DRAIN", reason=CORDON.reason, extra=""))


def test_what_the_original_drained_is_taken_over_with_its_nodes() -> None:
    """Its reasons begin as ours, and it undoes them itself, as long as it runs."""
    drained = in_slurm("IDLE", "EXTERNAL", "DRAIN", reason=f"{OURS} Node is cordoned")
    assert state(drained, None) == Undrain()
    assert state(drained, CORDON) == Drain(CORDON.reason)
    assert not is_by_others(drained)
    born = in_slurm("DOWN", "EXTERNAL", reason=birth_reason("c1"))
    assert state(born, None) is None


def test_a_node_of_the_sites_without_features_is_not_taken_for_one_that_is_being_made() -> None:
    troubles = Troubles(SETTINGS.nodes, lambda _: ("team/pod",), lambda *_: None)
    node = a_node()
    troubles.node_seen("n", node)
    assert troubles.cause("n", node, in_slurm("MIXED", features=[], extra="")) is None
    made = troubles.cause("n", node, in_slurm("IDLE", "EXTERNAL", features=[]))
    assert made is not None and made.kind == OCCUPIED


# Slurm → Kubernetes


def mirror(node: KubeNode, found: Node | None, **more: Any) -> Mirror | None:
    return plan_mirror(MirrorSnapshot(node=node, found=found, scheduler="s", **more))


DRAINED = in_slurm("IDLE", "EXTERNAL", "DRAIN", reason="fan", reason_set_by_user="root")
WORDS = "DRAIN: fan (root)"


def test_a_drain_by_somebody_else_cordons_with_the_reason_in_annotation_and_condition() -> None:
    found = mirror(a_node(), DRAINED)
    assert found is not None and found.cordon
    assert found.annotations == {CORDONED_FOR_SLURM: WORDS}
    assert found.condition == ("False", "Drained", f"Slurm gives no jobs to it: {WORDS}")
    assert found.spec == {"spec": {"unschedulable": True}, "metadata": {"annotations": {CORDONED_FOR_SLURM: WORDS}}}
    down = mirror(a_node(), in_slurm("DOWN", "EXTERNAL", reason="dead"))
    assert down is not None and down.cordon and down.condition and down.condition[1] == "Down"


def test_what_the_bridge_drained_itself_is_not_cordoned() -> None:
    for reason in (CORDON.reason, f"{LEAVING} x", f"{OURS} something else"):
        assert mirror(a_node(), in_slurm("IDLE", "EXTERNAL", "DRAIN", reason=reason)) is None
    flapping = mirror(a_node(), in_slurm("IDLE", "EXTERNAL", "DRAIN", reason=f"{FLAPPING}: x"))
    assert flapping is not None and flapping.cordon is None
    assert flapping.condition and flapping.condition[0] == "False"


def test_a_node_that_slurm_cannot_reach_is_told_of_and_not_cordoned() -> None:
    found = mirror(a_node(), in_slurm("IDLE", "EXTERNAL", "NOT_RESPONDING"))
    assert found == Mirror(condition=("False", "NotResponding", "Slurm gives no jobs to it: NOT_RESPONDING: no reason given"))


def test_only_a_cordon_of_the_bridges_own_is_taken_back() -> None:
    marked = {CORDONED_FOR_SLURM: WORDS}
    over = mirror(a_node(cordoned=True, annotations=marked), in_slurm())
    assert over is not None and over.cordon is False
    assert over.annotations == {CORDONED_FOR_SLURM: None}
    assert mirror(a_node(cordoned=True), in_slurm()) is None
    assert mirror(a_node(cordoned=True), DRAINED) == Mirror(condition=("False", "Drained", f"Slurm gives no jobs to it: {WORDS}"))


def test_who_uncordons_what_the_bridge_cordoned_has_the_last_word_until_slurm_uses_it_again() -> None:
    uncordoned = mirror(a_node(annotations={CORDONED_FOR_SLURM: WORDS}), DRAINED)
    assert uncordoned is not None and uncordoned.cordon is None
    assert uncordoned.annotations == {CORDONED_FOR_SLURM: None, OVERRULED: "uncordoned"}
    node = a_node(annotations={OVERRULED: "uncordoned"})
    left = mirror(node, DRAINED)
    assert left is not None and left.cordon is None and not left.annotations
    again = mirror(node, in_slurm())
    assert again is not None and again.annotations == {OVERRULED: None}
    his = mirror(a_node(cordoned=True, annotations={OVERRULED: "uncordoned"}), in_slurm())
    assert his is not None and his.cordon is None, "the cordon that he made later is his"


def test_the_taint_is_kept_beside_others_changed_with_the_settings_and_taken_away_at_the_end() -> None:
    other, ours = Taint("gpu", "yes", "NoSchedule"), Taint("slinky.slurm.net/managed-node", "s", "NoSchedule")
    theirs = Taint("slinky.slurm.net/managed-node", "another", "NoExecute")

    def tainted(*taints: Taint) -> KubeNode:
        node = a_node()
        return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))

    def taints(node: KubeNode, effect: Any) -> tuple[Taint, ...] | None:
        found = mirror(node, in_slurm(), taint=effect)
        return found.taints if found else None

    assert taints(tainted(other, theirs), "NoSchedule") == (other, theirs, ours)
    assert taints(tainted(other, ours), "NoSchedule") is None
    assert taints(tainted(ours), "NoExecute") == (Taint(ours.key, "s", "NoExecute"),)
    assert taints(tainted(ours, other), "none") == (other,)
    assert taints(tainted(ours), None) is None
    found = mirror(tainted(ours), in_slurm(), taint="none")
    assert found is not None and found.spec == {"spec": {"taints": None}}
    silent = msgspec.convert({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-11-15T19:00:00Z"}, Taint)
    found = mirror(tainted(silent), in_slurm(), taint="NoSchedule")
    assert found is not None
    assert found.spec["spec"]["taints"][0] == {"key": silent.key, "value": "", "effect": "NoExecute", "timeAdded": "2026-11-15T19:00:00Z"}
    timed = msgspec.structs.replace(ours, time_added="2026-11-15T19:00:00Z")
    assert taints(tainted(timed), "NoSchedule") is None


class History(RuleBasedStateMachine):
    """One node that both sides have. `cordon_by` and `drain_by` tell whose they are in truth; the bridge has to find out from what stands on the two objects."""

    @initialize(hybrid=st.booleans())
    def begin(self, hybrid: bool) -> None:
        self.hybrid = hybrid
        self.cordon_by = self.drain_by = ""
        self.lifted = self.resumed = False  # somebody took back what the bridge did, and what it did it for is not over
        self.annotations: dict[str, str] = {}
        self.ready, self.shut_down = True, False
        self.slurm = self.base()
        self.now = 0.0
        self.start()

    def base(self) -> Node:
        return in_slurm("IDLE") if self.hybrid else in_slurm()

    def start(self) -> None:
        self.troubles = Troubles(SETTINGS.nodes, lambda _: (), lambda *_: None, lambda: self.now)
        self.registry = SimpleNamespace(held={})
        renewals = SimpleNamespace(same=lambda _: None)
        self.view = NodeLook(SETTINGS, "c1", self.registry, SimpleNamespace(), renewals, self.troubles, NodeNames())  # type: ignore[arg-type]
        self.step()

    # What people and machines do; the bridge sees each of it

    @rule()
    def somebody_cordons(self) -> None:
        if not self.cordon_by:  # kubectl does nothing to a node that is cordoned
            self.cordon_by = "somebody"
        self.step()

    @rule()
    def somebody_uncordons(self) -> None:
        if self.cordon_by == "bridge":
            self.lifted = True
        self.cordon_by = ""
        self.step()

    @rule(states=st.sampled_from([["IDLE", "DRAIN"], ["DOWN"], ["IDLE", "FAIL"]]))
    def somebody_drains(self, states: list[str]) -> None:
        self.drain_by = "somebody"
        self.slurm = msgspec.structs.replace(self.slurm, node_states=states + self.external(), reason="fan")
        self.step()

    @rule()
    def somebody_resumes(self) -> None:
        if self.drain_by == "bridge":
            self.resumed = True
        self.use()
        self.step()

    @rule(ready=st.booleans(), seconds=st.sampled_from([1.0, 50.0, 1000.0]))
    def the_kubelet_comes_or_goes(self, ready: bool, seconds: float) -> None:
        self.ready = ready
        self.step()
        self.now += seconds
        self.step()

    @rule(shut_down=st.booleans())
    def it_is_shut_down_or_started(self, shut_down: bool) -> None:
        self.shut_down = shut_down
        self.step()

    @rule()
    def slurm_comes_back_as_it_was_long_ago(self) -> None:
        self.troubles.slurm_was_away()
        self.use()
        self.step()

    @rule()
    def the_bridge_is_started_again(self) -> None:
        self.start()

    @rule()
    def the_bridge_looks(self) -> None:
        self.step()

    # What the bridge does

    def node(self) -> KubeNode:
        return a_node(
            cordoned=bool(self.cordon_by), ready=self.ready, annotations=self.annotations, hybrid=self.hybrid, shut_down=self.shut_down
        )

    def step(self) -> bool:
        """One act or write."""
        node = self.node()
        self.troubles.node_seen("n", node)
        self.registry.held = {"n": self.slurm}
        look = self.view.of("n", node)
        if isinstance(look.due, Overruled):
            self.troubles.overrule("n")
            look = self.view.of("n", node)
        if look.cause is None:
            self.resumed = False
        match look.due:
            case None:
                if not is_by_others(self.slurm):  # seen when Slurm needs nothing more
                    self.lifted = False
                shown = self.view.mirror(look, "none")
                return shown is not None and self.write(shown)
            case Drain(reason) | Down(reason):
                assert self.drain_by != "somebody", "somebody's drain is written over"
                assert not self.resumed, "somebody resumed it, and it is drained again"
                assert reason.startswith(OURS)
                assert isinstance(look.due, Drain) or self.shut_down, "DOWN for a node that is merely not ready"
                self.drain_by = "bridge"
                states = ["DOWN"] if isinstance(look.due, Down) else ["IDLE", "DRAIN"]
                self.slurm = msgspec.structs.replace(self.slurm, node_states=states + self.external(), reason=reason)
            case Undrain() | Resume():
                assert self.drain_by == "bridge", "somebody's drain is undone"
                self.troubles.taken_back("n")
                self.use()
            case other:
                pytest.fail(f"unexpected: {other}")
        self.registry.held = {"n": self.slurm}
        self.view.of("n", node)  # after each act it is looked at again
        return True

    def write(self, shown: Mirror) -> bool:
        if shown.cordon is True:
            assert not self.cordon_by
            assert is_by_others(self.slurm), "a drain of the bridge's own cordons"
            assert not self.lifted, "somebody uncordoned it, and it is cordoned again"
            self.cordon_by = "bridge"
        elif shown.cordon is False:
            assert self.cordon_by == "bridge", "somebody's cordon is undone"
            self.cordon_by = ""
        for key, value in shown.annotations.items():
            if value is None:
                self.annotations.pop(key, None)
            else:
                self.annotations[key] = value
        return bool(shown.spec)

    def external(self) -> list[str]:
        return [] if self.hybrid else ["EXTERNAL"]

    def use(self) -> None:
        self.drain_by, self.slurm = "", self.base()

    # What must hold

    @invariant()
    def the_bridges_own_cordon_never_drains(self) -> None:
        if hasattr(self, "cordon_by") and self.cordon_by == "bridge":
            assert self.drain_by != "bridge" or not self.slurm.reason.startswith(CORDONED)

    def teardown(self) -> None:
        if not hasattr(self, "slurm"):
            return
        for _ in range(8):
            if not self.step():
                break
        else:
            pytest.fail("it does not come to rest")
        if is_by_others(self.slurm):
            assert self.cordon_by or self.lifted
        elif self.cordon_by == "somebody" or self.shut_down:
            assert self.drain_by or self.resumed
        assert self.cordon_by != "bridge" or is_by_others(self.slurm)
        if not self.cordon_by and self.drain_by != "somebody" and self.ready and not self.shut_down:
            self.now += 10_000
            while self.step():
                pass
            assert not self.annotations
            assert not self.drain_by


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=300, stateful_step_count=25, deadline=None)
