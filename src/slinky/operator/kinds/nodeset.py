"""NodeSet: workers of one kind, each a pod with a slurmd that is a dynamic node of Slurm."""

import enum
from typing import Annotated, Any

import msgspec

from slinky.kube.objects import Meta
from slinky.operator.kinds.common import Conditioned, Container, KeyReference, NameReference, Part, PodTemplate, told

__all__ = [
    "ClaimRetention",
    "NodeSet",
    "NodeSetSpec",
    "NodeSetStatus",
    "Partition",
    "Prune",
    "Retention",
    "RollingUpdate",
    "ScalingMode",
    "Ssh",
    "Update",
    "UpdateStrategy",
]


class ScalingMode(enum.StrEnum):
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"


class Update(enum.StrEnum):
    ROLLING = "RollingUpdate"
    ON_DELETE = "OnDelete"


class Retention(enum.StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


class Prune(enum.StrEnum):
    NEVER = "Never"
    NODE_NOT_FOUND = "NodeNotFound"


class Ssh(Part, frozen=True):
    """Logging in to workers, for those who have a job there."""

    enabled: Annotated[bool, told("Whether workers run sshd.")] = False
    extra_sshd_config: Annotated[str, told("Lines for sshd_config. What stands here wins over what the operator would write.")] = ""
    sssd_conf_ref: Annotated[KeyReference | None, told("A Secret's key with sssd.conf.")] = None


class Partition(Part, frozen=True):
    """A partition of this NodeSet's nodes."""

    enabled: Annotated[bool, told("Whether there is one, of the NodeSet's name.")] = False
    config: Annotated[str, told("Its parameters, such as `Default=YES MaxTime=2-0`.")] = ""


class RollingUpdate(Part, frozen=True):
    """How many workers may be away at once."""

    max_unavailable: Annotated[int | str, told("A number, or a share such as 25%, rounded up. Not 0.")] = "25%"


class UpdateStrategy(Part, frozen=True):
    """How workers come to a new template."""

    type: Annotated[Update, told("RollingUpdate: each is drained and replaced. OnDelete: only one that somebody deletes is made anew.")] = (
        Update.ROLLING
    )
    rolling_update: Annotated[RollingUpdate, told("For RollingUpdate.")] = msgspec.field(default_factory=RollingUpdate)


class ClaimRetention(Part, frozen=True):
    """What becomes of the workers' claims."""

    when_deleted: Annotated[Retention, told("When the NodeSet is deleted.")] = Retention.RETAIN
    when_scaled: Annotated[Retention, told("When a worker is scaled away.")] = Retention.RETAIN


class NodeSetSpec(Part, frozen=True):
    """Workers of one kind."""

    controller_ref: Annotated[NameReference, told("The Controller whose cluster they belong to. Cannot be changed.")] = msgspec.field(
        default_factory=NameReference
    )
    replicas: Annotated[int, told("How many workers, in mode StatefulSet.", least=0)] = 1
    scaling_mode: Annotated[
        ScalingMode, told("StatefulSet: as many as replicas says. DaemonSet: one on each Kubernetes node that fits.")
    ] = ScalingMode.STATEFUL_SET
    slurmd: Container = msgspec.field(default_factory=dict)
    ssh: Annotated[Ssh, told("Logging in to workers.")] = msgspec.field(default_factory=Ssh)
    logfile: Annotated[dict[str, Any], told("Accepted for compatibility, and without effect: slurmd logs to standard error.")] = (
        msgspec.field(default_factory=dict)
    )
    template: Annotated[
        PodTemplate,
        told(
            "Of the workers' pods. A `hostname` in it begins the Slurm nodes' names, and (without dashes at its ends) is the name of their feature and partition."
        ),
    ] = msgspec.field(default_factory=PodTemplate)
    extra_conf: Annotated[str, told("The Slurm nodes' parameters, such as `Gres=gpu:8 Weight=10`; see slurmd's --conf.")] = ""
    partition: Annotated[Partition, told("A partition of these nodes.")] = msgspec.field(default_factory=Partition)
    volume_claim_templates: Annotated[list[dict[str, Any]] | None, told("Claims that each worker has of its own. Cannot be changed.")] = (
        None
    )
    update_strategy: Annotated[UpdateStrategy, told("How workers come to a new template.")] = msgspec.field(default_factory=UpdateStrategy)
    revision_history_limit: Annotated[int, told("How many earlier revisions are kept.", least=0)] = 0
    persistent_volume_claim_retention_policy: Annotated[ClaimRetention, told("What becomes of claims.")] = msgspec.field(
        default_factory=ClaimRetention
    )
    min_ready_seconds: Annotated[int, told("For how many seconds a worker has to be ready to count as available.", least=0)] = 0
    ordinal_padding: Annotated[int, told("To how many digits a worker's number is padded.", least=0, most=10)] = 0
    pin_to_node: Annotated[bool, told("Whether a worker comes back to the Kubernetes node it was on.")] = False
    workload_disruption_protection: Annotated[
        bool, told("Whether workers with jobs are kept from Kubernetes' evictions by a PodDisruptionBudget.")
    ] = True
    prune_slurm_node_records: Annotated[
        Prune, told("NodeNotFound: in mode DaemonSet, a Slurm node whose Kubernetes node is gone is deleted.")
    ] = Prune.NEVER
    oversubscribe_node: Annotated[bool, told("Whether several workers may share a Kubernetes node.")] = False
    taint_kube_nodes: Annotated[bool | None, told("Not supported (the original has given it up too); has to be false.")] = None
    drain_deadline_seconds: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        told("How long a worker that is to go waits for its jobs; after that it goes with them, and an Event says so. Without, for ever."),
    ] = None

    @property
    def is_daemon_set(self) -> bool:
        return self.scaling_mode is ScalingMode.DAEMON_SET


class NodeSetStatus(Conditioned, frozen=True):
    """How the workers are."""

    replicas: Annotated[int, told("Workers there are.")] = 0
    updated_replicas: Annotated[int, told("Of the present template.")] = 0
    ready_replicas: Annotated[int, told("Ready.")] = 0
    available_replicas: Annotated[int, told("Ready for minReadySeconds.")] = 0
    unavailable_replicas: Annotated[int, told("Wanted, and not available.")] = 0
    desired: Annotated[int, told("Wanted.")] = 0
    slurm_idle: Annotated[int, told("Idle in Slurm.")] = 0
    slurm_allocated: Annotated[int, told("With jobs.")] = 0
    slurm_down: Annotated[int, told("Down in Slurm.")] = 0
    slurm_drain: Annotated[int, told("Drained or draining in Slurm.")] = 0
    node_set_hash: Annotated[str, told("The present template's digest.")] = ""
    collision_count: Annotated[int | None, told("How often two templates had one digest.")] = None
    ordinal_to_node: Annotated[dict[str, str] | None, told("The Kubernetes node of each worker's number, where they are pinned.")] = None
    selector: Annotated[str, told("The pods' labels, for autoscalers.")] = ""


class NodeSet(msgspec.Struct, kw_only=True, frozen=True):
    """Workers of one kind."""

    metadata: Meta
    spec: NodeSetSpec = msgspec.field(default_factory=NodeSetSpec)
    status: NodeSetStatus = msgspec.field(default_factory=NodeSetStatus)

    @property
    def slurm_name(self) -> str:
        """Of its node set, its feature and its partition in Slurm: what its nodes' names begin with, where that is said, as the original has it; else its own."""
        hostname = self.spec.template.spec.get("hostname")
        return (isinstance(hostname, str) and hostname.strip("-")) or self.metadata.name
