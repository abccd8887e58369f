"""helm as the tests use it: the sandbox's own, on the charts of this checkout."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import CHECKOUT

CHARTS = CHECKOUT / "charts"
NAMESPACES = {
    "slurm-operator-crds": "default",
    "slurm-operator": "slinky",
    "slurm-bridge": "slinky",
    "slurm": "slurm",
    "slurm-exporter": "slinky",
}  # as the commands in the docs have it
Document = dict[str, Any]
Values = dict[str, Any]


@dataclass(frozen=True)
class Helm:
    program: Path
    home: Path
    rendered: dict[tuple[str, ...], str] = field(default_factory=dict)  # by what was asked: many tests look at the same

    def run(self, *words: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
        given = ["--values=-"] if values is not None else []
        places = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return subprocess.run(
            [str(self.program), *words, *given],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **places},
        )

    def template(self, chart: str, values: Values | None = None, *words: str, release: str = "", namespace: str = "") -> list[Document]:
        """What would be applied, hooks and tests too."""
        asked = ("template", release or chart, str(CHARTS / chart), "--namespace", namespace or NAMESPACES[chart], *words)
        key = (*asked, json.dumps(values or {}))
        if key not in self.rendered:
            done = self.run(*asked, values=values or {})
            assert done.returncode == 0, done.stderr
            self.rendered[key] = done.stdout
        return [each for each in yaml.load_all(self.rendered[key], yaml.CSafeLoader) if each]

    def notes(self, chart: str, values: Values | None = None, *, release: str = "", namespace: str = "") -> str:
        where = namespace or NAMESPACES[chart]
        words = ["install", release or chart, str(CHARTS / chart), "--namespace", where, "--dry-run=client"]
        done = self.run(*words, values=values or {})
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:")[2]

    def refusal(self, chart: str, values: Values) -> str:
        done = self.run("template", chart, str(CHARTS / chart), values=values)
        assert done.returncode != 0, done.stdout[:500]
        return done.stderr


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    return [each for each in documents if each["kind"] in kinds]


def named(documents: list[Document], kind: str, name: str) -> Document:
    [found] = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def is_hook(document: Document) -> bool:
    return "helm.sh/hook" in (document["metadata"].get("annotations") or {})
