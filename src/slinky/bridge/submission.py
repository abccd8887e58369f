"""A job that was submitted, as far as it must be remembered to place and describe its pods: from what we sent, or, after a restart, from what Slurm says. Pure."""

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec

from slinky.bridge.admission import TASK_ENVIRONMENT
from slinky.bridge.keys import DEVICES, SLURM_NODE, TASK
from slinky.bridge.placement import Slot
from slinky.bridge.task import PerTask, per_task
from slinky.slurm import Job, JobDescription, compress, expand

__all__ = ["Submission", "submission_of", "task_annotations"]


class Submission(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    job_id: int
    name: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    tasks: int = 1
    task: PerTask = PerTask()


def submission_of(job_id: int, job: JobDescription | Job) -> Submission:
    return Submission(
        job_id=job_id,
        name=job.name or "",
        partition=job.partition or "",
        account=job.account or "",
        qos=job.qos or "",
        tasks=job.tasks if isinstance(job.tasks, int) and job.tasks else 1,
        task=per_task(job),
    )


def task_annotations(job: Submission, slot: Slot, slots: Sequence[Slot]) -> dict[str, str]:
    """What the pod's environment is made of, by the downward API; and what people and tools look for. `slots` are all of the job's, in rank order."""
    on_node = Counter(other.node for other in slots)  # in Slurm's order
    nodes = list(on_node)
    values = {
        "procid": slot.rank,
        "localid": slot.local_rank,
        "nodeid": nodes.index(slot.node),
        "ntasks": job.tasks,
        "nnodes": len(nodes),
        "nodelist": _hostlist(nodes),
        "nodename": slot.node,
        "tasks-per-node": _repeated(list(on_node.values())),
        "cpus-per-task": job.task.cpus,
        "cpus-on-node": job.task.cpus * on_node[slot.node],
        "job-name": job.name,
        "partition": job.partition,
        "account": job.account,
        "qos": job.qos,
        "gpus": ",".join(str(index) for index in slot.devices.get("gpu", ())),
    }
    assert set(TASK_ENVIRONMENT.values()) <= set(values)
    found = {TASK + key: str(value) for key, value in values.items() if value != ""}  # what is not there is an empty variable too
    found[SLURM_NODE] = slot.node
    if slot.devices:
        found[DEVICES] = msgspec.json.encode(slot.devices).decode()
    return found


def _hostlist(nodes: list[str]) -> str:
    """As Slurm writes it, n[01-16], where that keeps the order: ranks go by it."""
    short = compress(nodes)
    return short if expand(short) == nodes else ",".join(nodes)


def _repeated(counts: list[int]) -> str:
    """8, 8, 4 as Slurm writes it: 8(x2),4."""
    runs = [(count, len(list(run))) for count, run in itertools.groupby(counts)]
    return ",".join(f"{count}(x{length})" if length > 1 else str(count) for count, length in runs)
