"""The operator's metrics: calls to Slurm, whether each Slurm answers, and how each object stands.

Labels are few and known: objects by kind, namespace and name, never a node's or a user's name.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slinky.operator.clusters import Clusters
from slinky.operator.conditions import AVAILABLE, DEGRADED, READY
from slinky.operator.kinds import Written
from slinky.operator.statuses import conditions_of
from slinky.slurm import RequestMetrics

__all__ = ["ObjectMetrics", "SlurmMetrics"]


class SlurmMetrics(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self.observe = RequestMetrics(registry).observe
        self.clusters: Clusters | None = None
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        answers = GaugeMetricFamily(
            "slinky_operator_slurm_current", "1 while what is known of a cluster's Slurm is current", labels=["namespace", "controller"]
        )
        nodes = GaugeMetricFamily(
            "slinky_operator_slurm_nodes", "A cluster's nodes by their base state in Slurm", labels=["namespace", "controller", "state"]
        )
        for cluster in self.clusters or ():
            answers.add_metric([*cluster.key], float(cluster.is_current))
            for state, count in Tally(str(node.base_state) for node in cluster.nodes.values()).items():
                nodes.add_metric([*cluster.key, state], count)
        yield answers
        yield nodes


class Listed(Protocol):
    """All objects of one kind."""

    def list(self) -> Iterable[Written]: ...


class ObjectMetrics(Collector):
    """As the conditions say it, in every replica: also while none leads, which is an alert itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.kinds: Mapping[str, Listed] = {}
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        labels = ["kind", "namespace", "name"]
        available = GaugeMetricFamily(
            "slinky_operator_object_available",
            "1 while an object can be used: its condition Available",
            labels=labels,
        )
        ready = GaugeMetricFamily(
            "slinky_operator_object_ready",
            "1 while an object is as written and can be used: its condition Ready",
            labels=labels,
        )
        degraded = GaugeMetricFamily(
            "slinky_operator_object_degraded",
            "1 while something is wrong with an object: its condition Degraded, and its reason",
            labels=[*labels, "reason"],
        )
        for kind, found in self.kinds.items():
            for each in found.list():
                place = [kind, each.metadata.namespace, each.metadata.name]
                said = {one.type: one for one in conditions_of(each.status)}
                for family, type_ in ((available, AVAILABLE), (ready, READY)):
                    if type_ in said:
                        family.add_metric(place, float(said[type_].status == "True"))
                if (wrong := said.get(DEGRADED)) is not None:
                    is_wrong = wrong.status == "True"
                    reason = wrong.reason if is_wrong else ""
                    degraded.add_metric([*place, reason], float(is_wrong))
        yield from (available, ready, degraded)
