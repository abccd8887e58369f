"""The bridge's keys on pods belong to the bridge, on every pod of the cluster: asked of the real API server."""

import json
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from slinky.bridge.admission_service import own_username
from slinky.bridge.key_policy import POLICIES, POLICY_BINDINGS, key_policy, protected_annotations
from slinky.bridge.keys import FINALIZER, JOB_ID, SETTINGS, SLURM_NODE, TASK
from slinky.kube import NAMESPACES, PODS, Client, from_kubeconfig
from slinky.sandbox.handle import Sandbox

pytestmark = pytest.mark.sandbox

HOME = "keys"
TENANT, BRIDGE = f"system:serviceaccount:{HOME}:tenant", f"system:serviceaccount:{HOME}:bridge"


class Site:
    """`tenant` and `bridge` have the same rights; the policy knows the second."""

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
        words = ["patch", "pod", name, "--type=merge", "-p", json.dumps({"metadata": metadata})]
        return self.as_user(user, *words, *([f"--subresource={subresource}"] if subresource else []))


def refused(said: str, key: str) -> bool:
    """With a sentence that names the key."""
    return said.startswith("REFUSED") and f"{key} is the Slurm bridge's own key" in said


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(sandbox: Sandbox) -> AsyncIterator[Site]:
    """The administrator, as whom the other tests' bridges run, may write the keys too."""
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
        await kube.create(NAMESPACES.untyped, {"metadata": {"name": HOME}})
        role = {
            "metadata": {"name": HOME},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": HOME} for name in ("tenant", "bridge")],
        }
        await kube.raw("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body=role)
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
        await kube.raw("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{HOME}")
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
    assert "patched" in site.patch(TENANT, "kept", {"finalizers": None})

    async def gone() -> bool:
        return "kept" not in {pod.metadata.name for pod in (await site.kube.list(PODS, HOME)).items}

    await site.sandbox.until("apiserver", "the pod was gone", gone)


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
