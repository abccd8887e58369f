"""A snapshot as samples, all of it.

Pure. Comes in: a snapshot and the settings. Goes out: families; a part that the snapshot does not have has none. What must stay true: the same snapshot gives the same samples; every metric is described in `DESCRIBED`, from which the reference in the docs is made.
"""

from collections.abc import Iterator

from slinky.exporter import cluster_samples, job_samples, node_samples, scheduler_samples
from slinky.exporter.families import Described, Family
from slinky.exporter.original import original_families
from slinky.exporter.settings import Settings
from slinky.exporter.snapshot import Snapshot

__all__ = ["DESCRIBED", "families_of"]

DESCRIBED: tuple[Described, ...] = (
    *job_samples.DESCRIBED,
    *node_samples.DESCRIBED,
    *scheduler_samples.DESCRIBED,
    *cluster_samples.DESCRIBED,
)


def families_of(snapshot: Snapshot, settings: Settings) -> list[Family]:
    return list(_families(snapshot, settings))


def _families(snapshot: Snapshot, settings: Settings) -> Iterator[Family]:
    limits = settings.limits
    if snapshot.jobs is not None:
        yield from job_samples.job_families(snapshot.jobs, snapshot.taken_at, limits)
    if snapshot.nodes is not None:
        yield from node_samples.node_families(snapshot.nodes, snapshot.partitions, limits)
    if snapshot.diagnostics is not None:
        yield from scheduler_samples.scheduler_families(snapshot.diagnostics, limits)
    if snapshot.licenses is not None:
        yield from cluster_samples.license_families(snapshot.licenses, limits)
    if snapshot.reservations is not None:
        yield from cluster_samples.reservation_families(snapshot.reservations, snapshot.taken_at, limits)
    if snapshot.shares is not None:
        yield from cluster_samples.share_families(snapshot.shares, limits)
    if settings.original_names:
        yield from original_families(snapshot, limits)
