"""The ServiceMonitor by which Prometheus learns of slurmctld's metrics. Made only where it is asked for and the API server knows the kind.

What must stay true: it selects the one Service by which slurmctld is reached, not the headless one beside it, so nothing is counted twice.
"""

from typing import Any

from slinky.operator import labels, names
from slinky.operator.kinds import Controller
from slinky.operator.kinds.common import TemplateMeta
from slinky.operator.kinds.controller import MetricEndpoint
from slinky.operator.objects.meta import metadata, resource
from slinky.operator.objects.view import ClusterView

__all__ = ["service_monitors", "unmonitored"]

_USUAL = [MetricEndpoint(path=f"/metrics/{what}") for what in ("jobs", "nodes", "partitions", "scheduler")]


def service_monitors(controller: Controller, everyone: dict[str, str], *, known: bool) -> list[dict[str, Any]]:
    metrics = controller.spec.metrics
    wanted = metrics.service_monitor
    if not (known and metrics.enabled and wanted.enabled):
        return []
    mine = TemplateMeta(labels=wanted.labels, annotations=wanted.annotations)
    selector = {**labels.controller_labels(controller), labels.COMPONENT: "controller"}
    spec = {
        "selector": {"matchLabels": selector},
        "namespaceSelector": {"matchNames": [controller.metadata.namespace]},
        "endpoints": [_endpoint(one, wanted.interval, wanted.scrape_timeout) for one in wanted.endpoints or _USUAL],
    }
    return [
        resource(
            "monitoring.coreos.com/v1",
            "ServiceMonitor",
            metadata(controller, names.controller(controller.metadata.name), everyone, mine),
            spec=spec,
        )
    ]


def unmonitored(view: ClusterView) -> str:
    """Why there is no ServiceMonitor although one is asked for; empty where nothing is to be said."""
    metrics = view.controller.spec.metrics
    if not metrics.service_monitor.enabled or view.controller.spec.external:
        return ""
    if not metrics.enabled:
        return "no ServiceMonitor is made: metrics.enabled is false"
    if view.service_monitors:
        return ""
    return "no ServiceMonitor is made: the API server does not know monitoring.coreos.com/v1; one is made when Prometheus' operator is installed"


def _endpoint(one: MetricEndpoint, interval: str, timeout: str) -> dict[str, Any]:
    times = {"interval": one.interval or interval, "scrapeTimeout": one.scrape_timeout or timeout}
    return {"port": "slurmctld", "path": one.path, **{key: value for key, value in times.items() if value}}
