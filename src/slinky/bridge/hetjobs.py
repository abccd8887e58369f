"""Gangs whose pods are of several kinds: whether the server has hetjobs for them, and which component a pod belongs to.

Comes in: what the server says of itself and what it refuses; a workload and the job it has. Goes out: why there can be no hetjobs, if so; for each pod the component whose tasks are like it. What must stay true: where there are none, a
gang is still submitted, as one job with the largest needs for all; a pod never takes a slot that is smaller than it.
"""

import asyncio
import logging

import msgspec

from slinky.bridge.submission import Submission
from slinky.bridge.task import PerTask, per_task
from slinky.bridge.translate import Site, template_of, translate, whereto
from slinky.bridge.workload import Workload
from slinky.kube import Pod
from slinky.slurm import RefusedError, SlurmClient

__all__ = ["Hetjobs", "components_for"]

log = logging.getLogger(__name__)

FIRST_RELEASE = (26, 5, 3)
NO_SUCH_THING = frozenset({2036, 2037})  # not supported, disabled: what a slurmctld says that has no hetjobs
BELIEVED_SECONDS = 600.0  # how long a refusal counts for all


class Hetjobs:
    """`lacking` is asked before each submit of a gang of several kinds."""

    def __init__(self, slurm: SlurmClient, wanted: bool = True) -> None:
        self._slurm = slurm
        self._wanted = wanted
        self._refusal = ""
        self._refused_at = float("-inf")
        self._told = ""

    async def lacking(self) -> str:
        """Why there are none; empty where there are, as far as is known. Raises SlurmError where the server cannot be asked."""
        if not self._wanted:
            return "gangs.hetjobs is never"
        if self._refusal and asyncio.get_running_loop().time() - self._refused_at < BELIEVED_SECONDS:
            return self._refusal
        server = await self._slurm.server()
        if server.slurm and server.slurm < FIRST_RELEASE:
            return self._tell(f"{server.release.partition('&')[0]} has none for external jobs, Slurm 26.05.3 and later do")
        return ""

    def refused(self, error: RefusedError) -> bool:
        """A hetjob was refused: is it that there are none? Believed for a while, for all."""
        if error.number not in NO_SUCH_THING:
            return False
        self._refusal, self._refused_at = (
            self._tell(f"Slurm refuses them ({error.description or error})"),
            asyncio.get_running_loop().time(),
        )
        return True

    def _tell(self, why: str) -> str:
        if why != self._told:
            log.warning("gangs whose pods differ are one job each, with the largest needs for all, instead of a hetjob: %s", why)
            self._told = why
        return why


def components_for(workload: Workload, site: Site, job: Submission) -> dict[str, int]:
    """For each pod, by UID, the component of its hetjob that is like it; else one whose tasks hold it, rather for the same nodes than for others. -1 where none does: it is not as those were that the job was submitted for."""
    found: dict[str, int] = {}
    by_template: dict[object, int] = {}
    for pod in workload.pods if job.components else ():
        template = template_of(pod)
        if (component := by_template.get(template)) is None:
            component = by_template[template] = _component_for(pod, workload, site, job)
        found[pod.metadata.uid] = component
    return found


def _component_for(pod: Pod, workload: Workload, site: Site, job: Submission) -> int:
    own = per_task(translate(msgspec.structs.replace(workload, pods=(pod,), coming=None), site))
    where = whereto(pod)
    ways = [
        (part.where != where, _is_other(part.task, own), number) for number, part in enumerate(job.components) if _holds(part.task, own)
    ]
    return min(ways)[-1] if ways else -1


def _is_other(task: PerTask, pod: PerTask) -> bool:
    """How many of them a node may have makes no difference."""
    return (task.cpus, task.least_memory, task.kinds) != (pod.cpus, pod.least_memory, pod.kinds)


def _holds(task: PerTask, pod: PerTask) -> bool:
    gres = all(task.count(kind) >= count for kind, count in pod.kinds.items())
    return task.cpus >= pod.cpus and task.least_memory >= pod.least_memory and gres
