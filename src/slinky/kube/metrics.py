"""What can be counted of this package, for Prometheus: requests, caches, queues, leadership and the event loop's own lateness.

In: an observer's attempts, and references to reflectors, queues and electors, which are read when Prometheus asks. Out: metrics in a registry.
What must stay true: labels are few and known (method, resource, outcome, names given here): never a pod's or a user's name.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slinky.kube.leader import LeaderElector
from slinky.kube.recorder import EventRecorder
from slinky.kube.reflector import Reflector
from slinky.kube.transport import Attempt
from slinky.kube.workqueue import WorkQueue

__all__ = ["KubeMetrics"]

SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LAG_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAG_EVERY = 0.02  # a block is seen too short by this at most


class KubeMetrics(Collector):
    """`metrics = KubeMetrics(registry)`, then `Client(access, observer=metrics.observe)`, `metrics.follow("pods", reflector)` …"""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "slinky_kube_requests", "Requests to the API server, each try counted", ["method", "resource", "outcome"], registry=registry
        )
        self._seconds = Histogram(
            "slinky_kube_request_seconds", "How long they took", ["method", "resource"], buckets=SECONDS, registry=registry
        )
        self._lag = Histogram("slinky_loop_lag_seconds", "How late the event loop is", buckets=LAG_SECONDS, registry=registry)
        self._longest = Gauge(
            "slinky_loop_longest_block_seconds", "Longest that the event loop was blocked since the process started", registry=registry
        )
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._queues: dict[str, WorkQueue[Any]] = {}
        self._electors: dict[str, LeaderElector] = {}
        self._recorders: dict[str, EventRecorder] = {}
        registry.register(self)

    def observe(self, attempt: Attempt) -> None:
        self._requests.labels(attempt.method, attempt.resource, attempt.outcome).inc()
        if not attempt.resource.endswith("/watch"):
            self._seconds.labels(attempt.method, attempt.resource).observe(attempt.seconds)

    def follow(self, name: str, part: "Reflector[Any] | WorkQueue[Any] | LeaderElector | EventRecorder") -> None:
        match part:
            case Reflector():
                self._reflectors[name] = part
            case WorkQueue():
                self._queues[name] = part
            case LeaderElector():
                self._electors[name] = part
            case EventRecorder():
                self._recorders[name] = part

    async def measure_loop_lag(self) -> None:
        """Until cancelled; run it as a task of the loop that matters."""
        longest = 0.0
        while True:
            before = time.perf_counter()
            await asyncio.sleep(LAG_EVERY)
            late = max(0.0, time.perf_counter() - before - LAG_EVERY)
            self._lag.observe(late)
            if late > longest:
                longest = late
                self._longest.set(late)

    def collect(self) -> Iterator[Metric]:
        yield from self._caches()
        yield from self._work()
        leader = GaugeMetricFamily("slinky_leader", "1 while this process leads", labels=["lease"])
        for name, elector in self._electors.items():
            leader.add_metric([name], float(elector.is_leader))
        yield leader
        dropped = CounterMetricFamily("slinky_kube_events_dropped", "Events that were not written", labels=["recorder"])
        for name, recorder in self._recorders.items():
            dropped.add_metric([name], recorder.dropped)
        yield dropped

    def _caches(self) -> Iterator[Metric]:
        objects = GaugeMetricFamily("slinky_kube_cache_objects", "Objects held", labels=["cache"])
        synced = GaugeMetricFamily("slinky_kube_cache_synced", "1 once the first list has arrived", labels=["cache"])
        silent = GaugeMetricFamily("slinky_kube_watch_silent_seconds", "Time since the server last said anything", labels=["cache"])
        events = CounterMetricFamily("slinky_kube_watch_events", "Events read", labels=["cache"])
        relists = CounterMetricFamily("slinky_kube_watch_relists", "Whole lists read", labels=["cache"])
        cut = CounterMetricFamily("slinky_kube_watch_cut", "Silent connections that we ended", labels=["cache"])
        unreadable = CounterMetricFamily("slinky_kube_watch_unreadable", "Objects that could not be read", labels=["cache"])
        for name, reflector in self._reflectors.items():
            health = reflector.health
            objects.add_metric([name], len(reflector.cache))
            synced.add_metric([name], float(reflector.cache.is_synced))
            silent.add_metric([name], health.silent_for)
            for family, value in ((events, health.events), (relists, health.relists), (cut, health.cut), (unreadable, health.unreadable)):
                family.add_metric([name], value)
        yield from (objects, synced, silent, events, relists, cut, unreadable)

    def _work(self) -> Iterator[Metric]:
        keys = GaugeMetricFamily("slinky_workqueue_keys", "Keys that wait, wait for a moment, or are worked on", labels=["queue", "state"])
        for name, queue in self._queues.items():
            for state in ("ready", "later", "working"):
                keys.add_metric([name, state], getattr(queue.agenda, state))
        yield keys
