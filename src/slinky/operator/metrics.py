"""What can be counted of the operator, for Prometheus: calls to Slurm, and whether each cluster's Slurm answers.

Labels are few and known: clusters by namespace and Controller, never a node's or a user's name.
"""

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slinky.operator.clusters import Clusters
from slinky.slurm import Attempt

__all__ = ["SlurmMetrics"]

CALL_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class SlurmMetrics(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter("slinky_slurm_requests", "Requests to slurmrestd, each try counted", ["call", "outcome"], registry=registry)
        self._seconds = Histogram("slinky_slurm_request_seconds", "How long they took", ["call"], buckets=CALL_SECONDS, registry=registry)
        self.clusters: Clusters | None = None
        registry.register(self)

    def observe(self, attempt: Attempt) -> None:
        self._calls.labels(attempt.call, attempt.outcome).inc()
        self._seconds.labels(attempt.call).observe(attempt.seconds)

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
