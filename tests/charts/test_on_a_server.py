"""Whatever the charts render, the API server takes, to the last field: by kubectl's strict validation, without keeping it."""

import pytest
import yaml

from slinky.operator.kinds.schema import crds
from slinky.sandbox.handle import Sandbox
from tests.charts.helm import Document, Helm
from tests.charts.serving import apply, serve
from tests.charts.variants import CASES, VARIANTS

pytestmark = pytest.mark.sandbox

FOREIGN = {"cert-manager.io", "monitoring.coreos.com"}


def placed(documents: list[Document], namespace: str) -> list[Document]:
    for each in documents:
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = namespace
    return documents


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
