"""A Controller's objects: slurmctld's StatefulSet, its Services, and the ConfigMap with the files the operator makes.

What must stay true: the pod restarts only for what slurmctld cannot take while it runs (its keys, the few parameters of `RESTARTING`, its image and arguments); everything else reaches it through the projected volume.
The Service selects the pod by labels it is born with, so that a new pod is reached without the operator. Of an external Controller there are the ConfigMap, and what workers share.
"""

from collections.abc import Iterable
from typing import Any

from slinky.operator import labels, names
from slinky.operator.conf.slurm import all_files, referenced_files
from slinky.operator.conf.text import pairs_of, parse
from slinky.operator.kinds import Controller
from slinky.operator.objects.meta import digest_of, metadata, pod_metadata, resource
from slinky.operator.objects.monitor import service_monitors
from slinky.operator.objects.network_policies import cluster_policies
from slinky.operator.objects.pods import (
    ETC_MOUNT,
    config_files,
    empty,
    etc_volume,
    jwks_file,
    key_file,
    page,
    pod_spec,
    probes,
    unprivileged,
    user,
)
from slinky.operator.objects.services import headless, service
from slinky.operator.objects.view import ClusterView, jwt_key, slurm_key
from slinky.operator.objects.workers import cluster_worker_objects
from slinky.operator.overlay import lay_over

__all__ = ["RESTARTING", "controller_objects", "referenced_files"]

# A reconfiguration starts a new slurmctld on the old one's sockets, with its authentication: these cannot change by it.
RESTARTING = frozenset(
    key.lower()
    for key in [
        "AuthType",
        "AuthAltTypes",
        "AuthAltParameters",
        "AuthInfo",
        "ClusterName",
        "CredType",
        "SlurmctldHost",
        "SlurmctldPort",
        "SlurmUser",
        "StateSaveLocation",
    ]
)
_OURS = frozenset({"enabled", "existing_claim"})


def controller_objects(controller: Controller, site: ClusterView) -> list[dict[str, Any]]:
    files = all_files(site)
    everyone = labels.controller_labels(controller) | {labels.COMPONENT: "controller", labels.CLUSTER: site.name}
    made = [
        resource("v1", "ConfigMap", metadata(controller, names.config(site.name), everyone), data=files),
        *cluster_worker_objects(site),
        *(cluster_policies(site) if site.network_policies else []),
    ]
    if controller.spec.external:
        return made
    selector = labels.controller_labels(controller)
    return [
        *made,
        headless(
            controller,
            names.controller_internal(site.name),
            everyone | {labels.COMPONENT: "controller-internal"},
            selector,
            daemon="slurmctld",
            port=names.SLURMCTLD_PORT,
        ),
        service(
            controller,
            names.controller(site.name),
            everyone,
            selector,
            daemon="slurmctld",
            port=names.SLURMCTLD_PORT,
            template=controller.spec.service,
        ),
        *service_monitors(controller, everyone, known=site.service_monitors),
        _stateful_set(controller, site, everyone, files),
    ]


def _stateful_set(controller: Controller, site: ClusterView, everyone: dict[str, str], files: dict[str, str]) -> dict[str, Any]:
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 0,
        "podManagementPolicy": "Parallel",  # a pod that never becomes ready must not stand in the way of the template that mends it
        "serviceName": names.controller_internal(site.name),
        "selector": {"matchLabels": labels.controller_labels(controller)},
        "template": {
            "metadata": _pod_metadata(controller, site, everyone, files["slurm.conf"]),
            "spec": _pod(controller, site),
        },
    }
    if claim := _claim(controller):
        spec["volumeClaimTemplates"] = [claim]
    return resource("apps/v1", "StatefulSet", metadata(controller, names.controller(site.name), everyone), spec=spec)


def _pod_metadata(controller: Controller, site: ClusterView, everyone: dict[str, str], conf: str) -> dict[str, Any]:
    notes = {
        labels.DEFAULT_CONTAINER: "slurmctld",
        labels.CONFIG_HASH: digest_of(
            sorted((pair.key.lower(), pair.value) for pair in pairs_of(parse(conf)) if pair.key.lower() in RESTARTING)
        ),
        labels.SLURM_KEY_HASH: site.digest(slurm_key(controller)[0]),
        labels.JWT_KEY_HASH: site.digest(jwt_key(controller)[0]),
    }
    return pod_metadata(everyone, controller.spec.template.metadata, notes)


def _pod(controller: Controller, site: ClusterView) -> dict[str, Any]:
    spec = controller.spec
    container = {
        "name": "slurmctld",
        "ports": [{"name": "slurmctld", "containerPort": names.SLURMCTLD_PORT, "protocol": "TCP"}],
        **probes(page("slurmctld")),
        "securityContext": unprivileged(),
        "volumeMounts": [
            ETC_MOUNT,
            {"name": names.STATE_CLAIM, "mountPath": names.state_folder(controller.cluster_name)},
            {"name": "run", "mountPath": "/run"},
            {"name": "slurm-authsocket", "mountPath": "/run/slurmctld"},
            {"name": "log", "mountPath": "/var/log/slurm"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the pod
        ],
    }
    ours = {
        "securityContext": user(names.DAEMON_USER),
        "volumes": [
            etc_volume(_sources(controller, site), mode=0o755),
            *_state_volume(controller),
            *(empty(name) for name in ("run", "slurm-authsocket", "log", "tmp")),
        ],
    }
    return pod_spec(ours, container, spec.slurmctld, spec.template)


def _sources(controller: Controller, site: ClusterView) -> Iterable[dict[str, Any]]:
    yield config_files(names.config(site.name))
    yield key_file(*slurm_key(controller), names.SLURM_KEY)
    yield key_file(*jwt_key(controller), names.JWT_KEY)
    if controller.spec.jwks_key_ref:
        yield jwks_file(controller.spec.jwks_key_ref)


def _state_volume(controller: Controller) -> Iterable[dict[str, Any]]:
    persistence = controller.spec.persistence
    if not persistence.enabled:
        yield empty(names.STATE_CLAIM)
    elif persistence.existing_claim:
        yield {"name": names.STATE_CLAIM, "persistentVolumeClaim": {"claimName": persistence.existing_claim}}


def _claim(controller: Controller) -> dict[str, Any] | None:
    persistence = controller.spec.persistence
    if not persistence.enabled or persistence.existing_claim:
        return None
    ours = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}
    written = {
        name: getattr(persistence, field)
        for name, field in zip(persistence.__struct_encode_fields__, persistence.__struct_fields__, strict=True)
        if field not in _OURS and getattr(persistence, field) is not None
    }
    return {"metadata": {"name": names.STATE_CLAIM}, "spec": lay_over(ours, written)}
