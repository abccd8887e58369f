"""The pods that a manifest is expanded into, beside those that the real controllers make of it: the same names, labels, annotations, owners and claims."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slinky.bridge.expansion import expand, normal
from slinky.kube import NAMESPACES, Client, from_kubeconfig
from slinky.sandbox.handle import Sandbox

pytestmark = pytest.mark.sandbox

MANIFESTS = Path(__file__).parent / "controllers"
PLURALS = {"LeaderWorkerSet": "leaderworkersets", "JobSet": "jobsets"}
# Hashes of templates, which nobody reads but the controllers themselves.
UNREAD = {"controller-revision-hash", "leaderworkerset.sigs.k8s.io/template-revision-hash"}
UNREAD |= {"jobset.sigs.k8s.io/priority"}  # the priority class's, as a number
UNREAD |= {"topology.kubernetes.io/zone", "topology.kubernetes.io/region"}  # of the node, once it is on one


@pytest.fixture
async def kube(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as found:
        yield found


def compared(pod: dict[str, Any]) -> dict[str, Any]:
    """What the bridge may read of a pod, without what is drawn by lot."""
    meta, spec = pod["metadata"], pod["spec"]
    owner = meta["ownerReferences"][0]
    found = {
        "name": meta["name"],
        "labels": {key: value for key, value in meta.get("labels", {}).items() if key not in UNREAD},
        "annotations": {key: value for key, value in meta.get("annotations", {}).items() if key not in UNREAD},
        "owner": f"{owner['apiVersion']} {owner['kind']} {owner['name']} {owner['controller']}",
        "claims": sorted(
            volume["persistentVolumeClaim"]["claimName"] for volume in spec.get("volumes", []) if "persistentVolumeClaim" in volume
        ),
        "affinity": spec.get("affinity", {}),
    }
    text = json.dumps(found, sort_keys=True)
    uids = {owner["uid"], *(value for key, value in meta.get("labels", {}).items() if key.endswith("-uid"))}
    for uid in uids:
        text = text.replace(uid, "UID")
    last = meta["name"].rpartition("-")[2]
    if owner["kind"] in ("Job", "ReplicaSet"):
        assert re.fullmatch(r"[a-z0-9]{5}", last)
        text = text.replace(meta["name"], f"{meta['name'].removesuffix(last)}*")
    drawn = meta["labels"].get("pod-template-hash")
    text = text.replace(drawn, "HASH") if drawn else text
    return json.loads(text)  # type: ignore[no-any-return]


@pytest.mark.parametrize("manifest", sorted(MANIFESTS.glob("*.yaml")), ids=lambda manifest: manifest.stem)
async def test_a_manifest_is_expanded_as_its_controllers_would(manifest: Path, sandbox: Sandbox, kube: Client) -> None:
    document = yaml.safe_load(manifest.read_text())
    namespace = f"made-{manifest.stem}"
    await kube.create(NAMESPACES.untyped, {"metadata": {"name": namespace}})
    try:
        document["metadata"]["namespace"] = namespace
        ours = [found for found in expand(normal(document)) if found["kind"] == "Pod"]
        plural = PLURALS.get(document["kind"], f"{document['kind'].lower()}s")
        await kube.raw("POST", f"/apis/{document['apiVersion']}/namespaces/{namespace}/{plural}", body=document)

        async def theirs() -> list[dict[str, Any]]:
            return list(json.loads(await kube.raw("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"])

        async def all_made() -> bool:
            return len(await theirs()) >= len(ours)

        await sandbox.until("kube-controller-manager", f"{manifest.stem} had its {len(ours)} pods", all_made, 60)

        def in_order(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return sorted(map(compared, pods), key=json.dumps)

        assert in_order(ours) == in_order(await theirs())
    finally:
        await kube.delete(NAMESPACES, namespace)
