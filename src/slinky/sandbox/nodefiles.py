"""The configuration files of a real node, and of DNS, as values. Nothing here touches a disk or a server."""

import base64
import json
from typing import Any

from slinky.sandbox.network import Addresses

__all__ = [
    "CNI_FILE",
    "CONTAINERD_FILE",
    "cni",
    "containerd",
    "corefile",
    "dns_objects",
    "kube_proxy",
    "kubelet",
    "on_the_head",
    "slurm_objects",
]

CONTAINERD_FILE = "containerd/config.toml"
CNI_FILE = "cni/net.d/10-sandbox.conflist"


def containerd() -> str:
    return """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "docker.io/sandbox/pause:1"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def cni(pods: str) -> str:
    """Pods on a bridge; no masquerade, as every machine of the sandbox knows the way to every pod network."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "sandbox", "plugins": [bridge, ports]}, indent=1)


def kubelet(name: str, addresses: Addresses, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"/etc/kubernetes/{name}.crt",
        "tlsPrivateKeyFile": f"/etc/kubernetes/{name}.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [addresses.dns_service],
        "clusterDomain": "cluster.local",
        "resolvConf": "/etc/resolv.conf",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": ["pods"],
        # The disk is the host's own: a sandbox must not evict pods because it is rather full.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "maxPods": 110,
        "nodeStatusUpdateFrequency": "5s",
    }


def kube_proxy(node: str, addresses: Addresses) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-proxy.kubeconfig"},
        "clusterCIDR": addresses.pods,
        "hostnameOverride": node,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "metricsBindAddress": "127.0.0.1:10249",
        "healthzBindAddress": "127.0.0.1:10256",
    }


def corefile(addresses: Addresses) -> str:
    return f"""\
.:53 {{
    bind {addresses.head}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig /etc/kubernetes/coredns.kubeconfig
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }}
    cache 5
    loadbalance
}}
"""


def dns_objects(addresses: Addresses) -> list[dict[str, Any]]:
    """The usual Service, backed by the server on the head, which may read what it answers about."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    binding: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "sandbox-coredns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "sandbox-coredns"}],
    }
    return [*on_the_head("kube-system", "kube-dns", ports, addresses, addresses.dns_service), binding]


def slurm_objects(addresses: Addresses, key: bytes) -> list[dict[str, Any]]:
    """What pods need to join the head's Slurm: its servers under names, and the key that all Slurm daemons share."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "slurm-key", "namespace": "slurm"}}
    found: list[dict[str, Any]] = [secret | {"data": {"slurm.key": base64.b64encode(key).decode()}}]
    for name, port in (("slurmctld", 6817), ("slurmdbd", 6819), ("slurmrestd", 6820)):
        found += on_the_head("slurm", name, [{"name": "slurm", "port": port, "protocol": "TCP"}], addresses, "")
    return found


def on_the_head(namespace: str, name: str, ports: list[dict[str, Any]], addresses: Addresses, cluster_ip: str) -> list[dict[str, Any]]:
    """A Service whose one endpoint is a server on the head."""
    meta = {"name": name, "namespace": namespace}
    spec: dict[str, Any] = {"ports": ports} | ({"clusterIP": cluster_ip} if cluster_ip else {})
    labels = {"kubernetes.io/service-name": name}
    endpoints: list[dict[str, Any]] = [{"addresses": [addresses.head], "conditions": {"ready": True}}]
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta | {"labels": labels}, "addressType": "IPv4"}
        | {"ports": ports, "endpoints": endpoints},
    ]
