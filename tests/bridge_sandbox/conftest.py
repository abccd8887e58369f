"""The bridge as an admin runs it, once for all tests of this folder: on the shared sandbox, for every namespace with the label `bridge=on`."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from slinky.bridge.keys import JOB_ID, SETTINGS
from slinky.kube import NAMESPACES, PODS, Client, NotFoundError, OutcomeUnknownError, Pod, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.sink import ADDRESS
from slinky.slurm import Job, JobState, SlurmClient
from tests.conftest import Partition

_numbers = itertools.count()
SCHEDULER = "slurm-bridge-scheduler"
OWNERS = (
    "leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets",
    "jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "apps/v1/namespaces/{}/deployments",
    "batch/v1/namespaces/{}/jobs",
)


class Team:
    """A managed namespace with a partition of its own, and what a test does there."""

    def __init__(self, sandbox: Sandbox, kube: Client, slurm: SlurmClient, namespace: str, partition: Partition) -> None:
        self.sandbox, self.kube, self.slurm, self.namespace, self.partition = sandbox, kube, slurm, namespace, partition

    def pod(
        self, name: str, cpus: int = 1, gpus: int = 0, run_for: str = "", said: dict[str, str] | None = None, **more: Any
    ) -> dict[str, Any]:
        """`said` are job annotations by their last word; `more` goes into metadata."""
        resources = {"cpu": str(cpus), "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        container = {"name": "c", "image": "none", "resources": {"requests": resources, "limits": resources}}
        annotations = self.said(**(said or {})) | ({"sandbox.slinky.slurm.net/run-for": run_for} if run_for else {})
        meta = {"name": name, "annotations": annotations | more.pop("annotations", {}), **more}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], "restartPolicy": "Never"}}

    def said(self, **said: str) -> dict[str, str]:
        return {SETTINGS + key.replace("_", "-"): value for key, value in {"partition": self.partition.name, **said}.items()}

    async def create_all(self, documents: Sequence[dict[str, Any]]) -> None:
        """Many, side by side."""
        turns = asyncio.Semaphore(16)

        async def one(document: dict[str, Any]) -> None:
            async with turns:
                await self.create(document)

        await asyncio.gather(*map(one, documents))

    async def create(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            group, _, version = document["apiVersion"].rpartition("/")
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            plural = document["kind"].lower() + "s"
            await self.kube.raw("POST", f"{path}/namespaces/{self.namespace}/{plural}", body=document)

    async def pods(self) -> list[Pod]:
        return (await self.kube.list(PODS, self.namespace)).items

    async def get(self, name: str) -> Pod:
        return await self.kube.get(PODS, name, self.namespace)

    async def job_of(self, name: str) -> Job:
        return await self.slurm.jobs.get(int((await self.get(name)).metadata.labels[JOB_ID]))

    async def until(self, what: str, probe: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
        await self.sandbox.until("slurmctld", what, probe, seconds)

    async def until_running(self, *names: str) -> list[Pod]:
        async def run() -> bool:
            found = {pod.metadata.name: pod for pod in await self.pods()}
            return all(name in found and found[name].status.phase in ("Running", "Succeeded") for name in names)

        await self.until(f"pods {', '.join(names)} ran", run)
        return [await self.get(name) for name in names]

    async def until_labelled(self, *names: str) -> list[int]:
        async def labelled() -> bool:
            return all([JOB_ID in (await self.get(name)).metadata.labels for name in names])

        await self.until(f"pods {', '.join(names)} had a job", labelled)
        return [int((await self.get(name)).metadata.labels[JOB_ID]) for name in names]

    async def until_condition(self, name: str, reason: str) -> str:
        """Returns its message."""

        async def said() -> bool:
            found = (await self.get(name)).condition("slinky.slurm.net/Slurm")
            return found is not None and found.reason == reason

        await self.until(f"pod {name} said {reason}", said, 90)
        found = (await self.get(name)).condition("slinky.slurm.net/Slurm")
        return found.message if found else ""

    async def until_gone(self, *names: str) -> None:
        async def gone() -> bool:
            left = {pod.metadata.name for pod in await self.pods()}
            return not left & set(names)

        await self.until(f"pods {', '.join(names)} were gone", gone)

    async def until_job(self, job_id: int, state: JobState) -> Job:
        async def reached() -> bool:
            return (await self.slurm.jobs.get(job_id)).state is state

        await self.until(f"job {job_id} was {state}", reached)
        return await self.slurm.jobs.get(job_id)

    async def head(self, *command: str) -> str:
        return (await self.sandbox.link.run("head", *command)).strip()

    async def until_accounted(self, job_id: int, line: str) -> None:
        """slurmdbd hears of it a moment later."""

        async def told() -> bool:
            return await self.head("sacct", "-X", "-n", "-P", "-j", str(job_id), "-o", "JobName,State,ExitCode,NodeList") == line

        await self.until(f"sacct said {line}", told)

    async def delete_all(self) -> None:
        """The API server gives up after a minute, which thousands may take; what it has not come to it does the next time."""
        for _ in range(5):
            try:
                await self.kube.raw("DELETE", f"/api/v1/namespaces/{self.namespace}/pods", body={"gracePeriodSeconds": 0}, seconds=90)
            except OutcomeUnknownError:
                continue
            return


# What the tests say about their jobs.
POLICY = {
    "default": {key: ["*"] for key in ("users", "groups", "accounts", "qoses", "partitions", "reservations", "wckeys")}
    | {"maxPriority": 1_000_000, "minNice": -100}
}


@contextmanager
def background_bridge(
    sandbox: Sandbox, folder: Path, parts: tuple[str, ...] = ("admission", "run"), **settings: Any
) -> Iterator[SandboxBridge]:
    """In a loop of its own, as each test has one that ends with it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stack = AsyncExitStack()

    async def begin() -> SandboxBridge:
        return await stack.enter_async_context(sandbox_bridge(sandbox, folder, parts, **settings))

    try:
        yield asyncio.run_coroutine_threadsafe(begin(), loop).result(120)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture(scope="session")
def bridge(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBridge]:
    settings: dict[str, Any] = {
        "managedNamespaceSelector": {"matchLabels": {"bridge": "on"}},
        "nodes": {"featureLabels": {"example.com/zone": "zone"}, "sink": f"{ADDRESS}:6818"},
        "eviction": {"budgetSeconds": 5},
        "status": {"seconds": 2, "rate": 50},
    }
    with background_bridge(sandbox, tmp_path_factory.mktemp("bridge"), policy=POLICY, **settings) as found:
        yield found


@pytest.fixture
async def team(sandbox: Sandbox, bridge: SandboxBridge, partition: Partition) -> AsyncIterator[Team]:
    assert bridge
    async with open_team(sandbox, partition) as found:
        yield found


@asynccontextmanager
async def open_team(sandbox: Sandbox, partition: Partition, label: str = "on", *, clean: bool = True) -> AsyncIterator[Team]:
    """`label` is that of the bridge whose namespace it is. Without `clean` what is left goes with the sandbox."""
    async with Client(from_kubeconfig(sandbox.kubeconfig), field_manager="team") as kube, sandbox.slurm_client() as slurm:
        name = f"team{next(_numbers)}"
        await kube.create(NAMESPACES.untyped, {"metadata": {"name": name, "labels": {"bridge": label}}})
        team = Team(sandbox, kube, slurm, name, partition)
        yield team
        if not clean:
            return
        for path in OWNERS:
            with suppress(NotFoundError):  # a sandbox without that add-on
                await kube.raw("DELETE", f"/apis/{path.format(name)}", body={"propagationPolicy": "Background"})
        await team.delete_all()

        async def empty() -> bool:
            return not await team.pods()

        await team.until("all pods were gone", empty, 180)
        await kube.delete(NAMESPACES, name)
