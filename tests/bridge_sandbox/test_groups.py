"""The groups of pods that the real servers offer: as they come, change and go, with their pods before or after them, in every release."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from slinky.bridge.groups import PodGroups
from slinky.bridge.keys import GANG, SETTINGS
from slinky.bridge.membership import Membership
from slinky.bridge.workload import COSCHEDULING_LABEL, PodGroup, Workload, WorkloadKey, workload_of
from slinky.kube import JOBS, PODS, Client, Identity, NotFoundError, Reflector, Resource, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.sandbox.versions import versions
from tests.conftest import Starter

pytestmark = pytest.mark.sandbox

COSCHEDULING = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", dict)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", dict, namespaced=False)
CRD = "podgroups.scheduling.x-k8s.io"
LATEST = {"1.35": "v1alpha1", "1.36": "v1alpha2", "1.37": "v1beta1"}
CONTAINER = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}


class Watching:
    """Groups, Jobs and pods as the bridge follows them, and what it was told."""

    def __init__(self, sandbox: Sandbox, client: Client, namespace: str) -> None:
        self.sandbox, self.client, self.namespace = sandbox, client, namespace
        self.told: list[WorkloadKey] = []
        self.touched: list[WorkloadKey] = []
        self.pods, self.jobs = Reflector(client, PODS, namespace=namespace), Reflector(client, JOBS, namespace=namespace)
        self.groups = PodGroups(client, self._group_changed, jobs=self.jobs.cache)
        self.membership = Membership(self.pods.cache, self.jobs.cache, self.touched.append, self.groups.get)

    def _group_changed(self, key: WorkloadKey) -> None:
        if key.namespace == self.namespace:
            self.told.append(key)
        self.membership.group_changed(key)

    def key(self, kind: str, name: str) -> WorkloadKey:
        return WorkloadKey(kind, self.namespace, name)  # type: ignore[arg-type]

    async def until(self, what: str, probe: Callable[[], Any]) -> None:
        async def holds() -> bool:
            return bool(probe())

        await self.sandbox.until("kube-apiserver", what, holds)

    async def until_group(self, key: WorkloadKey, probe: Callable[[PodGroup], bool] = bool) -> PodGroup:
        await self.until(f"{key} was known", lambda: (group := self.groups.get(key)) and probe(group))
        found = self.groups.get(key)
        assert found is not None
        return found

    async def until_gone(self, key: WorkloadKey) -> None:
        await self.until(f"{key} was gone", lambda: self.groups.get(key) is None)

    async def create(self, resource: Resource[Any], name: str, spec: dict[str, Any], **metadata: Any) -> None:
        kind = {"podgroups": "PodGroup", "workloads": "Workload", "pods": "Pod", "jobs": "Job"}[resource.plural]
        version = f"{resource.group}/{resource.version}".removeprefix("/")
        meta = {"name": name, "namespace": self.namespace, **metadata}
        await self.client.create(resource.untyped, {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}, self.namespace)

    async def create_pod(self, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
        """Held by a gate, so that nobody schedules it."""
        gated = {"containers": [CONTAINER], "schedulingGates": [{"name": "test.slinky.slurm.net/held"}], **(spec or {})}
        await self.create(PODS, name, gated, **metadata)

    def members(self) -> dict[WorkloadKey, list[str]]:
        keys = self.membership.keys()
        return {key: sorted(pod.metadata.name for pod in self.membership.pods(key)) for key in keys}

    def workload(self, key: WorkloadKey) -> Workload | None:
        pods = self.membership.pods(key)
        return workload_of(key, pods, self.groups.get(key), self.membership.job_of(pods[0]) if pods else None)


@asynccontextmanager
async def watching(sandbox: Sandbox, namespace: str, identity: Identity | None = None) -> AsyncIterator[Watching]:
    access = from_kubeconfig(sandbox.kubeconfig)
    async with Client(access if identity is None else replace(access, identity=identity)) as client, AsyncExitStack() as stack:
        found = Watching(sandbox, client, namespace)
        await (await stack.enter_async_context(found.jobs.running())).wait_synced()
        await (await stack.enter_async_context(found.groups.running())).wait_synced()
        await (await stack.enter_async_context(found.pods.running())).wait_synced()
        yield found


@pytest.fixture
async def here(sandbox: Sandbox, namespace: str) -> AsyncIterator[Watching]:
    async with watching(sandbox, namespace) as found:
        yield found


async def test_a_coscheduling_group_may_come_after_its_pods_change_and_go(here: Watching) -> None:
    key = here.key("CoschedulingPodGroup", "ring")
    for name in ("a", "b"):
        await here.create_pod(name, labels={COSCHEDULING_LABEL: "ring"})
    await here.until("both pods wait for their group", lambda: here.members() == {key: ["a", "b"]})
    assert here.groups.get(key) is None
    assert here.workload(key) is None

    await here.create(COSCHEDULING, "ring", {"minMember": 2}, annotations={SETTINGS + "account": "physics"})
    group = await here.until_group(key)
    assert (group.min_count, group.gang, group.builtin) == (2, True, False)
    assert here.told == [key]
    workload = here.workload(key)
    assert workload is not None
    assert (workload.is_complete, workload.settings.account) == (True, "physics")

    await here.client.patch(COSCHEDULING, "ring", {"spec": {"minMember": 3}}, here.namespace)
    await here.until_group(key, lambda group: group.min_count == 3)
    assert here.told == [key, key]
    await here.client.patch(COSCHEDULING, "ring", {"metadata": {"labels": {"x": "y"}}}, here.namespace)
    await here.client.delete(COSCHEDULING, "ring", here.namespace)
    await here.until_gone(key)
    assert here.told == [key] * 3, "a label changes nothing for the gang"
    assert here.members() == {key: ["a", "b"]}


async def _one_by_one_or_together(here: Watching, release: str) -> None:
    """The built-in API, as each release has it: a gang of two and a group that is none; annotations of the Workload count."""
    version = LATEST[release]
    groups, workloads = (Resource("scheduling.k8s.io", version, plural, dict) for plural in ("podgroups", "workloads"))
    policies: dict[str, dict[str, Any]] = {"ring": {"gang": {"minCount": 2}}, "loose": {"basic": {}}}
    said = {SETTINGS + "account": "workload"}
    if release == "1.35":
        gang, loose = here.key("Workload", "train/ring"), here.key("Workload", "train/loose")
        pods = {name: {"workloadRef": {"name": "train", "podGroup": name}} for name in policies}
    else:
        gang, loose = here.key("PodGroup", "ring"), here.key("PodGroup", "loose")
        pods = {name: {"schedulingGroup": {"podGroupName": name}} for name in policies}
    for name in policies:
        for index in range(2):
            await here.create_pod(f"{name}-{index}", pods[name])
    await here.until("all pods wait for their group", lambda: here.members() == {gang: ["ring-0", "ring-1"], loose: ["loose-0", "loose-1"]})

    if release == "1.35":
        within = [{"name": name, "policy": policy} for name, policy in policies.items()]
        await here.create(workloads, "train", {"podGroups": within}, annotations=said)
    else:
        templates = [{"name": name, "schedulingPolicy": policy} for name, policy in policies.items()]
        await here.create(workloads, "train", {"podGroupTemplates": templates}, annotations=said)
        for name, policy in policies.items():
            made_from = (
                {"podGroupTemplateRef": {"workload": {"workloadName": "train", "podGroupTemplateName": name}}}
                if release == "1.36"
                else {"workloadRef": {"workloadName": "train", "templateName": name}}
            )
            await here.create(groups, name, {"schedulingPolicy": policy, **made_from}, annotations={SETTINGS + "account": "group"})
    group = await here.until_group(gang, lambda group: bool(group.overriding))
    await here.until_group(loose)
    assert (group.min_count, group.gang, group.builtin) == (2, True, True)
    assert {gang, loose} <= set(here.told)
    assert here.members()[gang] == ["ring-0", "ring-1"]
    others = {key: names for key, names in here.members().items() if key != gang}
    assert {key.kind for key in others} == {"Pod"}
    assert sorted(others.values()) == [["loose-0"], ["loose-1"]]
    workload = here.workload(gang)
    assert workload is not None
    assert (workload.is_complete, workload.settings.account) == (True, "workload")

    here.touched.clear()
    await here.client.delete(workloads, "train", here.namespace)
    if release == "1.35":
        await here.until_gone(gang)
        assert here.members()[gang] == ["ring-0", "ring-1"]
        assert here.workload(gang) is None
        return
    await here.until_group(gang, lambda group: not group.overriding)
    assert gang in here.touched
    await here.client.delete(groups, "ring", here.namespace)
    await here.until_group(gang, lambda group: group.metadata.deletion_timestamp is not None)
    assert here.workload(gang) is not None, "the server keeps a group while it has pods"
    for index in range(2):
        await here.client.delete(PODS, f"ring-{index}", here.namespace)
    await here.until_gone(gang)


async def test_the_built_in_groups_are_gangs_or_not(here: Watching) -> None:
    release = versions().kubernetes.default
    version = LATEST[release]
    built_in = [f"podgroups.scheduling.k8s.io/{version}", f"workloads.scheduling.k8s.io/{version}"]
    crds = ["podgroups.scheduling.x-k8s.io/v1alpha1", "jobsets.jobset.x-k8s.io/v1alpha2", "leaderworkersets.leaderworkerset.x-k8s.io/v1"]
    assert here.groups.names() == sorted([*built_in, *crds])
    assert all(name in here.groups.describe() for name in built_in)
    await _one_by_one_or_together(here, release)


@pytest.mark.long
@pytest.mark.parametrize("release", [release for release in versions().kubernetes.releases if release != versions().kubernetes.default])
async def test_other_releases_have_groups_too(start_sandbox: Starter, release: str) -> None:
    shape = Shape(nodes=1, addons=("podgroup",), kubernetes=release)
    sandbox = await asyncio.to_thread(start_sandbox, f"groups{release.replace('.', '')}", shape)
    async with watching(sandbox, "default") as here:
        assert f"scheduling.k8s.io/{LATEST[release]}" in here.groups.describe()
        await _one_by_one_or_together(here, release)


async def test_a_job_that_asks_for_a_gang_is_one_workload(here: Watching) -> None:
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never", "schedulerName": "nobody"}}
    spec = {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": template}
    await here.create(JOBS, "train", spec, annotations={GANG: "true", SETTINGS + "account": "physics"})
    key = here.key("Job", "train")
    await here.until("the gang was complete", lambda: (workload := here.workload(key)) and workload.is_complete)
    workload = here.workload(key)
    assert workload is not None
    assert (workload.size, len(workload.pods), workload.settings.account) == (3, 3, "physics")
    assert [pod.metadata.labels["batch.kubernetes.io/job-completion-index"] for pod in workload.pods] == ["0", "1", "2"]
    assert list(here.members()) == [key]


@pytest.fixture(scope="module")
def bare(start_sandbox: Starter) -> Sandbox:
    """Without add-ons, so that no other test misses the CRD while it is gone."""
    return start_sandbox("groups", Shape(nodes=1))


async def _crd(sandbox: Sandbox, name: str = CRD) -> dict[str, Any]:
    """The real one, from the sandbox that has it."""
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as client:
        found = await client.get(CRDS, name)
    approved = {key: value for key, value in (found["metadata"].get("annotations") or {}).items() if key == "api-approved.kubernetes.io"}
    meta = {"name": name, "annotations": approved}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": found["spec"]}


async def _install(here: Watching, crd: dict[str, Any]) -> None:
    await here.client.create(CRDS, crd)
    await _until_served(here, True)


async def _until_served(here: Watching, wanted: bool) -> None:
    async def served() -> bool:
        try:
            await here.client.list(COSCHEDULING, "default")
        except NotFoundError:
            return not wanted
        return wanted

    await here.sandbox.until("kube-apiserver", f"{CRD} was {'served' if wanted else 'gone'}", served)


async def test_the_crd_may_come_and_go_at_any_time(sandbox: Sandbox, bare: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    crd = await _crd(sandbox)
    async with watching(bare, "default") as here:
        assert "podgroups.scheduling.x-k8s.io/v1alpha1" not in here.groups.names()
        key = here.key("CoschedulingPodGroup", "ring")
        for _ in range(2):
            here.told.clear()
            await _install(here, crd)
            await here.create(COSCHEDULING, "ring", {"minMember": 2})
            await here.until_group(key)
            caplog.clear()
            await here.client.delete(CRDS, CRD)
            await here.until_gone(key)
            await here.until("the watch was gone", lambda: "podgroups.scheduling.x-k8s.io/v1alpha1" not in here.groups.names())
            await _until_served(here, False)
            assert set(here.told) == {key}
            assert len([record for record in caplog.records if CRD in record.getMessage() or "x-k8s.io" in record.getMessage()]) < 20


async def test_without_the_right_to_watch_crds_it_looks_from_time_to_time(
    sandbox: Sandbox, bare: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody may read discovery; the groups themselves need a right."""
    crd = await _crd(sandbox)
    reader = {"kind": "ClusterRole", "metadata": {"name": "group-reader"}}
    rules = [
        {"apiGroups": ["scheduling.k8s.io", "scheduling.x-k8s.io"], "resources": ["podgroups", "workloads"], "verbs": ["list", "watch"]}
    ]
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "group-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "group-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
    }
    roles, bindings = (
        Resource("rbac.authorization.k8s.io", "v1", plural, dict, namespaced=False) for plural in ("clusterroles", "clusterrolebindings")
    )
    access = from_kubeconfig(bare.kubeconfig)
    as_reader = replace(access, identity=replace(access.identity, impersonate="reader", impersonate_groups=("system:authenticated",)))
    caplog.set_level("INFO")
    async with watching(bare, "default") as here, Client(as_reader) as client:
        await here.client.create(roles, {"apiVersion": "rbac.authorization.k8s.io/v1", **reader, "rules": rules})
        await here.client.create(bindings, {"apiVersion": "rbac.authorization.k8s.io/v1", **binding})
        told: list[WorkloadKey] = []
        groups = PodGroups(client, told.append, look_seconds=1.0)
        async with groups.running():
            await groups.wait_synced()
            assert f"whether {CRD} is there is looked at every 1 s instead" in caplog.text
            await _install(here, crd)
            await here.create(COSCHEDULING, "ring", {"minMember": 2})
            key = here.key("CoschedulingPodGroup", "ring")
            await here.until("the group was known", lambda: groups.get(key))
            await here.client.delete(CRDS, CRD)
            await here.until("the watch was gone", lambda: "podgroups.scheduling.x-k8s.io/v1alpha1" not in groups.names())
            assert groups.get(key) is None
            assert set(told) == {key}
        await _until_served(here, False)


def _is_watched(here: Watching, crd: str) -> bool:
    return any(crd in each for each in here.groups.names())


def _is_not_watched(here: Watching, crd: str) -> bool:
    return not _is_watched(here, crd)


@pytest.mark.long
async def test_sets_are_known_as_soon_as_their_crd_is_there(sandbox: Sandbox, bare: Sandbox) -> None:
    """Nobody makes pods of them there: it is about being told."""
    pods = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    jobs = [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2, "template": pods}}}]
    jobsets = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", dict)
    lws = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", dict)
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": pods}}
    async with watching(bare, "default") as here:
        for resource, said, name, least in ((jobsets, {"replicatedJobs": jobs}, "JobSet", 4), (lws, spec, "LeaderWorkerSet", 3)):
            crd = f"{resource.plural}.{resource.group}"
            part = here.key(name, "train/w" if name == "JobSet" else "train/1")
            await here.client.create(CRDS, await _crd(sandbox, crd))
            await here.until(f"{crd} was watched", partial(_is_watched, here, crd))
            document = {"apiVersion": f"{resource.group}/{resource.version}", "kind": name, "metadata": {"name": "train"}, "spec": said}
            await here.client.create(resource, document, "default")
            group = await here.until_group(part)
            assert (group.min_count, group.awaited, group.elastic) == (least, True, False)
            assert here.key(name, "train") in here.told
            await here.client.delete(CRDS, crd)
            await here.until_gone(part)
            await here.until("its watch was gone", partial(_is_not_watched, here, crd))
