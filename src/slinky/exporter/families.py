"""What is told to Prometheus, as plain values: a metric's name, kind, help and labels, and the samples of a snapshot.

What must stay true: gauges and counters have the names that Prometheus' conventions ask for (base units, `_total` for counters only); a family has one sample for each set of labels.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["Described", "Family", "as_metrics", "counter", "gauge"]


class Described(msgspec.Struct, frozen=True):
    """A metric, without samples."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()


class Family(msgspec.Struct, frozen=True):
    metric: Described
    samples: Mapping[tuple[str, ...], float]


def gauge(name: str, help_text: str, *labels: str) -> Described:
    return Described(name, "gauge", help_text, labels)


def counter(name: str, help_text: str, *labels: str) -> Described:
    """`name` ends in `_total`."""
    return Described(name, "counter", help_text, labels)


def as_metrics(families: Iterable[Family]) -> list[Metric]:
    """In the order of their labels, so that the same is written the same way."""
    found: list[Metric] = []
    for family in families:
        said = family.metric
        kind = CounterMetricFamily if said.kind == "counter" else GaugeMetricFamily
        metric = kind(said.name, said.help, labels=said.labels)
        for labels, value in sorted(family.samples.items()):
            metric.add_metric(labels, value)
        found.append(metric)
    return found
