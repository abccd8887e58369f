"""`slinky operator admission` as an admin runs it, before a real API server, with the rights of examples/operator/admission-rbac.yaml: what kubectl is told, and what happens while it is down."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from slinky.kube import NAMESPACES, ApiError, Client, KubeError, PatchKind, Resource, from_kubeconfig
from slinky.operator.kinds import GROUP, VERSION
from slinky.sandbox.bridge import free_port
from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.test_rights import kubeconfig_of
from tests.conftest import CHECKOUT
from tests.operator.kinds.test_on_a_server import RESOURCES, create, installed, kubectl, written
from tests.operator.validation.things import LEAST

__all__ = ["installed"]

pytestmark = pytest.mark.sandbox

CONFIG_MAPS: Resource[dict[str, Any]] = Resource("", "v1", "configmaps", dict)
CRDS: Resource[dict[str, Any]] = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", dict, namespaced=False)


class Webhook:
    """The process, in one namespace."""

    def __init__(self, sandbox: Sandbox, folder: Path, namespace: str) -> None:
        self.sandbox, self.namespace, self._folder = sandbox, namespace, folder
        port, self._health = free_port(), free_port()
        self.url = f"https://{sandbox.record.addresses.host}:{port}"
        self.settings: dict[str, Any] = {
            "namespaces": [namespace],
            "namespace": "slinky",
            "allowedTokenUsers": {namespace: ["alice", "bob"]},
            "admission": {"url": self.url, "port": port},  # the rights of the example are for the names that are the default
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(self.settings))
        self.kubeconfig = sandbox.kubeconfig
        self._process: asyncio.subprocess.Process | None = None

    def _words(self, kubeconfig: Path, *words: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "slinky",
            "operator",
            *words,
            "--config",
            str(self._folder / "config.yaml"),
            "--kubeconfig",
            str(kubeconfig),
        ]

    async def start(self, client: Client) -> None:
        words = self._words(self.kubeconfig, "admission", "--health-port", str(self._health))
        with (self._folder / "admission.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)
        await until("the webhook was ready", self._ready)
        await until("the API server called it", lambda: self._refuses(client))

    async def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            assert await asyncio.wait_for(self._process.wait(), 20) == 0
            self._process = None

    async def end(self) -> None:
        await self.stop()
        await asyncio.to_thread(
            subprocess.run, self._words(self.sandbox.kubeconfig, "webhooks", "--delete"), check=True, capture_output=True, timeout=60
        )

    async def _ready(self) -> bool:
        async with aiohttp.ClientSession() as session, session.get(f"http://localhost:{self._health}/readyz") as answer:
            return answer.status == 200

    async def _refuses(self, client: Client) -> bool:
        try:
            await client.raw(
                "POST",
                RESOURCES["NodeSet"].path(self.namespace),
                parameters={"dryRun": "All"},
                body=written("NodeSet", "probe", LEAST["NodeSet"] | {"x": 1}),
            )
        except ApiError as error:
            return "there is no such field" in str(error)
        return False


async def until(what: str, probe: Callable[[], Any], seconds: float = 60.0) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if await probe():
                        return
                except (KubeError, aiohttp.ClientError):
                    pass
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


@pytest.fixture
async def client(installed: Sandbox) -> AsyncIterator[Client]:
    async with Client(from_kubeconfig(installed.kubeconfig)) as found:
        yield found


@pytest.fixture
async def webhook(installed: Sandbox, namespace: str, tmp_path: Path) -> AsyncIterator[Webhook]:
    found = Webhook(installed, tmp_path, namespace)
    try:
        yield found
    finally:
        await found.end()


async def refusal(client: Client, kind: str, name: str, namespace: str, **spec: Any) -> str:
    with pytest.raises(ApiError) as caught:
        await create(client, kind, name, namespace, **spec)
    return str(caught.value)


async def test_what_kubectl_is_told_and_what_happens_while_the_webhook_is_down(client: Client, webhook: Webhook, tmp_path: Path) -> None:
    namespace = webhook.namespace
    kubectl(webhook.sandbox, "apply", "-f", str(CHECKOUT / "examples/operator/admission-rbac.yaml"))
    # Made while there was no webhook: wrong, and there.
    await create(client, "NodeSet", "wrong", namespace, mistake=1)
    await client.patch(RESOURCES["NodeSet"], "wrong", {"metadata": {"finalizers": ["slinky.slurm.net/test"]}}, namespace)
    webhook.kubeconfig = await kubeconfig_of(client, webhook.sandbox, "slurm-operator-admission", tmp_path)
    await webhook.start(client)

    await mistakes_are_refused(client, namespace)
    await what_is_wrong_already_may_be_labelled_deleted_and_scaled(client, namespace)
    await manifests_of_the_original_are_taken(webhook)
    await another_version_is_refused(client, webhook)

    await webhook.stop()
    assert "failed calling webhook" in await refusal(client, "NodeSet", "later", namespace)
    await finalizers_go_while_the_webhook_is_down(client, namespace)
    await client.create(NAMESPACES.untyped, {"metadata": {"name": f"{namespace}-other"}})
    await create(client, "NodeSet", "later", f"{namespace}-other")
    await client.delete(NAMESPACES, f"{namespace}-other")
    await webhook.start(client)
    await create(client, "NodeSet", "later", namespace)


async def finalizers_go_while_the_webhook_is_down(client: Client, namespace: str) -> None:
    """The operator lets workers and namespaces go without the webhook. A spec is not changed without it."""
    nodesets = RESOURCES["NodeSet"]
    with pytest.raises(ApiError, match="failed calling webhook"):
        await client.patch(nodesets, "gpu", {"spec": {"replicas": 3}}, namespace)
    await client.patch(nodesets, "gpu", {"metadata": {"labels": {"a": "b"}}}, namespace)
    finalizers = ["slinky.slurm.net/test", "slinky.slurm.net/another"]
    await client.patch(nodesets, "gpu", {"metadata": {"finalizers": finalizers}}, namespace)
    await client.delete(nodesets, "gpu", namespace)
    await client.patch(nodesets, "gpu", {"metadata": {"finalizers": finalizers[:1]}}, namespace)
    await client.patch(nodesets, "gpu", {"metadata": {"finalizers": None}}, namespace)
    assert all(each["metadata"]["name"] != "gpu" for each in (await client.list(nodesets, namespace)).items)


async def mistakes_are_refused(client: Client, namespace: str) -> None:
    said = await refusal(client, "NodeSet", "a", namespace, controlerRef={"name": "x"}, replicas=3)
    assert f"NodeSet {namespace}/a: spec.controlerRef: there is no such field; the nearest is controllerRef" in said
    assert "sets SlurmctldHost" in await refusal(client, "Controller", "c", namespace, extraConf="SlurmctldHost=x")
    assert "is root, to whom Slurm obeys" in await refusal(client, "Token", "t", namespace, username="root")
    assert "is eve, and Tokens in namespace" in await refusal(client, "Token", "t", namespace, username="eve")
    await create(client, "Token", "t", namespace, username="bob")
    await client.create(CONFIG_MAPS, {"metadata": {"name": "files"}, "data": {"slurm.conf": ""}}, namespace)
    assert "ConfigMap files has a file slurm.conf" in await refusal(
        client, "Controller", "c", namespace, configFileRefs=[{"name": "files"}]
    )
    # Two of one name: the second is refused, the first may go on.
    await create(client, "NodeSet", "gpu", namespace, template={"spec": {"hostname": "node-"}})
    said = await refusal(client, "NodeSet", "cpu", namespace, template={"spec": {"hostname": "node-"}})
    assert "NodeSet gpu of the same cluster" in said
    await client.patch(RESOURCES["NodeSet"], "gpu", {"spec": {"replicas": 2}}, namespace)
    claims = [{"metadata": {"name": "scratch"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    with pytest.raises(ApiError, match="volumeClaimTemplates: cannot be changed"):
        await client.patch(RESOURCES["NodeSet"], "gpu", {"spec": {"volumeClaimTemplates": claims}}, namespace)


async def what_is_wrong_already_may_be_labelled_deleted_and_scaled(client: Client, namespace: str) -> None:
    nodesets = RESOURCES["NodeSet"]
    await client.patch(nodesets, "wrong", {"metadata": {"labels": {"a": "b"}}}, namespace)
    await client.patch(nodesets, "wrong", {"status": {"desired": 1}}, namespace, subresource="status")
    await client.patch(nodesets, "wrong", {"spec": {"replicas": 0}}, namespace, subresource="scale", kind=PatchKind.MERGE)
    with pytest.raises(ApiError, match=r"spec\.mistake: there is no such field"):
        await client.patch(nodesets, "wrong", {"spec": {"pinToNode": True}}, namespace)
    await client.delete(nodesets, "wrong", namespace)
    await client.patch(nodesets, "wrong", {"metadata": {"finalizers": None}}, namespace)

    async def gone() -> bool:
        return all(each["metadata"]["name"] != "wrong" for each in (await client.list(nodesets, namespace)).items)

    await until("the wrong NodeSet was gone", gone)


async def manifests_of_the_original_are_taken(webhook: Webhook) -> None:
    for path in sorted((CHECKOUT / "tests/operator/compat").glob("*.yaml")):
        documents = [
            each | {"metadata": each["metadata"] | {"namespace": webhook.namespace}} for each in yaml.safe_load_all(path.read_text())
        ]
        text = yaml.safe_dump_all(documents).replace("namespace: slurm\n", f"namespace: {webhook.namespace}\n")
        await asyncio.to_thread(_applied_and_deleted, webhook.sandbox, text)


def _applied_and_deleted(sandbox: Sandbox, text: str) -> None:
    for number, words in enumerate((["apply", "--server-side"], ["apply", "--server-side"], ["delete", "--wait=true"])):
        command = ["kubectl", *words, "-f", "-"]
        done = subprocess.run(
            command, env=os.environ | sandbox.exports(), input=text, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        if number == 0 and "jwtHs256KeyRef" in text:
            assert "Warning: spec.jwtHs256KeyRef is the older name of jwtKeyRef" in done.stderr


async def another_version_is_refused(client: Client, webhook: Webhook) -> None:
    """A second version at the API server, whose objects only the webhook could make: there is none yet, and it says so."""
    name, path = f"tokens.{GROUP}", f"/apis/{GROUP}/v9/namespaces/{webhook.namespace}/tokens/t"
    before = (await client.get(CRDS, name))["spec"]
    configurations = await client.raw("GET", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/slurm-operator")
    bundle = json.loads(configurations)["webhooks"][0]["clientConfig"]["caBundle"]
    second = before["versions"][0] | {"name": "v9", "storage": False}
    asked = {"clientConfig": {"url": f"{webhook.url}/convert", "caBundle": bundle}, "conversionReviewVersions": ["v1"]}
    change: dict[str, Any] = {"spec": {"versions": [*before["versions"], second], "conversion": {"strategy": "Webhook", "webhook": asked}}}
    await client.patch(CRDS, name, change)
    try:

        async def told() -> bool:
            try:
                await client.raw("GET", path)
            except ApiError as error:
                return f"there is no version {GROUP}/v9; there is {GROUP}/{VERSION}" in str(error)
            return False

        await until("the conversion was refused with our sentence", told)
        assert (await client.get(RESOURCES["Token"], "t", webhook.namespace))["spec"]["username"] == "bob"
    finally:
        await client.patch(CRDS, name, {"spec": {"versions": before["versions"], "conversion": {"strategy": "None", "webhook": None}}})
