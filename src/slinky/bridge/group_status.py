"""The status of PodGroups, as their APIs ask whoever schedules them to write it.

Comes in: each change of a pod that names a group, and the group as it is. Goes out: a patch of its status where that says something else. What must stay true: written by the process that leads, few and only on change, all together at a
limited rate; nothing of the way of a pod ever waits for this.

- The built-in API has one condition: `PodGroupScheduled` in 1.36, `PodGroupInitiallyScheduled` since. It is true once as many pods as the group asks for were on nodes, and stays so; before, it says why not, as the pods do.
- The coscheduling API has a phase and counts, by its own words: `Pending` until as many pods as `minMember` are on nodes (`Unknown` where only some are), then `Scheduling`, `Running` when so many run, `Finished` or `Failed` at the end. A group
  whose pods are gone keeps its end.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from slinky.bridge.groupapis import BuiltinGroup, CoschedulingGroup, CoschedulingStatus, Source, group_from
from slinky.bridge.groups import PodGroups
from slinky.bridge.keys import CONDITION
from slinky.bridge.settings import StatusSettings
from slinky.bridge.workload import WorkloadKey, group_of
from slinky.kube import Cache, Change, Client, InvalidError, NotFoundError, PatchKind, Pod, WorkQueue

__all__ = ["GroupStatus", "builtin_condition", "coscheduling_status"]

log = logging.getLogger(__name__)

TOGETHER_SECONDS = 0.5  # changes of a group's pods come in swarms
KINDS = ("PodGroup", "CoschedulingPodGroup")


def builtin_condition(group: BuiltinGroup, version: str, pods: Sequence[Pod], now: dt.datetime) -> dict[str, Any] | None:
    """What is to be written; None where it says so already, or there is nothing to say yet."""
    policy = group_from(group)
    if policy is None:
        return None
    kind = "PodGroupScheduled" if version == "v1alpha2" else "PodGroupInitiallyScheduled"
    before = next((found for found in group.status.conditions if found.type == kind), None)
    if before is not None and before.status == "True":
        return None
    bound = sum(bool(pod.spec.node_name) for pod in pods)
    if policy.refusal and pods:
        status, reason, message = "False", "Unschedulable", policy.refusal
    elif bound >= policy.min_count:
        status, reason, message = "True", "Scheduled", f"Slurm gave nodes to {bound} pods"
    elif waiting := next((found for pod in pods if pod.condition(CONDITION) and (found := pod.condition("PodScheduled"))), None):
        status, reason, message = "False", waiting.reason or "WaitingForSlurm", waiting.message
    else:
        return None
    if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
        return None
    written = {"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": group.metadata.generation}
    return written if before is not None and before.status == status else written | {"lastTransitionTime": _time(now)}


def coscheduling_status(group: CoschedulingGroup, pods: Sequence[Pod], now: dt.datetime) -> CoschedulingStatus:
    """The whole status as it should be."""
    before, least = group.status, max(group.spec.min_member, 1)
    phases = [pod.status.phase for pod in pods]
    running, succeeded, failed = (phases.count(phase) for phase in ("Running", "Succeeded", "Failed"))
    if before.phase in ("Finished", "Failed") and len(pods) == succeeded + failed:
        return before if len(pods) < least else msgspec.structs.replace(before, phase=_ended(succeeded, failed, least) or before.phase)
    bound = sum(bool(pod.spec.node_name) for pod in pods)
    phase = _ended(succeeded, failed if failed + running + succeeded >= least else 0, least)
    if not phase:
        phase = "Running" if running + succeeded >= least else "Scheduling" if bound >= least else "Unknown" if bound else "Pending"
    owners = sorted({f"{pod.metadata.namespace}/{owner.name}" for pod in pods[:1] for owner in pod.metadata.owner_references})
    complete = len(pods) >= least
    return CoschedulingStatus(
        phase=phase,
        occupied_by=before.occupied_by or (",".join(owners) if complete else ""),
        running=running,
        succeeded=succeeded,
        failed=failed,
        schedule_start_time=before.schedule_start_time or (now.replace(microsecond=0) if complete else None),
    )


def _ended(succeeded: int, failed: int, least: int) -> str:
    return "Finished" if succeeded >= least else "Failed" if failed else ""


class GroupStatus:
    """`pods` are those of our scheduler, indexed by group (as Membership does)."""

    def __init__(
        self,
        kube: Client,
        pods: Cache[Pod],
        groups: PodGroups,
        settings: StatusSettings,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kube = kube
        self._pods = pods
        self._groups = groups
        self._settings = settings
        self._may_act = may_act
        self._queue: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace)

    async def run(self) -> None:
        """For ever."""
        unsubscribe = self._pods.subscribe(self._pod_changed)
        try:
            await self._queue.serve(self._look, workers=1)
        finally:
            unsubscribe()

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        pod = new or old
        key = group_of(pod) if pod is not None else None
        if key is None or key.kind not in KINDS or (old is not None and new is not None and _shown(old) == _shown(new)):
            return
        self._queue.add_after(key, TOGETHER_SECONDS)

    async def _look(self, key: WorkloadKey) -> None:
        found, source = self._groups.object(key), self._groups.sources.source(key.kind)
        pods = sorted(self._pods.by_index("group", str(key)), key=lambda pod: pod.metadata.name)
        if source is None or found is None:
            if pods:  # it may be yet to come
                self._queue.add_after(key, self._settings.seconds)
            return
        now = dt.datetime.now(dt.UTC)
        if isinstance(found, BuiltinGroup):
            if condition := builtin_condition(found, source.version, pods, now):
                await self._write(source, found, {"conditions": [condition]}, PatchKind.STRATEGIC)
        elif isinstance(found, CoschedulingGroup):
            status = coscheduling_status(found, pods, now)
            if status != found.status:
                await self._write(source, found, _as_patch(status), PatchKind.MERGE)

    async def _write(self, source: Source, found: Any, status: dict[str, Any], kind: PatchKind) -> None:
        if not self._may_act():
            return
        meta = found.metadata
        change = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            await self._kube.patch(source.resource.untyped, meta.name, change, meta.namespace, kind=kind, subresource="status")
        except (NotFoundError, InvalidError) as error:
            log.debug("the status of %s %s was not written: %s", source, meta.key, error)
        await asyncio.sleep(1 / self._settings.rate)


def _shown(pod: Pod) -> tuple[Any, ...]:
    """What the status of a group is made of."""
    scheduled = pod.condition("PodScheduled")
    return pod.status.phase, pod.spec.node_name, (scheduled.reason, scheduled.message) if scheduled else None


def _as_patch(status: CoschedulingStatus) -> dict[str, Any]:
    """All of it, so that a count that is 0 now is written too."""
    written = {
        "phase": status.phase,
        "occupiedBy": status.occupied_by,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
    }
    return written | ({"scheduleStartTime": _time(status.schedule_start_time)} if status.schedule_start_time else {})


def _time(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
