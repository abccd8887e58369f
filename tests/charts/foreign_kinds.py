"""Kinds of others that the charts may use, as their makers publish them: cert-manager's and the Prometheus operator's CRDs, from the pinned Go modules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from slinky.sandbox.cache import digest, entry
from slinky.sandbox.golang import module_folder
from slinky.sandbox.progress import Progress
from slinky.sandbox.versions import versions

__all__ = ["foreign_crds"]

WANTED = {
    "cert-manager": ("deploy/crds", ("cert-manager.io_certificates", "cert-manager.io_issuers", "cert-manager.io_clusterissuers")),
    "prometheus-operator": (
        "example/prometheus-operator-crd",
        ("monitoring.coreos.com_podmonitors", "monitoring.coreos.com_prometheusrules", "monitoring.coreos.com_servicemonitors"),
    ),
}


def foreign_crds(progress: Progress) -> list[dict[str, Any]]:
    folders = [_kept(name, place, files, progress) for name, (place, files) in WANTED.items()]
    files = [file for folder in folders for file in sorted(folder.iterdir())]
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def _kept(name: str, place: str, files: Sequence[str], progress: Progress) -> Path:
    program = versions().manifests[name]

    def build(folder: Path) -> None:
        source = module_folder(name, program, progress) / place
        for file in files:
            (folder / f"{file}.yaml").write_bytes((source / f"{file}.yaml").read_bytes())

    return entry(f"manifests/{name}-{program.version}-{digest(repr(files))}", build)
