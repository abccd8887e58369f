"""KEDA on a sandbox: its operator, which scales from zero and back, and its adapter, from which Kubernetes' own autoscaler has the numbers in between.

Comes in: a sandbox whose API server serves KEDA's CRDs, and the two programs. Goes out: both of them at work on the head. What must stay true: when it is up, the API server serves external metrics by the adapter. There
is no proxy for Services on the head, so the API server reaches the adapter by a Service that is another name for the loopback.
"""

import base64
from typing import Any

from slinky.sandbox.certificates import Authority
from slinky.sandbox.client import Kube
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.keeper import Part

__all__ = ["KEDA", "KEDA_CRDS", "KEDA_PROGRAMS", "start_keda"]

KEDA = "keda"
KEDA_PROGRAMS = (KEDA, "keda-adapter")
ADAPTER = "keda-metrics-apiserver"
KEDA_CRDS = (
    *(f"config/crd/bases/keda.sh_{plural}.yaml" for plural in ("scaledobjects", "scaledjobs")),
    *(f"config/crd/bases/keda.sh_{plural}.yaml" for plural in ("triggerauthentications", "clustertriggerauthentications")),
    *(f"config/crd/bases/eventing.keda.sh_{plural}.yaml" for plural in ("cloudeventsources", "clustercloudeventsources")),
)
METRICS_API = "external.metrics.k8s.io"
GRPC, ADAPTER_PORT = 9666, 9745  # between the two; of the adapter
FIRST_PORT = 9746  # of those that nobody here asks
CERTIFICATES = "/etc/kubernetes/keda"


async def start_keda(sandbox: Sandbox, kube: Kube) -> None:
    home = sandbox.head / "etc/kubernetes"
    Authority.load(home / "pki").issue_to(home / KEDA, KEDA, ("127.0.0.1", f"{ADAPTER}.{KEDA}.svc"))
    await kube.apply_all(_objects((home / "pki/ca.crt").read_bytes()))
    kubeconfig = "/etc/kubernetes/admin.kubeconfig"
    environment = {"POD_NAMESPACE": KEDA, "KEDA_CLUSTER_OBJECT_NAMESPACE": KEDA, "WATCH_NAMESPACE": ""}
    operator = {
        "kubeconfig": kubeconfig,
        "cert-dir": CERTIFICATES,
        "metrics-service-bind-address": f"127.0.0.1:{GRPC}",
        "metrics-bind-address": f"127.0.0.1:{FIRST_PORT}",
        "health-probe-bind-address": f"127.0.0.1:{FIRST_PORT + 1}",
    }
    adapter = {
        **dict.fromkeys(("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig", "lister-kubeconfig"), kubeconfig),
        "cert-dir": CERTIFICATES,
        "tls-cert-file": f"{CERTIFICATES}/tls.crt",
        "tls-private-key-file": f"{CERTIFICATES}/tls.key",
        "secure-port": str(ADAPTER_PORT),
        "port": str(FIRST_PORT + 2),
        "metrics-service-address": f"127.0.0.1:{GRPC}",
    }
    for name, flags in zip(KEDA_PROGRAMS, (operator, adapter), strict=True):
        command = [f"/opt/slinky/{name}", *(f"--{flag}={value}" for flag, value in flags.items())]
        await sandbox.link.start(Part(name, "head", command, environment))
    await sandbox.until(KEDA_PROGRAMS[-1], "it served external metrics", lambda: kube.get(f"/apis/{METRICS_API}/v1beta1"))


def _objects(authority: bytes) -> list[dict[str, Any]]:
    """Its namespace, the way to its adapter, and the right to read there for Kubernetes' autoscaler."""
    rights = "rbac.authorization.k8s.io"
    reader = f"{KEDA}-external-metrics-reader"
    subject = {"kind": "ServiceAccount", "name": "horizontal-pod-autoscaler", "namespace": "kube-system"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KEDA}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": ADAPTER, "namespace": KEDA}}
        | {"spec": {"type": "ExternalName", "externalName": "127.0.0.1", "ports": [{"port": ADAPTER_PORT}]}},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"v1beta1.{METRICS_API}"}}
        | {
            "spec": {
                "group": METRICS_API,
                "version": "v1beta1",
                "service": {"name": ADAPTER, "namespace": KEDA, "port": ADAPTER_PORT},
                "caBundle": base64.b64encode(authority).decode(),
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            }
        },
        {"apiVersion": f"{rights}/v1", "kind": "ClusterRole", "metadata": {"name": reader}}
        | {"rules": [{"apiGroups": [METRICS_API], "resources": ["*"], "verbs": ["get", "list"]}]},
        {"apiVersion": f"{rights}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": reader}}
        | {"roleRef": {"apiGroup": rights, "kind": "ClusterRole", "name": reader}, "subjects": [subject]},
    ]
