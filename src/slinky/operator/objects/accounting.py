"""An Accounting's objects: slurmdbd's StatefulSet, its Service, and the Secret with slurmdbd.conf.

What must stay true: the database's password is in that Secret and in nothing else that is made here. slurmdbd reads all its files at its start, so a change of any of them restarts it, and slurmctld keeps what it has to tell
meanwhile. Of an external Accounting nothing is made.
"""

import base64
from collections.abc import Iterable
from typing import Any

from slinky.operator import labels, names
from slinky.operator.conf.slurmdbd import slurmdbd_conf, tls_files
from slinky.operator.kinds import Accounting
from slinky.operator.kinds.accounting import StorageTls
from slinky.operator.objects.meta import digest_of, metadata, pod_metadata, resource
from slinky.operator.objects.network_policies import accounting_policy
from slinky.operator.objects.pods import ETC_MOUNT, connection, empty, etc_volume, jwks_file, key_file, pod_spec, probes, unprivileged, user
from slinky.operator.objects.services import service
from slinky.operator.objects.view import AccountingView

__all__ = ["accounting_objects"]


def accounting_objects(accounting: Accounting, site: AccountingView, password: str) -> list[dict[str, Any]]:
    """While no key is known (none is written, and no Controller refers here yet) there is no slurmdbd."""
    if accounting.spec.external:
        return []
    name = names.accounting(accounting.metadata.name)
    selector = labels.accounting_labels(accounting)
    everyone = selector | {labels.COMPONENT: "accounting"}
    conf = slurmdbd_conf(accounting, password)
    secret = {"slurmdbd.conf": base64.b64encode(conf.encode()).decode()}
    return [
        resource("v1", "Secret", metadata(accounting, name, everyone), type="Opaque", data=secret),
        service(accounting, name, everyone, selector, daemon="slurmdbd", port=names.SLURMDBD_PORT, template=accounting.spec.service),
        *([accounting_policy(accounting, site)] if site.network_policies else []),
        *_stateful_set(accounting, site, everyone),
    ]


def _stateful_set(accounting: Accounting, site: AccountingView, everyone: dict[str, str]) -> Iterable[dict[str, Any]]:
    slurm, jwt = site.slurm_key, site.jwt_key
    if slurm is None or jwt is None:
        return
    name = names.accounting(accounting.metadata.name)
    notes = {
        labels.DEFAULT_CONTAINER: "slurmdbd",
        # Not of the password itself: who may read pods could try words against it.
        labels.SLURMDBD_CONF_HASH: digest_of([slurmdbd_conf(accounting, ""), site.password_mark]),
        labels.SLURM_KEY_HASH: site.digest(slurm[0]),
        labels.JWT_KEY_HASH: site.digest(jwt[0]),
    }
    if files := tls_files(_tls(accounting)):
        notes[labels.TLS_HASH] = digest_of([site.digest(reference.name) for _, reference in files.values()])
    if jwks := accounting.spec.jwks_key_ref:
        notes[labels.JWKS_HASH] = digest_of(site.files.get(jwks.name, {}).get(jwks.key or names.JWKS_FILE, ""))
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 0,
        "podManagementPolicy": "Parallel",
        "serviceName": name,
        "selector": {"matchLabels": labels.accounting_labels(accounting)},
        "template": {
            "metadata": pod_metadata(everyone, accounting.spec.template.metadata, notes),
            "spec": _pod(accounting, slurm, jwt),
        },
    }
    yield resource("apps/v1", "StatefulSet", metadata(accounting, name, everyone), spec=spec)


def _tls(accounting: Accounting) -> StorageTls | None:
    return accounting.spec.storage_config.tls if accounting.spec.storage_config else None


def _pod(accounting: Accounting, slurm: tuple[str, str], jwt: tuple[str, str]) -> dict[str, Any]:
    spec = accounting.spec
    container = {
        "name": "slurmdbd",
        "ports": [{"name": "slurmdbd", "containerPort": names.SLURMDBD_PORT, "protocol": "TCP"}],
        # It listens once the database has answered: a probe that restarts it would not bring the database back.
        "readinessProbe": probes(connection("slurmdbd"))["readinessProbe"],
        "securityContext": unprivileged(),
        "volumeMounts": [
            ETC_MOUNT,
            {"name": "run", "mountPath": "/run"},
            {"name": "slurmdbd-run", "mountPath": "/run/slurmdbd"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the pod
        ],
    }
    sources = [
        key_file(names.accounting(accounting.metadata.name), "slurmdbd.conf", "slurmdbd.conf"),
        key_file(*slurm, names.SLURM_KEY),
        key_file(*jwt, names.JWT_KEY),
        *(key_file(reference.name, reference.key, file) for file, reference in tls_files(_tls(accounting)).values()),
        *([jwks_file(spec.jwks_key_ref)] if spec.jwks_key_ref else []),
    ]
    ours = {
        "securityContext": user(names.DAEMON_USER),
        "volumes": [etc_volume(sources, mode=0o644), *(empty(name) for name in ("run", "slurmdbd-run", "tmp"))],
    }
    return pod_spec(ours, container, spec.slurmdbd, spec.template)
