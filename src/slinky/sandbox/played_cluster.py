"""Clusters of the operator on kwok nodes, where no program runs in a pod: their head is the sandbox's own Slurm, and slurmd's part is played.

Comes in: a sandbox whose API server has the operator's CRDs, a namespace, NodeSets. Goes out: the objects of a cluster whose slurmctld is elsewhere; and for each worker that is ready a node in Slurm, registered through REST. Jobs on such nodes
are external ones, which run until somebody ends them. What must stay true: a worker registers once, as a slurmd does when it starts: a record that is deleted later does not come back by itself; a Slurm that fails is asked again.
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from slinky.kube import PODS, Change, Client, Pod, Reflector, Resource
from slinky.operator.kinds import GROUP, VERSION
from slinky.operator.nodesets.acts import in_order
from slinky.sandbox.handle import Sandbox
from slinky.slurm import NodeDescription, SlurmClient, SlurmError, compress

__all__ = ["NODESETS", "PlayedCluster", "played_workers"]

log = logging.getLogger(__name__)

NODESETS = Resource(GROUP, VERSION, "nodesets", dict)
IMAGE = "sandbox/slurmd:1"
WORKERS = "app.kubernetes.io/name=slurmd"
INSTANCE = "app.kubernetes.io/instance"
LOOK_SECONDS = 0.2


class PlayedCluster:
    """One namespace with one cluster, `name`."""

    def __init__(self, sandbox: Sandbox, kube: Client, namespace: str, name: str = "c") -> None:
        self.sandbox, self.kube, self.namespace, self.name = sandbox, kube, namespace, name

    async def create(self, kind: str, name: str, **spec: Any) -> None:
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}
        await self.kube.create(Resource(GROUP, VERSION, f"{kind.lower()}s", dict), body, self.namespace)

    async def create_head(self, rest_port: int | None = None) -> None:
        """The keys of the sandbox's Slurm, its address, and that it can be asked. `rest_port` is the Service's, for a `slurm.address` with `{port}` in it."""
        home = self.sandbox.head / "etc/slurm"
        keys = {"slurm.key": (home / "slurm.key").read_bytes(), "jwt.key": (home / "jwt_hs256.key").read_bytes()}
        data = {name: base64.b64encode(key).decode() for name, key in keys.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "data": data}
        await self.kube.raw("POST", f"/api/v1/namespaces/{self.namespace}/secrets", body=secret)
        refs = {f"{short}KeyRef": {"name": "keys", "key": f"{short}.key"} for short in ("slurm", "jwt")}
        head = {"host": self.sandbox.record.addresses.head, "port": 6817}
        await self.create("Controller", self.name, external=True, externalConfig=head, **refs)
        service = {"service": {"port": rest_port}} if rest_port else {}
        await self.create("RestApi", self.name, controllerRef={"name": self.name}, replicas=0, **service)

    async def nodeset(self, name: str, **spec: Any) -> None:
        await self.create("NodeSet", name, controllerRef={"name": self.name}, slurmd={"image": IMAGE}, **spec)

    async def change(self, name: str, **spec: Any) -> None:
        await self.kube.patch(NODESETS, name, {"spec": spec}, self.namespace)


@asynccontextmanager
async def played_workers(kube: Client, slurm: SlurmClient, namespace: str = "") -> AsyncIterator[None]:
    """Of one namespace, or of all."""
    coming: dict[str, Pod] = {}

    def seen(change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if new is not None and _is_up(new) and (old is None or old.metadata.uid != new.metadata.uid or not _is_up(old)):
            coming[new.metadata.uid] = new

    async def play() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            taken = dict(coming)
            if not taken:
                continue
            try:
                await _register(slurm, taken.values())
            except SlurmError as error:
                log.info("workers could not be registered, on again: %s", error)
                continue
            for uid in taken:
                coming.pop(uid, None)

    reflector = Reflector(kube, PODS, namespace=namespace, labels=WORKERS)
    reflector.cache.subscribe(seen)
    async with reflector.running():
        player = asyncio.create_task(play(), name="players of slurmd")
        try:
            yield
        finally:
            player.cancel()
            await asyncio.gather(player, return_exceptions=True)


def _is_up(pod: Pod) -> bool:
    ready = pod.condition("Ready")
    return ready is not None and ready.status == "True" and pod.metadata.deletion_timestamp is None


async def _register(slurm: SlurmClient, pods: Iterable[Pod]) -> None:
    """All workers of a NodeSet in one request."""
    there = {node.name for node in await slurm.nodes.all()}
    by_nodeset: dict[str, list[str]] = {}
    for pod in pods:
        name = pod.spec.hostname or pod.metadata.name
        if name not in there:
            by_nodeset.setdefault(pod.metadata.labels[INSTANCE], []).append(name)
    for nodeset, names in by_nodeset.items():
        await slurm.nodes.create(_described(nodeset, names))


def _described(nodeset: str, names: list[str]) -> NodeDescription:
    """As slurmd tells itself: the NodeSet is a feature."""
    return NodeDescription(
        name=compress(in_order(names)),
        address="127.0.0.1",
        cpus=4,
        boards=1,
        sockets_per_board=1,
        cores_per_socket=4,
        threads_per_core=1,
        real_memory=4096,
        features=[nodeset],
    )
