"""Debian's Prometheus and promtool, fetched once."""

from pathlib import Path

import pytest

from slinky.sandbox.progress import Progress
from slinky.sandbox.prometheus import build_prometheus


@pytest.fixture(scope="session")
def programs() -> Path:
    with Progress() as progress:
        return build_prometheus(progress)
