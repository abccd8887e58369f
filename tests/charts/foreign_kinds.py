"""Kinds of others that the charts may use, as their makers publish them: cert-manager's and the Prometheus operator's CRDs, from the pinned Go modules."""

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
    found = []
    for name, (place, files) in WANTED.items():
        program = versions().manifests[name]

        def build(folder: Any, name: str = name, place: str = place, files: tuple[str, ...] = files, program: Any = program) -> None:
            source = module_folder(name, program, progress)
            for file in files:
                (folder / f"{file}.yaml").write_bytes((source / place / f"{file}.yaml").read_bytes())

        folder = entry(f"manifests/{name}-{program.version}-{digest(repr(files))}", build)
        found += [document for file in sorted(folder.iterdir()) for document in yaml.safe_load_all(file.read_text()) if document]
    return found
