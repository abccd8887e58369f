"""The service: `/metrics` with what Slurm is doing, `/livez` and `/readyz`.

Comes in: the settings. Goes out: the metrics of the last snapshot with its age, and the exporter's own. What must stay true: a scrape is answered whatever Slurm does; samples are made once for each snapshot, however many scrape.
"""

import asyncio
import logging
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from slinky.exporter.families import Family, as_metrics, counter, gauge
from slinky.exporter.samples import families_of
from slinky.exporter.settings import Settings
from slinky.exporter.snapshot import PARTS, Snapshot, take
from slinky.exporter.snapshots import Snapshots
from slinky.kube import HealthServer
from slinky.slurm import TLS, Limits, RequestMetrics, SlurmClient, TokenFile

__all__ = ["OWN", "Exporter", "SnapshotCollector", "slurm_of"]

log = logging.getLogger(__name__)

ANSWER_SECONDS = 0.5  # of a scraper's own patience, what is kept for writing the answer


UP = gauge("slurm_up", "1 while Slurm answers: the last look at it succeeded")
AGE = gauge("slurm_exporter_snapshot_age_seconds", "How old what is told is")
LOOK_SECONDS = gauge("slurm_exporter_look_seconds", "How long the last look at Slurm took")
LOOKS = counter("slurm_exporter_looks_total", "Looks at Slurm, by how they ended", "outcome")
PART_UP = gauge("slurm_exporter_part_up", "1 where the last snapshot has this part: jobs, nodes, shares …", "part")
OWN = (UP, AGE, LOOK_SECONDS, LOOKS, PART_UP)


class SnapshotCollector(Collector):
    """What was seen last, and how old it is."""

    def __init__(self, snapshots: Snapshots, settings: Settings) -> None:
        self._snapshots, self._settings = snapshots, settings
        self._made: tuple[Snapshot | None, list[Metric]] = (None, [])

    def collect(self) -> Iterator[Metric]:
        yield from as_metrics(self._own())
        current = self._snapshots.current
        if current is None:
            return
        made_of, made = self._made
        yield from made if made_of is current else self.prepare(current)

    def prepare(self, snapshot: Snapshot) -> list[Metric]:
        """Make the samples; may be called in another thread, as it takes a second where there are 100,000 jobs."""
        made = as_metrics(families_of(snapshot, self._settings))
        self._made = (snapshot, made)
        return made

    def _own(self) -> Iterator[Family]:
        seen = self._snapshots
        yield Family(UP, {(): float(seen.is_up)})
        yield Family(AGE, {} if seen.age is None else {(): seen.age})
        yield Family(LOOK_SECONDS, {(): seen.last_seconds})
        yield Family(LOOKS, {(outcome,): float(number) for outcome, number in seen.outcomes.items()})
        yield Family(PART_UP, {} if seen.latest is None else {(part,): float(part not in seen.latest.problems) for part in PARTS})


def slurm_of(settings: Settings, metrics: RequestMetrics | None = None) -> SlurmClient:
    """One connection, as one thing is asked at a time. A failed look is not repeated at once: the next scrape does that."""
    said = settings.slurm
    tls = TLS.of_files(said.ca_file, said.certificate_file, said.key_file)
    seconds = settings.snapshot.look_seconds
    limits = Limits(connections=2, deadline=seconds, attempt=min(12.0, seconds), attempts=2)
    credentials = TokenFile(said.token_file, said.user) if said.token_file else None
    return SlurmClient(settings.slurm_rest_api, credentials, tls=tls, limits=limits, observer=metrics.observe if metrics else None)


class Exporter:
    """`await Exporter(settings).run()`, until cancelled."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registry = CollectorRegistry()
        self._slurm_metrics = RequestMetrics(self._registry)

    async def run(self) -> None:
        settings = self._settings
        async with slurm_of(settings, self._slurm_metrics) as slurm:
            within = slurm.within(settings.snapshot.look_seconds)

            async def look() -> Snapshot:
                seen = await take(within)
                await asyncio.to_thread(collector.prepare, seen)
                return seen

            snapshots = Snapshots(look, settings.snapshot)
            collector = SnapshotCollector(snapshots, settings)
            self._registry.register(collector)

            async def freshen(patience: float | None) -> None:
                await snapshots.freshen(None if patience is None else patience - ANSWER_SECONDS)

            try:
                async with HealthServer(self._registry, port=settings.health_port, freshen=freshen).running():
                    await asyncio.get_running_loop().create_future()  # until cancelled
            finally:
                await snapshots.stop()
