"""Faults of nodes, pods and jobs, carried out on a sandbox.

Comes in: a fault, when its time has come. Goes out: the deed, its undoing after `seconds`, and a word to the journal; returned is what was struck, nothing where there was nothing to strike. What must stay true: a node that was taken away
comes back, also when the run is broken off.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from slinky.bridge.keys import EXTERNAL_NODE, JOB_ID
from slinky.kube import NODES, PODS, Client, ConflictError, InvalidError, KubeError, NotFoundError, PatchKind
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kubernetes import kwok_nodes
from tests.chaos.history import PodSeen
from tests.chaos.journal import Journal
from tests.chaos.observer import Observer
from tests.chaos.schedule import Fault

__all__ = ["Nodes"]

NOT_READY = "sandbox.slinky.slurm.net/not-ready"
TRIES = 50


class Nodes:
    """And what is on them."""

    def __init__(self, sandbox: Sandbox, kube: Client, observer: Observer, journal: Journal) -> None:
        self._sandbox, self._kube, self._observer, self._journal = sandbox, kube, observer, journal
        self._documents = {node["metadata"]["name"]: node for node in kwok_nodes(sandbox.record.shape)}
        self._busy: set[str] = set()
        self.deeds: Mapping[str, Callable[[Fault, random.Random], Awaitable[str]]] = {
            "node-deleted": self._node_deleted,
            "node-not-ready": self._node_not_ready,
            "node-down-in-slurm": lambda fault, dice: self._node_in_slurm("DOWN", fault, dice),
            "node-drained-in-slurm": lambda fault, dice: self._node_in_slurm("DRAIN", fault, dice),
            "label-edited": self._label_edited,
            "job-cancelled": self._job_cancelled,
        }

    def _take(self, name: str) -> bool:
        if name in self._busy:
            return False
        self._busy.add(name)
        return True

    async def _node_deleted(self, fault: Fault, dice: random.Random) -> str:
        name: str = dice.choice(sorted(self._documents))
        if not self._take(name):
            return ""
        try:
            self._journal.act("node-gone", name)
            await self._kube.delete(NODES, name)
            self._journal.struck(fault.kind, name, seconds=fault.seconds)
            await asyncio.sleep(fault.seconds)
        finally:
            await self._make(name)
            self._busy.discard(name)
        return name

    async def _make(self, name: str) -> None:
        """As a kubelet that comes back registers itself."""
        document = self._documents[name]
        labels = document["metadata"]["labels"] | {EXTERNAL_NODE: ""}
        whole = document | {"metadata": document["metadata"] | {"labels": labels}}

        async def create() -> None:
            await self._kube.create(NODES.untyped, whole)

        await self._again(create)
        for pod in [pod for pod in self._observer.current.values() if pod.node == name and not pod.ended]:
            await self._again(lambda pod=pod: self._fail(pod))  # type: ignore[misc]

    async def _fail(self, pod: PodSeen) -> None:
        """What a kubelet says of containers that its machine has lost; kwok says nothing."""
        lost = {"name": "c", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 137}}}
        change = {"metadata": {"uid": pod.uid}, "status": {"phase": "Failed", "reason": "NodeLost", "containerStatuses": [lost]}}
        with suppress(InvalidError, ConflictError):
            await self._kube.patch(PODS, pod.name, change, pod.namespace, kind=PatchKind.MERGE, subresource="status")

    async def label_all(self) -> None:
        for name in self._documents:
            await self._kube.patch(NODES, name, {"metadata": {"labels": {EXTERNAL_NODE: ""}}})

    async def _node_not_ready(self, fault: Fault, dice: random.Random) -> str:
        name: str = dice.choice(sorted(self._documents))
        if not self._take(name):
            return ""
        try:
            await self._kube.patch(NODES, name, {"metadata": {"annotations": {NOT_READY: "true"}}})
            self._journal.struck(fault.kind, name, seconds=fault.seconds)
            condition = {"type": "Ready", "status": "False", "reason": "Chaos", "message": "for a while"}
            await self._kube.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")
            await asyncio.sleep(fault.seconds)
        finally:
            await self._again(lambda: self._ready_again(name))
            self._busy.discard(name)
        return name

    async def _ready_again(self, name: str) -> None:
        await self._kube.patch(NODES, name, {"metadata": {"annotations": {NOT_READY: None}}})

    async def _node_in_slurm(self, state: str, fault: Fault, dice: random.Random) -> str:
        name: str = dice.choice(sorted(self._documents))
        if not self._take(name):
            return ""
        try:
            self._journal.act("node-down", name, state)
            await self._sandbox.link.run("head", "scontrol", "update", f"NodeName={name}", f"State={state}", "Reason=chaos")
            self._journal.struck(fault.kind, name, seconds=fault.seconds)
            await asyncio.sleep(fault.seconds)
        finally:
            await self._again(lambda: self._resume(name))
            self._busy.discard(name)
        return name

    async def _resume(self, name: str) -> None:
        with suppress(SandboxError):
            await self._sandbox.link.run("head", "scontrol", "update", f"NodeName={name}", "State=RESUME")

    # Pods and jobs

    async def _label_edited(self, fault: Fault, dice: random.Random) -> str:
        """By the one way that no webhook on pods sees: a write to the pod's status."""
        bound = sorted((pod for pod in self._observer.current.values() if pod.node and not pod.ended), key=lambda pod: pod.key)
        if not bound:
            return ""
        pod = dice.choice(bound)
        change = {"metadata": {"uid": pod.uid, "labels": {JOB_ID: str(dice.choice([1, 999_999]))}}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        await self._kube.raw("PATCH", path, body=change, content_type="application/merge-patch+json")
        self._journal.struck(fault.kind, pod.key)
        return pod.key

    async def _job_cancelled(self, fault: Fault, dice: random.Random) -> str:
        jobs = sorted((await self._sandbox.link.run("head", "squeue", "-h", "-o", "%A")).split())
        if not jobs:
            return ""
        job_id = dice.choice(jobs)
        self._journal.act("cancelled", job_id)
        await self._sandbox.link.run("head", "scancel", job_id)
        self._journal.struck(fault.kind, job_id)
        return job_id

    async def _again(self, deed: Callable[[], Awaitable[None]]) -> None:
        """What must be undone, until it is."""
        for _ in range(TRIES):
            try:
                await deed()
            except NotFoundError:
                return
            except (KubeError, SandboxError) as error:
                if "already exists" in str(error).lower():
                    return
                await asyncio.sleep(0.5)
            else:
                return
