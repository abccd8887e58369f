"""Labels and annotations: the words in which the operator's objects are found, and in which people and tools speak to it.

What must stay true: the keys are the original's, a selector never changes for the life of its object, and what an administrator's labels say never wins over a label that a selector reads.
"""

from collections.abc import Mapping

from slinky.operator.kinds import Accounting, Controller, LoginSet, NodeSet, RestApi

__all__ = [
    "APP",
    "CLUSTER",
    "COMPONENT",
    "CONFIG_HASH",
    "DEFAULT_CONTAINER",
    "FEATURES",
    "HOSTNAME_OVERRIDE",
    "HOST_KEYS_HASH",
    "INSTANCE",
    "JWKS_HASH",
    "JWT_KEY_HASH",
    "NODE_CORDON_REASON",
    "POD_CORDON",
    "POD_DEADLINE",
    "POD_DELETION_COST",
    "POD_HOSTNAME",
    "POD_INDEX",
    "POD_NAME",
    "POD_PROTECT",
    "REVISION",
    "SCALING_MODE",
    "SLURMDBD_CONF_HASH",
    "SLURM_KEY_HASH",
    "SSHD_CONF_HASH",
    "SSSD_CONF_HASH",
    "TLS_HASH",
    "TOPOLOGY",
    "WORKER_TAINT",
    "accounting_labels",
    "cluster_workers",
    "controller_labels",
    "login_labels",
    "nodeset_selector",
    "restapi_labels",
    "worker_labels",
]

APP = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
CLUSTER = "slinky.slurm.net/cluster"
REVISION = "controller-revision-hash"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"

# On workers' pods: what they are, and what is asked of them.
POD_NAME = "nodeset.slinky.slurm.net/pod-name"
POD_INDEX = "nodeset.slinky.slurm.net/pod-index"
POD_HOSTNAME = "nodeset.slinky.slurm.net/pod-hostname"
SCALING_MODE = "nodeset.slinky.slurm.net/scaling-mode"
POD_PROTECT = "nodeset.slinky.slurm.net/pod-protect"
POD_CORDON = "nodeset.slinky.slurm.net/pod-cordon"
POD_DELETION_COST = "nodeset.slinky.slurm.net/pod-deletion-cost"
POD_DEADLINE = "nodeset.slinky.slurm.net/pod-deadline"
WORKER_TAINT = "nodeset.slinky.slurm.net/worker"

# On Kubernetes nodes.
NODE_CORDON_REASON = "nodeset.slinky.slurm.net/node-cordon-reason"
HOSTNAME_OVERRIDE = "nodeset.slinky.slurm.net/hostname-override"
TOPOLOGY = "topology.slinky.slurm.net/spec"
FEATURES = "features.slinky.slurm.net/spec"

# On pod templates: a new value is a new pod. Only for what a running daemon cannot take.
CONFIG_HASH = "slinky.slurm.net/slurm-config-hash"
SLURM_KEY_HASH = "slinky.slurm.net/slurm-key-hash"
JWT_KEY_HASH = "slinky.slurm.net/jwt-key-hash"
JWKS_HASH = "slinky.slurm.net/jwks-hash"
SLURMDBD_CONF_HASH = "slinky.slurm.net/slurmdbd-conf-hash"
TLS_HASH = "slinky.slurm.net/storage-tls-hash"
SSHD_CONF_HASH = "slinky.slurm.net/sshd-conf-hash"
SSSD_CONF_HASH = "slinky.slurm.net/sssd-conf-hash"
HOST_KEYS_HASH = "slinky.slurm.net/ssh-host-keys-hash"


def _app(daemon: str, instance: str) -> dict[str, str]:
    return {APP: daemon, INSTANCE: instance}


def controller_labels(controller: Controller) -> dict[str, str]:
    """Of slurmctld: the selector, and with its component all labels."""
    return _app("slurmctld", controller.metadata.name)


def accounting_labels(accounting: Accounting) -> dict[str, str]:
    return _app("slurmdbd", accounting.metadata.name)


def restapi_labels(restapi: RestApi) -> dict[str, str]:
    return _app("slurmrestd", restapi.metadata.name)


def login_labels(loginset: LoginSet) -> dict[str, str]:
    return _app("login", loginset.metadata.name)


def nodeset_selector(nodeset: NodeSet) -> dict[str, str]:
    """Of a NodeSet's pods."""
    return _app("slurmd", nodeset.metadata.name)


def worker_labels(nodeset: NodeSet) -> dict[str, str]:
    """Of a NodeSet's pods, all that do not differ from one to the next."""
    return {
        **nodeset_selector(nodeset),
        COMPONENT: "worker",
        CLUSTER: nodeset.spec.controller_ref.name,
        SCALING_MODE: nodeset.spec.scaling_mode.value,
    }


def cluster_workers(controller: str) -> Mapping[str, str]:
    """Of all workers of a cluster."""
    return {APP: "slurmd", CLUSTER: controller}
