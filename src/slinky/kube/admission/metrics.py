"""What admission webhooks count."""

from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Histogram

from slinky.kube.admission.review import AdmissionRequest

__all__ = ["AdmissionMetrics"]

OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE"})
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class AdmissionMetrics:
    """Requests by what they were about (`kinds`, and `other`) and how they ended: allowed, changed, refused, late or failed."""

    def __init__(self, registry: CollectorRegistry, kinds: Collection[str]) -> None:
        labels = ["kind", "operation", "outcome"]
        self._kinds = frozenset(kinds)
        self._requests = Counter("slinky_admission_requests", "Requests that the admission webhook judged", labels, registry=registry)
        self._seconds = Histogram(
            "slinky_admission_request_seconds", "How long it took", ["kind", "operation"], buckets=SECONDS, registry=registry
        )

    def count(self, request: AdmissionRequest, outcome: str, seconds: float) -> None:
        kind = request.kind.kind if request.kind.kind in self._kinds else "other"
        operation = request.operation if request.operation in OPERATIONS else "other"
        self._requests.labels(kind, operation, outcome).inc()
        self._seconds.labels(kind, operation).observe(seconds)
