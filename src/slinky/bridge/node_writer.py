"""What a `Mirror` says, written on the Node: the thin edge of the nodes' side towards Kubernetes.

Comes in: a Node as it was judged, and the changes that it needs. Goes out: one patch of the Node and one of its status, where there is something to write. What must stay true: a Node that has changed since it was judged is not changed (the API server refuses, and it is looked at again): nobody's cordon or taint
that we have not seen is written over; few requests at a time.
"""

import asyncio
import datetime as dt
from typing import Any

from slinky.bridge.eligibility.taints import tolerates
from slinky.bridge.keys import MANAGED_NODE, NODE_CONDITION
from slinky.bridge.node_mirror import Mirror
from slinky.bridge.node_settings import TaintEffect
from slinky.bridge.node_standing import NodeStandings
from slinky.kube import NODES, PODS, Client, Node, NotFoundError, PatchKind, Pod
from slinky.kube.objects import Taint

__all__ = ["NodeWriter"]

AT_ONCE = 16


class NodeWriter:
    """`effect` is the one that the settings ask for."""

    def __init__(self, kube: Client, standings: NodeStandings, scheduler: str, effect: TaintEffect) -> None:
        self._kube, self._standings = kube, standings
        self._scheduler, self._effect = scheduler, effect
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._withheld: dict[str, str] = {}

    async def effect_for(self, node: Node) -> TaintEffect:
        """NoExecute only where it evicts no pod of a DaemonSet: those belong to the node, and would not come back."""
        taint = Taint(key=MANAGED_NODE, value=self._scheduler, effect="NoExecute")
        has = {(one.key, one.value, one.effect) for one in node.spec.taints}
        if self._effect != "NoExecute" or (taint.key, taint.value, taint.effect) in has:
            return self._effect
        name = node.metadata.name
        async with self._turns:
            pods = (await self._kube.list(PODS, fields=f"spec.nodeName={name}")).items
        evicted = sorted(str(pod.key) for pod in pods if _is_daemon(pod) and not any(tolerates(one, taint) for one in pod.spec.tolerations))
        if not evicted:
            self._withheld.pop(name, None)
            return "NoExecute"
        if self._withheld.get(name) != evicted[0]:
            self._withheld[name] = evicted[0]
            note = f"{evicted[0]} of a DaemonSet does not tolerate the taint {MANAGED_NODE}, and NoExecute would evict it: NoSchedule meanwhile"
            self._standings.say(name, "TaintWithheld", note, warning=True)
        return "NoSchedule"

    def forget(self, name: str) -> None:
        self._withheld.pop(name, None)

    async def write(self, node: Node, mirror: Mirror) -> None:
        """Raises KubeError; a Node that is gone needs nothing."""
        name, patch = node.metadata.name, mirror.spec
        try:
            async with self._turns:
                if patch:
                    patch.setdefault("metadata", {})["resourceVersion"] = node.metadata.resource_version
                    await self._kube.patch(NODES, name, patch)
                if mirror.condition is not None:
                    condition = _condition(node, mirror.condition)
                    await self._kube.patch(
                        NODES, name, {"status": {"conditions": [condition]}}, kind=PatchKind.STRATEGIC, subresource="status"
                    )
        except NotFoundError:
            return
        if mirror.said:
            self._standings.say(name, *mirror.said, warning=mirror.cordon is not False)


def _is_daemon(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" and owner.controller for owner in pod.metadata.owner_references)


def _condition(node: Node, wanted: tuple[str, ...]) -> dict[str, Any]:
    if not wanted:
        return {"type": NODE_CONDITION, "$patch": "delete"}
    status, reason, message = wanted
    has = node.condition(NODE_CONDITION)
    written: dict[str, Any] = {"type": NODE_CONDITION, "status": status, "reason": reason, "message": message}
    now = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    written["lastHeartbeatTime"] = now
    return written if has is not None and has.status == status else written | {"lastTransitionTime": now}
