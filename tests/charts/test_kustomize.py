"""The base for kustomize is what the charts say, and kubectl takes it."""

import subprocess
import sys

import pytest
import yaml

from slinky.sandbox.golang import build_kubernetes
from slinky.sandbox.kubernetes import PROGRAMS
from slinky.sandbox.progress import Progress
from slinky.sandbox.versions import versions
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.sandbox  # helm and kubectl are built for the sandbox


def test_the_base_is_as_the_charts_say() -> None:
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "scripts/render_kustomize.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["slurm-operator", "slurm-bridge"])
def test_kubectl_builds_it(name: str) -> None:
    with Progress() as progress:
        kubectl = build_kubernetes(versions().kubernetes.default, PROGRAMS, progress) / "kubectl"
    done = subprocess.run(
        [str(kubectl), "kustomize", str(CHECKOUT / "kustomize" / name)], capture_output=True, text=True, timeout=60, check=True
    )
    documents = list(yaml.load_all(done.stdout, yaml.CSafeLoader))
    assert {"Deployment", "Lease", "Namespace", "ValidatingWebhookConfiguration"} <= {each["kind"] for each in documents}
    assert "helm" not in done.stdout.lower()
