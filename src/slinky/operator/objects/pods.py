"""Parts that the daemons' pods have in common: volumes of files and keys, probes, who they run as, and how an administrator's container and pod are laid over ours.

What must stay true: no pod has a ServiceAccount's token; every daemon but slurmd and login runs without root, without privileges and with a root file system it cannot write; files come by projected volumes without
subPath, so that the kubelet brings a change into a running pod.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slinky.operator import names
from slinky.operator.kinds import KeyReference
from slinky.operator.kinds.common import PodTemplate
from slinky.operator.overlay import lay_over

__all__ = [
    "ETC_MOUNT",
    "config_files",
    "connection",
    "empty",
    "etc_volume",
    "jwks_file",
    "key_file",
    "page",
    "pod_spec",
    "probes",
    "unprivileged",
    "user",
]

ETC_MOUNT = {"name": "slurm-etc", "mountPath": names.ETC, "readOnly": True}


def user(number: int) -> dict[str, Any]:
    """A pod whose processes are this user and no other; what is mounted belongs to its group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": number,
        "runAsGroup": number,
        "fsGroup": number,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def unprivileged() -> dict[str, Any]:
    """A container that needs nothing of its host."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def probes(handler: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """A daemon has five minutes to start (slurmctld reads its state, and waits for slurmdbd) and one to answer; it is asked often, so that it is used as soon as it is ready."""
    patience = {"timeoutSeconds": 5}
    return {
        "startupProbe": handler("/livez") | patience | {"periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": handler("/livez") | patience | {"periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": handler("/readyz") | patience | {"periodSeconds": 3},
    }


def page(port: str) -> Callable[[str], dict[str, Any]]:
    """Slurm's own health pages, which slurmctld and slurmd serve on the port they speak on."""
    return lambda path: {"httpGet": {"path": path, "port": port}}


def connection(port: str) -> Callable[[str], dict[str, Any]]:
    """slurmrestd and slurmdbd have no such pages: whether they take a connection."""
    return lambda _: {"tcpSocket": {"port": port}}


def empty(name: str, *, memory: bool = False) -> dict[str, Any]:
    return {"name": name, "emptyDir": {"medium": "Memory"} if memory else {}}


def config_files(config_map: str) -> dict[str, Any]:
    """A source of a projected volume: all of a ConfigMap."""
    return {"configMap": {"name": config_map}}


def key_file(secret: str, key: str, path: str) -> dict[str, Any]:
    """A source of a projected volume: one key of a Secret, for its owner only (and for the pod's own group, if it has one)."""
    return {"secret": {"name": secret, "items": [{"key": key, "path": path, "mode": 0o600}]}}


def jwks_file(reference: KeyReference) -> dict[str, Any]:
    key = reference.key or names.JWKS_FILE
    return {"configMap": {"name": reference.name, "items": [{"key": key, "path": names.JWKS_FILE}]}}


def etc_volume(sources: Iterable[Mapping[str, Any]], mode: int = 0o644) -> dict[str, Any]:
    return {"name": "slurm-etc", "projected": {"defaultMode": mode, "sources": list(sources)}}


def pod_spec(ours: Mapping[str, Any], container: Mapping[str, Any], theirs: Mapping[str, Any], template: PodTemplate) -> dict[str, Any]:
    """A pod of one main container: ours, with the administrator's container over it, and over all of that the template."""
    main = lay_over(container, theirs)
    made = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **ours,
        "containers": [main | {"name": container["name"]}],
    }
    return lay_over(made, template.spec)
