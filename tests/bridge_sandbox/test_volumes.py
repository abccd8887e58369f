"""Pods with claims on the real servers: their volumes are bound where Slurm says, before they are; what cannot be had is waited for, or given back."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from slinky.bridge.keys import JOB_ID
from slinky.bridge.volumes.stock import SELECTED_NODE
from slinky.kube import (
    CLAIMS,
    PODS,
    STORAGE_CLASSES,
    VOLUMES,
    AlreadyExistsError,
    Change,
    Client,
    NotFoundError,
    PersistentVolume,
    PersistentVolumeClaim,
    Reflector,
    from_kubeconfig,
)
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.conftest import Team, open_team
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox

HOST = "kubernetes.io/hostname"
DRIVER = "disks.example.com"
NOBODY = "kubernetes.io/no-provisioner"


class Storage:
    """A team's classes, volumes and claims. `history` is what the watch showed of each volume's claim."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._made: list[str] = []
        self._classes: list[str] = []
        self.given: dict[str, list[str]] = {}

    async def storage_class(self, name: str, provisioner: str = NOBODY, mode: str = "WaitForFirstConsumer") -> str:
        full = f"{self.team.namespace}-{name}"
        self._classes.append(full)
        body = {"metadata": {"name": full}, "provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": "Retain"}
        await self.team.kube.create(STORAGE_CLASSES.untyped, body)
        return full

    async def volume(
        self, name: str, kind: str, node: str = "", claim: PersistentVolumeClaim | None = None, mode: str = "ReadWriteOnce"
    ) -> str:
        full = f"{self.team.namespace}-{name}"
        self._made.append(full)
        spec: dict[str, Any] = {
            "capacity": {"storage": "5Gi"},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": kind,
            "csi": {"driver": DRIVER, "volumeHandle": full},
        }
        if node:
            term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        if claim is not None:
            spec["claimRef"] = {"namespace": claim.metadata.namespace, "name": claim.metadata.name, "uid": claim.metadata.uid}
        with suppress(AlreadyExistsError):
            await self.team.kube.create(VOLUMES.untyped, {"metadata": {"name": full}, "spec": spec})
        return full

    async def claim(self, name: str, kind: str, mode: str = "ReadWriteOnce") -> None:
        spec = {"accessModes": [mode], "storageClassName": kind, "resources": {"requests": {"storage": "1Gi"}}}
        await self.team.kube.create(CLAIMS.untyped, {"metadata": {"name": name}, "spec": spec}, self.team.namespace)

    def pod(self, name: str, *claims: str, ephemeral: str = "", **more: Any) -> dict[str, Any]:
        """`ephemeral` is the class of a volume of its own."""
        document = self.team.pod(name, **more)
        volumes: list[dict[str, Any]] = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        if ephemeral:
            spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ephemeral, "resources": {"requests": {"storage": "1Gi"}}}
            volumes.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}})
        document["spec"]["volumes"] = volumes
        return document

    async def get_claim(self, name: str) -> PersistentVolumeClaim:
        return await self.team.kube.get(CLAIMS, name, self.team.namespace)

    async def until_claim(self, name: str, what: str, test: Callable[[PersistentVolumeClaim], bool]) -> PersistentVolumeClaim:
        async def reached() -> bool:
            return test(await self.get_claim(name))

        await self.team.until(f"claim {name} {what}", reached)
        return await self.get_claim(name)

    async def until_free(self, name: str) -> None:
        """A volume that is nobody's, with no trace of us."""

        async def free() -> bool:
            found = await self.team.kube.get(VOLUMES, name)
            return found.spec.claim_ref is None and "pv.kubernetes.io/bound-by-controller" not in found.metadata.annotations

        await self.team.until(f"volume {name} was free", free)

    @asynccontextmanager
    async def provisioner(
        self, accept: Callable[[PersistentVolumeClaim, str], bool | None] = lambda *_: True, *, shared: bool = False
    ) -> AsyncIterator[list[str]]:
        """A storage driver's controller, as small as can be: for a claim with a selected node it makes a volume there; where `accept` says no it gives the node back, where it says nothing it waits. Yields what it did."""
        done: list[str] = []
        client = Client(from_kubeconfig(self.team.sandbox.kubeconfig))
        claims = Reflector(client, CLAIMS, namespace=self.team.namespace)
        asked: set[str] = set()

        async def serve() -> None:
            while True:
                for claim in claims.cache.list():
                    node = claim.metadata.annotations.get(SELECTED_NODE)
                    ours = claim.metadata.annotations.get("volume.kubernetes.io/storage-provisioner") == DRIVER
                    if not node or not ours or claim.spec.volume_name or claim.metadata.uid in asked:
                        continue
                    said = accept(claim, node)
                    if said:
                        asked.add(claim.metadata.uid)
                        await self.volume(
                            f"made-{claim.metadata.name}", claim.class_name, "" if shared else node, claim, claim.spec.access_modes[0]
                        )
                        done.append(f"made {claim.metadata.name} for {node}")
                    elif said is False:
                        meta = {"resourceVersion": claim.metadata.resource_version, "annotations": {SELECTED_NODE: None}}
                        with suppress(Exception):  # it has changed: looked at again
                            await client.patch(CLAIMS, claim.metadata.name, {"metadata": meta}, claim.metadata.namespace)
                            done.append(f"gave {node} back")
                await asyncio.sleep(0.05)

        async with client, claims.running():
            task = asyncio.create_task(serve())
            try:
                yield done
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        if change.new is not None:
            ref = change.new.spec.claim_ref
            seen = self.given.setdefault(change.new.metadata.name, [])
            if not seen or seen[-1] != (ref.name if ref else ""):
                seen.append(ref.name if ref else "")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Storage"]:
        async with AsyncExitStack() as stack:
            volumes = Reflector(self.team.kube, VOLUMES)
            volumes.cache.subscribe(self._volume_changed)
            await stack.enter_async_context(volumes.running())
            yield self
        kube = self.team.kube
        await self.team.delete_all()
        await kube.raw("DELETE", f"/api/v1/namespaces/{self.team.namespace}/persistentvolumeclaims", body={})
        for name in self._made:
            with suppress(NotFoundError):
                await kube.delete(VOLUMES, name)
                await kube.patch(VOLUMES, name, {"metadata": {"finalizers": None}})
        for name in self._classes:
            await kube.delete(STORAGE_CLASSES, name)


@pytest.fixture
async def storage(team: Team) -> AsyncIterator[Storage]:
    async with Storage(team).running() as found:
        yield found


async def test_a_local_volume_is_bound_on_the_node_that_slurm_gave(storage: Storage) -> None:
    team = storage.team
    kind = await storage.storage_class("local")
    local = {node: await storage.volume(f"on-{node}", kind, node) for node in team.partition.nodes}
    await storage.claim("data", kind)
    await team.create(storage.pod("p", "data"))
    [pod] = await team.until_running("p")
    claim = await storage.get_claim("data")
    assert claim.is_bound
    assert claim.spec.volume_name == local[pod.spec.node_name]
    assert (await team.job_of("p")).nodes == pod.spec.node_name


async def test_slurm_sends_a_pod_where_its_volume_is_bound_or_free(storage: Storage) -> None:
    """Not to the node that it would take first."""
    team = storage.team
    kind = await storage.storage_class("local")
    await storage.claim("bound", kind)
    await storage.claim("free", kind)
    await storage.volume("v", kind, team.partition.nodes[2], await storage.get_claim("bound"))
    await storage.until_claim("bound", "was bound", lambda claim: claim.is_bound)
    await storage.volume("w", kind, team.partition.nodes[3])
    await team.create(storage.pod("p", "bound"), storage.pod("q", "free"))
    [bound, free] = await team.until_running("p", "q")
    assert (bound.spec.node_name, free.spec.node_name) == team.partition.nodes[2:]


async def test_a_volume_is_made_for_the_node_that_slurm_gave(storage: Storage) -> None:
    team = storage.team
    kind = await storage.storage_class("made", DRIVER)
    await storage.claim("data", kind)
    async with storage.provisioner() as done:
        await team.create(storage.pod("p", "data"))
        [pod] = await team.until_running("p")
    assert done == [f"made data for {pod.spec.node_name}"]
    assert (await storage.get_claim("data")).is_bound


async def test_while_a_volume_is_being_made_the_pod_says_so_and_is_not_bound(storage: Storage, bridge: SandboxBridge) -> None:
    team = storage.team
    kind = await storage.storage_class("slow", DRIVER)
    await storage.claim("data", kind)
    ready = asyncio.Event()
    async with storage.provisioner(lambda *_: ready.is_set() or None):
        await team.create(storage.pod("p", "data"))
        message = await team.until_condition("p", "BindingVolumes")
        assert f"claim {team.namespace}/data waits for its volume to be made by {DRIVER}" in message
        assert not (await team.get("p")).spec.node_name
        ready.set()
        [pod] = await team.until_running("p")
    assert not any(pod.metadata.uid in line and "did not work out" in line for line in bridge.log("run").splitlines())


async def test_a_driver_that_fails_gives_the_node_back_and_it_is_undone(storage: Storage, bridge: SandboxBridge) -> None:
    team = storage.team
    kind = await storage.storage_class("made", DRIVER)
    await storage.claim("fails", kind)
    await storage.claim("waits", kind)
    async with storage.provisioner(lambda claim, _: False if claim.metadata.name == "fails" else None) as done:
        await team.create(storage.pod("p", "waits", "fails"))

        uid = (await team.get("p")).metadata.uid

        async def refused() -> bool:
            return bool(done) and f"{uid}: node" in bridge.log("run")

        await team.until("the node was refused", refused)
        assert not (await team.get("p")).spec.node_name
        await team.kube.delete(PODS, "p", team.namespace)
        await team.until_gone("p")
    for name in ("fails", "waits"):
        await storage.until_claim(name, "named no node", lambda claim: SELECTED_NODE not in claim.metadata.annotations)


async def test_where_a_driver_has_no_room_the_pod_is_queued_again_and_goes_elsewhere(storage: Storage) -> None:
    team = storage.team
    kind = await storage.storage_class("made", DRIVER)
    await storage.claim("data", kind)
    full: list[str] = []

    def accept(_: PersistentVolumeClaim, node: str) -> bool:
        full.append(node)
        return node != full[0]

    async with storage.provisioner(accept) as done:
        await team.create(storage.pod("p", "data"))
        [pod] = await team.until_running("p")
    assert pod.spec.node_name != full[0]
    assert done[-1] == f"made data for {pod.spec.node_name}"


async def test_a_pod_that_is_deleted_on_the_way_leaves_claims_and_volumes_as_they_were(storage: Storage) -> None:
    """With the controller held, so that it does not finish what was begun."""
    team = storage.team
    made, local = await storage.storage_class("made", DRIVER), await storage.storage_class("local")
    await storage.claim("data", made)
    await storage.claim("scratch", local)
    volumes = [await storage.volume(f"on-{node}", local, node) for node in team.partition.nodes]

    async def available() -> bool:
        return all([(await team.kube.get(VOLUMES, name)).status.phase == "Available" for name in volumes])

    await team.until("the volumes were available", available)
    await team.sandbox.link.signal("kube-controller-manager", signal.SIGSTOP)
    try:
        await team.create(storage.pod("p", "data", "scratch"))
        await storage.until_claim("data", "named a node", lambda claim: SELECTED_NODE in claim.metadata.annotations)

        async def given() -> bool:
            return any("scratch" in storage.given.get(name, []) for name in volumes)

        await team.until("a volume was given", given)
        await team.kube.delete(PODS, "p", team.namespace)
        await team.until_gone("p")
        await storage.until_claim("data", "named no node", lambda claim: SELECTED_NODE not in claim.metadata.annotations)
        for name in volumes:
            await storage.until_free(name)
    finally:
        await team.sandbox.link.signal("kube-controller-manager", signal.SIGCONT)


async def test_a_claim_that_is_bound_at_once_is_waited_for_before_there_is_a_job(storage: Storage) -> None:
    team = storage.team
    kind = await storage.storage_class("now", DRIVER, "Immediate")
    await storage.claim("data", kind)
    await team.create(storage.pod("p", "data"), storage.pod("no-claim", "forgotten"))
    assert f"claim {team.namespace}/data is not bound yet" in await team.until_condition("p", "WaitingForVolumes")
    assert "does not exist" in await team.until_condition("no-claim", "WaitingForVolumes")
    assert JOB_ID not in (await team.get("p")).metadata.labels
    await storage.volume("data", kind, claim=await storage.get_claim("data"))
    await storage.claim("forgotten", kind)
    await storage.volume("forgotten", kind, claim=await storage.get_claim("forgotten"))
    await team.until_running("p", "no-claim")


async def test_a_claim_for_one_pod_alone_keeps_the_next_one_waiting(storage: Storage) -> None:
    team = storage.team
    kind = await storage.storage_class("single")
    await storage.volume("v", kind, mode="ReadWriteOncePod")
    await storage.claim("data", kind, "ReadWriteOncePod")
    await team.create(storage.pod("first", "data"))
    await team.until_running("first")
    await team.create(storage.pod("second", "data"))
    assert f"pod {team.namespace}/first uses it" in await team.until_condition("second", "WaitingForVolumes")
    assert JOB_ID not in (await team.get("second")).metadata.labels
    await team.kube.delete(PODS, "first", team.namespace)
    await team.until_running("second")


async def test_all_volumes_of_a_gang_are_there_before_any_of_its_pods_is_bound(storage: Storage) -> None:
    """Each member has a volume of its own, and all share one."""
    team = storage.team
    kind, common = await storage.storage_class("made", DRIVER), await storage.storage_class("common", DRIVER)
    await storage.claim("shared", common, "ReadWriteMany")
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "annotations": team.said()},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    members = [storage.pod(f"m{index}", "shared", ephemeral=kind, gpus=8) for index in range(3)]
    for member in members:
        member["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    go = asyncio.Event()

    def accept(claim: PersistentVolumeClaim, _: str) -> bool | None:
        return True if claim.metadata.name != "m2-scratch" or go.is_set() else None

    async with storage.provisioner(accept, shared=True) as done:
        await team.create(group, *members)

        async def all_but_one() -> bool:
            return len(done) == 3 and all([(await storage.get_claim(name)).is_bound for name in ("shared", "m0-scratch", "m1-scratch")])

        await team.until("all claims but one were bound", all_but_one)
        assert not any(pod.spec.node_name for pod in await team.pods())
        go.set()
        pods = await team.until_running("m0", "m1", "m2")
    assert len({pod.spec.node_name for pod in pods}) == 3


async def test_after_the_deadline_what_was_begun_is_undone(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    selector = {"matchLabels": {"bridge": "impatient"}}
    running = sandbox_bridge(sandbox, tmp_path, name="impatient", managedNamespaceSelector=selector, volumes={"bindSeconds": 2})
    async with running as bridge, open_team(sandbox, partition, label="impatient") as team, Storage(team).running() as storage:
        kind = await storage.storage_class("never", DRIVER)
        await storage.claim("data", kind)
        await team.create(storage.pod("p", "data"))
        await storage.until_claim("data", "named a node", lambda claim: SELECTED_NODE in claim.metadata.annotations)
        await storage.until_claim("data", "named no node", lambda claim: SELECTED_NODE not in claim.metadata.annotations)
        assert "for 2 s now" in bridge.log("run")
