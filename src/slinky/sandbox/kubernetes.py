"""The sandbox's Kubernetes: its files, its servers as parts, and the objects that every cluster needs.

Comes in: the shape and the addresses. Goes out: files below the head's /etc/kubernetes, and `Part`s whose order and readiness `up` looks after.
Everything is decided here from values; nothing is started and nothing is sent.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slinky.sandbox.certificates import Authority, kubeconfig, write_signing_key
from slinky.sandbox.keeper import Part
from slinky.sandbox.network import Addresses
from slinky.sandbox.shape import Shape

__all__ = ["NODE_PROGRAMS", "PROGRAMS", "control_plane", "kwok_nodes", "kwok_part", "storage_class", "write_files"]

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE_PROGRAMS = ("kubelet", "kube-proxy")

STAGES = Path(__file__).parent / "files" / "kwok.yaml"
PKI = "/etc/kubernetes/pki"
BIN = "/opt/slinky/kubernetes"

# The built-in gang API (Workload, PodGroup) changes its version with every release, and has to be asked for.
GANG_API = {
    "1.35": ("scheduling.k8s.io/v1alpha1",),
    "1.36": ("scheduling.k8s.io/v1alpha2",),
    "1.37": ("scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1"),
}
GANG_GATES = {
    "1.35": "GenericWorkload=true,GangScheduling=true",
    "1.36": "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true",
    "1.37": "GenericWorkload=true",
}

# Certificate name → (user, group): who talks to the API server, and as whom.
CLIENTS = {
    "admin": ("sandbox-admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kwok": ("sandbox-kwok", "system:masters"),
    "kube-proxy": ("system:kube-proxy", ""),
    "apiserver-kubelet": ("sandbox-apiserver", "system:masters"),
    "front-proxy": ("front-proxy", ""),
}


def write_files(etc: Path, folder: Path, addresses: Addresses) -> Authority:
    """Certificates, kubeconfigs and kwok's configuration; `folder` gets the kubeconfig that people use."""
    home = etc / "kubernetes"
    home.mkdir()
    home.chmod(0o700)  # people log in to the head as Slurm users
    authority = Authority.create(home / "pki")
    write_signing_key(home / "pki")
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost")
    authority.issue("apiserver", "kube-apiserver", hosts=(*names, addresses.head, addresses.kubernetes_service, "127.0.0.1"))
    for file, (user, group) in CLIENTS.items():
        authority.issue(file, user, group)
        (home / f"{file}.kubeconfig").write_text(kubeconfig(authority, file, f"https://{addresses.head}:6443"))
    own = folder / "kubeconfig"
    own.touch(mode=0o600)
    own.write_text((home / "admin.kubeconfig").read_text())
    (home / "kwok.yaml").write_text(STAGES.read_text())
    return authority


def control_plane(shape: Shape, addresses: Addresses) -> list[Part]:
    """etcd first, then the API server, then those that need it."""
    gates = f"--feature-gates={GANG_GATES[shape.kubernetes]}"
    etcd = Part("etcd", "head", ["etcd", *_etcd_flags()])
    apiserver = Part("kube-apiserver", "head", [f"{BIN}/kube-apiserver", *_apiserver_flags(shape, addresses), gates])
    manager = [
        *_client_flags("kube-controller-manager"),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={PKI}/sa.key",
        f"--root-ca-file={PKI}/ca.crt",
        f"--cluster-signing-cert-file={PKI}/ca.crt",
        f"--cluster-signing-key-file={PKI}/ca.key",
        "--controllers=*",
        "--allocate-node-cidrs=false",
        f"--service-cluster-ip-range={addresses.services}",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--concurrent-job-syncs=20",
        gates,
    ]
    scheduler = [*_client_flags("kube-scheduler"), "--kube-api-qps=1000", "--kube-api-burst=2000", gates]
    return [
        etcd,
        apiserver,
        Part("kube-controller-manager", "head", [f"{BIN}/kube-controller-manager", *manager]),
        Part("kube-scheduler", "head", [f"{BIN}/kube-scheduler", *scheduler]),
    ]


def kwok_part() -> Part:
    return Part("kwok", "head", ["/opt/slinky/kwok", "--kubeconfig=/etc/kubernetes/kwok.kubeconfig", "--config=/etc/kubernetes/kwok.yaml"])


def _etcd_flags() -> list[str]:
    return [
        "--data-dir=/var/lib/etcd/sandbox",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",  # a sandbox's data need not outlive a power cut
        "--quota-backend-bytes=8589934592",
        "--auto-compaction-retention=5m",
        "--log-level=warn",
    ]


def _apiserver_flags(shape: Shape, addresses: Addresses) -> list[str]:
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=0.0.0.0",
        "--secure-port=6443",
        f"--advertise-address={addresses.head}",
        f"--tls-cert-file={PKI}/apiserver.crt",
        f"--tls-private-key-file={PKI}/apiserver.key",
        f"--client-ca-file={PKI}/ca.crt",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--anonymous-auth=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={PKI}/sa.pub",
        f"--service-account-signing-key-file={PKI}/sa.key",
        f"--service-cluster-ip-range={addresses.services}",
        f"--kubelet-client-certificate={PKI}/apiserver-kubelet.crt",
        f"--kubelet-client-key={PKI}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={PKI}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={PKI}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={PKI}/front-proxy.crt",
        f"--proxy-client-key-file={PKI}/front-proxy.key",
        f"--runtime-config={','.join(f'{group}=true' for group in GANG_API[shape.kubernetes])}",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1500",
        "--event-ttl=30m",
    ]


def _client_flags(name: str) -> list[str]:
    config = f"/etc/kubernetes/{name}.kubeconfig"
    flags = {"kubeconfig": config, "authentication-kubeconfig": config, "authorization-kubeconfig": config}
    return [*(f"--{key}={value}" for key, value in flags.items()), "--leader-elect=false", "--bind-address=127.0.0.1"]


def kwok_nodes(shape: Shape) -> Iterator[dict[str, Any]]:
    """The Node objects whose kubelet kwok plays. Zones and racks, so that topology can be tried: 16 nodes a rack, 4 racks a zone.

    Beside real nodes they are tainted, so that a pod lands on one of them only when it asks for it.
    """
    width = len(str(max(shape.nodes - 1, 0)))
    resources = {"cpu": str(shape.node_cpus), "memory": f"{shape.node_memory_mib}Mi", "pods": "250", "ephemeral-storage": "500Gi"}
    if shape.node_gpus:
        resources["nvidia.com/gpu"] = str(shape.node_gpus)
    for index in range(shape.nodes):
        name = f"kwok-{index:0{width}}"
        labels = {
            "type": "kwok",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": f"zone-{index // 64}",
            "sandbox.slinky.slurm.net/rack": f"rack-{index // 16}",
        }
        taints = [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}] if shape.real_nodes else []
        address = f"10.201.{index // 250}.{index % 250 + 1}"
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": taints},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
                "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": f"v{shape.kubernetes}.0-kwok"}
                | dict.fromkeys(
                    ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeProxyVersion"), "kwok"
                ),
            },
        }


def storage_class() -> dict[str, Any]:
    """Volumes are folders of the node that the first pod is placed on; kwok's stages make them, also for real nodes."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "sandbox.slinky.slurm.net/folder",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    }
