"""A LoginSet's objects: the Deployment of login pods, its Service, and the ConfigMap with sshd_config and root's authorized keys.

What must stay true: host keys are of the LoginSet, not of a pod: they come from a Secret made once (`secrets.host_keys`). A pod restarts for what sshd, sackd and SSSD read at their start only; root's authorized keys are read
at every login.
"""

from typing import Any

from slinky.operator import labels, names
from slinky.operator.conf.sshd import AUTHORIZED_KEYS, HOST_KEY_FILES, HOST_KEYS, login_sshd_config
from slinky.operator.kinds import LoginSet
from slinky.operator.objects.meta import digest_of, metadata, pod_metadata, resource
from slinky.operator.objects.network_policies import login_policy
from slinky.operator.objects.pods import ETC_MOUNT, empty, key_file, pod_spec
from slinky.operator.objects.services import service
from slinky.operator.objects.view import ClusterView, slurm_key
from slinky.operator.overlay import lay_over

__all__ = ["login_objects"]

_SOCKET = "/run/slurm/sack.socket"


def login_objects(loginset: LoginSet, site: ClusterView) -> list[dict[str, Any]]:
    name, spec = loginset.metadata.name, loginset.spec
    selector = labels.login_labels(loginset)
    everyone = selector | {labels.COMPONENT: "login", labels.CLUSTER: site.name}
    config = {"sshd_config": login_sshd_config(loginset), "authorized_keys": spec.root_ssh_authorized_keys.strip() + "\n"}
    notes = _notes(loginset, site, config["sshd_config"])
    deployment: dict[str, Any] = {
        "replicas": spec.replicas,
        "revisionHistoryLimit": 0,
        "selector": {"matchLabels": selector},
        "template": {
            "metadata": pod_metadata(everyone, spec.template.metadata, notes),
            "spec": _pod(loginset, site),
        },
    }
    if spec.strategy:
        deployment["strategy"] = lay_over({}, spec.strategy)
    return [
        resource("v1", "ConfigMap", metadata(loginset, names.ssh_config(name), everyone), data=config),
        service(loginset, name, everyone, selector, daemon="login", port=names.SSH_PORT, template=spec.service),
        *([login_policy(loginset, site)] if site.network_policies else []),
        resource("apps/v1", "Deployment", metadata(loginset, name, everyone), spec=deployment),
    ]


def _notes(loginset: LoginSet, site: ClusterView, sshd_config: str) -> dict[str, str]:
    made = {
        labels.DEFAULT_CONTAINER: "login",
        labels.SSHD_CONF_HASH: digest_of(sshd_config),
        labels.HOST_KEYS_HASH: site.digest(names.host_keys(loginset.metadata.name)),
        labels.SLURM_KEY_HASH: site.digest(slurm_key(site.controller)[0]),
    }
    if loginset.spec.sssd_conf_ref:
        made[labels.SSSD_CONF_HASH] = site.digest(loginset.spec.sssd_conf_ref.name)
    return made


def _pod(loginset: LoginSet, site: ClusterView) -> dict[str, Any]:
    spec = loginset.spec
    host, port = site.controller_address
    container = {
        "name": "login",
        "env": [
            {"name": "SACKD_OPTIONS", "value": f"--conf-server {host}:{port}"},
            *([] if spec.sssd_conf_ref else [{"name": "SSSD_MODE", "value": "disabled"}]),
        ],
        "ports": [{"name": "login", "containerPort": names.SSH_PORT, "protocol": "TCP"}],
        "readinessProbe": {"exec": {"command": ["test", "-S", _SOCKET]}, "periodSeconds": 3},
        "volumeMounts": [
            ETC_MOUNT,
            {"name": "sackd-dir", "mountPath": "/run/slurm"},
            {"name": "ssh-host-keys", "mountPath": HOST_KEYS, "readOnly": True},
            {"name": "ssh-config", "mountPath": "/etc/ssh/sshd_config", "subPath": "sshd_config", "readOnly": True},
            {"name": "authorized-keys", "mountPath": AUTHORIZED_KEYS, "readOnly": True},
            *(
                [{"name": "sssd-conf", "mountPath": "/etc/sssd/sssd.conf", "subPath": "sssd.conf", "readOnly": True}]
                if spec.sssd_conf_ref
                else []
            ),
        ],
    }
    ours: dict[str, Any] = {
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "dnsConfig": {"searches": [site.worker_domain]},
        "initContainers": [_key_copier(loginset)],
        "volumes": _volumes(loginset, site),
    }
    if spec.template.spec.get("hostNetwork"):
        ours["dnsPolicy"] = "ClusterFirstWithHostNet"
    return pod_spec(ours, container, spec.login, spec.template)


def _key_copier(loginset: LoginSet) -> dict[str, Any]:
    """sackd may be slurm and the key has to be its own: what is mounted is root's, and a group for the whole pod would reach people's homes. (`spec.initconf`, the original's container for it, is without effect.)"""
    copy = f"install -m 0600 -o {names.DAEMON_USER} -g {names.DAEMON_GROUP} /mnt/slurm/{names.SLURM_KEY} {names.ETC}/{names.SLURM_KEY}"
    ours: dict[str, Any] = {
        "name": "initconf",
        "command": ["/bin/sh", "-c", copy],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]},
        },
        "volumeMounts": [
            {"name": "slurm-key", "mountPath": "/mnt/slurm", "readOnly": True},
            {"name": "slurm-etc", "mountPath": names.ETC},
        ],
    }
    for field in ("image", "imagePullPolicy"):
        if field in loginset.spec.login:
            ours[field] = loginset.spec.login[field]
    return ours


def _volumes(loginset: LoginSet, site: ClusterView) -> list[dict[str, Any]]:
    name, sssd = loginset.metadata.name, loginset.spec.sssd_conf_ref
    keys = [{"key": key, "path": key} for file in HOST_KEY_FILES for key in (file, f"{file}.pub")]
    config = names.ssh_config(name)
    made = [
        empty("slurm-etc", memory=True),
        {"name": "slurm-key", "projected": {"defaultMode": 0o600, "sources": [key_file(*slurm_key(site.controller), names.SLURM_KEY)]}},
        empty("sackd-dir", memory=True),
        {"name": "ssh-host-keys", "secret": {"secretName": names.host_keys(name), "defaultMode": 0o600, "items": keys}},
        {"name": "ssh-config", "configMap": {"name": config, "defaultMode": 0o600, "items": [_item("sshd_config")]}},
        {"name": "authorized-keys", "configMap": {"name": config, "defaultMode": 0o644, "items": [_item("authorized_keys")]}},
    ]
    if sssd:
        source = key_file(sssd.name, sssd.key or "sssd.conf", "sssd.conf")
        made.append({"name": "sssd-conf", "projected": {"defaultMode": 0o600, "sources": [source]}})
    return made


def _item(file: str) -> dict[str, str]:
    return {"key": file, "path": file}
