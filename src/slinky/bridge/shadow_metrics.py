"""Shadow mode in numbers, for Prometheus: what Slurm would have done beside what Kubernetes did. All are of the report, which goes on where an earlier process ended."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slinky.bridge.shadow_record import ShadowRecord

__all__ = ["STATES", "ShadowMetrics"]

STATES = ("gathering", "refused", "waiting", "running", "evicted")
COUNTED = ("submitted", "refused", "started", "ended", "missed", "evicted")


class ShadowMetrics(Collector):
    """`record` is that of the leader's time that is now, if this process leads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.record: ShadowRecord | None = None
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        if self.record is None:
            return
        now = GaugeMetricFamily("slinky_shadow_workloads", "Workloads by where they would stand", labels=["state"])
        counts = self.record.counts()
        for state in STATES:
            now.add_metric([state], counts.get(state, 0))
        yield now
        total = self.record.total()
        happened = CounterMetricFamily("slinky_shadow_outcomes", "Workloads by what Slurm would have done with them", labels=["outcome"])
        for name in COUNTED:
            happened.add_metric([name], getattr(total, name))
        yield happened
        waits = CounterMetricFamily(
            "slinky_shadow_wait_seconds", "Seconds that started workloads waited, all together", labels=["scheduler"]
        )
        waits.add_metric(["slurm"], total.slurm_wait)
        waits.add_metric(["kubernetes"], total.kube_wait)
        yield waits
        pods = CounterMetricFamily("slinky_shadow_pods_placed", "Pods that both have placed, by whether on the same node", labels=["same"])
        pods.add_metric(["yes"], total.pods_same_node)
        pods.add_metric(["no"], total.pods_placed - total.pods_same_node)
        yield pods
