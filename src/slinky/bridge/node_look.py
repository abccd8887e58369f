"""One node at one moment, on both sides: what the plans are given, and what they make of it.

Comes in: a Node, Slurm's nodes as they are held, what is against each. Goes out: the act that is due, the changes that the Node needs. What must stay true: the registration goes first, then the states, and only when Slurm needs nothing more the Node is made to show what Slurm says; nodes that are
neither ours nor have a slurmd beside their kubelet are looked at and left alone, and so are those whose name in Slurm two claim: what one of them is drained for the other would take back. What was registered for a Node that is said to have a slurmd leaves first.
"""

from typing import Literal

import msgspec

from slinky.bridge.keys import CORDONED_FOR_SLURM, NODE_CONDITION, OVERRULED
from slinky.bridge.node_description import Hybrid, Unregistrable, Wanted, Wish, wish_of
from slinky.bridge.node_mark import owner_of
from slinky.bridge.node_mirror import RESUMED, Mirror, MirrorSnapshot, overruled_of, plan_mirror
from slinky.bridge.node_names import NodeNames
from slinky.bridge.node_plan import Create, NodeAction, NodeSnapshot, Refuse, Wait, has_same_shape, plan_node
from slinky.bridge.node_reasons import NOT_READY, OCCUPIED, is_held_for
from slinky.bridge.node_registry import NodeRegistry
from slinky.bridge.node_renewals import Renewals
from slinky.bridge.node_settings import TaintEffect
from slinky.bridge.node_standing import NodeStandings
from slinky.bridge.node_states import Cause, StateAction, is_ready, plan_state
from slinky.bridge.node_troubles import Troubles
from slinky.bridge.settings import Settings
from slinky.kube import Node as KubeNode
from slinky.slurm import Node

__all__ = ["NodeLook", "Now", "needs_a_fresh_look", "noticed"]

Side = Literal["ours", "hybrid", ""]


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """`called`: its name in Slurm. `side`: registered by us, or with a slurmd of its own, or neither. `registration`: what the registration rests at. `due`: what is to be done in Slurm."""

    name: str
    called: str
    node: KubeNode | None
    wish: Wish
    found: Node | None
    side: Side
    cause: Cause | None
    registration: NodeAction | None
    due: NodeAction | StateAction | None


def noticed(node: KubeNode | None, settings: Settings) -> object:
    """What of a Node can make a difference here: a heartbeat does not."""
    if node is None:
        return None
    annotations, shown = node.metadata.annotations, node.condition(NODE_CONDITION)
    return (
        wish_of(node, settings),
        node.spec,
        is_ready(node),
        annotations.get(CORDONED_FOR_SLURM),
        annotations.get(OVERRULED),
        (shown.status, shown.reason, shown.message) if shown else None,
    )


def needs_a_fresh_look(now: Now, mirror: Mirror | None) -> bool:
    """What is held may be old. A node that should be made is told apart by Slurm itself, and for one that waits for room nothing depends on it."""
    if mirror is not None:
        return mirror.cordon is not None
    action = now.due or now.registration
    return not (action is None or isinstance(action, Create | Refuse) or (isinstance(action, Wait) and action.until == "room"))


class NodeLook:
    def __init__(
        self,
        settings: Settings,
        cluster: str,
        registry: NodeRegistry,
        standings: NodeStandings,
        renewals: Renewals,
        troubles: Troubles,
        names: NodeNames,
    ) -> None:
        self._settings, self._cluster = settings, cluster
        self._registry, self._standings, self._renewals, self._troubles = registry, standings, renewals, troubles
        self._names = names

    def called(self, name: str) -> str:
        """In Slurm, of a name in Kubernetes; "" where two claim it."""
        return self._names.in_slurm(name)

    def name_of(self, called: str) -> str:
        """In Kubernetes, of a name in Slurm, whether it has such a Node (still) or not."""
        return self._names.in_kubernetes(called) or called

    def waits_for_pods(self, name: str) -> bool:
        """Something may be due when a pod of ours on it is gone."""
        found = self._registry.held.get(self.called(name))
        return found is not None and is_held_for(found, OCCUPIED, NOT_READY)

    def of(self, name: str, node: KubeNode | None, *, named: bool = False) -> Now:
        wish, called = wish_of(node, self._settings), self.called(name)
        if not called:
            return self._disputed(name, node, wish)
        if isinstance(wish, Hybrid) and (before := self._registered_before(name, called)):
            wish, called = None, before
        found = self._registry.held.get(called)
        side = self._side(node, wish, found)
        cause = self._troubles.cause(name, node, found) if side or isinstance(wish, Wanted) else None
        registration = plan_node(
            NodeSnapshot(
                name=name,
                wish=wish,
                found=found,
                cluster=self._cluster,
                may_renew=self._may_renew(name, wish, found),
                named=named,
                hold=cause.reason if cause else "",
                lost=self._troubles.is_lost(name, node, found if side == "ours" else None),
            )
        )
        due: NodeAction | StateAction | None = None if isinstance(registration, None | Refuse | Wait) else registration
        if due is None and found is not None and side and node is not None:
            due = plan_state(self._troubles.snapshot(name, node, found, cause, registration))
        return Now(name=name, called=called, node=node, wish=wish, found=found, side=side, cause=cause, registration=registration, due=due)

    def mirror(self, now: Now, effect: TaintEffect) -> Mirror | None:
        """What its Node should show otherwise. `effect`: of its taint, if it is ours."""
        if now.node is None or not now.called or (now.found is None and isinstance(now.wish, Wanted)):  # disputed, or about to be made
            return None
        taint: TaintEffect | None = effect if now.side == "ours" else "none"
        if now.side == "hybrid" or isinstance(now.wish, Hybrid):
            taint = None
        snapshot = MirrorSnapshot(
            node=now.node,
            found=now.found if now.side else None,
            scheduler=self._settings.scheduler_name,
            taint=taint,
            troubled=now.cause is not None,
            resumed=self._troubles.is_overruled(now.name) and RESUMED not in overruled_of(now.node),
        )
        return plan_mirror(snapshot)

    def parting(self, now: Now) -> Mirror | None:
        """What a Node that is said to have a slurmd must lose before it is deleted in Slurm: afterwards nothing tells that the taint is ours."""
        if now.node is None or not isinstance(wish_of(now.node, self._settings), Hybrid):
            return None
        return plan_mirror(MirrorSnapshot(node=now.node, found=None, scheduler=self._settings.scheduler_name, taint="none"))

    def _registered_before(self, name: str, called: str) -> str:
        """Under which of its names it is an external node of ours, and a ghost; "" for none."""
        for one in (name, called):
            found = self._registry.held.get(one)
            if found is None or not found.is_external or self.name_of(one) not in (one, name):
                continue
            if owner_of(found, self._cluster) in ("ours", "born"):
                return one
        return ""

    def _disputed(self, name: str, node: KubeNode | None, wish: Wish) -> Now:
        """Left as it is, on both sides."""
        refusal: Refuse | None = None
        if isinstance(wish, Wanted | Unregistrable):
            refusal = Refuse(
                f"Node {name} is not registered or changed in Slurm: another Node says by its label that it is Slurm's node {name}"
            )
        return Now(name=name, called="", node=node, wish=wish, found=None, side="", cause=None, registration=refusal, due=None)

    def _side(self, node: KubeNode | None, wish: Wish, found: Node | None) -> Side:
        if found is None:
            return ""
        if not found.is_external:
            return "hybrid" if node is not None else ""
        return "ours" if not isinstance(wish, Hybrid) and owner_of(found, self._cluster) == "ours" else ""

    def _may_renew(self, name: str, wish: Wish, found: Node | None) -> bool:
        if not isinstance(wish, Wanted) or found is None or has_same_shape(found, wish.description):
            self._renewals.same(name)
            return False
        return self._renewals.may(name, self._standings.count("registered"))
