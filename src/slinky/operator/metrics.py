"""What can be counted of the operator, for Prometheus: calls to Slurm, and whether each cluster's Slurm answers.

Labels are few and known: clusters by namespace and Controller, never a node's or a user's name.
"""

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slinky.operator.clusters import Clusters
from slinky.slurm import RequestMetrics

__all__ = ["SlurmMetrics"]


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
