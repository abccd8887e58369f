"""Values as people bring them from the original: every key of its three charts, as data."""

from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHARTS", "file_of", "values_of"]

CHARTS = ("slurm-operator", "slurm", "slurm-bridge")


def file_of(chart: str) -> Path:
    return Path(__file__).with_name(f"{chart}.yaml")


def values_of(chart: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file_of(chart).read_text())
    return found
