"""What one task of a job was described as: the other way round of `translate`, so that placement and judgement go by what Slurm was told. Pure."""

import msgspec

from slinky.slurm import Job, JobDescription

__all__ = ["PerTask", "gres_counts", "per_task"]

NO_GRES = frozenset({"cpu", "mem", "node", "billing", "energy", "vmem", "pages"})
NO_GRES_KINDS = ("license/", "bb/", "fs/", "ic/")


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
    typed = gres_counts(job.tres_per_task)
    gres: dict[str, int] = {}
    for name, count in typed.items():
        plain = name.partition(":")[0]
        gres[plain] = gres.get(plain, 0) + count
    return PerTask(cpus=cpus, memory=memory, node_memory=node_memory, gres=gres, typed_gres=typed, node_gres=gres_counts(job.tres_per_node))


def gres_counts(text: str | None) -> dict[str, int]:
    """`gres/gpu:h100:2,gres/shard:3` → {"gpu:h100": 2, "shard": 3}; without a number it is one. What is no GRES (`cpu:4`, which Slurm may add) does not count."""
    found: dict[str, int] = {}
    for word in filter(None, (text or "").split(",")):
        if word.replace("=", ":").partition(":")[0] in NO_GRES or word.startswith(NO_GRES_KINDS):
            continue
        name, _, count = word.removeprefix("gres/").removeprefix("gres:").replace("=", ":").rpartition(":")
        if not count.isdigit():
            name, count = f"{name}:{count}" if name else count, "1"
        found[name] = found.get(name, 0) + int(count)
    return found
