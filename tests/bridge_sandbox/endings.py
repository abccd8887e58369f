"""Ways in which a pod's job ends, each with another pod that waits for its node: side by side, in the background, as containers that take a minute to stop need one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from slinky.kube import NODES, PODS, PatchKind, Pod
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.sink import ADDRESS, start_sink, stop_sink
from slinky.slurm import Job
from tests.bridge_sandbox.conftest import Team

__all__ = ["GRACE", "KEEP", "NODES_OF", "STORIES", "WITH_SINK", "Background", "Case", "Ended", "let_go", "partition_of", "prepared"]

GRACE = 60
KEEP = "example.com/look"  # a finalizer of the test's own, so that what became of a pod can be read afterwards
NODES_OF = {  # nodes that no other module's tests use at that time; two for the gang
    "preemption": ["kwok-40"],
    "preemption with a grace time": ["kwok-41"],
    "scancel": ["kwok-42"],
    "time limit": ["kwok-43"],
    "node drain": ["kwok-44"],
    "time limit with time to spare": ["kwok-45"],
    "gang": ["kwok-46", "kwok-47"],
}
WITH_SINK = {"preemption with a grace time", "gang"}


def partition_of(name: str) -> str:
    return f"e{list(NODES_OF).index(name)}"


class Ended(msgspec.Struct):
    """What became of a case: the first pod, the second, and the first one's job in the end."""

    first: Pod
    second: Pod
    job: Job


class Case:
    def __init__(self, team: Team, name: str) -> None:
        self.team, self.name, self.node, self.partition = team, name, NODES_OF[name][0], partition_of(name)
        self.first, self.second = f"first-{self.partition}", f"second-{self.partition}"

    def pod(self, name: str, grace: int = GRACE, cpus: int = 64, **said: str) -> dict[str, Any]:
        """One that takes the whole node, by its size unless another is given."""
        stops = {"sandbox.slinky.slurm.net/stop-after": f"{grace}s"}
        body = self.team.pod(name, cpus=cpus, said={"partition": self.partition, **said}, annotations=stops, finalizers=[KEEP])
        body["spec"]["terminationGracePeriodSeconds"] = grace
        return body

    async def begin(self, grace: int = GRACE, cpus: int = 64, **said: str) -> int:
        """The first pod runs; its job's id."""
        await self.team.create(self.pod(self.first, grace, cpus, **said))
        await self.team.until_running(self.first)
        return (await self.team.job_of(self.first)).job_id

    async def end(self, job_id: int) -> Ended:
        async def runs() -> bool:
            return (await self.team.get(self.second)).status.phase == "Running"

        await self.team.until(f"the next pod ran ({self.name})", runs, 180)
        return Ended(await self.team.get(self.first), await self.team.get(self.second), await self.team.slurm.jobs.get(job_id))


async def preemption(case: Case) -> Ended:
    job_id = await case.begin(qos="low")
    await case.team.create(case.pod(case.second, 0, qos="high"))
    return await case.end(job_id)


async def preemption_with_a_grace_time(case: Case) -> Ended:
    job_id = await case.begin(qos="patient")
    await case.team.create(case.pod(case.second, 0, qos="high"))
    return await case.end(job_id)


async def scancel(case: Case) -> Ended:
    """Kubernetes would have room for both: the next pod wants the node for itself, and it is Slurm that says so."""
    job_id = await case.begin(cpus=1)
    await case.team.create(case.pod(case.second, 0, cpus=1, exclusive="true"))
    await case.team.head("scancel", str(job_id))
    return await case.end(job_id)


async def time_limit(case: Case) -> Ended:
    job_id = await case.begin(timelimit="1")
    await case.team.create(case.pod(case.second, 0))
    return await case.end(job_id)


async def time_limit_with_time_to_spare(case: Case) -> Ended:
    job_id = await case.begin(10, timelimit="1")
    await case.team.create(case.pod(case.second, 0))
    return await case.end(job_id)


async def node_drain(case: Case) -> Ended:
    """As `kubectl drain` does it; and whoever drained the node in Slurm thinks better of it while the containers stop."""
    team = case.team
    job_id = await case.begin()
    await team.create(case.pod(case.second, 0))
    await team.kube.patch(NODES, case.node, {"spec": {"unschedulable": True}}, kind=PatchKind.MERGE)
    await team.head("scontrol", "update", f"NodeName={case.node}", "State=DRAIN", "Reason=maintenance")
    await team.kube.evict(case.first, team.namespace)
    await team.kube.patch(NODES, case.node, {"spec": {"unschedulable": None}}, kind=PatchKind.MERGE)
    await team.head("scontrol", "update", f"NodeName={case.node}", "State=RESUME")
    return await case.end(job_id)


STORIES: dict[str, Callable[[Case], Coroutine[Any, Any, Ended]]] = {
    "preemption": preemption,
    "preemption with a grace time": preemption_with_a_grace_time,
    "scancel": scancel,
    "time limit": time_limit,
    "node drain": node_drain,
    "time limit with time to spare": time_limit_with_time_to_spare,
}


class Background:
    """A loop of its own, in which the slow cases go on while other tests run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.cases: dict[str, Future[Ended]] = {}

    def call(self, work: Coroutine[Any, Any, Any], seconds: float = 180) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@asynccontextmanager
async def prepared(sandbox: Sandbox) -> AsyncIterator[None]:
    """A sink behind some of the nodes, a QoS with a grace time, and a partition for each case."""
    head = sandbox.link.run
    await start_sink(sandbox)
    addresses = {}
    for name in WITH_SINK:
        for node in NODES_OF[name]:
            shown = await head("head", "scontrol", "--oneliner", "show", "node", node)
            addresses[node] = next(word.partition("=")[2] for word in shown.split() if word.startswith("NodeAddr="))
            await head("head", "scontrol", "update", f"NodeName={node}", f"NodeAddr={ADDRESS}")
    for name, nodes in NODES_OF.items():
        await head("head", "scontrol", "create", f"PartitionName={partition_of(name)}", f"Nodes={','.join(nodes)}")
    accounts = ("sacctmgr", "--immediate", "--quiet")
    await head("head", *accounts, "add", "qos", "patient", "Priority=10", "GraceTime=90")
    await head("head", *accounts, "modify", "qos", "high", "set", "Preempt+=patient")
    await head("head", *accounts, "modify", "user", "root", "set", "QOS+=patient")
    try:
        yield
    finally:
        partitions = ",".join(map(partition_of, NODES_OF))
        await head("head", "scancel", f"--partition={partitions}")

        async def empty() -> bool:
            return not (await head("head", "squeue", "--noheader", f"--partition={partitions}")).strip()

        await sandbox.until("slurmctld", "the partitions were empty", empty)
        for name in NODES_OF:
            await head("head", "scontrol", "delete", f"PartitionName={partition_of(name)}")
        for node, address in addresses.items():
            await head("head", "scontrol", "update", f"NodeName={node}", f"NodeAddr={address}")
        await head("head", *accounts, "modify", "user", "root", "set", "QOS-=patient")
        await head("head", *accounts, "modify", "qos", "high", "set", "Preempt-=patient")
        await head("head", *accounts, "delete", "qos", "patient")
        await stop_sink(sandbox)


async def let_go(team: Team) -> None:
    """The finalizers that kept the pods for a look; and the containers that would take a minute."""
    for pod in await team.pods():
        own = {"sandbox.slinky.slurm.net/stop-after": None}
        finalizers = [each for each in pod.metadata.finalizers if each != KEEP]
        await team.kube.patch(PODS, pod.metadata.name, {"metadata": {"finalizers": finalizers, "annotations": own}}, team.namespace)
