"""Webhooks called by the real API server: mutation, refusal, the authority kept in place, replicas that share a certificate."""

import asyncio
import base64
import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import pytest

from slinky.kube import PODS, ApiError, Client, ForbiddenError, PatchKind
from slinky.kube.admission import (
    AdmissionRequest,
    AdmissionResponse,
    AdmissionServer,
    BundleKeeper,
    CertificateFiles,
    OnFailure,
    SelfMadeCertificate,
)
from slinky.kube.admission.cabundle import MUTATING, VALIDATING
from slinky.kube.admission.certificates import Issued, issue
from slinky.sandbox.handle import Sandbox
from tests.kube_sandbox.conftest import eventually, pod

pytestmark = pytest.mark.sandbox


def mutate(request: AdmissionRequest) -> AdmissionResponse:
    if request.document()["metadata"]["name"].startswith("broken"):
        raise RuntimeError("a fault of ours")
    document = request.document()
    document["metadata"].setdefault("annotations", {})["slinky.example/by"] = request.user_info.username
    document["spec"].setdefault("tolerations", []).append({"key": "slinky", "operator": "Exists"})
    return AdmissionResponse.mutate(request, document, warnings=["taken over"])


def validate(request: AdmissionRequest) -> AdmissionResponse:
    if request.document()["metadata"]["name"] == "forbidden":
        return AdmissionResponse.refuse("pods may not be called forbidden; call it something else")
    return AdmissionResponse.allow()


def configuration(name: str, namespace: str, url: str) -> dict[str, Any]:
    webhook = {
        "name": f"{name}.slinky.example",
        "clientConfig": {"url": url},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    return {"metadata": {"name": name}, "webhooks": [webhook]}


async def test_pods_pass_through_our_webhooks(sandbox: Sandbox, client: Client, namespace: str) -> None:
    host = sandbox.record.addresses.host
    name = f"slinky-{namespace}"

    def certificate() -> SelfMadeCertificate:
        return SelfMadeCertificate(client, "webhook", namespace, [host], mutating=[name], validating=[name], every=0.2)

    first = certificate()
    server = AdmissionServer({"/mutate": mutate, "/validate": validate}, first, host=host, port=0, on_failure=OnFailure.REFUSE)
    async with server.running():
        url = f"https://{host}:{server.port}"
        await client.create(MUTATING, configuration(name, namespace, f"{url}/mutate"))
        await client.create(VALIDATING, configuration(name, namespace, f"{url}/validate"))
        try:

            async def works() -> bool:
                probe = pod("probe") | {"apiVersion": "v1", "kind": "Pod"}
                path = PODS.path(namespace)
                await client.raw("POST", path, body=probe, parameters={"dryRun": "All"})
                return True

            async def trusted() -> bool:
                assert first.issued is not None
                found = [await client.get(resource, name) for resource in (MUTATING, VALIDATING)]
                return all(first.issued.authorities in base64.b64decode(each.webhooks[0].client_config.ca_bundle) for each in found)

            await eventually("the authority was put in", trusted)
            await eventually("pods pass", works)
            made = await client.create(PODS, pod("a"), namespace)
            assert "slinky" in {toleration.key for toleration in made.spec.tolerations}
            assert made.metadata.annotations["slinky.example/by"]
            with pytest.raises(ForbiddenError, match="call it something else"):
                await client.create(PODS, pod("forbidden"), namespace)
            with pytest.raises(ApiError, match=r"could not judge CREATE of Pod .*broken: RuntimeError: a fault of ours"):
                await client.create(PODS, pod("broken"), namespace)

            # Somebody applies the manifest again, without the authority.
            remove = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
            before = await client.patch(MUTATING, name, remove, kind=PatchKind.JSON)
            assert before.webhooks[0].client_config.ca_bundle == ""
            await eventually("the authority was put back", trusted)

            # A second replica takes the same certificate; a lost Secret is made anew and trusted.
            second = certificate()
            async with AdmissionServer({"/mutate": mutate}, second, host=host, port=0).running():
                assert second.issued == first.issued
                await client.raw("DELETE", f"/api/v1/namespaces/{namespace}/secrets/webhook")
                lost = first.issued
                await eventually("both have a new one", lambda: first.issued == second.issued and first.issued != lost)
                await eventually("the new one was trusted", trusted)
                await eventually("pods pass again", works)
        finally:
            await client.delete(MUTATING, name)
            await client.delete(VALIDATING, name)


class Files:
    """A mounted Secret: its files change all at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def put(self, issued: Issued) -> None:
        for name, held in (("ca.crt", issued.authorities), ("tls.crt", issued.certificate), ("tls.key", issued.key)):
            (self._folder / name).write_bytes(held)

    def source(self, client: Client, configuration: str, every: float) -> CertificateFiles:
        bundle = BundleKeeper(client, mutating=[configuration])
        authority = self._folder / "ca.crt"
        return CertificateFiles(self._folder / "tls.crt", self._folder / "tls.key", authority=authority, bundle=bundle, every=every)


async def test_a_certificate_of_another_authority_is_taken_up_and_no_pod_is_refused(
    sandbox: Sandbox, client: Client, namespace: str, tmp_path: Path
) -> None:
    """As where cert-manager's authority is another after years, or was made anew. A replica that has the old files still is there all the while."""
    host, name, now = sandbox.record.addresses.host, f"slinky-{namespace}", dt.datetime.now(dt.UTC)
    old, new = issue([host], now), issue([host], now)
    files, others = Files(tmp_path / "ours"), Files(tmp_path / "others")
    files.put(old)
    others.put(old)
    ours, theirs = files.source(client, name, every=1.0), others.source(client, name, every=1.0)
    server = AdmissionServer({"/mutate": mutate}, ours, host=host, port=0)
    async with server.running(), theirs.running():
        await client.create(MUTATING, configuration(name, namespace, f"https://{host}:{server.port}/mutate"))
        try:
            tries = itertools.count()

            async def passes() -> bool:
                await client.raw("POST", PODS.path(namespace), body=_named(next(tries)), parameters={"dryRun": "All"})
                return True

            await eventually("pods pass", passes)
            files.put(new)
            async with asyncio.timeout(30):
                while ours.loads < 2:
                    await passes()

            async def both_are_trusted() -> bool:
                found = base64.b64decode((await client.get(MUTATING, name)).webhooks[0].client_config.ca_bundle)
                return old.authorities in found and new.authorities in found

            assert await both_are_trusted()
            # Without it, and then with it again, the API server opens new connections: it sees the new certificate.
            await client.patch(MUTATING, name, [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}], kind=PatchKind.JSON)
            await eventually("both were put in again", both_are_trusted)
            await eventually("pods pass", passes)
        finally:
            await client.delete(MUTATING, name)


def _named(number: int) -> dict[str, Any]:
    return pod(f"p-{number}") | {"apiVersion": "v1", "kind": "Pod"}
