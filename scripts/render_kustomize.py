#!/usr/bin/env python3
"""Writes kustomize/ from the charts with their default values: `scripts/render_kustomize.py`; with --check it only says which file is not as it would be written.

Comes in: charts/, and the sandbox's helm. Goes out: a base each for the operator (with its kinds) and the bridge. What must stay true: nothing in it speaks of Helm; hooks are left out, as nothing would run them.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from slinky.cli.manifests import as_yaml
from slinky.sandbox.golang import build_program
from slinky.sandbox.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.writing import CHECKOUT, write_or_check

NAMESPACE = "slinky"
BASES = {"slurm-operator": ["--set=crds.enabled=true"], "slurm-bridge": ["--set=podPolicy.enabled=false"]}
OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")


def rendered(helm: Path, chart: str) -> dict[Path, str]:
    """The base's files, as they are to be."""
    place = CHECKOUT / "charts" / chart
    words = [str(helm), "template", chart, str(place), f"--namespace={NAMESPACE}", "--no-hooks", *BASES[chart]]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
    documents = [_without_helm(each) for each in yaml.safe_load_all(said) if each]
    kinds = [each for each in documents if each["kind"] == "CustomResourceDefinition"]
    rest = [each for each in documents if each["kind"] != "CustomResourceDefinition"]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    files = {"install.yaml": [namespace, *rest]} | ({"kinds.yaml": kinds} if kinds else {})
    base = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(files)}
    folder = CHECKOUT / "kustomize" / chart
    head = f"# Made from charts/{chart} by scripts/render_kustomize.py.\n"
    return {folder / name: head + as_yaml(content) for name, content in {**files, "kustomization.yaml": [base]}.items()}


def _without_helm(document: dict[str, Any]) -> dict[str, Any]:
    for meta in (document["metadata"], document.get("spec", {}).get("template", {}).get("metadata", {})):
        for label in OF_HELM:
            meta.get("labels", {}).pop(label, None)
    return document


def written() -> dict[Path, str]:
    with Progress() as progress:
        helm = build_program("helm", progress)
    return {path: text for chart in BASES for path, text in rendered(helm, chart).items()}


if __name__ == "__main__":
    sys.exit(write_or_check(written()))
