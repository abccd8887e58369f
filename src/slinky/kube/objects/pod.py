"""A pod, as far as a scheduler needs it: what it asks for, where it may go, where it is, how it fares."""

import datetime as dt
from collections.abc import Mapping

import msgspec

from slinky.kube.objects.meta import NOTHING, Condition, KubeObject, LabelSelector, Record
from slinky.kube.objects.placement import Affinity, Toleration, TopologySpreadConstraint

__all__ = [
    "ANNOTATIONS",
    "Container",
    "ContainerPort",
    "ContainerState",
    "ContainerStatus",
    "EphemeralVolume",
    "LabelSelector",
    "Pod",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSpec",
    "PodStatus",
    "Quantity",
    "ResourceNeeds",
    "RestartRule",
    "SchedulingGate",
    "SchedulingGroup",
    "Terminated",
    "Volume",
    "VolumeClaim",
    "Waiting",
    "WorkloadReference",
]


ANNOTATIONS = "metadata.annotations"  # the path of a field that a container sees: all of them, or one in brackets
Quantity = str | int | float  # a number only in a template of a custom resource


class ResourceNeeds(Record, frozen=True):
    """Quantities as Kubernetes writes them, by resource name."""

    requests: Mapping[str, Quantity] = NOTHING
    limits: Mapping[str, Quantity] = NOTHING
    claims: tuple[Mapping[str, str], ...] = ()


NO_NEEDS = ResourceNeeds()


class ContainerPort(Record, frozen=True):
    host_port: int = 0
    container_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class RestartRule(Record, frozen=True):
    action: str = ""


class FieldReference(Record, frozen=True):
    """A field of the pod that its containers see."""

    field_path: str = ""


class VariableSource(Record, frozen=True):
    field_ref: FieldReference | None = None


class Variable(Record, frozen=True):
    """Of an environment variable, only which field of the pod it shows."""

    value_from: VariableSource | None = None

    @property
    def field_path(self) -> str:
        return self.value_from.field_ref.field_path if self.value_from and self.value_from.field_ref else ""


class Container(Record, frozen=True):
    name: str = ""
    env: tuple[Variable, ...] = ()
    restart_policy: str = ""  # "Always" makes an init container a sidecar
    restart_policy_rules: tuple[RestartRule, ...] = ()
    resources: ResourceNeeds = NO_NEEDS
    ports: tuple[ContainerPort, ...] = ()


class SchedulingGate(Record, frozen=True):
    name: str = ""


class SchedulingGroup(Record, frozen=True):
    """The built-in PodGroup that a pod belongs to."""

    pod_group_name: str = ""


class WorkloadReference(Record, frozen=True):
    """The same in Kubernetes 1.35: a group within a Workload, and which of that group's replicas."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodResourceClaim(Record, frozen=True):
    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class VolumeClaim(Record, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolume(Record, frozen=True):
    """Its claim is called POD-VOLUME; its template is not read."""


class ISCSIDisk(Record, frozen=True):
    iqn: str = ""
    read_only: bool = False


class RBDImage(Record, frozen=True):
    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool = False


class GCEDisk(Record, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AzureDisk(Record, frozen=True):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class DiskById(Record, frozen=True):
    """Of AWS, OpenStack and Portworx."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class FieldFile(Record, frozen=True):
    field_ref: FieldReference | None = None


class FieldFiles(Record, frozen=True):
    """Fields of the pod as files."""

    items: tuple[FieldFile, ...] = ()


class Projection(Record, frozen=True):
    downward_api: FieldFiles | None = msgspec.field(default=None, name="downwardAPI")


class Projected(Record, frozen=True):
    sources: tuple[Projection, ...] = ()


class Volume(Record, frozen=True):
    """Of the many kinds, those that have a say in where a pod may run, and those that show the pod's own fields."""

    name: str = ""
    downward_api: FieldFiles | None = msgspec.field(default=None, name="downwardAPI")
    projected: Projected | None = None
    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: EphemeralVolume | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDImage | None = None
    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: DiskById | None = None
    azure_disk: AzureDisk | None = None
    cinder: DiskById | None = None
    portworx_volume: DiskById | None = None

    @property
    def field_paths(self) -> list[str]:
        """Which fields of the pod it shows."""
        shown = [self.downward_api, *(source.downward_api for source in (self.projected.sources if self.projected else ()))]
        return [item.field_ref.field_path for files in shown if files for item in files.items if item.field_ref]

    @property
    def matters(self) -> bool:
        """Not so of secrets, config maps, empty directories and the like."""
        return any(
            source is not None
            for source in (
                self.persistent_volume_claim,
                self.ephemeral,
                self.iscsi,
                self.rbd,
                self.gce_persistent_disk,
                self.aws_elastic_block_store,
                self.azure_disk,
                self.cinder,
                self.portworx_volume,
            )
        )


class PodSpec(Record, frozen=True):
    """`shown_in_files` are the annotations that volumes show which are not kept (`compact_pod`)."""

    node_name: str = ""
    hostname: str = ""
    scheduler_name: str = ""
    node_selector: Mapping[str, str] = NOTHING
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, Quantity] = NOTHING
    resources: ResourceNeeds | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    runtime_class_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    share_process_namespace: bool = False
    restart_policy: str = ""
    service_account_name: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    shown_in_files: tuple[str, ...] = ()

    @property
    def shown_annotations(self) -> set[str]:
        """Paths of the annotations that its containers see, as variables or as files."""
        paths = {variable.field_path for container in (*self.containers, *self.init_containers) for variable in container.env}
        paths.update(self.shown_in_files, *(volume.field_paths for volume in self.volumes))
        return {path for path in paths if path.startswith(ANNOTATIONS)}


class Waiting(Record, frozen=True):
    reason: str = ""
    message: str = ""


class Running(Record, frozen=True):
    started_at: dt.datetime | None = None


class Terminated(Record, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None


class ContainerState(Record, frozen=True):
    """One of the three is set."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


NO_STATE = ContainerState()


class ContainerStatus(Record, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = NO_STATE
    last_state: ContainerState = NO_STATE
    allocated_resources: Mapping[str, str] = NOTHING
    resources: ResourceNeeds | None = None


class PodResourceClaimStatus(Record, frozen=True):
    name: str = ""
    resource_claim_name: str = ""


class PodStatus(Record, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    nominated_node_name: str = ""
    resources: ResourceNeeds | None = None  # what a pod with resources of its own (spec.resources) was given
    allocated_resources: Mapping[str, str] = NOTHING
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    start_time: dt.datetime | None = None


class Pod(KubeObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> Condition | None:
        return next((found for found in self.status.conditions if found.type == kind), None)

    @property
    def bound_at(self) -> float:
        """Of one that is on a node, in seconds since 1970; when it was made, where it does not say."""
        scheduled = self.condition("PodScheduled")
        since = scheduled.last_transition_time if scheduled else None
        return since.timestamp() if since else self.metadata.born

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")
