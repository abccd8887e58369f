"""Grafana's JSON, made from few words: a panel is a title, a kind and queries; a dashboard is rows of panels.

Pure. What must stay true: panels of a row fill it, in order; identities are stable, so that what is generated twice is the same.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

__all__ = ["RATE", "Dashboard", "Panel", "Variable", "as_json", "queries"]

RATE = "[$__rate_interval]"  # Grafana makes it long enough for rate() at any scale
WIDTH = 24
HEIGHTS = {"stat": 4, "timeseries": 8, "table": 8, "bargauge": 8}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(msgspec.Struct, frozen=True):
    """`queries` are (expression, legend); `stack` for parts of a whole."""

    title: str
    kind: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    stack: bool = False
    help: str = ""


class Variable(msgspec.Struct, frozen=True):
    """Chosen above the panels, out of a label's values."""

    name: str
    metric: str
    label: str
    many: bool = True


class Dashboard(msgspec.Struct, frozen=True):
    name: str
    title: str
    rows: tuple[tuple[Panel, ...], ...]
    variables: tuple[Variable, ...] = ()


def as_json(dashboard: Dashboard) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for row in dashboard.rows:
        height = max(HEIGHTS[panel.kind] for panel in row)
        for place, panel in enumerate(row):
            left = WIDTH * place // len(row)
            where = {"x": left, "y": top, "w": WIDTH * (place + 1) // len(row) - left, "h": height}
            panels.append(_panel(panel, len(panels) + 1, where))
        top += height
    return {
        "uid": f"slinky-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["slurm", "slinky"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, where: dict[str, int]) -> dict[str, Any]:
    table = panel.kind in ("table", "bargauge")
    custom: dict[str, Any] = {}
    if panel.kind == "timeseries":
        custom = {"fillOpacity": 30 if panel.stack else 5, "stacking": {"mode": "normal" if panel.stack else "none"}}
    found: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom} if custom else {"unit": panel.unit}, "overrides": []},
        "targets": [_target(expr, legend, place, instant=table) for place, (expr, legend) in enumerate(panel.queries)],
    }
    if panel.help:
        found["description"] = panel.help
    if panel.kind == "table":
        found["transformations"] = [{"id": "organize", "options": {"excludeByName": dict.fromkeys(_NOISE, True)}}]
    return found


_NOISE = ("Time", "__name__", "instance", "job")


def _target(expr: str, legend: str, place: int, *, instant: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expr, "legendFormat": legend or "__auto"}
    return found | ({"instant": True, "range": False, "format": "table"} if instant else {})


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.metric}, {variable.label})"
    many: dict[str, Any] = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {
        "name": variable.name,
        "type": "query",
        "label": variable.name.capitalize(),
        "datasource": SOURCE,
        "query": {"query": query, "refId": "variable"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        **(many if variable.many else {}),
    }


def queries(dashboard: Dashboard) -> Sequence[tuple[str, str]]:
    """(panel, expression), all of them."""
    return [(panel.title, expr) for row in dashboard.rows for panel in row for expr, _ in panel.queries]
