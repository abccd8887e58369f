"""What one task of a job was described as: the other way round of `translate`, so that placement and judgement go by what Slurm was told. Pure."""

import msgspec

from slinky.slurm import Job, JobDescription
from slinky.slurm.tres import read_gres_asked

__all__ = ["PerTask", "per_task"]


class PerTask(msgspec.Struct, frozen=True, kw_only=True):
    """`memory` is what Slurm counts for it, in MiB; 0 where it was asked for by node, which is `node_memory`. `gres` is by name; `typed_gres` too, with the type where one was asked for; `node_gres` is per node."""

    cpus: int = 1
    memory: int = 0
    node_memory: int = 0
    gres: dict[str, int] = {}
    typed_gres: dict[str, int] = {}
    node_gres: dict[str, int] = {}

    @property
    def kinds(self) -> dict[str, int]:
        """What is to be given to it: `gpu`, or `gpu:h100` where a type was asked for."""
        return self.typed_gres or self.gres


def per_task(job: JobDescription | Job) -> PerTask:
    cpus = job.cpus_per_task if isinstance(job.cpus_per_task, int) and job.cpus_per_task else 1
    memory = job.memory_per_cpu * cpus if isinstance(job.memory_per_cpu, int) else 0
    node_memory = job.memory_per_node if isinstance(job.memory_per_node, int) else 0
    typed = read_gres_asked(job.tres_per_task)
    gres: dict[str, int] = {}
    for name, count in typed.items():
        plain = name.partition(":")[0]
        gres[plain] = gres.get(plain, 0) + count
    return PerTask(
        cpus=cpus, memory=memory, node_memory=node_memory, gres=gres, typed_gres=typed, node_gres=read_gres_asked(job.tres_per_node)
    )
