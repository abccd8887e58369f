"""What we say of pods with claims is what kube-scheduler says: the same nodes exactly, on storage made at random."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from slinky.bridge.eligibility import Surroundings
from slinky.bridge.volumes.live import Volumes
from slinky.bridge.volumes.verdicts import VolumeVerdicts
from slinky.bridge.volumes.watching import StorageWatch
from slinky.kube import (
    ATTACHMENTS,
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    NAMESPACES,
    NODES,
    PODS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    AlreadyExistsError,
    Client,
    Key,
    NotFoundError,
    Reflector,
    Resource,
)
from slinky.sandbox.handle import Sandbox
from tests.oracle.cluster import differences, together
from tests.oracle.scheduler import Oracle, Verdict, oracle
from tests.oracle.seeds import seed_for
from tests.oracle.storage import Document, StorageMaker

pytestmark = pytest.mark.sandbox

HELD = "oracle.test/held"
ENOUGH = 1000  # pods, to ask for some of every kind


class Storeroom:
    """What the maker thinks of, on the API server."""

    def __init__(self, kube: Client, sandbox: Sandbox, maker: StorageMaker) -> None:
        self._kube = kube
        self._sandbox = sandbox
        self.maker = maker
        self._made: list[tuple[Resource[dict[str, Any]], str]] = []
        self._drivers: dict[str, str] = {}

    async def begin(self) -> None:
        maker = self.maker
        await self._make(NAMESPACES, [{"metadata": {"name": maker.namespace}}])
        with suppress(AlreadyExistsError):
            await self._kube.raw("POST", f"/api/v1/namespaces/{maker.namespace}/serviceaccounts", body={"metadata": {"name": "default"}})
        await self._make(NODES, [maker.node() for _ in range(10)])
        await self._make(CSI_DRIVERS, [maker.driver(name) for name in maker.drivers])
        await self._make(CSI_NODES, [maker.csi_node(name) for name in maker.nodes[:-2]])
        await self._make(STORAGE_CLASSES, [maker.storage_class() for _ in range(7)])
        await self._make(STORAGE_CAPACITIES, [maker.capacity() for _ in range(12)])
        await self.more()

    async def more(self) -> None:
        """Volumes that are free, volumes with their claims, claims that wait; claims that are lost, or go; pods that use them."""
        maker = self.maker
        free, taken = [maker.volume() for _ in range(40)], []
        claims = [maker.claim() for _ in range(25)]
        for _ in range(20):
            volume = maker.volume()
            claim = maker.claim(volume)
            volume["spec"]["claimRef"] = {"namespace": maker.namespace, "name": claim["metadata"]["name"]}
            taken.append(volume)
            claims.append(claim)
        reserved = [maker.volume(maker.one(claims[:25])["metadata"]["name"]) for _ in range(3)]
        self._drivers |= {each["metadata"]["name"]: each["spec"]["csi"]["driver"] for each in (*free, *taken, *reserved)}
        going = claims[-1]
        going["metadata"]["finalizers"] = [HELD]
        await self._make(VOLUMES, [*free, *taken, *reserved])
        await self._make(CLAIMS, claims)
        await self._settled({claim["metadata"]["name"] for claim in claims[25:]})
        await self._kube.delete(CLAIMS, going["metadata"]["name"], maker.namespace)
        lost = taken[0]["metadata"]["name"]
        await self._kube.delete(VOLUMES, lost)
        await self._kube.patch(VOLUMES, lost, {"metadata": {"finalizers": None}})
        maker.volumes.remove(lost)
        await self._make(ATTACHMENTS, [maker.attachment(self._drivers) for _ in range(6)])
        await self._make(PODS, [maker.pod(maker.one(maker.nodes)) for _ in range(12)])

    async def end(self) -> None:
        for attachment in (await self._kube.list(ATTACHMENTS)).items:  # some were made by a controller, for the pods
            if attachment.spec.node_name in self.maker.nodes:
                self._made.append((ATTACHMENTS.untyped, attachment.metadata.name))
        for resource, name in reversed(self._made):
            namespace = self.maker.namespace if resource.namespaced else ""
            with suppress(NotFoundError):
                if resource.plural in (CLAIMS.plural, VOLUMES.plural):
                    await self._kube.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
                await self._kube.delete(resource, name, namespace, grace_seconds=0)

    async def _make(self, resource: Resource[Any], documents: Iterable[Document]) -> None:
        namespace = self.maker.namespace if resource.namespaced else ""
        everything, whole = list(documents), resource.untyped
        self._made += [(whole, document["metadata"]["name"]) for document in everything]
        await together(self._create(whole, document, namespace) for document in everything)

    async def _create(self, resource: Resource[dict[str, Any]], document: Document, namespace: str) -> None:
        await self._kube.create(resource, document, namespace)

    async def _settled(self, bound: set[str]) -> None:
        """Until the volume controller has said all that it has to say."""

        async def settled() -> bool:
            claims = {claim.metadata.name: claim for claim in (await self._kube.list(CLAIMS, self.maker.namespace)).items}
            volumes = {volume.metadata.name: volume for volume in (await self._kube.list(VOLUMES)).items}
            return all(claims[name].is_bound for name in bound) and all(volumes[name].status.phase for name in self.maker.volumes)

        await self._sandbox.until("kube-controller-manager", "claims and volumes were bound", settled)


@asynccontextmanager
async def standing(sandbox: Sandbox, kube: Client, maker: StorageMaker) -> AsyncIterator[tuple[Storeroom, Surroundings]]:
    pods, nodes, names = Reflector(kube, PODS), Reflector(kube, NODES), Reflector(kube, NAMESPACES)
    async with AsyncExitStack() as stack:
        for reflector in (pods, nodes, names):
            await stack.enter_async_context(reflector.running())
            await reflector.cache.wait_synced()
        watch = StorageWatch(kube)
        volumes = Volumes(watch.caches, (pods.cache,), lambda _: None, watch.trouble)
        known = asyncio.Event()
        volumes.needed.set()
        await stack.enter_async_context(watch.running(volumes.needed, known.set))
        async with asyncio.timeout(60):
            await known.wait()
        volumes.learned()
        surroundings = Surroundings([pods.cache], nodes.cache, names.cache)
        surroundings.filters.append(volumes.judge)
        surroundings.volumes = VolumeVerdicts(volumes, nodes.cache)
        room = Storeroom(kube, sandbox, maker)
        stack.push_async_callback(room.end)
        await room.begin()
        yield room, surroundings


class Remembering:
    """The judge, and how many nodes it accepted each time."""

    def __init__(self, judge: Oracle) -> None:
        self._judge = judge
        self.counts: list[int] = []

    async def verdicts(self, documents: Sequence[Document]) -> dict[Key, Verdict]:
        found = await self._judge.verdicts(documents)
        self.counts += [len(verdict.nodes) for verdict in found.values()]
        return found


async def compared(sandbox: Sandbox, rounds: int, pods: int, seed: int = 0) -> None:
    seed = seed_for(seed)
    maker = StorageMaker(seed, f"st{seed % 10_000}")
    async with oracle(sandbox) as judge, standing(sandbox, judge.kube, maker) as (room, surroundings):
        remembering: Any = Remembering(judge)
        for turn in range(rounds):
            if turn:
                await room.more()
            different = await differences(remembering, surroundings, [maker.pod() for _ in range(pods)])
            assert not different, f"SLINKY_SEED={seed}, turn {turn}: {len(different)} of {pods} differ:\n" + "\n".join(different[:3])
        most, counts = len(surroundings.nodes), remembering.counts
        kinds = {
            "nowhere": counts.count(0),
            "on one node": counts.count(1),
            "on some": sum(1 < count < most for count in counts),
            "everywhere": counts.count(most),
        }
        print(f"SLINKY_SEED={seed}: of {len(counts)} pods {kinds}")
        if len(counts) < ENOUGH:
            kinds["on some"] += kinds.pop("on one node")  # so rare that of a hundred pods there may be none
        assert all(found >= len(counts) // 100 for found in kinds.values()), f"SLINKY_SEED={seed}: too few of one kind to compare: {kinds}"


async def test_we_accept_the_nodes_where_kube_scheduler_finds_the_volumes(sandbox: Sandbox) -> None:
    await compared(sandbox, rounds=1, pods=120, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("_", range(6))
async def test_we_accept_the_nodes_where_kube_scheduler_finds_the_volumes_over_thousands_of_pods(sandbox: Sandbox, _: int) -> None:
    await compared(sandbox, rounds=4, pods=200)
