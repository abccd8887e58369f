"""Slurm's side of a history: the jobs as accounting has them at the end, and those that slurmctld still has.

Comes in: the sandbox. Goes out: `JobRecord`s and `LiveJob`s. What must stay true: accounting is asked past slurmrestd and past the bridge, by sacct on the head; and believed only when it has heard of the end of every job that slurmctld
says is over.
"""

import json
from collections.abc import Iterable, Sequence

import msgspec

from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.slurm import SlurmError, expand
from tests.chaos.history import JobRecord, LiveJob

__all__ = ["FIELDS", "completed", "has_all_ends", "live_jobs", "record_of", "records"]

FIELDS = ("JobIDRaw", "JobName", "State", "Submit", "Start", "End", "NodeList", "AllocTRES", "AdminComment")
APART = "\x1f"
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


async def records(sandbox: Sandbox, since: float) -> list[JobRecord]:
    """All jobs that ran or were submitted since then, also several of one id."""
    when = f"@{int(since) - 60}"
    start = (await sandbox.link.run("head", "date", "-d", when, "+%Y-%m-%dT%H:%M:%S")).strip()
    command = ["sacct", "-a", "-X", "-n", "-P", "-D", f"--delimiter={APART}", "-S", start, "-o", ",".join(FIELDS)]
    told = await sandbox.link.run("head", "env", "SLURM_TIME_FORMAT=%s", *command)
    return [record_of(line) for line in told.splitlines() if line.count(APART) == len(FIELDS) - 1]


def record_of(line: str) -> JobRecord:
    job_id, name, state, submit, start, end, nodes, tres, comment = line.split(APART)
    amounts = dict(pair.split("=", 1) for pair in tres.split(",") if "=" in pair)
    cluster, workload, marker, pods = _ours(comment)
    return JobRecord(
        job_id=int(job_id.partition("+")[0].partition("_")[0]),
        name=name,
        state=state,
        submit=_moment(submit),
        start=_moment(start),
        end=_moment(end),
        nodes=tuple(expand(nodes)) if nodes and nodes != "None assigned" else (),
        cpus=int(amounts.get("cpu", 0)),
        memory=_bytes(amounts.get("mem", "0")),
        gpus=int(amounts.get("gres/gpu", 0)),
        cluster=cluster,
        workload=workload,
        marker=marker,
        pods=pods,
    )


async def live_jobs(sandbox: Sandbox) -> list[LiveJob] | None:
    """None where slurmctld cannot be asked now."""
    found = []
    try:
        async with sandbox.slurm_client() as slurm:
            async for job in slurm.jobs.stream():
                if not job.is_finished:
                    cluster, workload, _, pods = _ours(job.admin_comment)
                    state = "RUNNING" if job.is_running else "PENDING" if job.is_pending else str(job.state)
                    found.append(LiveJob(job_id=job.job_id, state=state, cluster=cluster, workload=workload, pods=pods))
    except (SlurmError, SandboxError):
        return None
    return found


def has_all_ends(jobs: list[JobRecord], live: list[LiveJob]) -> bool:
    """Whether accounting knows as over what is not live any more."""
    still = {job.job_id for job in live}
    return all(job.end or job.job_id in still for job in jobs)


def completed(jobs: Sequence[JobRecord], live: Iterable[LiveJob]) -> list[JobRecord]:
    """Accounting hears of a job's comment when it ends: until then slurmctld has it. Of several jobs of one id (Slurm was set back) it has the last."""
    there = {job.job_id: job for job in live}
    last: dict[int, float] = {}
    for job in jobs:
        last[job.job_id] = max(job.submit, last.get(job.job_id, 0.0))
    return [
        msgspec.structs.replace(job, cluster=now.cluster, workload=now.workload, pods=now.pods)
        if not job.end and job.submit == last[job.job_id] and (now := there.get(job.job_id))
        else job
        for job in jobs
    ]


def _ours(comment: str) -> tuple[str, str, str, tuple[str, ...]]:
    try:
        said = json.loads(comment) if comment.startswith("{") else {}
    except json.JSONDecodeError:
        said = {}
    return said.get("cluster", ""), said.get("workload", ""), said.get("marker", ""), tuple(said.get("pods", ()))


def _moment(text: str) -> float:
    return float(text) if text.isdigit() else 0.0


def _bytes(text: str) -> int:
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1:] in UNITS else int(float(text or 0)) * UNITS["M"]
