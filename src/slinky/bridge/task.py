"""What one task of a job was described as: the reverse of `translate`, so that placement and checks go by what Slurm was told. Pure."""

from collections.abc import Mapping

import msgspec

from slinky.bridge.gres_needs import gres_of
from slinky.bridge.needs import needs_of
from slinky.kube import Pod
from slinky.kube.quantities import mebibytes, whole
from slinky.slurm import Job, JobDescription
from slinky.slurm.tres import read_gres_asked

__all__ = ["PerTask", "exceeds", "per_task"]


class PerTask(msgspec.Struct, frozen=True, kw_only=True):
    """`memory` is what Slurm counts for it, in MiB; 0 where it was asked for by node, which is `node_memory`. `gres` is by name; `typed_gres` too, with the type where one was asked for; `node_gres` is per node.

    `tasks_per_node`: Slurm gives every node of the job the CPUs of so many tasks, and no node gets more tasks; 0 where the job does not say.
    `node_share`: how many tasks at most share what is per node; 0 counts as one.
    """

    cpus: int = 1
    memory: int = 0
    node_memory: int = 0
    gres: dict[str, int] = {}
    typed_gres: dict[str, int] = {}
    node_gres: dict[str, int] = {}
    tasks_per_node: int = 0
    node_share: int = 0

    @property
    def kinds(self) -> dict[str, int]:
        """What is to be given to it: `gpu`, or `gpu:h100` where a type was asked for. Of what is per node, its share."""
        shares = {kind: count // (self.node_share or 1) for kind, count in self.node_gres.items()}
        return {kind: count for kind, count in (shares | (self.typed_gres or self.gres)).items() if count}

    @property
    def least_memory(self) -> int:
        """What it has for certain, in MiB: of memory that is per node, its share. 0 where the job does not say."""
        return self.memory or self.node_memory // (self.node_share or 1)

    def count(self, kind: str) -> int:
        """How many of a GRES it has for certain: of `gpu` those of all types; of `gpu:h100` also those without a type."""
        name, _, type_ = kind.partition(":")
        own = self.kinds
        if type_:
            return own.get(kind, own.get(name, 0))
        return sum(count for found, count in own.items() if found.partition(":")[0] == name)


def per_task(job: JobDescription | Job) -> PerTask:
    cpus = job.cpus_per_task if isinstance(job.cpus_per_task, int) and job.cpus_per_task else 1
    memory = job.memory_per_cpu * cpus if isinstance(job.memory_per_cpu, int) else 0
    node_memory = job.memory_per_node if isinstance(job.memory_per_node, int) else 0
    typed = read_gres_asked(job.tres_per_task)
    gres: dict[str, int] = {}
    for name, count in typed.items():
        plain = name.partition(":")[0]
        gres[plain] = gres.get(plain, 0) + count
    node_gres = read_gres_asked(job.tres_per_node)
    tasks = job.tasks if isinstance(job.tasks, int) and job.tasks else 1
    per_node = job.tasks_per_node if isinstance(job.tasks_per_node, int) else 0
    return PerTask(
        cpus=cpus,
        memory=memory,
        node_memory=node_memory,
        gres=gres,
        typed_gres=typed,
        node_gres=node_gres,
        tasks_per_node=per_node,
        node_share=min(per_node or tasks, tasks) if node_memory or node_gres else 0,
    )


def exceeds(pod: Pod, task: PerTask, mapped: Mapping[str, str], *, whole_node: bool = False) -> str:
    """What a pod requests beyond its task's part of the job, in words; empty where the task covers it. Raises QuantityError as `needs_of` does."""
    needs = needs_of(pod)
    cpus, memory = whole(needs.cpu), mebibytes(needs.memory)
    if cpus > task.cpus and not whole_node:
        return f"{cpus} CPUs, but its share of the job is {task.cpus}"
    if memory > task.least_memory and task.least_memory:
        return f"{memory} MiB of memory, but its share of the job is {task.least_memory} MiB"
    for kind, count in gres_of(needs, mapped).items():
        if count > task.count(kind):
            return f"{count} {kind}, but its share of the job is {task.count(kind)}"
    return ""
