"""A cluster on real nodes as the original leaves it when it is stopped: a Helm release of its chart's shape, and what its operator makes of it."""

import base64
import json
from pathlib import Path
from string import Template
from typing import Any

import yaml

from slinky.operator.keys import new_host_keys
from tests.charts.coming import values_of_both
from tests.operator_sandbox.cluster import Cluster

__all__ = ["VALUES", "OriginalCluster"]

RESOURCES = Path(__file__).parent / "originals.yaml"
THEIRS = "--field-manager=manager"
ACTIVE = "controller.slinky.slurm.net/active=true"
WORKERS = ("slinky-0", "slinky-1")
RELEASED = {"controller": "slurm", "restapi": "slurm", "nodeset": "slurm-worker-slinky", "loginset": "slurm-login-slinky"}
EXTRA = """\
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
"""
VALUES: dict[str, Any] = {
    **values_of_both("sandbox/", "1", storage_class="local", extraConf=EXTRA),
    "configFiles": {"cgroup.conf": "CgroupPlugin=disabled\n"},
}


class OriginalCluster(Cluster):
    """The same cluster before and after: its login node has the chart's name."""

    def login(self, *command: str, user: str = "", check: bool = True) -> str:  # noqa: ARG002
        return self.kubectl("exec", "deploy/slurm-login-slinky", "--container=login", "--", "env", "--chdir=/tmp", *command, check=check)

    def make_as_the_original(self) -> None:
        """What its operator makes of the custom resources that are there; until all workers are idle."""
        uids = {kind: self.get(kind, name)["metadata"]["uid"] for kind, name in RELEASED.items()}
        self._create(yaml.safe_load_all(Template(RESOURCES.read_text()).substitute(uids)))
        self._create([_host_keys(uids["loginset"]), *(_worker(uids["nodeset"], number) for number in range(len(WORKERS)))])
        self.patch("nodeset", RELEASED["nodeset"], {"metadata": {"finalizers": ["nodeset.slinky.slurm.net/reservation"]}})
        self.until("there was slurmctld's pod", lambda: self.get("pod", "slurm-controller-0"))
        self.kubectl("label", "pod", "slurm-controller-0", ACTIVE)
        self.until_idle(*WORKERS, seconds=240)

    def make_a_token(self) -> None:
        """Its Secret belongs to the Secret with the key there."""
        key = self.get("secret", "slurm-auth-jwt")["metadata"]
        owner = {"apiVersion": "v1", "kind": "Secret", "name": key["name"], "uid": key["uid"]}
        held = {"controller": True, "blockOwnerDeletion": True}
        meta = {"name": "reports-jwt-alice", "ownerReferences": [owner | held]}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "immutable": False}
        spec = {"jwtKeyRef": {"name": key["name"], "key": "jwt.key"}, "username": "alice"}
        kind = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "Token"}
        token = {**kind, "metadata": {"name": "reports"}, "spec": {**spec, "lifetime": "15m"}}
        self._create([secret | {"data": {"SLURM_JWT": "dGhlaXJz"}}, token])

    def _create(self, bodies: Any) -> None:
        self.kubectl("create", THEIRS, "--filename=-", written=yaml.safe_dump_all(list(bodies)))

    def daemons(self) -> dict[str, dict[str, Any]]:
        """The pods of the cluster that are not on their way out: by name, their main container and the rest of their spec."""
        found = json.loads(self.kubectl("get", "pods", "--selector=app.kubernetes.io/instance", "--output=json"))["items"]
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def _meta(name: str, kind: str, owner: str, uid: str, labels: dict[str, str]) -> dict[str, Any]:
    reference = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": kind, "name": owner, "uid": uid}
    return {"name": name, "labels": labels, "ownerReferences": [reference | {"controller": True, "blockOwnerDeletion": True}]}


def _host_keys(uid: str) -> dict[str, Any]:
    data = {name: base64.b64encode(content).decode() for name, content in new_host_keys().items()}
    name = RELEASED["loginset"]
    meta = _meta(f"{name}-ssh-host-keys", "LoginSet", name, uid, {"app.kubernetes.io/name": "login"})
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "immutable": True, "data": data}


def _worker(uid: str, number: int) -> dict[str, Any]:
    name, owner = f"slurm-worker-slinky-{number}", RELEASED["nodeset"]
    labels = {
        "app.kubernetes.io/name": "slurmd",
        "app.kubernetes.io/instance": owner,
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "Helm",
        "slinky.slurm.net/cluster": "slurm",
        "nodeset.slinky.slurm.net/pod-name": name,
        "nodeset.slinky.slurm.net/pod-index": str(number),
        "nodeset.slinky.slurm.net/pod-hostname": WORKERS[number],
        "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet",
        "controller-revision-hash": "theirs",
    }
    topology = {"fieldRef": {"fieldPath": "metadata.annotations['topology.slinky.slurm.net/spec']"}}
    slurmd = {
        "name": "slurmd",
        "image": "sandbox/slurmd:1",
        "args": ["-Z", "--conf-server", "slurm-controller.slurm:6817", "--conf", "'Features=slinky Topology='\"$SLINKY_TOPOLOGY\"''"],
        "env": [
            {"name": "SLINKY_TOPOLOGY", "valueFrom": topology},
            {"name": "POD_CPUS", "value": "0"},
            {"name": "POD_MEMORY", "value": "0"},
        ],
        "ports": [{"name": "slurmd", "containerPort": 6818}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "slurmd"}, "periodSeconds": 3},
        "lifecycle": {
            "preStop": {
                "exec": {
                    "command": [
                        "/bin/sh",
                        "-c",
                        "scontrol update nodename=$(hostname) state=down reason='slurm-operator: Pod is terminating'",
                    ]
                }
            }
        },
        "securityContext": {"privileged": True, "capabilities": {"add": ["BPF", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE"]}},
        "volumeMounts": [
            {"name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": True},
            {"name": "log", "mountPath": "/var/log/slurm"},
        ],
    }
    reads = "mkfifo -m 666 /var/log/slurm/slurmd.log; while :; do cat /var/log/slurm/slurmd.log; done"
    logfile = {
        "name": "logfile",
        "image": "sandbox/busybox:1",
        "restartPolicy": "Always",
        "command": ["sh", "-c", reads],
        "volumeMounts": [{"name": "log", "mountPath": "/var/log/slurm"}],
    }
    key = {"name": "slurm-auth-slurm", "items": [{"key": "slurm.key", "path": "slurm.key"}]}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "slurmd"}}}
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": WORKERS[number],
        "subdomain": "slurm-workers-slurm",
        "dnsConfig": {"searches": ["slurm-workers-slurm.slurm.svc.cluster.local"]},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "initContainers": [logfile],
        "containers": [slurmd],
        "volumes": [
            {"name": "slurm-etc", "projected": {"defaultMode": 0o600, "sources": [{"secret": key}]}},
            {"name": "log", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _meta(name, "NodeSet", owner, uid, labels), "spec": spec}
