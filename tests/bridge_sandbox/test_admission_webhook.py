"""`slinky bridge admission` run as a user runs it, and called by the real API server: what it takes in, what it refuses, and what happens while it is dead."""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import json
import re
import signal
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from slinky.bridge.keys import FINALIZER, JOB_ID, MANAGED_NODE, SETTINGS, SLURM_NODE, TASK_ENVIRONMENT
from slinky.kube import (
    JOBS,
    NAMESPACES,
    PODS,
    Access,
    AdmissionRequest,
    AdmissionResponse,
    AdmissionServer,
    AlreadyExistsError,
    ApiError,
    Client,
    NotFoundError,
    PatchKind,
    Resource,
    SelfMadeCertificate,
    from_kubeconfig,
)
from slinky.sandbox.bridge import free_port
from slinky.sandbox.handle import Sandbox
from tests.conftest import CHECKOUT, Cli
from tests.kube_sandbox.conftest import eventually

pytestmark = pytest.mark.sandbox

LIMIT = "slurmjob.slinky.slurm.net/timelimit"
WRONG = f"annotation {LIMIT} is 'soon', and must be minutes, or a time such as 90, 1:30:00 or 2-12:00:00"
LABEL = "slurm.example/managed"
DEPLOYMENTS: Resource[dict[str, Any]] = Resource("apps", "v1", "deployments", dict)
DAEMONSETS: Resource[dict[str, Any]] = Resource("apps", "v1", "daemonsets", dict)
ROLES: Resource[dict[str, Any]] = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", dict)
ACCOUNTS: Resource[dict[str, Any]] = Resource("", "v1", "serviceaccounts", dict)
MUTATING: Resource[dict[str, Any]] = Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", dict, namespaced=False)
VALIDATING: Resource[dict[str, Any]] = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", dict, namespaced=False
)
_numbers = itertools.count()


def template(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}
    return {"containers": [container], **spec}


def pod(name: str, spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": template(**(spec or {}))}


def job(name: str, **annotations: str) -> dict[str, Any]:
    spec = {"template": {"spec": template(restartPolicy="Never")}, "suspend": True}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


class Webhook:
    """The command, its namespaces (`managed`, `other` and the bridge's own), a client as the bridge's user and one as alice."""

    def __init__(self, sandbox: Sandbox, folder: Path, bridge: Client, alice: Client) -> None:
        self.name = f"adm{next(_numbers)}"
        self.home, self.managed, self.other = (f"{self.name}-{part}" for part in ("home", "managed", "other"))
        self.scheduler = f"{self.name}-scheduler"
        self.bridge, self.alice = bridge, alice
        self.config = folder / "config.yaml"
        self.kubeconfig = sandbox.kubeconfig
        self.log = folder / "log"
        self.host, self.port, self._health = sandbox.record.addresses.host, free_port(), free_port()
        self._url = f"https://{self.host}:{self.port}"
        self._process: asyncio.subprocess.Process | None = None
        self._probe = ""

    def configure(self, *, fail_open: bool = False, by_label: bool = False) -> None:
        admission = {"port": self.port, "url": self._url, "configuration": self.name, "failOpen": fail_open}
        managed: dict[str, Any] = {"managedNamespaces": [self.managed]}
        if by_label:
            managed = {"managedNamespaceSelector": {"matchLabels": {LABEL: self.name}}}
        settings = {"schedulerName": self.scheduler, "namespace": self.home, "healthPort": self._health, "admission": admission}
        self.config.write_text(yaml.safe_dump(settings | managed))

    async def start(self) -> None:
        command = [str(CHECKOUT / ".venv/bin/slinky"), "bridge", "admission"]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, "--config", str(self.config), "--kubeconfig", str(self.kubeconfig), "--log-format", "json", stderr=log
            )
        await eventually("the webhook was ready", self._ready)
        await eventually("the API server asks it about new pods", self._takes_in)
        await eventually("the API server asks it about changes", self._guards)

    async def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()

    async def clean_up(self) -> None:
        if self._process is not None:
            await self.end(signal.SIGKILL)
        for resource in (MUTATING, VALIDATING):
            with contextlib.suppress(NotFoundError):
                await self.bridge.delete(resource, self.name)
        for namespace in (self.home, self.managed, self.other):
            await self.bridge.delete(NAMESPACES, namespace)
        for namespace in (self.home, self.managed, self.other):
            await eventually(f"namespace {namespace} was empty", functools.partial(self._emptied, namespace))

    async def _emptied(self, namespace: str) -> bool:
        """Nobody else is here to take our finalizer off."""
        found = (await self.bridge.list(PODS, namespace)).items
        for each in found:
            with contextlib.suppress(NotFoundError):
                await self.bridge.patch(PODS, each.metadata.name, {"metadata": {"finalizers": None}}, namespace)
                await self.bridge.delete(PODS, each.metadata.name, namespace, grace_seconds=0)
        return not found

    async def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self.log.read_text()
        try:
            return (await self.look("readyz")).strip() == "ok"
        except aiohttp.ClientError:
            return False

    async def _takes_in(self) -> bool:
        """A new name each time: the first ones may come too early."""
        made = await self.bridge.create(PODS, pod(f"probe-{next(_numbers)}", {"schedulerName": self.scheduler}), self.other)
        self._probe = made.metadata.name
        return FINALIZER in made.metadata.finalizers

    async def _guards(self) -> bool:
        try:
            await self.alice.patch(PODS, self._probe, {"metadata": {"labels": {JOB_ID: str(next(_numbers))}}}, self.other)
        except ApiError as error:
            return "is the bridge's own" in str(error)
        return False

    async def look(self, page: str) -> str:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self._health}/{page}") as answer:
            return await answer.text()

    async def counted(self) -> Counter[str]:
        """Requests so far, by kind, operation and outcome, as in "Pod CREATE changed"."""
        page = await self.look("metrics")
        found = re.findall(r'slinky_admission_requests_total\{kind="(\w+)",operation="(\w+)",outcome="(\w+)"\} ([\d.]+)', page)
        return Counter({" ".join(names): int(float(number)) for *names, number in found})

    async def create(self, made: dict[str, Any], namespace: str = "", resource: Resource[dict[str, Any]] = PODS.untyped) -> dict[str, Any]:
        return await self.alice.create(resource, made, namespace or self.managed)

    async def refused(self, made: dict[str, Any], said: str, resource: Resource[dict[str, Any]] = PODS.untyped) -> None:
        with pytest.raises(ApiError, match=re.escape(said)):
            await self.create(made, resource=resource)

    def is_taken_in(self, found: dict[str, Any]) -> bool:
        return bool(found["spec"]["schedulerName"] == self.scheduler and FINALIZER in (found["metadata"].get("finalizers") or ()))


@pytest.fixture
def access(sandbox: Sandbox) -> Access:
    return from_kubeconfig(sandbox.kubeconfig)


@pytest.fixture
async def webhook(sandbox: Sandbox, access: Access, tmp_path: Path) -> AsyncIterator[Webhook]:
    someone = dataclasses.replace(access, identity=dataclasses.replace(access.identity, impersonate="alice"))
    async with Client(access) as bridge, Client(someone) as alice:
        found = Webhook(sandbox, tmp_path, bridge, alice)
        for namespace in (found.home, found.managed, found.other):
            await bridge.create(NAMESPACES, {"metadata": {"name": namespace}})
            with contextlib.suppress(AlreadyExistsError):
                await bridge.create(ACCOUNTS, {"metadata": {"name": "default"}}, namespace)
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
            await bridge.create(ROLES, {"metadata": {"name": "alice"}, "roleRef": role, "subjects": [subject]}, namespace)
        try:
            yield found
        finally:
            await found.clean_up()


async def test_a_pod_gets_all_it_needs_and_is_asked_about_once(webhook: Webhook) -> None:
    webhook.configure()
    await webhook.start()
    before = await webhook.counted()
    named = {"schedulerName": webhook.scheduler}
    made = [
        await webhook.create(pod("plain")),
        await webhook.create(pod("named", named)),
        await webhook.create(pod("elsewhere", named), webhook.other),
    ]
    for found in made:
        assert webhook.is_taken_in(found)
        assert MANAGED_NODE in {toleration["key"] for toleration in found["spec"]["tolerations"]}
        variables = {variable["name"] for variable in found["spec"]["containers"][0]["env"]}
        assert variables == {"SLURM_JOB_ID", "SLURM_CPUS_PER_TASK"}
    said = await webhook.create(pod("said", named, annotations={SETTINGS + "timelimit": "10"}))
    assert {variable["name"] for variable in said["spec"]["containers"][0]["env"]} >= {"SLURM_JOB_ID", *TASK_ENVIRONMENT}
    made.append(said)
    assert await webhook.counted() - before == {"Pod CREATE changed": len(made)}


async def test_what_is_not_ours_is_left_alone_and_not_even_asked_about(webhook: Webhook) -> None:
    webhook.configure()
    await webhook.start()
    before = await webhook.counted()
    made = [
        await webhook.create(pod("plain"), webhook.other),
        await webhook.create(pod("bad", annotations={LIMIT: "soon"}, labels={JOB_ID: "7"}), webhook.other),
        await webhook.create(pod("theirs", {"schedulerName": "volcano"})),
        await webhook.create(pod("home", {"schedulerName": webhook.scheduler}), webhook.home),
    ]
    labels = {"app": "daemon"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template()}}
    await webhook.create({"metadata": {"name": "daemon"}, "spec": spec}, resource=DAEMONSETS)

    async def daemons() -> list[dict[str, Any]]:
        return (await webhook.bridge.list(PODS.untyped, webhook.managed, labels="app=daemon")).items

    await eventually("the DaemonSet had pods", daemons)
    for found in [*made, *await daemons()]:
        assert FINALIZER not in (found["metadata"].get("finalizers") or ())
        assert "env" not in found["spec"]["containers"][0]
    # Ordinary changes to a pod of ours, by its owner and by the kubelet, and one of our keys by the bridge.
    await webhook.create(pod("ours"))
    await webhook.alice.patch(PODS, "ours", {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}, webhook.managed)
    await webhook.alice.patch(PODS, "ours", {"status": {"message": "hello"}}, webhook.managed, subresource="status")
    await webhook.bridge.patch(PODS, "ours", {"metadata": {"labels": {JOB_ID: "7"}}}, webhook.managed)
    await webhook.alice.patch(PODS, "ours", {"metadata": {"finalizers": None}}, webhook.managed)
    assert await webhook.counted() - before == {"Pod CREATE changed": 1}


async def test_a_malformed_annotation_is_refused_wherever_it_is_written(webhook: Webhook) -> None:
    webhook.configure()
    await webhook.start()
    bad = {"name": "bad", "annotations": {LIMIT: "soon"}}
    replicated = [{"name": "r", "template": {"spec": job("x")["spec"]}}]
    kinds: list[tuple[str, Resource[dict[str, Any]], dict[str, Any]]] = [
        ("Pod", PODS.untyped, template()),
        ("Job", JOBS.untyped, job("x")["spec"]),
        ("PodGroup", Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", dict), {"minMember": 2}),
        ("PodGroup", Resource("scheduling.k8s.io", "v1alpha2", "podgroups", dict), {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        ("JobSet", Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", dict), {"replicatedJobs": replicated, "suspend": True}),
        (
            "LeaderWorkerSet",
            Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", dict),
            {"replicas": 0, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": template()}}},
        ),
    ]
    for kind, resource, spec in kinds:
        where = {"apiVersion": f"{resource.group}/{resource.version}".strip("/"), "kind": kind}
        await webhook.refused(where | {"metadata": bad, "spec": spec}, f"{kind} {webhook.managed}/bad: {WRONG}", resource)
        good = {"name": "good", "annotations": {LIMIT: "90"}}
        await webhook.create(where | {"metadata": good, "spec": spec}, resource=resource)


async def test_an_old_mistake_is_no_reason_to_refuse_a_change(webhook: Webhook) -> None:
    """The namespace is taken over, by its label, when the Job is there already."""
    webhook.configure(by_label=True)
    await webhook.start()
    await webhook.create(job("old", **{LIMIT: "soon"}), resource=JOBS.untyped)
    assert not webhook.is_taken_in(await webhook.create(pod("early")))
    await webhook.bridge.patch(NAMESPACES, webhook.managed, {"metadata": {"labels": {LABEL: webhook.name}}})

    async def is_managed() -> bool:
        body = {"apiVersion": "v1", "kind": "Pod", **pod("probe")}
        return FINALIZER.encode() in await webhook.bridge.raw("POST", PODS.path(webhook.managed), body=body, parameters={"dryRun": "All"})

    await eventually("the namespace was managed", is_managed)

    async def annotate(**annotations: str) -> None:
        await webhook.alice.patch(JOBS, "old", {"metadata": {"annotations": annotations}}, webhook.managed)

    await annotate(other="x")
    with pytest.raises(ApiError, match="is 'later', and must be minutes"):
        await annotate(**{LIMIT: "later"})
    await annotate(**{LIMIT: "90"})
    with pytest.raises(ApiError, match="is 'soon', and must be minutes"):
        await annotate(**{LIMIT: "soon"})
    assert webhook.is_taken_in(await webhook.create(pod("late")))


async def test_the_bridges_keys_are_the_bridges(webhook: Webhook) -> None:
    webhook.configure()
    await webhook.start()
    await webhook.refused(pod("p", labels={JOB_ID: "7"}), f"Pod {webhook.managed}/p: label {JOB_ID} is written by the bridge")
    made = await webhook.bridge.create(PODS, pod("mine", labels={JOB_ID: "7"}), webhook.managed)
    assert made.metadata.labels[JOB_ID] == "7"
    await webhook.create(pod("p"))
    keys = [("labels", JOB_ID), ("annotations", SLURM_NODE), ("annotations", "task.slinky.slurm.net/procid")]
    for kind, key in keys:
        change = {"metadata": {kind: {key: "8"}}}
        for subresource in ("", "status"):
            with pytest.raises(ApiError, match=f"Pod {webhook.managed}/p: {kind[:-1]} {key} is the bridge's own"):
                await webhook.alice.patch(PODS, "p", change, webhook.managed, subresource=subresource)
        await webhook.bridge.patch(PODS, "p", change, webhook.managed)
        with pytest.raises(ApiError, match=f"{key} is the bridge's own"):
            await webhook.alice.patch(PODS, "p", {"metadata": {kind: {key: None}}}, webhook.managed)
    await webhook.bridge.bind("p", webhook.managed, "kwok-00", annotations={"task.slinky.slurm.net/procid": "0"})
    assert (await webhook.bridge.get(PODS, "p", webhook.managed)).metadata.annotations["task.slinky.slurm.net/procid"] == "0"


async def test_a_pod_with_very_many_annotations_can_still_be_updated(webhook: Webhook) -> None:
    """By the kubelet, say: a condition that looks at all of them costs more than the API server allows, and then every update is refused."""
    webhook.configure()
    await webhook.start()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    short = [a + b + c for a in letters for b in letters for c in letters]
    many = dict.fromkeys([*short, *(f"a{each}" for each in short[:25_000])], "")  # 240 KB: as many as fit into a pod
    await webhook.create(pod("p", annotations=many))
    await webhook.alice.patch(PODS, "p", {"status": {"message": "told by a kubelet"}}, webhook.managed, subresource="status")
    await webhook.alice.patch(PODS, "p", {"metadata": {"labels": {"app": "x"}}}, webhook.managed)
    with pytest.raises(ApiError, match="is the bridge's own"):
        await webhook.alice.patch(PODS, "p", {"metadata": {"annotations": {SLURM_NODE: "n"}}}, webhook.managed)


async def test_what_cannot_be_honoured_is_refused_by_its_name(webhook: Webhook) -> None:
    webhook.configure()
    await webhook.start()
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    await webhook.refused(pod("p", claims), f"Pod {webhook.managed}/p: spec.resourceClaims: devices by claim are not supported")
    await webhook.create(pod("p"))
    bigger = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    with pytest.raises(ApiError, match=f"Pod {webhook.managed}/p: pods/resize: Slurm has set aside what the pod asked for"):
        await webhook.alice.patch(PODS, "p", bigger, webhook.managed, subresource="resize", kind=PatchKind.STRATEGIC)
    await webhook.create(pod("volcanos", {"schedulerName": "volcano"}))
    await webhook.alice.patch(PODS, "volcanos", bigger, webhook.managed, subresource="resize", kind=PatchKind.STRATEGIC)


async def test_pods_of_a_deployment_get_in_and_their_refusals_name_them(webhook: Webhook) -> None:
    webhook.configure()
    await webhook.start()
    labels = {"app": "web"}

    async def deploy(name: str, **annotations: str) -> None:
        meta = {"labels": {**labels, "which": name}, "annotations": annotations}
        spec = {"replicas": 2, "selector": {"matchLabels": {"which": name}}, "template": {"metadata": meta, "spec": template()}}
        await webhook.create({"metadata": {"name": name}, "spec": spec}, resource=DEPLOYMENTS)

    async def two() -> bool:
        found = (await webhook.bridge.list(PODS.untyped, webhook.managed, labels="which=web")).items
        return len(found) == 2 and all(map(webhook.is_taken_in, found))

    await deploy("web")
    await eventually("two pods were in", two)
    await deploy("bad", **{LIMIT: "soon"})

    async def told() -> bool:
        found = await webhook.bridge.get(DEPLOYMENTS, "bad", webhook.managed)
        said = " ".join(each["message"] for each in found.get("status", {}).get("conditions", ()))
        return re.search(rf"Pod {webhook.managed}/bad-\w+-\* of ReplicaSet bad-\w+: {re.escape(WRONG)}", said) is not None

    await eventually("the Deployment said why it has no pods", told)


@pytest.mark.parametrize("fail_open", [False, True], ids=["fail closed", "fail open"])
async def test_while_it_is_dead_nobody_else_is_held_up(webhook: Webhook, fail_open: bool) -> None:
    webhook.configure(fail_open=fail_open)
    await webhook.start()
    await webhook.create(pod("ours"))
    await webhook.end(signal.SIGKILL)
    await webhook.create(pod("theirs"), webhook.other)
    await webhook.create(pod("volcanos", {"schedulerName": "volcano"}))
    await webhook.create(job("plain"), resource=JOBS.untyped)
    await webhook.alice.patch(PODS, "ours", {"metadata": {"labels": {"a": "b"}}}, webhook.managed)
    await webhook.bridge.patch(PODS, "ours", {"metadata": {"labels": {JOB_ID: "7"}}}, webhook.managed)
    if fail_open:
        assert (await webhook.create(pod("meanwhile")))["spec"]["schedulerName"] == "default-scheduler"
    else:
        await webhook.refused(pod("meanwhile"), 'failed calling webhook "managed-pods.bridge.slinky.slurm.net"')
    await webhook.start()
    assert webhook.is_taken_in(await webhook.create(pod("after")))


async def test_a_container_that_another_webhook_adds_later_is_of_the_task_too(webhook: Webhook, sandbox: Sandbox) -> None:
    """As a service mesh does. Ours is asked again, and changes what is new only."""
    webhook.configure()
    await webhook.start()

    def inject(request: AdmissionRequest) -> AdmissionResponse:
        document = request.document()
        containers = document["spec"]["containers"]
        if len(containers) == 1:
            containers.append({"name": "proxy", "image": "none"})
        return AdmissionResponse.mutate(request, document)

    host, name = sandbox.record.addresses.host, f"z-{webhook.name}"
    certificate = SelfMadeCertificate(webhook.bridge, "mesh", webhook.home, [host], mutating=[name])
    async with AdmissionServer({"/inject": inject}, certificate, host=host, port=0).running() as mesh:
        hook = {
            "name": "inject.mesh.example",
            "clientConfig": {"url": f"https://{host}:{mesh.port}/inject"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": webhook.managed}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        await webhook.bridge.create(MUTATING, {"metadata": {"name": name}, "webhooks": [hook]})
        try:
            made: list[dict[str, Any]] = []

            async def injected() -> bool:
                made.append(await webhook.create(pod(f"p{next(_numbers)}")))
                return len(made[-1]["spec"]["containers"]) == 2

            await eventually("the mesh was asked too", injected)
        finally:
            await webhook.bridge.delete(MUTATING, name)
    environments = [[variable["name"] for variable in container["env"]] for container in made[-1]["spec"]["containers"]]
    assert environments[0] == environments[1]
    assert made[-1]["metadata"]["finalizers"] == [FINALIZER]
    tolerations = [toleration["key"] for toleration in made[-1]["spec"]["tolerations"]]
    assert tolerations.count(MANAGED_NODE) == 1


async def test_what_it_was_asked_before_it_was_told_to_end_is_answered(webhook: Webhook) -> None:
    webhook.configure()
    await webhook.start()
    kind = {"version": "v1", "kind": "Pod"}
    asked = {"uid": "u", "kind": kind, "namespace": webhook.managed, "operation": "CREATE", "object": pod("p")}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()
    head = (
        f"POST /pods HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(webhook.host, webhook.port, ssl=trusting)
    try:
        writer.write(head.encode())
        assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n"), "it is being served"
        ending = asyncio.create_task(webhook.end(signal.SIGTERM))

        async def closed() -> bool:
            try:
                _, other = await asyncio.open_connection(webhook.host, webhook.port)
            except OSError:
                return True
            other.close()
            return False

        await eventually("it took no new connections", closed)
        writer.write(body)
        assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
        assert b'"allowed":true' in await reader.read()
        assert await ending == 0
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.long
async def test_it_ends_when_told_to_and_can_be_got_rid_of(webhook: Webhook, cli: Cli) -> None:
    webhook.configure()
    await webhook.start()
    assert await webhook.end(signal.SIGTERM) == 0, webhook.log.read_text()
    where = ["--config", str(webhook.config), "--kubeconfig", str(webhook.kubeconfig)]
    shown = await asyncio.to_thread(cli, "bridge", "webhooks", *where)
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(shown.stdout)] == [webhook.name] * 2
    done = await asyncio.to_thread(cli, "bridge", "webhooks", "--delete", *where)
    gone = [f"{kind}webhookconfigurations/{webhook.name} deleted" for kind in ("mutating", "validating")]
    assert (done.returncode, done.stdout.splitlines()) == (0, gone), done.stderr

    async def passes() -> bool:
        return bool(await webhook.create(pod("free")))

    await eventually("a managed pod was let through", passes)
    again = await asyncio.to_thread(cli, "bridge", "webhooks", "--delete", *where)
    assert (again.returncode, again.stdout) == (0, f"there are no webhook configurations {webhook.name}\n")
