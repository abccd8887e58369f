"""Equal parts of many objects become one object: pods of a Job have the same containers, tolerations and owner, and all pods the same few words.

In: a freshly decoded Pod, that nobody else has seen yet. Out: the same Pod, a third of its size. Volumes of kinds that say
nothing about where a pod may run (secrets, empty directories …) are dropped.
What must stay true: the result equals what came in but for those volumes; the pool has a limit and loses nothing but sharing when it is emptied.
"""

from collections.abc import Hashable
from typing import TypeVar

import msgspec

from slinky.kube.objects.meta import Condition, Meta
from slinky.kube.objects.pod import ANNOTATIONS, ContainerStatus, Pod, PodSpec, PodStatus

__all__ = ["Pool", "compact_pod"]

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")

POOL_LIMIT = 100_000
_set = msgspec.structs.force_setattr
_encode = msgspec.json.Encoder().encode


class Pool:
    """The first of equals."""

    def __init__(self, limit: int = POOL_LIMIT) -> None:
        self._held: dict[Hashable, object] = {}
        self._limit = limit

    def share(self, value: H) -> H:
        return self.share_as(value, value)

    def share_as(self, name: Hashable, value: T) -> T:
        """For values that cannot be hashed: `name` stands for them."""
        found = self._held.get(name)
        if found is not None:
            return found  # type: ignore[return-value]
        if len(self._held) >= self._limit:
            self._held.clear()
        self._held[name] = value
        return value

    def __len__(self) -> int:
        return len(self._held)


POOL = Pool()


def compact_pod(pod: Pod, pool: Pool = POOL) -> Pod:
    _share_meta(pod.metadata, pool)
    _share_spec(pod.spec, pool)
    _share_status(pod.status, pool)
    return pod


def _share_meta(meta: Meta, pool: Pool) -> None:
    _set(meta, "namespace", pool.share(meta.namespace))
    if meta.generate_name:
        _set(meta, "generate_name", pool.share(meta.generate_name))
    if meta.labels:
        _set(meta, "labels", {pool.share(key): value for key, value in meta.labels.items()})
    if meta.annotations:
        _set(meta, "annotations", {pool.share(key): value for key, value in meta.annotations.items()})
    if meta.owner_references:
        _set(meta, "owner_references", pool.share(meta.owner_references))
    if meta.finalizers:
        _set(meta, "finalizers", pool.share(meta.finalizers))


def _share_spec(spec: PodSpec, pool: Pool) -> None:
    for field in (
        "node_name",
        "scheduler_name",
        "preemption_policy",
        "restart_policy",
        "service_account_name",
        "priority_class_name",
        "tolerations",
    ):
        value = getattr(spec, field)
        if value:
            _set(spec, field, pool.share(value))
    for field in ("containers", "init_containers", "node_selector", "affinity", "topology_spread_constraints"):
        value = getattr(spec, field)
        if value:
            _set(spec, field, pool.share_as((field, _encode(value)), value))
    if spec.volumes:
        shown = {path for volume in spec.volumes for path in volume.field_paths if path.startswith(ANNOTATIONS)}
        if shown:
            _set(spec, "shown_in_files", pool.share(tuple(sorted(shown))))
        _set(spec, "volumes", tuple(volume for volume in spec.volumes if volume.matters))


def _share_status(status: PodStatus, pool: Pool) -> None:
    _set(status, "phase", pool.share(status.phase))
    _set(status, "host_ip", pool.share(status.host_ip))
    moments: dict[object, object] = {}
    for condition in status.conditions:
        _share_condition(condition, pool)
        _set(condition, "last_transition_time", moments.setdefault(condition.last_transition_time, condition.last_transition_time))
    for container in status.container_statuses:
        _share_container(container, pool)
    _set(status, "start_time", moments.setdefault(status.start_time, status.start_time))


def _share_condition(condition: Condition, pool: Pool) -> None:
    _set(condition, "type", pool.share(condition.type))
    _set(condition, "status", pool.share(condition.status))
    if condition.reason:
        _set(condition, "reason", pool.share(condition.reason))


def _share_container(container: ContainerStatus, pool: Pool) -> None:
    _set(container, "name", pool.share(container.name))
    if container.allocated_resources:
        _set(
            container,
            "allocated_resources",
            pool.share_as(("allocated", _encode(container.allocated_resources)), container.allocated_resources),
        )
    if container.resources:
        _set(container, "resources", pool.share_as(("resources", _encode(container.resources)), container.resources))
