"""Kinds of others that the charts may use, as their makers publish them: cert-manager's and the Prometheus operator's CRDs, from the pinned Go modules."""

from pathlib import Path
from typing import Any

import yaml

from slinky.sandbox.addons import CERT_MANAGER, build_manifests, read_crds
from slinky.sandbox.cache import digest, entry
from slinky.sandbox.golang import module_folder
from slinky.sandbox.progress import Progress
from slinky.sandbox.versions import versions

__all__ = ["foreign_crds"]

PROMETHEUS = "prometheus-operator"
PLACE = "example/prometheus-operator-crd"
FILES = tuple(f"monitoring.coreos.com_{plural}.yaml" for plural in ("podmonitors", "prometheusrules", "servicemonitors"))


def foreign_crds(progress: Progress) -> list[dict[str, Any]]:
    return read_crds(build_manifests(CERT_MANAGER, progress)) + [
        yaml.safe_load(file.read_text()) for file in sorted(_kept(progress).iterdir())
    ]


def _kept(progress: Progress) -> Path:
    program = versions().manifests[PROMETHEUS]

    def build(folder: Path) -> None:
        source = module_folder(PROMETHEUS, program, progress) / PLACE
        for file in FILES:
            (folder / file).write_bytes((source / file).read_bytes())

    return entry(f"manifests/{PROMETHEUS}-{program.version}-{digest(repr(FILES))}", build)
