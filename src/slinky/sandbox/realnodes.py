"""Real nodes: a kubelet with a containerd of its own on a machine of its own, kube-proxy, and DNS for all.

Comes in: the sandbox, whose head runs. Goes out: machines `node-0` …, each with its address on the sandbox's bridge, a pod network that the others
and the head can reach, the images loaded, and a Ready Node object; kube-proxy on every machine; CoreDNS on the head behind the usual Service.
With `slurmd`, a slurmd beside the kubelet, registered as a dynamic node with the feature `compute`.
"""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import yaml

from slinky.sandbox.certificates import Authority, kubeconfig
from slinky.sandbox.cgroups import cgroup_name, check_cgroups, make_cgroup
from slinky.sandbox.client import Kube
from slinky.sandbox.errors import CircumstanceError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.images import archives
from slinky.sandbox.keeper import Part
from slinky.sandbox.machine import Machine, furnish
from slinky.sandbox.network import plug_node
from slinky.sandbox.nodefiles import CNI_FILE, CONTAINERD_FILE, cni, containerd, corefile, dns_objects, kube_proxy, kubelet, slurm_objects
from slinky.sandbox.progress import Progress

__all__ = ["check_circumstances", "load_images", "node_name", "start_machines", "start_nodes", "start_slurmd"]

# What a kubelet would set on the host's kernel, shown to it as set already: the host is not the sandbox's to change.
KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def node_name(index: int) -> str:
    return f"node-{index}"


def check_circumstances() -> None:
    """What a kubelet needs of the kernel, said before anything is built."""
    check_cgroups()
    if not Path("/dev/kmsg").exists():
        raise CircumstanceError("real nodes need /dev/kmsg, which kubelet reads, and it is not there: in a container, pass it in")


async def start_machines(sandbox: Sandbox, programs: dict[str, Path], images: Path | None) -> None:
    """The machines, plugged into the sandbox's bridge, and containerd on each."""
    record = sandbox.record
    for index in range(record.shape.real_nodes):
        name = node_name(index)
        folder = sandbox.folder / name
        furnish(folder, Path(record.root))
        _write_node_files(folder / "etc", record.addresses.node_pods(index))
        shown = {"kubernetes-node": str(programs["kubernetes-node"]), "images": str(images)}
        await sandbox.link.machine(Machine(name, record.root, str(folder), name, shown))
        holder = (await sandbox.link.holders())[name]
        await sandbox.link.script("head", plug_node(index, holder, record.addresses))
        make_cgroup(f"{cgroup_name(record.identity)}/{name}")
        await sandbox.link.script(name, _shadow_kernel())
        await sandbox.link.start(Part(f"containerd-{index}", name, ["containerd"]))
    for index in range(record.shape.real_nodes):
        for other in range(record.shape.real_nodes):
            if other != index:
                route = f"ip route add {record.addresses.node_pods(other)} via {record.addresses.node(other)}"
                await sandbox.link.script(node_name(index), route)


def _write_node_files(etc: Path, pods: str) -> None:
    for file, text in {CONTAINERD_FILE: containerd(), CNI_FILE: cni(pods), "resolv.conf": "", "hosts": "127.0.0.1 localhost\n"}.items():
        path = etc / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _shadow_kernel() -> str:
    lines = ["mkdir -p /run/shadow"]
    for number, (path, value) in enumerate(KERNEL.items()):
        lines.append(
            f"[ ! -e /proc/sys/{path} ] || {{ echo {value} > /run/shadow/{number}; mount --bind /run/shadow/{number} /proc/sys/{path}; }}"
        )
    return "\n".join(lines)


async def load_images(sandbox: Sandbox, progress: Progress) -> None:
    """Into every node's containerd, side by side."""
    count = sandbox.record.shape.real_nodes
    if not count:
        return
    with progress.step("loading the images into the real nodes"):

        async def load(index: int) -> None:
            ready = ["ctr", "--connect-timeout=2s", "version"]
            await sandbox.until(f"containerd-{index}", "it answered", lambda: sandbox.link.run(node_name(index), *ready))
            for file in archives(sandbox.record.shape.operator):
                await sandbox.link.run(
                    node_name(index), "ctr", "--namespace=k8s.io", "images", "import", "--local", f"/opt/slinky/images/{file}"
                )

        await asyncio.gather(*(load(index) for index in range(count)))


async def start_nodes(sandbox: Sandbox, kube: Kube, progress: Progress) -> None:
    """Kubelets, kube-proxy and DNS; done when all real nodes are Ready."""
    record = sandbox.record
    count = record.shape.real_nodes
    if not count:
        return
    with progress.step(f"{count} real node{'s' if count > 1 else ''}"):
        home = sandbox.head / "etc/kubernetes"
        authority = Authority.load(home / "pki")
        await _start_dns(sandbox, kube, authority)
        # The head is no Node, and kube-proxy waits for one: it speaks as the first real node.
        await _start_proxy(sandbox, "head", "kube-proxy", home, node_name(0))
        await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slurm"}})
        await kube.apply_all(slurm_objects(record.addresses, (sandbox.head / "etc/slurm/slurm.key").read_bytes()))
        for index in range(count):
            await _start_kubelet(sandbox, authority, index)
        for index in range(count):
            await sandbox.until(f"kubelet-{index}", "its node was Ready", lambda index=index: _is_ready(kube, node_name(index)))  # type: ignore[misc]


async def _start_kubelet(sandbox: Sandbox, authority: Authority, index: int) -> None:
    record, name = sandbox.record, node_name(index)
    home = sandbox.folder / name / "etc/kubernetes"
    address = record.addresses.node(index)
    authority.issue(name, f"system:node:{name}", "system:nodes", hosts=(name, address))
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    for file in (f"{name}.crt", f"{name}.key"):
        shutil.copyfile(authority.folder / file, home / file)
    shutil.copyfile(authority.folder / "ca.crt", home / "ca.crt")
    (home / "kubelet.kubeconfig").write_text(kubeconfig(authority, name, sandbox.kube_server))
    settings = kubelet(name, record.addresses, f"/{cgroup_name(record.identity)}/{name}")
    (home / "kubelet.yaml").write_text(yaml.safe_dump(settings))
    labels = "--node-labels=sandbox.slinky.slurm.net/real=true"
    where = [
        "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
        "--config=/etc/kubernetes/kubelet.yaml",
        f"--node-ip={address}",
        f"--hostname-override={name}",
    ]
    await sandbox.link.start(Part(f"kubelet-{index}", name, ["/opt/slinky/kubernetes-node/kubelet", *where, labels]))
    shutil.copyfile(sandbox.head / "etc/kubernetes/kube-proxy.kubeconfig", home / "kube-proxy.kubeconfig")
    await _start_proxy(sandbox, name, f"kube-proxy-{index}", home, name)


async def _start_proxy(sandbox: Sandbox, machine: str, part: str, home: Path, node: str) -> None:
    (home / "kube-proxy.yaml").write_text(yaml.safe_dump(kube_proxy(node, sandbox.record.addresses)))
    await sandbox.link.start(Part(part, machine, ["/opt/slinky/kubernetes-node/kube-proxy", "--config=/etc/kubernetes/kube-proxy.yaml"]))


async def _start_dns(sandbox: Sandbox, kube: Kube, authority: Authority) -> None:
    home = sandbox.head / "etc/kubernetes"
    authority.issue("coredns", "sandbox-coredns")
    (home / "coredns.kubeconfig").write_text(kubeconfig(authority, "coredns", sandbox.kube_server))
    (home / "Corefile").write_text(corefile(sandbox.record.addresses))
    await kube.apply_all(dns_objects(sandbox.record.addresses))
    await sandbox.link.start(Part("coredns", "head", ["/opt/slinky/coredns", "-conf", "/etc/kubernetes/Corefile"]))


async def _is_ready(kube: Kube, name: str) -> bool:
    node: dict[str, Any] = await kube.get(f"/api/v1/nodes/{name}")
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))


async def start_slurmd(sandbox: Sandbox, progress: Progress) -> None:
    """A slurmd beside each kubelet, configured by slurmctld."""
    record = sandbox.record
    if not record.shape.slurmd:
        return
    with progress.step("slurmd on the real nodes"):
        for index in range(record.shape.real_nodes):
            name = node_name(index)
            home = sandbox.folder / name / "etc/slurm"
            home.mkdir(exist_ok=True)
            shutil.copyfile(sandbox.head / "etc/slurm/slurm.key", home / "slurm.key")
            (home / "slurm.key").chmod(0o600)
            command = ["slurmd", "-D", "-Z", f"--conf-server={record.addresses.head}:6817", f"-N{name}", "--conf=Features=compute"]
            await sandbox.link.start(Part(f"slurmd-{index}", name, command))
        for index in range(record.shape.real_nodes):
            await sandbox.until(f"slurmd-{index}", "its node was idle", lambda index=index: _is_idle(sandbox, node_name(index)))  # type: ignore[misc]


async def _is_idle(sandbox: Sandbox, name: str) -> bool:
    return (await sandbox.link.run("head", "sinfo", "--noheader", "--nodes", name, "--format=%t")).split()[:1] == ["idle"]
