"""The CRDs on a real API server: it takes them, offers the names, columns and subresources that tools know, fills in defaults, prunes nothing, and refuses what the rules say with our sentences."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from slinky.kube import Client, InvalidError, PatchKind, Resource, from_kubeconfig
from slinky.operator.kinds import GROUP, KINDS, VERSION, KeyReference, NameReference, Written
from slinky.operator.kinds.anatomy import fields_of, part_of
from slinky.operator.kinds.reading import read
from slinky.operator.kinds.schema import OFFERED
from slinky.sandbox.handle import Sandbox
from tests.conftest import CHECKOUT
from tests.operator.validation.things import LEAST

pytestmark = pytest.mark.sandbox

KEY = {"name": "keys", "key": "slurm.key"}
Document = dict[str, Any]
RESOURCES: dict[str, Resource[Document]] = {kind: Resource(GROUP, VERSION, offer.plural, dict) for kind, offer in OFFERED.items()}


def kubectl(sandbox: Sandbox, *arguments: str) -> str:
    done = subprocess.run(
        ["kubectl", *arguments], env=os.environ | sandbox.exports(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(sandbox: Sandbox) -> Iterator[Sandbox]:
    kubectl(sandbox, "apply", "-f", str(CHECKOUT / "crds"))
    names = [f"crd/{offer.plural}.{GROUP}" for offer in OFFERED.values()]
    kubectl(sandbox, "wait", "--for=condition=Established", *names, "--timeout=60s")
    yield sandbox


@pytest.fixture
async def client(installed: Sandbox) -> AsyncIterator[Client]:
    async with Client(from_kubeconfig(installed.kubeconfig)) as found:
        yield found


def written(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def create(client: Client, kind: str, name: str, namespace: str, **spec: Any) -> Document:
    return await client.create(RESOURCES[kind], written(kind, name, LEAST[kind] | spec), namespace)


def test_the_schemas_are_structural_and_all_names_are_ours(installed: Sandbox) -> None:
    for offer in OFFERED.values():
        found = json.loads(kubectl(installed, "get", f"crd/{offer.plural}.{GROUP}", "-o", "json"))
        conditions = {each["type"]: each for each in found["status"]["conditions"]}
        assert conditions["NamesAccepted"]["status"] == "True", conditions
        assert conditions.get("NonStructuralSchema", {"status": "False"})["status"] == "False", conditions


async def test_defaults_are_filled_in_and_nothing_is_pruned(client: Client, namespace: str) -> None:
    spec: Document = {
        "ssh": None,
        "extraConf": None,
        "volumeClaimTemplates": None,
        "updateStrategy": {"rollingUpdate": {}},
        "persistentVolumeClaimRetentionPolicy": {},
        "partition": {"enabled": True, "unheard": {"of": 1}},
        "slurmd": {"image": "i", "securityContext": {"privileged": False}, "env": [{"name": "A", "value": ""}]},
        "template": {"metadata": {"labels": None}, "spec": {"hostname": "n-", "tolerations": []}},
        "mistake": True,
    }
    found = (await create(client, "NodeSet", "one", namespace, **spec))["spec"]
    assert found["replicas"] == 1
    assert found["scalingMode"] == "StatefulSet"
    assert found["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
    assert found["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert found["partition"]["unheard"] == {"of": 1}
    assert found["mistake"] is True
    assert found["slurmd"] == spec["slurmd"]
    assert found["template"]["spec"] == {"hostname": "n-", "tolerations": []}
    assert found.get("ssh") is None


@pytest.mark.parametrize("kind", KINDS)
async def test_the_least_that_can_be_written_is_taken(client: Client, namespace: str, kind: str) -> None:
    await create(client, kind, "one", namespace)


def nulls(part: type, required: Sequence[str] = ()) -> Document:
    return {field.name: None for field in fields_of(part) if field.name not in required}


def spec_type(kind: str) -> type:
    found = next(part_of(field.type) for field in fields_of(KINDS[kind]) if field.name == "spec")
    assert found
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_a_null_may_stand_wherever_nothing_could(client: Client, namespace: str, kind: str) -> None:
    """As Helm writes them; also by server-side apply, which leaves them in."""
    part, least = spec_type(kind), LEAST[kind]
    specs = [nulls(part, tuple(least)) | least]
    specs += [
        least | {field.name: nulls(inner)}
        for field in fields_of(part)
        if field.name not in least and (inner := part_of(field.type)) and inner not in (KeyReference, NameReference)
    ]
    for number, spec in enumerate(specs):
        await client.create(RESOURCES[kind], written(kind, f"created-{number}", spec), namespace)
        applied = await client.apply(RESOURCES[kind], f"applied-{number}", written(kind, f"applied-{number}", spec), namespace)
        again = await client.apply(RESOURCES[kind], f"applied-{number}", written(kind, f"applied-{number}", spec), namespace)
        assert applied["spec"] == again["spec"]
        change: Document = {"refresh": False} if kind == "Token" else {"template": {"metadata": {"labels": {"changed": "yes"}}}}
        await client.patch(RESOURCES[kind], f"applied-{number}", {"spec": change}, namespace)
        read_back = read(kind, msgspec.convert(applied, Written))
        assert not isinstance(read_back, list), read_back


REFUSED: list[tuple[str, Document, str]] = [
    ("Controller", {"external": True}, "externalConfig.host has to say where the daemon listens"),
    ("Controller", {"external": True, "externalConfig": {"port": 1}}, "externalConfig.host has to say where the daemon listens"),
    ("Controller", {"ha": {"enabled": True}}, "several slurmctld at once are not supported"),
    ("Controller", {"clusterName": "x" * 41}, "spec.clusterName: Too long"),
    ("Controller", {"service": {"port": 70000}}, "spec.service.port"),
    ("Accounting", {"storageConfig": {}}, "storageConfig.host is missing"),
    ("NodeSet", {"controllerRef": {"name": ""}}, "controllerRef.name is empty"),
    ("NodeSet", {"controllerRef": None}, "spec.controllerRef"),
    ("NodeSet", {"controllerRef": {}}, "controllerRef.name is empty"),
    ("NodeSet", {"scalingMode": "Other"}, 'spec.scalingMode: Unsupported value: "Other"'),
    ("NodeSet", {"replicas": -1}, "spec.replicas"),
    ("NodeSet", {"replicas": "two"}, "spec.replicas"),
    ("NodeSet", {"taintKubeNodes": True}, "give template.spec.tolerations"),
    ("NodeSet", {"updateStrategy": {"type": "ScheduledUpdate"}}, "ScheduledUpdate is not supported; use OnDelete"),
    ("NodeSet", {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}, "maxUnavailable has to be a whole number of 1 or more"),
    ("NodeSet", {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "0%"}}}, "maxUnavailable has to be a whole number of 1 or more"),
    ("Token", {"username": ""}, "username is empty"),
    ("Token", {"jwtKeyRef": None}, "jwtKeyRef is missing"),
    ("Token", {"lifetime": "soon"}, "lifetime has to be a time such as 15m"),
]


async def test_what_the_rules_refuse_is_refused_with_their_sentences(client: Client, namespace: str) -> None:
    for number, (kind, spec, said) in enumerate(REFUSED):
        with pytest.raises(InvalidError) as caught:
            await create(client, kind, f"refused-{number}", namespace, **spec)
        assert said in str(caught.value), (kind, spec)


CHANGES: list[tuple[str, Document, Document, str]] = [
    ("Controller", {"clusterName": "a"}, {"clusterName": "b"}, "clusterName cannot be changed"),
    ("Controller", {}, {"clusterName": "b"}, "clusterName cannot be changed"),
    ("Controller", {"slurmKeyRef": KEY}, {"slurmKeyRef": {"name": "other"}}, "slurmKeyRef cannot be changed"),
    ("Controller", {"jwtHs256KeyRef": KEY}, {"jwtHs256KeyRef": None}, "jwtKeyRef cannot be changed"),
    ("Controller", {}, {"persistence": {"enabled": False}}, "persistence.enabled cannot be changed"),
    ("Controller", {}, {"persistence": {"existingClaim": "x"}}, "persistence.existingClaim cannot be changed"),
    ("NodeSet", {}, {"controllerRef": {"name": "other"}}, "controllerRef cannot be changed"),
    ("LoginSet", {}, {"controllerRef": {"name": "other"}}, "controllerRef cannot be changed"),
    ("RestApi", {}, {"controllerRef": {"name": "other"}}, "controllerRef cannot be changed"),
    ("Token", {}, {"jwtKeyRef": {"key": "other"}}, "jwtKeyRef cannot be changed"),
]


async def test_what_may_not_be_changed_is_not(client: Client, namespace: str) -> None:
    for number, (kind, before, change, said) in enumerate(CHANGES):
        await create(client, kind, f"kept-{number}", namespace, **before)
        with pytest.raises(InvalidError) as caught:
            await client.patch(RESOURCES[kind], f"kept-{number}", {"spec": change}, namespace)
        assert said in str(caught.value), (kind, change)


async def test_a_reference_may_take_its_newer_name_and_the_rest_may_change(client: Client, namespace: str) -> None:
    await create(client, "Controller", "c", namespace, jwtHs256KeyRef=KEY, slurmKeyRef=KEY, clusterName="a")
    change: Document = {"spec": {"jwtHs256KeyRef": None, "jwtKeyRef": KEY, "extraConf": "SlurmctldDebug=debug"}}
    assert (await client.patch(RESOURCES["Controller"], "c", change, namespace))["spec"]["jwtKeyRef"] == KEY


async def test_a_nodeset_scales_by_kubectl_and_shows_its_columns(client: Client, installed: Sandbox, namespace: str) -> None:
    await create(client, "NodeSet", "gpu", namespace)
    status = {
        "desired": 1,
        "replicas": 1,
        "updatedReplicas": 1,
        "readyReplicas": 1,
        "slurmIdle": 1,
        "selector": "app.kubernetes.io/instance=gpu",
        "conditions": [{"type": "Ready", "status": "True", "reason": "AsWritten", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    await client.patch(RESOURCES["NodeSet"], "gpu", {"status": status}, namespace, subresource="status", kind=PatchKind.MERGE)
    kubectl(installed, "scale", "-n", namespace, "nodeset/gpu", "--replicas=3")
    scale = json.loads(await client.raw("GET", f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/nodesets/gpu/scale"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"], scale["status"]["selector"]) == (3, 1, "app.kubernetes.io/instance=gpu")
    header, row = kubectl(installed, "get", "-n", namespace, "nss", "-o", "wide").splitlines()
    assert header.split() == [
        "NAME",
        "DESIRED",
        "REPLICAS",
        "UPDATED",
        "READY",
        "IDLE",
        "ALLOCATED",
        "DOWN",
        "DRAIN",
        "REASON",
        "MESSAGE",
        "AGE",
    ]
    assert row.split()[:6] == ["gpu", "1", "1", "1", "1", "1"]
    assert "AsWritten" in row
    assert "nodeset.slinky.slurm.net/gpu" in kubectl(installed, "get", "-n", namespace, "slinky", "-o", "name")


async def test_every_kind_is_known_by_its_short_names_and_explained(client: Client, installed: Sandbox, namespace: str) -> None:
    for kind, offer in OFFERED.items():
        await create(client, kind, "one", namespace)
        for name in offer.short:
            assert kubectl(installed, "get", "-n", namespace, name, "-o", "name").strip() == f"{kind.lower()}.{GROUP}/one"
    assert "Whether a worker comes back to the Kubernetes node it was on" in kubectl(installed, "explain", "nodeset.spec.pinToNode")
