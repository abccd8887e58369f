"""What stands in charts/ and is made from something else is as that says. No helm is needed."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from slinky.cli.manifests import as_yaml
from slinky.operator.kinds.schema import crds
from tests.charts.helm import CHARTS
from tests.conftest import CHECKOUT

VERSION = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("script", ["chart_schemas.py", "monitoring_files.py"])
def test_what_a_script_makes_is_as_it_would_make_it_now(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "scripts" / script), "--check"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_kinds_are_as_the_code_has_them() -> None:
    written = {path.name: path.read_text() for path in (CHARTS / "slurm-operator-crds/templates").glob("*.yaml")}
    assert written == {f"{each['spec']['group']}_{each['spec']['names']['plural']}.yaml": as_yaml([each]) for each in crds()}


@pytest.mark.parametrize("chart", sorted(path.parent for path in CHARTS.glob("*/Chart.yaml")), ids=lambda path: path.name)
def test_a_chart_has_the_programs_version(chart: Path) -> None:
    said = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert said["name"] == chart.name
    assert said["version"] == VERSION
    assert all(each["version"] == VERSION for each in said.get("dependencies", []))
    if chart.name not in ("slinky-parts", "slurm"):  # of Slurm, and of nothing
        assert said["appVersion"] == VERSION
