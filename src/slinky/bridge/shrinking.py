"""Gangs that shrink: a running job gives back the nodes on which none of its pods is left, where none will come in their stead.

Comes in: a gang's pods, its job, and whether others may come. Goes out: an update of the job that keeps the nodes which are still needed. What must stay true: no node goes on which a pod of the job may run, or may yet start; a job keeps one node at
least, as its end is told otherwise; and nothing is sent for a node that nobody would answer for: a shrink makes slurmctld speak to the node that is let go, and an external one without a sink would be silent to it from then on. There its nodes are kept until the job
ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from slinky.bridge.executor import Executor
from slinky.bridge.keys import SLURM_NODE
from slinky.bridge.memory import Known
from slinky.bridge.plan import JobView, PodView
from slinky.bridge.sink import address_of
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod
from slinky.slurm import ForbiddenError, Node, NotFoundError, RefusedError, SlurmClient

__all__ = ["SHRINK_SECONDS", "Shrinking", "answers", "nodes_in_use", "places_left"]

log = logging.getLogger(__name__)

SHRINK_SECONDS = 10.0  # how long slots must have been empty: several pods that end together are one change
MOST_AT_ONCE = 16  # nodes: what slurmctld has to say to more is passed on from one to the next, and where that is one sink for all, it does not come to an end in time
FEW = 16  # nodes that are asked for one by one


def places_left(views: Sequence[PodView], job: JobView) -> int | None:
    """How many of the job's slots have a pod; None while one of them may yet start, wherever that will be."""
    own = [view for view in views if view.job_id == job.job_id]
    if any(view.state == "waiting" and not view.deleting for view in own):
        return None
    return sum(view.state == "bound" for view in own)


def nodes_in_use(pods: Iterable[Pod]) -> set[str]:
    """By Slurm's names: those of pods whose containers are not gone."""
    here = (pod for pod in pods if pod.spec.node_name and not pod.is_over)
    return {pod.metadata.annotations.get(SLURM_NODE) or pod.spec.node_name for pod in here}


def answers(node: Node, sink: tuple[str, int] | None) -> bool:
    """Whether somebody is there for what slurmctld has to say to it: its own slurmd, or the sink."""
    return not node.is_external or (sink is not None and (node.address, node.port) == sink)


async def _trusted(_: Known) -> bool:
    return True


class Shrinking:
    """`sink` as the setting `nodes.sink` has it; `is_still_own(known)` tells whether its job is still known to be its own."""

    def __init__(
        self, executor: Executor, slurm: SlurmClient, sink: str = "", is_still_own: Callable[[Known], Awaitable[bool]] = _trusted
    ) -> None:
        self._executor = executor
        self._slurm = slurm
        self._sink = address_of(sink) if sink else None
        self._is_still_own = is_still_own

    async def look(
        self,
        pods: Sequence[Pod],
        views: Sequence[PodView],
        job: JobView | None,
        known: Known,
        key: WorkloadKey,
        may_come: Callable[[], bool],
    ) -> None:
        """After each look of the reconciler at a gang."""
        runs = job is not None and job.state == "running" and not job.suspended
        if key.kind == "Pod" or job is None or not runs or known.submission is None or known.submission.components:
            known.vacated_at = 0.0
            return
        left = places_left(views, job)
        if not left or left >= job.tasks or left == known.shrunk_to or may_come():
            known.vacated_at = 0.0
            return
        now = asyncio.get_running_loop().time()
        known.vacated_at = known.vacated_at or now
        if now - known.vacated_at < SHRINK_SECONDS:
            return
        known.vacated_at = 0.0
        done = await self._shrink(key, job.job_id, {pod.metadata.uid: pod for pod in pods}, views, known)
        known.shrunk_to, known.vacated_at = (left, 0.0) if done else (0, now)

    async def _shrink(self, key: WorkloadKey, job_id: int, pods: dict[str, Pod], views: Sequence[PodView], known: Known) -> bool:
        """Whether that is all that can be given back as things are; else it is looked at again soon."""
        assert known.submission
        if not await self._is_still_own(known):
            return False
        had = [node.node for node in (await self._slurm.jobs.allocation(job_id)).nodes]
        used = nodes_in_use(pods[view.uid] for view in views if view.job_id == job_id and view.state != "over")
        unused = [node for node in had if node not in used]
        gone = unused[:MOST_AT_ONCE]
        kept = [node for node in had if node not in gone]
        if not gone or not used or not used <= set(had):
            return True  # nothing to give, or its pods are not where it is
        if silent := await self._silent(gone):
            log.info(
                "%s: job %d keeps %s until it ends: without a sink nobody answers there for slurmctld", key, job_id, ", ".join(silent[:5])
            )
            return True
        try:
            await self._executor.shrink(job_id, kept)
        except ForbiddenError:
            raise
        except RefusedError as error:
            log.warning("%s: job %d keeps %d nodes that no pod of it uses any more: %s", key, job_id, len(gone), error)
            return True
        known.given_back = self._slots_gone(known, set(kept), left=sum(view.job_id == job_id and view.state == "bound" for view in views))
        log.info("%s: job %d gives %s back, as no pod will come there any more", key, job_id, ", ".join(gone[:20]))
        return len(unused) == len(gone)

    @staticmethod
    def _slots_gone(known: Known, kept: set[str], left: int) -> int:
        """Where it is not known (any more) which slot was where: all that have no pod."""
        assert known.submission
        return sum(slot.node not in kept for slot in known.slots) if known.slots else known.submission.tasks - left

    async def _silent(self, names: Sequence[str]) -> list[str]:
        """Those of the nodes that nobody answers for; one that Slurm does not know is none of them."""
        if len(names) > FEW:
            found = {node.name: node for node in await self._slurm.nodes.all()}
        else:
            found = {}
            for name in names:
                try:
                    found[name] = await self._slurm.nodes.get(name)
                except NotFoundError:
                    continue
        return [name for name in names if name in found and not answers(found[name], self._sink)]
