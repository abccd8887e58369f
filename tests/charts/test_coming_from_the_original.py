"""A release of the original's chart, upgraded with ours by the real helm on a real API server: the cluster's keys survive whatever is done, and the cluster goes on with them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slinky.operator.kinds.schema import crds
from slinky.sandbox.handle import Sandbox
from tests.charts.coming import ORIGINAL, OURS, Release, values_of_both
from tests.charts.helm import Helm
from tests.charts.serving import serve

pytestmark = pytest.mark.sandbox

VALUES = values_of_both("registry.example.com/", "26.05")
KINDS = "controllers,restapis,nodesets,loginsets"
NAMED: dict[str, Any] = {
    "slurmKey": {"secretRef": {"name": "slurm-auth-slurm", "key": "slurm.key"}},
    "jwtKey": {"secretRef": {"name": "slurm-auth-jwt", "key": "jwt.key"}},
}


@pytest.fixture
async def release(sandbox: Sandbox, namespace: str, helm: Helm) -> Release:
    """Installed from the original's chart."""
    await serve(sandbox, crds())
    found = Release(helm, sandbox, namespace)
    found.done("install", "slurm", str(ORIGINAL), values=VALUES)
    return found


@pytest.fixture(autouse=True)
def gone_afterwards(release: Release) -> Iterator[None]:
    yield
    release.kubectl("delete", KINDS, "--all", "--wait=false")


def names(release: Release) -> set[str]:
    return set(release.kubectl("get", KINDS, "--output=name").stdout.split())


def references(release: Release) -> list[tuple[str, str]]:
    spec = release.get("controller", "slurm")["spec"]
    return [(spec[field]["name"], spec[field]["key"]) for field in ("slurmKeyRef", "jwtKeyRef")]


def test_keys_survive_upgrades_a_rollback_and_an_uninstall(release: Release) -> None:
    """The objects are the same ones too, so that nothing of the cluster is deleted."""
    before, there = release.keys(), names(release)
    assert [len(key) for _, key in before.values()] == [1024, 1024]
    assert there == {"controller.slinky.slurm.net/slurm", "restapi.slinky.slurm.net/slurm"} | {
        "nodeset.slinky.slurm.net/slurm-worker-slinky",
        "loginset.slinky.slurm.net/slurm-login-slinky",
    }
    referred = references(release)
    uid = release.get("nodeset", "slurm-worker-slinky")["metadata"]["uid"]

    release.done("upgrade", "slurm", str(OURS), values=VALUES)
    assert release.keys() == before
    assert references(release) == referred
    assert names(release) == there
    assert release.get("nodeset", "slurm-worker-slinky")["metadata"]["uid"] == uid

    release.done("upgrade", "slurm", str(OURS), values=VALUES)  # the chart finds them again
    assert release.keys() == before
    release.done("upgrade", "slurm", str(OURS), values=VALUES | NAMED)  # an administrator names them
    assert (release.keys(), references(release)) == (before, referred)

    release.done("rollback", "slurm", "1")
    assert (release.keys(), references(release)) == (before, referred)
    release.done("upgrade", "slurm", str(ORIGINAL), values=VALUES)
    assert release.keys() == before

    release.done("upgrade", "slurm", str(OURS), values=VALUES)
    release.done("uninstall", "slurm")
    assert release.keys() == before


def test_keys_of_other_names_are_found_by_the_controller(release: Release, namespace: str) -> None:
    """Releases that began with 1.0 have them under older names."""
    older = {
        "slurmKeyRef": {"name": "older-slurm", "key": "slurm.key"},
        "jwtHs256KeyRef": {"name": "older-jwt", "key": "jwt_hs256.key"},
    }
    release.kubectl("delete", "controller", "slurm")
    for name, field in (("older-slurm", "slurm.key"), ("older-jwt", "jwt_hs256.key")):
        release.kubectl("create", "secret", "generic", name, f"--from-literal={field}=secret")
        marks = ("meta.helm.sh/release-name=slurm", f"meta.helm.sh/release-namespace={namespace}")
        release.kubectl("annotate", "secret", name, *marks)
        release.kubectl("label", "secret", name, "app.kubernetes.io/managed-by=Helm")
    controller = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "Controller",
        "metadata": {
            "name": "slurm",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "slurm", "meta.helm.sh/release-namespace": namespace},
        },
        "spec": older,
    }
    made = release.kubectl("create", "--filename=-", told=json.dumps(controller))
    assert made.returncode == 0, made.stderr
    release.done("upgrade", "slurm", str(OURS), values=VALUES)
    assert references(release) == [("older-slurm", "slurm.key"), ("older-jwt", "jwt_hs256.key")]
    assert set(release.keys(("older-slurm", "older-jwt"))) == {"older-slurm", "older-jwt"}


def test_without_a_look_at_the_cluster_the_change_is_refused_until_the_keys_are_named(release: Release, namespace: str, helm: Helm) -> None:
    """As whoever applied the original's chart by `helm template`, and owns its fields. What is refused changes nothing."""
    before = release.keys()

    def rendered(values: dict[str, Any]) -> str:
        done = helm.run("template", "slurm", str(OURS), f"--namespace={namespace}", values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=helm", "--filename=-")
    refused = release.kubectl(*apply, told=rendered(VALUES))
    assert refused.returncode, refused.stdout
    assert "slurmKeyRef cannot be changed" in refused.stderr
    taken = release.kubectl(*apply, told=rendered(VALUES | NAMED))
    assert taken.returncode == 0, taken.stderr
    assert release.keys() == before
    assert [name for name, _ in references(release)] == ["slurm-auth-slurm", "slurm-auth-jwt"]


def test_keys_that_the_operator_made_are_not_the_releases(release: Release) -> None:
    """A cluster that began with our chart: its keys go with the Controller, and stand in no manifest of Helm's."""
    release.done("uninstall", "slurm")
    release.kubectl("delete", "secret", "slurm-auth-slurm", "slurm-auth-jwt", "--ignore-not-found")
    release.done("install", "slurm", str(OURS), values=VALUES)
    for name in ("slurm", "jwt"):
        release.kubectl("create", "secret", "generic", f"slurm-auth-{name}", f"--from-literal={name}.key=secret")
    release.done("upgrade", "slurm", str(OURS), values=VALUES)
    assert "slurm-auth-slurm" not in release.done("get", "manifest", "slurm")
    assert "slurmKeyRef" not in release.get("controller", "slurm")["spec"]


CRD = """\
{{- if .Values.crds.enabled }}
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kepts.coming.example.com}
spec:
  group: coming.example.com
  names: {kind: Kept, plural: kepts, singular: kept}
  scope: Namespaced
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
{{- end }}
"""


@pytest.mark.parametrize("is_taken_out", [True, False])
def test_an_uninstall_deletes_the_releases_crds(
    release: Release,
    tmp_path: Path,
    is_taken_out: bool,
) -> None:
    """Also those that are annotated to be kept: docs/migrating.md upgrades without them first."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: operator, version: 1.0.0}")
    (tmp_path / "templates/crd.yaml").write_text(CRD)
    kind = ("crd", "kepts.coming.example.com")
    release.done("install", "operator", str(tmp_path), values={"crds": {"enabled": True}})
    release.kubectl("annotate", *kind, "helm.sh/resource-policy=keep")
    if is_taken_out:
        release.done("upgrade", "operator", str(tmp_path), values={"crds": {"enabled": False}})
    release.done("uninstall", "operator", "--wait")
    assert bool(release.get(*kind)) == is_taken_out
    release.kubectl("delete", *kind, "--ignore-not-found")
