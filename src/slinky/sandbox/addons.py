"""What `--with` adds: the real JobSet and LeaderWorkerSet controllers with their webhooks, cert-manager's controllers, KEDA, and the CRD of the coscheduling PodGroup.

Comes in: manifests from the pinned Go modules and the programs built from them. Goes out: CRDs and webhook configurations in the cluster, and one
part a controller, on the head. What must stay true: when it is up, it serves. The webhooks are reached by URL on the head's loopback, as the API server runs there too; the module's own
manifests are changed in just that, and in the pod webhooks' label selector that upstream adds by kustomize.
"""

import base64
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from slinky.sandbox.cache import digest, entry
from slinky.sandbox.certificates import Authority
from slinky.sandbox.client import Kube
from slinky.sandbox.golang import module_folder
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.keda import KEDA, KEDA_CRDS, KEDA_PROGRAMS, start_keda
from slinky.sandbox.keeper import Part
from slinky.sandbox.progress import Progress
from slinky.sandbox.versions import versions

__all__ = ["CERT_MANAGER", "CONTROLLERS", "build_manifests", "programs_of", "read_crds", "start"]


@dataclass(frozen=True)
class Controller:
    """A controller that runs on the head; `probe` is an object that its webhooks let pass once they serve."""

    configuration: str
    crds: str
    webhooks: str
    pod_label: str
    port: int
    collection: str
    probe: dict[str, Any]


_POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}

CONTROLLERS = {
    "jobset": Controller(
        configuration="config.jobset.x-k8s.io/v1alpha1",
        crds="config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
        webhooks="config/components/webhook/manifests.yaml",
        pod_label="jobset.sigs.k8s.io/jobset-name",
        port=9443,
        collection="/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
        probe={"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "probe"}}
        | {"spec": {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": _POD}}}}]}},
    ),
    "lws": Controller(
        configuration="config.lws.x-k8s.io/v1alpha1",
        crds="config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
        webhooks="config/webhook/manifests.yaml",
        pod_label="leaderworkerset.sigs.k8s.io/name",
        port=9543,
        collection="/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets",
        probe={"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "probe"}}
        | {"spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": _POD | {"restartPolicy": "Always"}}}}},
    ),
}
CERT_MANAGER = "cert-manager"
CRDS = {
    "podgroup": ("config/crd/bases/scheduling.x-k8s.io_podgroups.yaml",),
    CERT_MANAGER: tuple(
        f"deploy/crds/cert-manager.io_{plural}.yaml" for plural in ("certificates", "certificaterequests", "issuers", "clusterissuers")
    ),
    KEDA: KEDA_CRDS,
}


def programs_of(addon: str) -> tuple[str, ...]:
    """The names of its programs in versions.toml; none where it is a CRD and nothing else."""
    if addon == KEDA:
        return KEDA_PROGRAMS
    return (addon,) if addon in versions().programs else ()


def build_manifests(addon: str, progress: Progress) -> Path:
    """A cached folder with the add-on's manifests, so that a warm `up` needs no Go."""
    program = versions().manifests.get(addon) or versions().programs[addon]
    wanted = {"crds.yaml": CRDS[addon]} if addon in CRDS else {}
    if controller := CONTROLLERS.get(addon):
        wanted = {"crds.yaml": (controller.crds,), "webhooks.yaml": (controller.webhooks,)}

    def build(folder: Path) -> None:
        source = module_folder(addon, program, progress)
        for name, paths in wanted.items():
            (folder / name).write_text("\n---\n".join((source / path).read_text() for path in paths))

    return entry(f"manifests/{addon}-{program.version}-{digest(repr(wanted))}", build)


async def start(sandbox: Sandbox, kube: Kube, manifests: dict[str, Path], progress: Progress) -> None:
    for addon, folder in manifests.items():
        with progress.step(f"add-on {addon}"):
            crds = read_crds(folder)
            await kube.apply_all(crds)
            for crd in crds:
                served = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
                await sandbox.until("kube-apiserver", f"{served} was served", partial(kube.get, served))
            if addon in CONTROLLERS:
                await _start_controller(sandbox, kube, addon, folder)
            elif addon == CERT_MANAGER:
                await _start_cert_manager(sandbox, kube)
            elif addon == KEDA:
                await start_keda(sandbox, kube)


def read_crds(folder: Path) -> list[dict[str, Any]]:
    """Those of `build_manifests`."""
    return [document for document in yaml.safe_load_all((folder / "crds.yaml").read_text()) if document]


async def _start_controller(sandbox: Sandbox, kube: Kube, name: str, folder: Path) -> None:
    controller = CONTROLLERS[name]
    home = sandbox.head / "etc/kubernetes"
    Authority.load(home / "pki").issue_to(home / name, name, ("127.0.0.1",))
    (home / f"{name}.yaml").write_text(yaml.safe_dump(_configuration(name, controller)))
    await kube.apply_all(_webhooks(name, controller, folder, (home / "pki/ca.crt").read_bytes()))
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{name}-system"}})
    command = [f"/opt/slinky/{name}", f"--config=/etc/kubernetes/{name}.yaml", "--kubeconfig=/etc/kubernetes/admin.kubeconfig"]
    await sandbox.link.start(Part(name, "head", command))
    await sandbox.until(name, "its webhooks answered", lambda: kube.post(f"{controller.collection}?dryRun=All", controller.probe))


async def _start_cert_manager(sandbox: Sandbox, kube: Kube) -> None:
    await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CERT_MANAGER}})
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "probe", "namespace": CERT_MANAGER}}
    await kube.apply(issuer | {"spec": {"selfSigned": {}}})
    command = [f"/opt/slinky/{CERT_MANAGER}", "--kubeconfig=/etc/kubernetes/admin.kubeconfig"]
    await sandbox.link.start(Part(CERT_MANAGER, "head", command))
    path = f"/apis/cert-manager.io/v1/namespaces/{CERT_MANAGER}/issuers/probe"

    async def ready() -> bool:
        found = (await kube.get(path)).get("status", {}).get("conditions", ())
        return any((each["type"], each["status"]) == ("Ready", "True") for each in found)

    await sandbox.until(CERT_MANAGER, "an Issuer was ready", ready)
    await kube.delete(path)


def _configuration(name: str, controller: Controller) -> dict[str, Any]:
    certificates = f"/etc/kubernetes/{name}"
    return {
        "apiVersion": controller.configuration,
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": controller.port, "certDir": certificates},
        "metrics": {"bindAddress": f"127.0.0.1:{controller.port + 1}"} | ({"certDir": certificates} if name == "jobset" else {}),
        "health": {"healthProbeBindAddress": f"127.0.0.1:{controller.port + 2}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 500, "burst": 1000},
    }


def _webhooks(name: str, controller: Controller, folder: Path, authority: bytes) -> list[dict[str, Any]]:
    manifests: list[dict[str, Any]] = list(yaml.safe_load_all((folder / "webhooks.yaml").read_text()))
    for manifest in manifests:
        manifest["metadata"]["name"] = f"{name}-{manifest['metadata']['name']}"
        for webhook in manifest["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{controller.port}{path}",
                "caBundle": base64.b64encode(authority).decode(),
            }
            if path.endswith("-v1-pod"):
                webhook["objectSelector"] = {"matchExpressions": [{"key": controller.pod_label, "operator": "Exists"}]}
    return manifests
