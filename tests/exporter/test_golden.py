"""Golden pairs: what slurmrestd says (YAML) → what Prometheus is told. `python -m tests.exporter.test_golden` writes them anew."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from slinky.exporter.families import as_metrics
from slinky.exporter.samples import DESCRIBED, families_of
from slinky.exporter.settings import Settings
from slinky.exporter.snapshot import Snapshot, facts_of
from slinky.slurm import Diagnostics, Job, License, Node, Partition, Reservation, Share

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.yaml"))
KINDS: dict[str, Any] = {
    "nodes": list[Node],
    "partitions": list[Partition],
    "reservations": list[Reservation],
    "licenses": list[License],
    "shares": list[Share],
    "diagnostics": Diagnostics,
}


class _Fixed(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def snapshot_of(document: dict[str, Any]) -> Snapshot:
    parts = {name: msgspec.convert(document[name], kind) for name, kind in KINDS.items() if name in document}
    jobs = [facts_of(job) for job in msgspec.convert(document["jobs"], list[Job])] if "jobs" in document else None
    return Snapshot(taken_at=document["takenAt"], jobs=jobs, **parts)


def told(snapshot: Snapshot, settings: Settings) -> str:
    registry = CollectorRegistry()
    registry.register(_Fixed(as_metrics(families_of(snapshot, settings))))
    return generate_latest(registry).decode()


def settings_of(document: dict[str, Any], *, original: bool = False) -> Settings:
    found = msgspec.convert(document.get("settings", {}), Settings)
    return msgspec.structs.replace(found, original_names=original)


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())
    return found


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_becomes_samples(name: str, original: bool) -> None:
    document = load(name)
    text = told(snapshot_of(document), settings_of(document, original=original))
    assert text == (GOLDEN / f"{name}{'-original' if original else ''}.prom").read_text()


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_no_sample_is_told_twice_and_every_metric_is_described(name: str, original: bool) -> None:
    document = load(name)
    seen = set()
    for family in text_string_to_metric_families(told(snapshot_of(document), settings_of(document, original=original))):
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in seen
            seen.add(key)
    names = {metric.name for metric in DESCRIBED}
    assert original or {key[0] for key in seen} <= names


def test_the_whole_stays_the_whole() -> None:
    """Whatever the limits are."""
    document = load("bounded")
    jobs = snapshot_of(document)
    for settings in (settings_of(document), Settings()):
        sums = {family.metric.name: sum(family.samples.values()) for family in families_of(jobs, settings)}
        assert (sums["slurm_queue_jobs"], sums["slurm_queue_cpus"], sums["slurm_cluster_nodes"], sums["slurm_node_capacity_cpus"]) == (
            7,
            114,
            3,
            12,
        )


def write() -> None:
    for name in NAMES:
        document = load(name)
        for original in (False, True):
            text = told(snapshot_of(document), settings_of(document, original=original))
            (GOLDEN / f"{name}{'-original' if original else ''}.prom").write_text(text)


if __name__ == "__main__":
    write()
