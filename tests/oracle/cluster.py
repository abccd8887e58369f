"""A made-up cluster on the sandbox's API server, and our own judge beside kube-scheduler's.

Comes in: a Maker. Goes out: its nodes, namespaces and placed pods, as real objects, changed a little whenever asked; `Surroundings` on live caches; and a comparison of verdicts. What must stay true: everything made here is taken away at
the end; a difference counts only if it stays when both sides are asked again, as kube-scheduler's caches and ours follow the API server each in its own time.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from slinky.bridge.eligibility import Surroundings
from slinky.bridge.foreign import shrunk
from slinky.kube import NAMESPACES, NODES, PODS, AlreadyExistsError, Cache, Client, Key, Node, NotFoundError, Reflector
from slinky.sandbox.handle import Sandbox
from tests.oracle.scheduler import Oracle, Verdict
from tests.oracle.worlds import HELD, Maker

__all__ = ["Cluster", "Comparison", "compare", "differences", "standing", "together"]

Document = dict[str, Any]
AGAIN = 6
OWN = "oracle-own"  # the scheduler whose pods we hold whole, as the bridge holds its own
SERVICE_ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}


class Cluster:
    """What was made, and how it changes."""

    def __init__(self, kube: Client, sandbox: Sandbox, maker: Maker, nodes: Cache[Node]) -> None:
        self._kube = kube
        self._sandbox = sandbox
        self._nodes = nodes
        self.maker = maker
        self.residents: list[tuple[str, str]] = []  # namespace, name

    async def begin(self, nodes: int, residents: int) -> None:
        await together(self._make_namespace(name, self.maker.namespace_labels()) for name in self.maker.namespaces)
        await together(self._make_node(self.maker.node()) for _ in range(nodes))
        await self.add_residents(residents)
        await self._settled()

    async def end(self) -> None:
        for namespace, name in list(self.residents):
            await self._remove_resident(namespace, name)
        await together(self._gone(NODES, name) for name in self.maker.nodes)
        await together(self._gone(NAMESPACES, name) for name in self.maker.namespaces)

    async def add_residents(self, number: int) -> None:
        made = [(self.maker.resident(("default-scheduler", OWN)), self.maker.maybe(0.15)) for _ in range(number)]
        self.residents += [(document["metadata"]["namespace"], document["metadata"]["name"]) for document, _ in made]
        await together(self._add_resident(document, dying=dying) for document, dying in made)

    async def change(self) -> None:
        """Something of each kind becomes different."""
        maker = self.maker
        name = maker.one(maker.nodes)
        await self._kube.patch(NODES, name, {"metadata": {"labels": {"disk": "", "gpus": None, "rack": None, **maker.node_labels(name)}}})
        await self._kube.patch(NODES, maker.one(maker.nodes), {"spec": {"taints": maker.taints(), "unschedulable": maker.maybe(0.3)}})
        await self._kube.patch(
            NAMESPACES, maker.one(maker.namespaces), {"metadata": {"labels": {"team": None, "env": None, **maker.namespace_labels()}}}
        )
        for namespace, name in maker.some(self.residents, 3, 3):
            await self._remove_resident(namespace, name)
        for namespace, name in maker.some(self.residents, 2, 2):
            await self._kube.patch(
                PODS, name, {"metadata": {"labels": {"app": None, "tier": None, "rev": None, **maker.pod_labels()}}}, namespace
            )
        leaving = maker.nodes.pop(0)
        for namespace, name in [
            found for found in self.residents if (await self._kube.get(PODS, found[1], found[0])).spec.node_name == leaving
        ]:
            await self._remove_resident(namespace, name)
        await self._gone(NODES, leaving)
        await self._make_node(maker.node())
        await self.add_residents(5)
        await self._settled()

    async def _make_node(self, document: Document) -> None:
        await self._kube.create(NODES, document)

    async def _make_namespace(self, name: str, labels: dict[str, str]) -> None:
        await self._kube.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        with suppress(AlreadyExistsError):  # a controller makes it too, some day
            await self._kube.raw("POST", f"/api/v1/namespaces/{name}/serviceaccounts", body=SERVICE_ACCOUNT)

    async def _add_resident(self, document: Document, *, dying: bool) -> None:
        meta = document["metadata"]
        meta["annotations"] = {"sandbox.slinky.slurm.net/stop-after": "1h"} if dying else {}
        meta["finalizers"] = [HELD] if dying else []
        await self._kube.create(PODS, document, meta["namespace"])
        if dying:
            await self._kube.delete(PODS, meta["name"], meta["namespace"])

    async def _remove_resident(self, namespace: str, name: str) -> None:
        self.residents.remove((namespace, name))
        with suppress(NotFoundError):
            await self._kube.patch(PODS, name, {"metadata": {"finalizers": None}}, namespace)
            await self._kube.delete(PODS, name, namespace, grace_seconds=0)

    async def _gone(self, resource: Any, name: str) -> None:
        with suppress(NotFoundError):
            await self._kube.delete(resource, name)

    async def _settled(self) -> None:
        """Until no controller has anything to say of the nodes: ready, and cordoned ones with the taint that goes with it."""

        async def settled() -> bool:
            here = {node.metadata.name: node for node in self._nodes.list()}
            return all(name in here and _is_settled(here[name]) for name in self.maker.nodes)

        await self._sandbox.until("kube-controller-manager", "the nodes were ready and tainted as they are to be", settled)


def _is_settled(node: Node) -> bool:
    ready, keys = node.condition("Ready"), {taint.key for taint in node.spec.taints}
    if ready is None or ready.status != "True" or "node.kubernetes.io/not-ready" in keys:
        return False
    return node.spec.unschedulable == ("node.kubernetes.io/unschedulable" in keys)


async def together(work: Iterable[Awaitable[object]]) -> None:
    """In turn of a few, as made: the seed decides the order in which things are made."""
    places = asyncio.Semaphore(12)

    async def one(task: Awaitable[object]) -> None:
        async with places:
            await task

    await asyncio.gather(*map(one, list(work)))


@asynccontextmanager
async def standing(
    sandbox: Sandbox, kube: Client, maker: Maker, *, nodes: int = 14, residents: int = 90
) -> AsyncIterator[tuple[Cluster, Surroundings]]:
    own = Reflector(kube, PODS, fields=f"spec.schedulerName={OWN}")
    foreign = Reflector(kube, PODS, fields=f"spec.schedulerName!={OWN},spec.nodeName!=", transform=shrunk)
    every, names = Reflector(kube, NODES), Reflector(kube, NAMESPACES)
    async with AsyncExitStack() as stack:
        reflectors: list[Reflector[Any]] = [own, foreign, every, names]
        for reflector in reflectors:
            await stack.enter_async_context(reflector.running())
            await reflector.cache.wait_synced()
        surroundings = Surroundings([own.cache, foreign.cache], every.cache, names.cache, release=_release(sandbox))
        cluster = Cluster(kube, sandbox, maker, every.cache)
        stack.push_async_callback(cluster.end)
        await cluster.begin(nodes, residents)
        yield cluster, surroundings


def _release(sandbox: Sandbox) -> tuple[int, int]:
    major, minor = sandbox.record.shape.kubernetes.split(".")
    return int(major), int(minor)


@dataclass
class Comparison:
    """Those on which the two judges differ for good, in words; and how many pods kube-scheduler accepts on some nodes but not on all of them."""

    different: list[str]
    partly: int


async def compare(judge: Oracle, surroundings: Surroundings, documents: Sequence[Document], again: int = AGAIN) -> Comparison:
    left = list(documents)
    partly = 0
    for turn in range(again):
        verdicts = await judge.verdicts(left)
        if not turn:
            partly = sum(0 < len(verdict.nodes) < len(surroundings.nodes) for verdict in verdicts.values())
        said = {document["metadata"]["name"]: _difference(surroundings, verdicts[_key(document)], document) for document in left}
        left = [document for document in left if said[document["metadata"]["name"]]]
        if not left:
            break
    return Comparison([said[document["metadata"]["name"]] for document in left], partly)


async def differences(judge: Oracle, surroundings: Surroundings, documents: Sequence[Document]) -> list[str]:
    """Those on which the two judges differ for good, in words; empty where they agree on all."""
    return (await compare(judge, surroundings, documents)).different


def _key(document: Document) -> Key:
    return Key(document["metadata"]["namespace"], document["metadata"]["name"])


def _difference(surroundings: Surroundings, verdict: Verdict, document: Document) -> str:
    refused = surroundings.refusals(verdict.pod)
    shared = surroundings.answer(verdict.pod).refused
    assert shared.keys() == refused.keys(), f"the answer that is shared is another: {shared.keys() ^ refused.keys()}"
    accepted = frozenset(surroundings.nodes) - refused.keys()
    if accepted == verdict.nodes:
        return ""
    ours, theirs = sorted(accepted - verdict.nodes), sorted(verdict.nodes - accepted)
    return "\n".join(
        [
            f"we accept {ours} and kube-scheduler does not; it accepts {theirs} and we do not",
            *(f"  {refused[node]}" for node in theirs),
            f"  kube-scheduler: {verdict.message}",
            f"  {json.dumps(document)}",
        ]
    )
