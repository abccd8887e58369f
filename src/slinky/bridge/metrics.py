"""What can be counted of the bridge, for Prometheus: pods by where they stand, time in each stage, calls to Slurm.

Labels are few and known: never a pod's, a namespace's or a user's name.
"""

import asyncio
import datetime as dt
from collections import Counter as Tally
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slinky.bridge.memory import Known
from slinky.kube import Pod
from slinky.slurm import RequestMetrics

__all__ = ["PHASES", "BridgeMetrics"]

PHASES = ("gathering", "gated", "window", "parked", "pending", "starting", "running", "ending", "over", "absent", "lost")
STAGE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class BridgeMetrics(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self.observe = RequestMetrics(registry).observe
        self._stage = Histogram(
            "slinky_bridge_stage_seconds",
            "Time in each stage: submit (pod created, job submitted), queue (until Slurm starts it), bind (until its pods are bound), end (pods over, until the job is)",
            ["stage"],
            buckets=STAGE_SECONDS,
            registry=registry,
        )
        self._bound = Counter("slinky_bridge_pods_bound", "Pods bound to nodes", registry=registry)
        self._evictions = Counter(
            "slinky_bridge_evictions",
            "Pods that were to go with their job, by what ended it and what came of it: evicted, delayed (by a disruption budget), overridden",
            ["reason", "outcome"],
            registry=registry,
        )
        self._pods: Tally[str] = Tally()
        registry.register(self)

    def now(self, known: Known, phase: str, pods: int) -> None:
        """Where a workload's pods stand."""
        self._pods[known.phase] -= known.pods
        known.phase, known.pods = phase, pods
        self._pods[phase] += pods

    def forget(self, known: Known) -> None:
        self._pods[known.phase] -= known.pods
        known.pods = 0

    def forget_all(self) -> None:
        """This process no longer leads: what stands where is another's to tell."""
        self._pods.clear()

    def submitted(self, pods: Sequence[Pod]) -> None:
        made = [pod.metadata.creation_timestamp for pod in pods if pod.metadata.creation_timestamp]
        if made:
            self._stage.labels("submit").observe(max(0.0, (dt.datetime.now(dt.UTC) - max(made)).total_seconds()))

    def started(self, known: Known) -> None:
        """Slurm runs it, as far as we have seen."""
        if known.submitted_at:
            self._stage.labels("queue").observe(known.started_at - known.submitted_at)

    def bound(self, known: Known, pods: int) -> None:
        self._bound.inc(pods)
        if known.started_at:
            self._stage.labels("bind").observe(_now() - known.started_at)

    def evicted(self, reason: str, outcome: str) -> None:
        self._evictions.labels(reason, outcome).inc()

    def ended(self, known: Known) -> None:
        if known.ending_since:
            self._stage.labels("end").observe(_now() - known.ending_since)

    def collect(self) -> Iterator[Metric]:
        pods = GaugeMetricFamily("slinky_bridge_pods", "Pods by where they stand on their way through Slurm", labels=["state"])
        for phase in PHASES:
            pods.add_metric([phase], self._pods[phase])
        yield pods


def _now() -> float:
    return asyncio.get_running_loop().time()
