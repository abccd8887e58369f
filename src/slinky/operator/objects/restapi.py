"""A RestApi's objects: slurmrestd's Deployment and its Service.

All files are mounted: slurm.conf may include some. What must stay true: slurmrestd holds no key of the cluster's. It is nobody, passes on the tokens that callers bring, and can make none.
"""

from typing import Any

from slinky.operator import labels, names
from slinky.operator.conf.slurm import slurm_conf
from slinky.operator.conf.text import pairs_of, parse
from slinky.operator.kinds import RestApi
from slinky.operator.objects.meta import digest_of, metadata, pod_metadata, resource
from slinky.operator.objects.network_policies import restapi_policy
from slinky.operator.objects.pods import ETC_MOUNT, config_files, connection, empty, etc_volume, pod_spec, probes, unprivileged, user
from slinky.operator.objects.services import service
from slinky.operator.objects.view import ClusterView

__all__ = ["restapi_objects"]

# Read once, when slurmrestd starts: where slurmctld and slurmdbd are, and how to speak with them.
_READ_AT_START = (
    "auth",
    "cred",
    "accountingstorage",
    "slurmctldhost",
    "slurmctldaddr",
    "slurmctldport",
    "clustername",
    "slurmuser",
    "communication",
)


def restapi_objects(restapi: RestApi, site: ClusterView) -> list[dict[str, Any]]:
    name = names.restapi(restapi.metadata.name)
    selector = labels.restapi_labels(restapi)
    everyone = selector | {labels.COMPONENT: "restapi", labels.CLUSTER: site.name}
    deployment = {
        "replicas": restapi.spec.replicas,
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": selector},
        "template": {
            "metadata": pod_metadata(
                everyone,
                restapi.spec.template.metadata,
                {labels.DEFAULT_CONTAINER: "slurmrestd", labels.CONFIG_HASH: _conf_hash(site)},
            ),
            "spec": _pod(restapi, site),
        },
    }
    return [
        service(restapi, name, everyone, selector, daemon="slurmrestd", port=names.SLURMRESTD_PORT, template=restapi.spec.service),
        *([restapi_policy(restapi)] if site.network_policies else []),
        resource("apps/v1", "Deployment", metadata(restapi, name, everyone), spec=deployment),
    ]


def _conf_hash(site: ClusterView) -> str:
    settings = pairs_of(parse(slurm_conf(site)["slurm.conf"]))
    return digest_of(sorted((pair.key.lower(), pair.value) for pair in settings if pair.key.lower().startswith(_READ_AT_START)))


def _pod(restapi: RestApi, site: ClusterView) -> dict[str, Any]:
    spec = restapi.spec
    container = {
        "name": "slurmrestd",
        # Without slurmdbd, the part of the API that speaks to it would fail at the start.
        "args": [] if site.accounting else ["-s", "openapi/slurmctld"],
        "env": [
            {"name": "SLURM_JWT", "value": "daemon"},
            {"name": "SLURMRESTD_SECURITY", "value": "disable_unshare_files,disable_unshare_sysv"},
        ],
        "ports": [{"name": "slurmrestd", "containerPort": names.SLURMRESTD_PORT, "protocol": "TCP"}],
        **probes(connection("slurmrestd")),
        "securityContext": unprivileged(),
        "volumeMounts": [ETC_MOUNT, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - of the pod
    }
    ours = {
        "securityContext": user(names.NOBODY),
        "volumes": [etc_volume([config_files(names.config(site.name))]), empty("tmp")],
    }
    made = pod_spec(ours, container, spec.slurmrestd, spec.template)
    for one in made["containers"]:
        if one["name"] == "slurmrestd":  # the address it listens on has to come last
            one["args"] = [*one.get("args", []), f"0.0.0.0:{names.SLURMRESTD_PORT}"]
    return made
