"""Whatever the charts render, the API server takes, to the last field: by kubectl's strict validation, without keeping it."""

import os
import subprocess

import pytest
import yaml

from slinky.cli.manifests import as_yaml
from slinky.operator.kinds.schema import crds
from slinky.sandbox.handle import Sandbox
from tests.charts.helm import Document, Helm
from tests.charts.variants import CASES, VARIANTS

pytestmark = pytest.mark.sandbox

NOT_SERVED = ("cert-manager.io", "monitoring.coreos.com")  # here; their own operators bring them


def apply(sandbox: Sandbox, text: str, *words: str) -> str:
    command = [str(sandbox.folder / "bin/kubectl"), "apply", "--server-side", "--force-conflicts", *words, "--filename=-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False, env=os.environ | sandbox.exports())
    assert done.returncode == 0, done.stderr
    return done.stdout


def taken(documents: list[Document], namespace: str) -> list[Document]:
    found = [each for each in documents if not each["apiVersion"].startswith(NOT_SERVED)]
    for each in found:
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = namespace
    return found


async def test_every_variant_is_taken_strictly(sandbox: Sandbox, namespace: str, helm: Helm) -> None:
    apply(sandbox, as_yaml(crds()))
    for crd in crds():
        path = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
        async with sandbox.kube() as kube:
            await sandbox.until("kube-apiserver", f"{path} was served", lambda path=path: kube.get(path))  # type: ignore[misc]
    for chart, name in CASES:
        documents = taken(helm.template(chart, VARIANTS[chart][name]), namespace)
        said = apply(sandbox, yaml.safe_dump_all(documents), "--dry-run=server", "--validate=strict", f"--namespace={namespace}")
        assert len(said.splitlines()) == len(documents), (chart, name)
