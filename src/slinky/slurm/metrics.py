"""What can be counted of the client, for Prometheus: requests to slurmrestd and how long they took.

In: a client's attempts. Out: metrics in a registry. What must stay true: labels are few and known (the call without its names, the kind of error).
"""

from prometheus_client import CollectorRegistry, Counter, Histogram

from slinky.slurm.requests import Attempt

__all__ = ["RequestMetrics"]

SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class RequestMetrics:
    """`metrics = RequestMetrics(registry)`, then `SlurmClient(url, token, observer=metrics.observe)`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter("slinky_slurm_requests", "Requests to slurmrestd, each try counted", ["call", "outcome"], registry=registry)
        self._seconds = Histogram("slinky_slurm_request_seconds", "How long they took", ["call"], buckets=SECONDS, registry=registry)

    def observe(self, attempt: Attempt) -> None:
        self._calls.labels(attempt.call, attempt.outcome).inc()
        self._seconds.labels(attempt.call).observe(attempt.seconds)
