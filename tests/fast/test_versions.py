"""One file says every version, and the committed Go modules agree with it."""

import re

import pytest

from slinky.sandbox.kubernetes import GANG_API, GANG_GATES
from slinky.sandbox.versions import GOMODS, versions

MODULES = {f"kubernetes-{release}": ("k8s.io/kubernetes", version) for release, version in versions().kubernetes.releases.items()} | {
    name: (program.module, program.version) for name, program in (versions().programs | versions().manifests).items()
}


@pytest.mark.parametrize("name", MODULES)
def test_the_go_module_pins_what_the_versions_file_says(name: str) -> None:
    module, version = MODULES[name]
    text = (GOMODS / name / "go.mod").read_text()
    assert re.search(rf"^\s*(require )?{re.escape(module)} v{re.escape(version)}( // indirect)?$", text, re.MULTILINE)
    assert f"{module} v{version} h1:" in (GOMODS / name / "go.sum").read_text()


def test_no_module_is_committed_that_nobody_names() -> None:
    assert {path.name for path in GOMODS.iterdir()} == set(MODULES)


def test_every_release_knows_its_gang_api() -> None:
    assert set(GANG_API) == set(GANG_GATES) == set(versions().kubernetes.releases)
