#!/usr/bin/env python3
"""Writes the dashboards and alert rules where people and the exporter's chart take them from: `scripts/monitoring_files.py`; with --check it only says which is not as it would be written.

Comes in: `slinky.exporter.dashboards` and `slinky.exporter.alerts`. Goes out: monitoring/ (to be imported by hand), and charts/slurm-exporter/files/ (helm reads nothing outside of a chart). What must stay true: both are the same.
"""

import json
import sys
from pathlib import Path

from slinky.cli.manifests import as_yaml
from slinky.exporter.alerts import prometheus_rule, rule_file
from slinky.exporter.dashboards import as_text, dashboards

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.writing import CHECKOUT, write_or_check

MONITORING = CHECKOUT / "monitoring"
CHART = CHECKOUT / "charts/slurm-exporter/files"


def written() -> dict[Path, str]:
    """Each file, as it is to be. In a ConfigMap a dashboard takes the least room."""
    found = {MONITORING / "rules.yaml": as_yaml([rule_file()]), MONITORING / "prometheusrule.yaml": as_yaml([prometheus_rule()])}
    found[CHART / "rules.yaml"] = as_yaml([rule_file()])
    for name, dashboard in dashboards().items():
        found[MONITORING / f"dashboards/{name}.json"] = as_text(dashboard)
        found[CHART / f"dashboards/{name}.json"] = json.dumps(dashboard, ensure_ascii=False, separators=(",", ":")) + "\n"
    return found


if __name__ == "__main__":
    sys.exit(write_or_check(written()))
