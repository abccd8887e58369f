"""The bridge's keys on pods belong to the bridge, on every pod of the cluster: asked of the real API server."""

import json
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from slinky.bridge.admission_service import own_username
from slinky.bridge.key_policy import (
    POLICIES,
    POLICY_BINDINGS,
    RELEASE_GROUP,
    RELEASE_RESOURCE,
    RELEASE_VERB,
    key_policy,
    protected_annotations,
)
from slinky.bridge.keys import FINALIZER, JOB_ID, SETTINGS, SLURM_NODE, TASK
from slinky.kube import NAMESPACES, PODS, Client, from_kubeconfig
from slinky.sandbox.handle import Sandbox

pytestmark = pytest.mark.sandbox

HOME = "keys"
TENANT, BRIDGE = f"system:serviceaccount:{HOME}:tenant", f"system:serviceaccount:{HOME}:bridge"
ADMIN = f"system:serviceaccount:{HOME}:admin"
RBAC = "rbac.authorization.k8s.io"
RIGHTS = {
    "bridge": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    "tenant": [{"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["*"]}],
    "admin": [
        {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [RELEASE_GROUP], "resources": [RELEASE_RESOURCE], "verbs": [RELEASE_VERB]},
    ],
}


class Site:
    """`tenant` and `admin` may change all pods; the policy knows the bridge. `admin` has the right to release pods."""

    def __init__(self, sandbox: Sandbox, kube: Client) -> None:
        self.sandbox, self.kube = sandbox, kube

    def as_user(self, user: str, *words: str, told: Any = None) -> str:
        """What kubectl says, with REFUSED before it where it was."""
        command = [str(self.sandbox.folder / "bin/kubectl"), f"--as={user}", "-n", HOME, *words]
        text = json.dumps(told) if told is not None else None
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, input=text)
        return done.stdout if done.returncode == 0 else f"REFUSED {done.stderr}"

    def create(self, user: str, name: str, *, scheduler: str = "none", **meta: Any) -> str:
        spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "none"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}
        return self.as_user(user, "create", "-f", "-", told=pod)

    def patch(self, user: str, name: str, metadata: dict[str, Any], subresource: str = "") -> str:
        words = ["patch", "pod", name, "--type=merge", "--patch-file=/dev/stdin"]
        more = [f"--subresource={subresource}"] if subresource else []
        return self.as_user(user, *words, *more, told={"metadata": metadata})


def refused(said: str, key: str) -> bool:
    """With a sentence that names the key."""
    return said.startswith("REFUSED") and f"{key} is the Slurm bridge's own key" in said


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(sandbox: Sandbox) -> AsyncIterator[Site]:
    """The administrator, as whom the other tests' bridges run, may write the keys too."""
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
        await kube.create(NAMESPACES.untyped, {"metadata": {"name": HOME}})
        for name, rules in RIGHTS.items():
            given = {"metadata": {"name": f"{HOME}-{name}"}}
            await kube.raw("POST", f"/apis/{RBAC}/v1/clusterroles", body={**given, "rules": rules})
            role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": f"{HOME}-{name}"}
            subject = {"kind": "ServiceAccount", "name": name, "namespace": HOME}
            body = {**given, "roleRef": role, "subjects": [subject]}
            await kube.raw("POST", f"/apis/{RBAC}/v1/clusterrolebindings", body=body)
        # One who may do everything in the namespace, and nothing elsewhere.
        body = {
            "metadata": {"name": "owner"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "owner"}],
        }
        await kube.raw("POST", f"/apis/{RBAC}/v1/namespaces/{HOME}/rolebindings", body=body)
        policy, binding = key_policy("test-keys", [BRIDGE, await own_username(kube)])
        await kube.create(POLICIES, policy)
        await kube.create(POLICY_BINDINGS, binding)
        found = Site(sandbox, kube)

        async def in_force() -> bool:
            if refused(found.create(TENANT, "probe", labels={JOB_ID: "1"}), JOB_ID):
                return True
            found.as_user(BRIDGE, "delete", "pod", "probe", "--now", "--ignore-not-found")
            return False

        await sandbox.until("apiserver", "the policy was in force", in_force)
        yield found
        await kube.delete(POLICY_BINDINGS, "test-keys")
        await kube.delete(POLICIES, "test-keys")
        for name in RIGHTS:
            for kind in ("clusterrolebindings", "clusterroles"):
                await kube.raw("DELETE", f"/apis/{RBAC}/v1/{kind}/{HOME}-{name}")
        await kube.raw("DELETE", f"/api/v1/namespaces/{HOME}/pods", body={"gracePeriodSeconds": 0})
        await kube.delete(NAMESPACES, HOME)


@pytest.mark.asyncio(loop_scope="module")
async def test_only_the_bridge_sets_its_keys_on_a_new_pod(site: Site) -> None:
    for scheduler in ("none", "default-scheduler"):
        assert refused(site.create(TENANT, "forged", scheduler=scheduler, labels={JOB_ID: "7"}), f"label {JOB_ID}")
    for key in protected_annotations():
        assert refused(site.create(TENANT, "forged", annotations={key: "7"}), f"annotation {key}")
    assert "created" in site.create(BRIDGE, "placed", labels={JOB_ID: "7"}, annotations={SLURM_NODE: "n"})


@pytest.mark.asyncio(loop_scope="module")
async def test_no_way_to_write_a_pod_is_open(site: Site) -> None:
    own: dict[str, Any] = {"labels": {JOB_ID: "7"}, "annotations": {SLURM_NODE: "n", f"{TASK}procid": "0"}}
    assert "created" in site.create(BRIDGE, "old", **own)
    assert "created" in site.create(TENANT, "plain", annotations={f"{SETTINGS}gres": "gpu:1"}, finalizers=[FINALIZER])
    for subresource in ("", "status"):
        assert refused(site.patch(TENANT, "plain", {"labels": {JOB_ID: "8"}}, subresource), JOB_ID)
        assert refused(site.patch(TENANT, "old", {"labels": {JOB_ID: "66"}}, subresource), JOB_ID)
        assert refused(site.patch(TENANT, "old", {"labels": {JOB_ID: None}}, subresource), JOB_ID)
        assert refused(site.patch(TENANT, "old", {"annotations": {f"{TASK}procid": None}}, subresource), f"{TASK}procid")
        assert "patched" in site.patch(BRIDGE, "old", {"labels": {JOB_ID: "9" if subresource else "8"}}, subresource)
    for kind in ("bindings", "pods/plain/binding"):
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "plain", "labels": {JOB_ID: "7"}},
            "target": {"kind": "Node", "name": "kwok-00"},
        }
        said = site.as_user(TENANT, "create", f"--raw=/api/v1/namespaces/{HOME}/{kind}", "-f", "-", told=binding)
        assert refused(said, JOB_ID)


@pytest.mark.asyncio(loop_scope="module")
async def test_everything_else_about_a_pod_goes_on_as_before(site: Site) -> None:
    """Other labels, a job's own annotations, the status, finalizers, and the end of a pod that has the keys."""
    own: dict[str, Any] = {"labels": {JOB_ID: "7"}, "annotations": {SLURM_NODE: "n"}, "finalizers": [FINALIZER]}
    assert "created" in site.create(BRIDGE, "kept", **own)
    assert "patched" in site.patch(TENANT, "kept", {"labels": {"app": "x"}, "annotations": {f"{SETTINGS}gres": "gpu:1"}})
    assert "patched" in site.as_user(
        TENANT, "patch", "pod", "kept", "--subresource=status", "--type=merge", "-p", '{"status": {"message": "ran"}}'
    )
    many = {f"key-{number}": "x" for number in range(5000)}
    assert "patched" in site.patch(TENANT, "kept", {"annotations": many}), "the cost does not grow with the annotations"
    assert "deleted" in site.as_user(TENANT, "delete", "pod", "kept", "--wait=false")
    assert "patched" in site.patch(TENANT, "kept", {"finalizers": None}), "a pod that is deleted and has no node"
    await gone(site, "kept")


async def gone(site: Site, name: str) -> None:
    async def is_gone() -> bool:
        return name not in {pod.metadata.name for pod in (await site.kube.list(PODS, HOME)).items}

    await site.sandbox.until("apiserver", f"pod {name} was gone", is_gone)


def placed(site: Site, name: str) -> None:
    """A pod on a node whose kubelet is not there: its containers are never seen to be gone."""
    assert "created" in site.create(BRIDGE, name, labels={JOB_ID: "7"}, finalizers=[FINALIZER, "example.com/other"])
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": "nowhere"},
    }
    path = f"--raw=/api/v1/namespaces/{HOME}/pods/{name}/binding"
    assert "REFUSED" not in site.as_user(BRIDGE, "create", path, "-f", "-", told=binding)


def kept(said: str) -> bool:
    return said.startswith("REFUSED") and f"finalizer {FINALIZER} is the Slurm bridge's own" in said


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("user", [TENANT, "owner"])
async def test_a_tenant_does_not_take_a_pod_that_may_run_out_of_the_count(site: Site, user: str) -> None:
    """By removing the finalizer and deleting the pod by force, while its containers go on for their grace period."""
    name = user.rpartition(":")[2]
    placed(site, name)
    for subresource in ("", "status"):
        assert kept(site.patch(user, name, {"finalizers": None}, subresource))
        assert kept(site.patch(user, name, {"finalizers": ["example.com/other"]}, subresource))
    assert "patched" in site.patch(user, name, {"finalizers": ["example.com/third", FINALIZER]}), "others' finalizers"
    said = site.as_user(user, "delete", "pod", name, "--force", "--grace-period=0", "--wait=false")
    assert "deleted" in said
    assert kept(site.patch(user, name, {"finalizers": None})), "also of a pod that is being deleted"
    assert name in {pod.metadata.name for pod in (await site.kube.list(PODS, HOME)).items}
    assert "patched" in site.patch(BRIDGE, name, {"finalizers": None})
    await gone(site, name)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_pod_that_waits_cannot_be_bound_without_the_finalizer(site: Site) -> None:
    """A tenant removes it before the pod has a node."""
    assert "created" in site.create(TENANT, "early", finalizers=[FINALIZER])
    assert kept(site.patch(TENANT, "early", {"finalizers": None}))
    assert "deleted" in site.as_user(TENANT, "delete", "pod", "early", "--wait=false")
    assert "patched" in site.patch(TENANT, "early", {"finalizers": None})
    await gone(site, "early")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_is_over_may_lose_the_finalizer(site: Site, phase: str) -> None:
    name = phase.lower()
    placed(site, name)
    status = json.dumps({"status": {"phase": phase}})
    words = ["--subresource=status", "--type=merge", "-p", status]
    assert "patched" in site.as_user(BRIDGE, "patch", "pod", name, *words)
    assert "patched" in site.patch(TENANT, name, {"finalizers": None})


@pytest.mark.asyncio(loop_scope="module")
async def test_an_administrator_removes_the_finalizer_in_an_emergency(site: Site) -> None:
    """With the right to release pods, and as a member of system:masters."""
    placed(site, "emergency")
    assert "patched" in site.patch(ADMIN, "emergency", {"finalizers": None})
    placed(site, "masters")
    await site.kube.patch(PODS, "masters", {"metadata": {"finalizers": None}}, HOME)
    for name in ("emergency", "masters"):
        site.as_user(TENANT, "delete", "pod", name, "--force", "--grace-period=0")
        await gone(site, name)


@pytest.mark.asyncio(loop_scope="module")
async def test_many_finalizers_do_not_exceed_the_cost_of_the_check(site: Site) -> None:
    """As many as an object has room for. Else no kubelet could write the pod's status any more."""
    placed(site, "many")
    many = [f"a.bc/{number}" for number in range(60_000)]
    said = site.patch(TENANT, "many", {"finalizers": [*many, FINALIZER]})
    assert "patched" in said, said[:500]
    assert "patched" in site.patch(TENANT, "many", {"labels": {"app": "x"}})
    assert kept(site.patch(TENANT, "many", {"finalizers": many}))
    assert "patched" in site.patch(BRIDGE, "many", {"finalizers": None})


@pytest.mark.asyncio(loop_scope="module")
async def test_a_daemonsets_pods_with_the_label_are_not_made(site: Site) -> None:
    template = {
        "metadata": {"labels": {"app": "d", JOB_ID: "7"}},
        "spec": {"containers": [{"name": "c", "image": "none"}], "tolerations": [{"operator": "Exists"}]},
    }
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template},
    }
    assert "created" in site.as_user(TENANT, "create", "-f", "-", told=daemons)

    async def told() -> bool:
        return f"label {JOB_ID} is the Slurm bridge's own key" in site.as_user(TENANT, "get", "events", "-o", "json")

    await site.sandbox.until("controller-manager", "the DaemonSet's Event said why it has no pods", told)
    assert not [pod for pod in (await site.kube.list(PODS, HOME)).items if pod.metadata.labels.get("app") == "d"]
    site.as_user(TENANT, "delete", "daemonset", "d", "--now")
