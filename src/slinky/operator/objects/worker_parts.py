"""slurmd's container, and the volumes it reads.

What must stay true: the image's own entry point runs, with the original's contract: arguments for slurmd (`--conf` in quotes, for a shell reads it), and POD_CPUS, POD_MEMORY and POD_TOPOLOGY in the environment, 0 or
empty where there is nothing to say. `Topology=` is never written empty: Slurm would take the next word for its value.
"""

from typing import Any

from slinky.kube.quantities import mebibytes, quantity, whole
from slinky.operator import labels, names
from slinky.operator.conf.text import Line, Pair, render, words
from slinky.operator.kinds import NodeSet
from slinky.operator.objects.pods import ETC_MOUNT, empty, etc_volume, key_file, page, probes
from slinky.operator.objects.view import ClusterView, slurm_key

__all__ = ["node_parameters", "slurmd_container", "worker_volumes"]

# Jobs that are still here end with the pod: Slurm should know at once, not after its timeout. A reason that stands there stays: it may be somebody's own; where it cannot be read, nothing is written over it. A slurmctld that is away must not hold up the pod's end.
_STOPPING = (
    'name=$(hostname); name=${name%%.*}; told=$(timeout 5 scontrol show node "$name") || exit 0; '
    'why=$(printf "%s\\n" "$told" | sed -n "s/^ *Reason=\\(.*\\) \\[.*/\\1/p"); '
    'timeout 5 scontrol update nodename="$name" state=down reason="${why:-slurm-operator: Pod is terminating}"'
)


def slurmd_container(nodeset: NodeSet, view: ClusterView) -> dict[str, Any]:
    host, port = view.controller_address
    cpus, memory = _limits(nodeset)
    ssh = nodeset.spec.ssh.enabled
    return {
        "name": "slurmd",
        "args": ["-Z", "--conf-server", f"{host}:{port}", "--conf", f"'{node_parameters(nodeset)}'"],
        "env": [
            {"name": "POD_CPUS", "value": str(cpus)},
            {"name": "POD_MEMORY", "value": str(memory)},
            {"name": "POD_TOPOLOGY", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{labels.TOPOLOGY}']"}}},
        ],
        "ports": [
            {"name": "slurmd", "containerPort": names.SLURMD_PORT, "protocol": "TCP"},
            *([{"name": "ssh", "containerPort": names.SSH_PORT, "protocol": "TCP"}] if ssh else []),
        ],
        # Readiness alone: whoever restarts a slurmd that is slow to answer ends its jobs, and one that has died ends the container by itself.
        "readinessProbe": probes(page("slurmd"))["readinessProbe"],
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _STOPPING]}}},
        "securityContext": {"privileged": True, "capabilities": {"add": ["BPF", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE"]}},
        "volumeMounts": [
            ETC_MOUNT,
            {"name": "slurmd-spool", "mountPath": "/var/spool/slurmd"},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - of the pod; the container's own has 64 MiB, too little for MPI
            *(_ssh_mounts(nodeset) if ssh else []),
        ],
    }


def node_parameters(nodeset: NodeSet) -> str:
    """What the Slurm node is beyond what slurmd sees of its machine: always the NodeSet's name as a feature, by which partitions find it."""
    written = words(nodeset.spec.extra_conf)
    named = (feature.strip() for pair in written if _is_feature(pair) for feature in pair.value.split(","))
    features = ",".join(dict.fromkeys(filter(None, (nodeset.slurm_name, *named))))
    rest = [pair for pair in written if not _is_feature(pair)]
    return render([Line((Pair("Features", features), *rest))]).strip()


def _is_feature(pair: Pair) -> bool:
    return pair.key.lower() in ("feature", "features")


def _limits(nodeset: NodeSet) -> tuple[int, int]:
    """CPUs and MiB that slurmd may use: the container's limits, else the pod's, else 0."""
    container = (nodeset.spec.slurmd.get("resources") or {}).get("limits") or {}
    limits = ((nodeset.spec.template.spec.get("resources") or {}).get("limits") or {}) | container
    return whole(quantity(limits.get("cpu") or 0)), mebibytes(quantity(limits.get("memory") or 0))


def worker_volumes(nodeset: NodeSet, view: ClusterView) -> list[dict[str, Any]]:
    made = [
        etc_volume([key_file(*slurm_key(view.controller), names.SLURM_KEY)], mode=0o600),
        empty("slurmd-spool"),
        empty("shared-memory", memory=True),
    ]
    ssh = nodeset.spec.ssh
    if ssh.enabled:
        config = {"name": names.ssh_config(nodeset.metadata.name), "items": [{"key": "sshd_config", "path": "sshd_config", "mode": 0o600}]}
        made.append({"name": "ssh-config", "projected": {"sources": [{"configMap": config}]}})
        if ssh.sssd_conf_ref:
            secret = key_file(ssh.sssd_conf_ref.name, ssh.sssd_conf_ref.key or "sssd.conf", "sssd.conf")
            made.append({"name": "sssd-conf", "projected": {"defaultMode": 0o600, "sources": [secret]}})
    return made


def _ssh_mounts(nodeset: NodeSet) -> list[dict[str, Any]]:
    """By subPath: sshd and SSSD want other files beside these, and read them at their start only."""
    made = [{"name": "ssh-config", "mountPath": "/etc/ssh/sshd_config", "subPath": "sshd_config", "readOnly": True}]
    if nodeset.spec.ssh.sssd_conf_ref:
        made.append({"name": "sssd-conf", "mountPath": "/etc/sssd/sssd.conf", "subPath": "sssd.conf", "readOnly": True})
    return made
