"""Administrators and users of a cluster of the operator's: they scale, roll, delete, cordon, evict, drain, and run jobs, as the plan says.

Comes in: deeds and jobs, each when its time has come. Goes out: the deed, on the servers themselves, and an `OperatorAct` where an invariant has to know. What must stay true: who is turned away tries again for a while; whatever is cordoned or
drained here is taken back here, also at the end; every job that runs is cancelled by us, and that is noted before it is done.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from slinky.kube import NODES, PODS, AlreadyExistsError, Client, KubeError, NotFoundError, TooManyRequestsError
from slinky.sandbox.played_cluster import NODESETS as NODESET_RESOURCE
from slinky.sandbox.played_cluster import PlayedCluster
from slinky.slurm import JobDescription, SlurmClient, SlurmError
from slinky.slurm import NotFoundError as NoSuchJobError
from tests.chaos.journal import Journal
from tests.chaos.operator_history import OperatorAct
from tests.chaos.operator_plan import NODESETS, Deed, WorkerJob

__all__ = ["People"]

PATIENCE = 60.0
PAUSE = 0.3
JOB_WAITS = 40.0  # for workers that can take it; then its user gives up

T = TypeVar("T")


class People:
    def __init__(self, cluster: PlayedCluster, kube: Client, slurm: SlurmClient, journal: Journal) -> None:
        self._cluster, self._kube, self._slurm, self._journal = cluster, kube, slurm, journal
        self.acts: list[OperatorAct] = []
        self.wanted: dict[str, tuple[int, str]] = {name: (count, "") for name, count in NODESETS.items()}
        self._cordoned: set[str] = set()
        self._drained: set[str] = set()
        self._releases = 0
        self._changing = asyncio.Lock()

    def _act(self, kind: str, subject: str, detail: str = "") -> None:
        self.acts.append(OperatorAct(at=time.time(), kind=kind, subject=subject, detail=detail))  # type: ignore[arg-type]
        self._journal.note(kind, subject, detail=detail)

    async def _persist(self, deed: Callable[[], Awaitable[T]]) -> T | None:
        """None where it could not be done in time."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                return await deed()
            except (NotFoundError, NoSuchJobError):
                return None
            except (KubeError, SlurmError):
                await asyncio.sleep(PAUSE)
        return None

    # NodeSets

    async def begin(self) -> None:
        for name, count in NODESETS.items():
            await self._cluster.nodeset(name, replicas=count, **_shape())

    async def do(self, deed: Deed) -> None:
        match deed.kind:
            case "scale":
                await self._change(deed.nodeset, replicas=deed.number)
            case "roll":
                self._releases += 1
                await self._change(deed.nodeset, release=f"r{self._releases}")
            case "delete":
                await self._delete_and_make(deed.nodeset, deed.number)
            case "cordon":
                await self._cordon(deed)
            case "evict":
                await self._evict(deed)
            case "drain-in-slurm":
                await self._drain(deed)

    async def _change(self, name: str, replicas: int | None = None, release: str | None = None) -> None:
        async with self._changing:
            count, label = self.wanted[name]
            count, label = count if replicas is None else replicas, label if release is None else release
            self._journal.note("scale" if release is None else "roll", name, detail=str(replicas if release is None else release))
            await self._persist(
                lambda: self._cluster.change(name, replicas=count, template={"metadata": {"labels": {"release": label or None}}})
            )
            self.wanted[name] = (count, label)

    async def _delete_and_make(self, name: str, number: int) -> None:
        """As one who has another one made under the same name as soon as it is free."""
        async with self._changing:
            self._act("nodeset-deleted", name)
            await self._persist(lambda: self._kube.delete(NODESET_RESOURCE, name, self._cluster.namespace))
            count = number % 4

            async def make() -> None:
                with suppress(AlreadyExistsError):
                    if await self._is_there(name):
                        raise KubeError("not gone yet")
                    await self._cluster.nodeset(name, replicas=count, **_shape())

            deadline = time.monotonic() + 3 * PATIENCE
            while time.monotonic() < deadline and await self._is_there_or_unknown(name):
                await asyncio.sleep(PAUSE)
            await self._persist(make)
            self._act("nodeset-made", name)
            self.wanted[name] = (count, "")

    async def _is_there(self, name: str) -> bool:
        try:
            await self._kube.get(NODESET_RESOURCE, name, self._cluster.namespace)
        except NotFoundError:
            return False
        return True

    async def _is_there_or_unknown(self, name: str) -> bool:
        try:
            return await self._is_there(name)
        except KubeError:
            return True

    # Nodes and pods

    async def _cordon(self, deed: Deed) -> None:
        nodes = await self._persist(lambda: self._kube.list(NODES))
        if nodes is None:
            return
        name = random.Random(deed.number).choice(sorted(node.metadata.name for node in nodes.items))
        if name in self._cordoned:
            return
        self._cordoned.add(name)
        self._journal.note("cordon", name, seconds=deed.seconds)
        await self._persist(lambda: self._kube.patch(NODES, name, {"spec": {"unschedulable": True}}))
        await asyncio.sleep(deed.seconds)
        await self._persist(lambda: self._kube.patch(NODES, name, {"spec": {"unschedulable": None}}))
        self._cordoned.discard(name)

    async def _evict(self, deed: Deed) -> None:
        """As `kubectl drain` does. Who is told to wait does not ask again."""
        pods = await self._persist(
            lambda: self._kube.list(PODS, self._cluster.namespace, labels=f"app.kubernetes.io/instance={deed.nodeset}")
        )
        if pods is None or not pods.items:
            return
        name = random.Random(deed.number).choice(sorted(pod.metadata.name for pod in pods.items))
        try:
            await self._kube.evict(name, self._cluster.namespace)
        except TooManyRequestsError:
            self._journal.note("eviction refused", name)
        except KubeError as error:
            self._journal.note("eviction failed", name, detail=str(error))
        else:
            self._journal.note("evicted", name)

    async def _drain(self, deed: Deed) -> None:
        """An administrator's own, on a worker that is not drained by anybody. Two words at once may cross: what he said counts from when Slurm has it."""
        nodes = await self._persist(self._slurm.nodes.all)
        free = sorted(
            node.name
            for node in nodes or ()
            if node.name.startswith(f"{deed.nodeset}-") and "DRAIN" not in node.states and node.name not in self._drained
        )
        if not free:
            return
        name, reason = random.Random(deed.number).choice(free), f"bad disk {deed.number}"
        self._drained.add(name)
        try:
            await self._persist(lambda: self._slurm.nodes.drain([name], reason))
            found = await self._persist(lambda: self._slurm.nodes.get(name))
            if found is not None and found.reason == reason and "DRAIN" in found.states:
                self._act("drained", name, reason)
                await asyncio.sleep(deed.seconds)
                self._act("undrained", name, reason)
            await self._persist(lambda: self._undrain(name, reason))
        finally:
            self._drained.discard(name)

    async def _undrain(self, name: str, reason: str) -> None:
        """His own only."""
        found = await self._slurm.nodes.get(name)
        if found.reason == reason and "DRAIN" in found.states:
            await self._slurm.nodes.undrain([name])

    # Jobs

    async def run(self, job: WorkerJob) -> None:
        described = JobDescription(
            name=job.name,
            tasks=job.nodes,
            minimum_nodes=job.nodes,
            maximum_nodes=job.nodes,
            partition="all",
            constraints=job.nodeset,
            current_working_directory="/tmp",
            environment=["A=b"],
        )
        submitted = await self._persist(lambda: self._slurm.jobs.submit_external(described, marker=job.name, once=True))
        if submitted is None:
            return
        deadline = time.monotonic() + JOB_WAITS
        while not (runs := await self._runs(submitted.job_id)) and time.monotonic() < deadline:
            await asyncio.sleep(PAUSE)
        if runs:
            await asyncio.sleep(job.seconds)
        await self._cancel(submitted.job_id)

    async def _runs(self, job_id: int) -> bool:
        with suppress(SlurmError):
            return (await self._slurm.jobs.get(job_id)).is_running
        return False

    async def _cancel(self, job_id: int) -> None:
        self._act("cancelled", str(job_id))
        await self._persist(lambda: self._slurm.jobs.cancel(job_id))

    async def end(self) -> None:
        """All jobs, also those whose submission nobody heard of."""

        async def live() -> list[int]:
            return [job.job_id async for job in self._slurm.jobs.stream() if not job.is_finished]

        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            left = await self._persist(live)
            if left == []:
                return
            for job_id in left or ():
                await self._cancel(job_id)
            await asyncio.sleep(PAUSE)


def _shape() -> dict[str, object]:
    return {"oversubscribeNode": True, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}
