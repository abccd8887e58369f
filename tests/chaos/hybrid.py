"""Two real nodes that pods and Slurm's own jobs share: pods with real containers, and people who know nothing of pods and use `sbatch`.

Comes in: a seed, how long. Goes out: arrivals of pods for those nodes, and batch jobs by time; `SlurmUsers` submits and cancels them on the head. What must stay true: the plan follows from the seed alone, and each of them asks for no more
than one of the two CPUs of a node.
"""

import asyncio
import random
from collections.abc import Iterator

import msgspec

from slinky.bridge.keys import SETTINGS
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from tests.chaos.workload import NAMESPACES, Arrival

__all__ = ["FAKE_NODES", "BatchJob", "SlurmUsers", "batch_jobs", "real_pods"]

PARTITION = "compute"
FAKE_NODES = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}  # a toleration for kwok's nodes, which are tainted beside real ones
PEOPLE = {"alice": "physics", "bob": "physics", "carol": "biology", "dave": "ai"}


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    person: str
    nodes: int
    seconds: int
    cancelled_after: float = 0.0


def real_pods(seed: int, seconds: float, per_second: float) -> Iterator[Arrival]:
    dice = random.Random(f"real pods {seed}")
    moment, number = 0.0, 0
    while (moment := moment + dice.expovariate(per_second)) < seconds:
        number += 1
        name, amounts = f"real-{number:04}", {"cpu": "1", "memory": "64Mi"}
        container = {
            "name": "c",
            "image": "sandbox/busybox:1",
            "imagePullPolicy": "Never",
            "command": ["sleep", str(dice.randint(1, 5))],
            "resources": {"requests": amounts, "limits": amounts},
        }
        said = {f"{SETTINGS}partition": PARTITION, f"{SETTINGS}qos": dice.choice(["low", "normal", "normal", "high"])}
        spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": dice.randint(1, 5)}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": said}, "spec": spec}
        deleted = round(dice.uniform(0.5, 6), 3) if dice.random() < 0.3 else 0.0
        yield Arrival(
            at=round(moment, 3), name=name, shape="real", namespace=dice.choice(NAMESPACES), documents=(document,), deleted_after=deleted
        )


def batch_jobs(seed: int, seconds: float, per_second: float) -> Iterator[BatchJob]:
    dice = random.Random(f"batch jobs {seed}")
    moment = 0.0
    while (moment := moment + dice.expovariate(per_second)) < seconds:
        cancelled = round(dice.uniform(0.5, 5), 3) if dice.random() < 0.3 else 0.0
        person, nodes = dice.choice(sorted(PEOPLE)), dice.choice([1, 1, 1, 2])
        yield BatchJob(at=round(moment, 3), person=person, nodes=nodes, seconds=dice.randint(1, 5), cancelled_after=cancelled)


class SlurmUsers:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.submitted = 0

    async def live(self, job: BatchJob) -> None:
        """Whoever is turned away, because Slurm is down, goes home."""
        words = f"sbatch --parsable --chdir=/tmp --output=/dev/null --partition={PARTITION} --account={PEOPLE[job.person]}"
        amounts = f"--nodes={job.nodes} --ntasks={job.nodes} --ntasks-per-node=1 --mem=64M"
        command = f"{words} {amounts} --wrap='sleep {job.seconds}'"
        try:
            told = await self._as(job.person, command)
            self.submitted += 1
            if job.cancelled_after:
                await asyncio.sleep(job.cancelled_after)
                await self._as(job.person, f"scancel {told.strip().partition(';')[0]}")
        except SandboxError:
            return

    async def _as(self, person: str, command: str) -> str:
        return await self._sandbox.link.run("head", "runuser", "-u", person, "--", "sh", "-c", command)
