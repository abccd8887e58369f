"""A job that was submitted, as far as it must be remembered to place and describe its pods: from what we sent, or, after a restart, from what Slurm says. Pure.

A hetjob counts as one job: the id is its leader's, and each pod has a rank in the whole. Its components have ids of their own, which nobody but the bridge has to know.
"""

import itertools
from collections.abc import Sequence

import msgspec

from slinky.bridge.keys import DEVICES, RANK, SLURM_NODE, TASK, TASK_ENVIRONMENT
from slinky.bridge.marker import Failure, failures_of, read_comment
from slinky.bridge.placement import Slot
from slinky.bridge.task import PerTask, per_task
from slinky.kube import ANNOTATIONS, PodSpec
from slinky.slurm import Job, JobDescription, shorten

__all__ = ["Component", "Layout", "Submission", "hetjob_of", "submission_from", "submission_of", "task_annotations"]

ALWAYS = (RANK, TASK + "gpus")
MOST_LIST = 8 * 1024  # bytes of the list of nodes that each pod of a job of any size has
MOST_LISTS = 16 * 1024**2  # the same of all copies together: a longer list, on fewer pods
MOST_FIRST_LIST = 96 * 1024  # Linux takes no variable above 128 KiB, and Kubernetes no annotations above 256 KiB


class Component(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Of a hetjob: what Slurm has as a job of its own, for the pods of these ranks. `where` is a word for what they say about nodes."""

    job_id: int
    ranks: tuple[int, ...]
    task: PerTask
    where: str = ""


class Submission(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """`tasks` are those of the whole job. `components` are a hetjob's, the leader's first; any other job has none, and its tasks are all as `task`. `failures` are those of pods that were gone when it was read from Slurm."""

    job_id: int
    name: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    tasks: int = 1
    task: PerTask = PerTask()
    components: tuple[Component, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def job_ids(self) -> tuple[int, ...]:
        """All of Slurm's jobs that it is, the one that it is known by first."""
        return tuple(component.job_id for component in self.components) or (self.job_id,)

    def task_in(self, slot: Slot) -> PerTask:
        return self.components[slot.component].task if self.components else self.task


def submission_of(job_id: int, job: JobDescription | Job) -> Submission:
    return Submission(
        job_id=job_id,
        name=job.name or "",
        partition=job.partition or "",
        account=job.account or "",
        qos=job.qos or "",
        tasks=job.tasks if isinstance(job.tasks, int) and job.tasks else 1,
        task=per_task(job),
        failures=failures_of(job.admin_comment) if isinstance(job, Job) else (),
    )


def submission_from(jobs: Sequence[Job], cluster: str) -> Submission:
    """Of a job as Slurm has it, or of the parts of a hetjob, its leader first."""
    each = [submission_of(job.job_id, job) for job in jobs]
    if len(each) == 1:
        return each[0]
    markings = [read_comment(job.admin_comment, cluster) for job in jobs]
    return hetjob_of(each, [(marking.ranks, marking.where) if marking else ((), "") for marking in markings])


def hetjob_of(each: Sequence[Submission], said: Sequence[tuple[Sequence[int], str]]) -> Submission:
    """Of its components, the leader first, with the ranks that each was submitted for, and what its pods say about nodes. Ranks that cannot be, as somebody changed what we wrote, are dealt out anew, component by component."""
    tasks = sum(part.tasks for part in each)
    ranks = [own for own, _ in said]
    if [len(own) for own in ranks] != [part.tasks for part in each] or sorted(itertools.chain(*ranks)) != list(range(tasks)):
        starts = itertools.accumulate((part.tasks for part in each), initial=0)
        ranks = [range(start, start + part.tasks) for part, start in zip(each, starts, strict=False)]
    components = tuple(
        Component(job_id=part.job_id, ranks=tuple(own), task=part.task, where=where)
        for part, own, (_, where) in zip(each, ranks, said, strict=True)
    )
    return msgspec.structs.replace(each[0], tasks=tasks, components=components)


class Layout:
    """What is the same for all pods of a job that has started, made once: its nodes in Slurm's order, and what is on each. `slots` are all of the job's, in rank order.

    The list of nodes is on each pod as long as that is cheap: the API server keeps and sends each copy of it. A longer one is on the pod of rank 0
    alone, and one that an environment variable could not hold is on none; `withheld` says why.
    """

    def __init__(self, job: Submission, slots: Sequence[Slot]) -> None:
        self.job = job
        self.slots = slots
        self.tasks_on: dict[str, int] = {}
        self.cpus_on: dict[str, int] = {}
        for slot in slots:
            self.tasks_on[slot.node] = self.tasks_on.get(slot.node, 0) + 1
            self.cpus_on[slot.node] = self.cpus_on.get(slot.node, 0) + job.task_in(slot).cpus
        self.number_of = {node: number for number, node in enumerate(self.tasks_on)}
        self.lists = {"nodelist": shorten(self.tasks_on), "tasks-per-node": _repeated(list(self.tasks_on.values()))}
        length = sum(map(len, self.lists.values()))
        self.on_all = length <= MOST_LIST or length * len(slots) <= MOST_LISTS
        self.on_first = length <= MOST_FIRST_LIST
        where = "only the pod of rank 0 has it" if self.on_first else "no pod has it, run scontrol show job"
        nodes = f"{len(self.tasks_on):,} nodes"
        self.withheld = "" if self.on_all else f"the list of the job's {nodes} is too long ({length:,} bytes): {where}"

    def lists_for(self, slot: Slot) -> dict[str, str]:
        return self.lists if self.on_all or (self.on_first and not slot.rank) else {"nodelist-withheld": self.withheld}


def task_annotations(layout: Layout, slot: Slot, spec: PodSpec) -> dict[str, str]:
    """What the pod's environment is made of, by the downward API.

    A pod that is a job of its own gets no annotation of a task that its containers do not see: each costs the API server and all
    that watch pods. The bridge itself reads the rank, and people the GPUs.
    """
    found = _task(layout, slot)
    if layout.job.tasks == 1 and not layout.job.components and ANNOTATIONS not in (shown := spec.shown_annotations):
        found = {key: value for key, value in found.items() if key in ALWAYS or f"{ANNOTATIONS}['{key}']" in shown}
    found[SLURM_NODE] = slot.node
    if slot.devices:
        found[DEVICES] = msgspec.json.encode(slot.devices).decode()
    return found


def _task(layout: Layout, slot: Slot) -> dict[str, str]:
    job = layout.job
    values: dict[str, str | int] = {
        "procid": slot.rank,
        "localid": slot.local_rank,
        "nodeid": layout.number_of[slot.node],
        "ntasks": job.tasks,
        "nnodes": len(layout.tasks_on),
        "nodename": slot.node,
        "cpus-per-task": job.task_in(slot).cpus,
        "cpus-on-node": layout.cpus_on[slot.node],
        "job-name": job.name,
        "partition": job.partition,
        "account": job.account,
        "qos": job.qos,
        "gpus": ",".join(str(index) for index in slot.devices.get("gpu", ())),
    }
    assert set(TASK_ENVIRONMENT.values()) <= values.keys() | layout.lists.keys()
    values |= layout.lists_for(slot)
    if job.components:
        values |= {"het-size": len(job.components), "het-group": slot.component}
    return {TASK + key: str(value) for key, value in values.items() if value != ""}  # what is not there is an empty variable too


def _repeated(counts: list[int]) -> str:
    """8, 8, 4 as Slurm writes it: 8(x2),4."""
    runs = [(count, len(list(run))) for count, run in itertools.groupby(counts)]
    return ",".join(f"{count}(x{length})" if length > 1 else str(count) for count, length in runs)
