"""An empty list in a custom resource says nothing: the original's chart writes many by default."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slinky.operator.kinds import Controller, LoginSet
from tests.operator.test_golden import CASES, Case

CONTAINER = ("args", "command", "env", "envFrom", "volumeMounts", "volumeDevices", "ports")
POD = (
    "containers",
    "initContainers",
    "volumes",
    "tolerations",
    "imagePullSecrets",
    "hostAliases",
    "topologySpreadConstraints",
    "readinessGates",
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DAEMONS = ("slurmctld", "slurmdbd", "slurmrestd", "slurmd", "login", "reconfigure", "logfile", "initconf")


def with_empty_lists(written: dict[str, Any], names: tuple[str, ...], nested: dict[str, Any]) -> dict[str, Any]:
    """With an empty list wherever nothing is written, at two depths."""
    made: dict[str, Any] = {name: [] for name in names}
    made |= {key: copy.deepcopy(value) for key, value in nested.items() if key not in written}
    return made | written


def emptied(found: Any) -> Any:
    """The same object as a chart writes it that has an empty list for whatever was not chosen."""
    spec, changes = found.spec, dict[str, Any]()
    for daemon in DAEMONS:
        if hasattr(spec, daemon):
            security = {"securityContext": {"capabilities": {"add": [], "drop": []}}, "resources": {"claims": []}}
            changes[daemon] = with_empty_lists(getattr(spec, daemon), CONTAINER, security)
    if hasattr(spec, "template"):
        inner = {"dnsConfig": {"searches": [], "nameservers": []}, "affinity": {"podAntiAffinity": {REQUIRED: []}}}
        pod = with_empty_lists(spec.template.spec, POD, inner)
        changes["template"] = msgspec.structs.replace(spec.template, spec=pod)
    if hasattr(spec, "service"):
        service = with_empty_lists(spec.service.spec, ("ports", "loadBalancerSourceRanges", "ipFamilies"), {})
        changes["service"] = msgspec.structs.replace(spec.service, spec=service)
    if isinstance(found, LoginSet) and spec.strategy:
        changes["strategy"] = spec.strategy
    if isinstance(found, Controller) and spec.persistence.access_modes is None:
        changes["persistence"] = msgspec.structs.replace(spec.persistence, access_modes=[])
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(spec, **changes))


def without_empty_mappings(value: Any) -> Any:
    """Kubernetes takes them as nothing, but for a volume's `emptyDir: {}`."""
    if isinstance(value, dict):
        inner = {key: without_empty_mappings(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item != {} or key == "emptyDir"}
    return [without_empty_mappings(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_empty_lists_change_nothing_that_is_made(folder: Path) -> None:
    """Of any kind; a worker's revision stays too, so that none is replaced over them."""
    plain, other = Case(folder), Case(folder)
    other.objects = [emptied(each) for each in other.objects]
    assert without_empty_mappings(list(other.made())) == without_empty_mappings(list(plain.made()))


def test_every_daemon_has_its_arguments_variables_and_files() -> None:
    """With the lists that the original's chart writes: what each would not work without."""
    case = Case(Path(__file__).parent.parent / "golden/originals-empty-lists")
    made = {f"{each['kind']}/{each['metadata']['name']}": each for each in case.made()}

    def pod(place: str) -> dict[str, Any]:
        spec: dict[str, Any] = made[place]["spec"]
        return dict(spec.get("template", {}).get("spec") or spec)

    def container(place: str) -> dict[str, Any]:
        return dict(pod(place)["containers"][0])

    worker = container("Pod/slurm-worker-slinky-0")
    assert worker["args"][:2] == ["-Z", "--conf-server"]
    assert {each["name"] for each in worker["env"]} >= {"POD_CPUS", "POD_MEMORY"}
    assert {each["mountPath"] for each in worker["volumeMounts"]} >= {"/etc/slurm", "/var/spool/slurmd"}
    assert pod("Pod/slurm-worker-slinky-0")["tolerations"] and pod("Pod/slurm-worker-slinky-0")["dnsConfig"]["searches"]
    assert container("Deployment/slurm-restapi")["env"][0] == {"name": "SLURM_JWT", "value": "daemon"}
    login = pod("Deployment/slurm-login-slinky")
    assert [each["name"] for each in login["initContainers"]] == ["initconf"]
    assert {each["name"] for each in login["volumes"]} >= {"slurm-key", "ssh-host-keys", "sssd-conf"}
    assert any(each["name"] == "SACKD_OPTIONS" for each in login["containers"][0]["env"])
    for place in ("StatefulSet/slurm-controller", "StatefulSet/slurm-accounting"):
        assert "/etc/slurm" in {each["mountPath"] for each in container(place)["volumeMounts"]}
        assert container(place)["ports"]
    claim = made["StatefulSet/slurm-controller"]["spec"]["volumeClaimTemplates"][0]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
