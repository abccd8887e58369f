"""What `--operator` prepares for clusters in pods: a database that pods reach, and volumes on the real nodes that belong to whom the pod says.

Comes in: a sandbox whose Slurm and real nodes run. Goes out, in namespace `slurm`: the Service `mariadb`, which leads to the head, and the Secret `mariadb` with the password of the user `slurm`, who may do all with databases (by TLS only; the Secret has the authority's certificate)
named `cluster_…`; the Secret `slurm-jwt` with the head's own key for tokens; and a StorageClass `local` with a few volumes on each real node. (Volumes of the class `standard` are the node's folders as they are: they stay root's, whatever the pod's fsGroup.)
"""

import base64
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slinky.sandbox.certificates import Authority
from slinky.sandbox.client import Kube
from slinky.sandbox.debian import SERVICES
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.nodefiles import on_the_head
from slinky.sandbox.realnodes import node_name

__all__ = ["NAMESPACE", "VOLUMES", "certify_database", "database", "local_volumes", "prepare"]

NAMESPACE = "slurm"
VOLUMES = 8  # on each node; one that was used is not used again
PLACE = "/var/lib/sandbox-local"


def certify_database(etc: Path, authority: Authority) -> None:
    """MariaDB's certificate for the name by which pods know it."""
    names = ("mariadb", f"mariadb.{NAMESPACE}", f"mariadb.{NAMESPACE}.svc", f"mariadb.{NAMESPACE}.svc.cluster.local")
    authority.issue("mariadb", "mariadb", hosts=names)
    for file in ("mariadb.crt", "mariadb.key", "ca.crt"):
        shutil.copyfile(authority.folder / file, etc / "mysql" / file)
    (etc / "mysql/mariadb.key").chmod(0o600)
    shutil.chown(etc / "mysql/mariadb.key", SERVICES["mysql"], SERVICES["mysql"])


def database(folder: Path) -> str:
    """The SQL that makes the user, and its password beside the sandbox's other secrets."""
    password = secrets.token_hex(16)
    kept = folder / "mariadb-password"
    kept.touch(mode=0o600)
    kept.write_text(password)
    return f"CREATE USER slurm@'%' IDENTIFIED BY '{password}' REQUIRE SSL; GRANT ALL ON `cluster\\_%`.* TO slurm@'%';"


async def prepare(sandbox: Sandbox, kube: Kube) -> None:
    password = (sandbox.folder / "mariadb-password").read_bytes()
    authority = (sandbox.head / "etc/mysql/ca.crt").read_bytes()
    jwt_key = (sandbox.head / "etc/slurm/jwt_hs256.key").read_bytes()
    ports = [{"name": "mysql", "port": 3306, "protocol": "TCP"}]
    await kube.apply_all(
        [
            _secret("mariadb", {"password": password, "ca.crt": authority}),
            _secret("slurm-jwt", {"jwt.key": jwt_key}),
            *on_the_head(NAMESPACE, "mariadb", ports, sandbox.record.addresses, ""),
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
            | {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
        ]
    )
    for index in range(sandbox.record.shape.real_nodes):
        for number in range(VOLUMES):
            (sandbox.folder / node_name(index) / PLACE.lstrip("/") / str(number)).mkdir(parents=True)
        await kube.apply_all(list(local_volumes(node_name(index))))


def _secret(name: str, data: dict[str, bytes]) -> dict[str, Any]:
    meta = {"name": name, "namespace": NAMESPACE}
    encoded = {key: base64.b64encode(content).decode() for key, content in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": encoded}


def local_volumes(node: str) -> Iterator[dict[str, Any]]:
    here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
    for number in range(VOLUMES):
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{node}-{number}"},
            "spec": {
                "storageClassName": "local",
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": f"{PLACE}/{number}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
            },
        }
