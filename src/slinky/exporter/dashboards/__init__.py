"""The dashboards: the cluster, the queue, the bridge, and a user's view.

Pure. Goes out: Grafana's JSON, kept in monitoring/dashboards and in the exporter's chart (`scripts/monitoring_files.py`). What must stay true: every query returns something on a Slurm with jobs, a reservation, licenses and a bridge; a test asks a real Prometheus.
"""

import json
from typing import Any

from slinky.exporter.dashboards.bridge import BRIDGE
from slinky.exporter.dashboards.cluster import CLUSTER
from slinky.exporter.dashboards.queue import QUEUE
from slinky.exporter.dashboards.user import USER
from slinky.exporter.panels import as_json

__all__ = ["DASHBOARDS", "as_text", "dashboards"]

DASHBOARDS = (CLUSTER, QUEUE, BRIDGE, USER)


def dashboards() -> dict[str, dict[str, Any]]:
    """By the name of their file."""
    return {dashboard.name: as_json(dashboard) for dashboard in DASHBOARDS}


def as_text(dashboard: dict[str, Any]) -> str:
    """As it stands in a file that people read."""
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
