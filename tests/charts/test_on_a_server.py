"""Whatever the charts render, the API server takes, to the last field: by kubectl's strict validation, without keeping it."""

import os
import subprocess
from collections.abc import AsyncIterator

import pytest
import yaml

from slinky.cli.manifests import as_yaml
from slinky.operator.kinds.schema import crds
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from tests.charts.foreign_kinds import foreign_crds
from tests.charts.helm import Document, Helm
from tests.charts.variants import CASES, VARIANTS

pytestmark = pytest.mark.sandbox

FOREIGN = {"cert-manager.io", "monitoring.coreos.com"}


def apply(sandbox: Sandbox, text: str, *words: str) -> str:
    command = [str(sandbox.folder / "bin/kubectl"), "apply", "--server-side", "--force-conflicts", *words, "--filename=-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False, env=os.environ | sandbox.exports())
    assert done.returncode == 0, done.stderr
    return done.stdout


def placed(documents: list[Document], namespace: str) -> list[Document]:
    for each in documents:
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = namespace
    return documents


async def serve(sandbox: Sandbox, found: list[Document]) -> None:
    """Until the API server serves these kinds."""
    apply(sandbox, as_yaml(found))
    async with sandbox.kube() as kube:
        for crd in found:
            version = next(each["name"] for each in crd["spec"]["versions"] if each["served"])
            path = f"/apis/{crd['spec']['group']}/{version}/{crd['spec']['names']['plural']}"
            await sandbox.until("kube-apiserver", f"{path} was served", lambda path=path: kube.get(path))  # type: ignore[misc]


@pytest.fixture
async def foreign(sandbox: Sandbox) -> AsyncIterator[None]:
    """Others' kinds, for as long as this test lasts: who watches what the API server serves should not find them."""
    with Progress() as progress:
        found = foreign_crds(progress)
    await serve(sandbox, found)
    yield
    async with sandbox.kube() as kube:
        for crd in found:
            await kube.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}")


@pytest.mark.usefixtures("foreign")
async def test_every_variant_is_taken_strictly(sandbox: Sandbox, namespace: str, helm: Helm) -> None:
    await serve(sandbox, crds())
    groups: set[str] = set()
    for chart, name in CASES:
        documents = placed(helm.template(chart, VARIANTS[chart][name]), namespace)
        groups |= {each["apiVersion"].split("/")[0] for each in documents}
        said = apply(sandbox, yaml.safe_dump_all(documents), "--dry-run=server", "--validate=strict", f"--namespace={namespace}")
        assert len(said.splitlines()) == len(documents), (chart, name)
    assert groups >= FOREIGN
