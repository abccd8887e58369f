"""Controller: a Slurm cluster's head, slurmctld, and its configuration."""

from typing import Annotated, Any

import msgspec

from slinky.kube.objects import Meta
from slinky.operator.kinds.common import (
    Conditioned,
    Container,
    ExternalHost,
    KeyReference,
    NameReference,
    Part,
    PodTemplate,
    ServiceTemplate,
    told,
)

__all__ = ["Controller", "ControllerSpec", "Ha", "MetricEndpoint", "Metrics", "Persistence", "ServiceMonitor"]


class Persistence(Part, frozen=True):
    """Where slurmctld keeps its state. Beside these fields, whatever a PersistentVolumeClaim's spec can have."""

    enabled: Annotated[bool, told("Whether it is kept at all: without, a new pod begins with an empty queue.")] = True
    existing_claim: Annotated[str, told("A claim that is there already, in place of one of our own.")] = ""
    access_modes: Annotated[list[str] | None, told("As of a PersistentVolumeClaim.")] = None
    resources: Annotated[dict[str, Any] | None, told("As of a PersistentVolumeClaim.")] = None
    storage_class_name: Annotated[str | None, told("As of a PersistentVolumeClaim.")] = None
    selector: Annotated[dict[str, Any] | None, told("As of a PersistentVolumeClaim.")] = None
    volume_name: Annotated[str | None, told("As of a PersistentVolumeClaim.")] = None
    volume_mode: Annotated[str | None, told("As of a PersistentVolumeClaim.")] = None
    data_source: Annotated[dict[str, Any] | None, told("As of a PersistentVolumeClaim.")] = None
    data_source_ref: Annotated[dict[str, Any] | None, told("As of a PersistentVolumeClaim.")] = None
    volume_attributes_class_name: Annotated[str | None, told("As of a PersistentVolumeClaim.")] = None


class MetricEndpoint(Part, frozen=True):
    """One path that Prometheus reads."""

    path: Annotated[str, told("The path, such as /metrics/jobs.")] = ""
    interval: Annotated[str, told("How often it is read.")] = ""
    scrape_timeout: Annotated[str, told("How long a reading may take.")] = ""


class ServiceMonitor(Part, frozen=True):
    """For the Prometheus operator, where it is installed."""

    enabled: Annotated[bool, told("Whether there is one.")] = False
    labels: Annotated[dict[str, str] | None, told("Its labels.")] = None
    annotations: Annotated[dict[str, str] | None, told("Its annotations.")] = None
    interval: Annotated[str, told("How often all paths are read.")] = ""
    scrape_timeout: Annotated[str, told("How long a reading may take.")] = ""
    endpoints: Annotated[list[MetricEndpoint] | None, told("The paths; jobs, nodes, partitions and scheduler where none is named.")] = None


class Metrics(Part, frozen=True):
    """slurmctld's own metrics, on its port."""

    enabled: Annotated[bool, told("Whether slurmctld offers them.")] = False
    service_monitor: Annotated[ServiceMonitor, told("How Prometheus learns of them.")] = msgspec.field(default_factory=ServiceMonitor)


class Ha(Part, frozen=True):
    """Several slurmctld at once: not supported yet, and refused where it is asked for."""

    enabled: Annotated[bool, told("Has to be false.")] = False
    backups: Annotated[int, told("Unused.")] = 1


class ControllerSpec(Part, frozen=True):
    """What a cluster's head should be."""

    cluster_name: Annotated[
        str, told("Slurm's ClusterName, at most 40 characters; the namespace and name, joined by `_`, where empty. Cannot be changed.")
    ] = ""
    slurm_key_ref: Annotated[
        KeyReference | None, told("The Secret's key with slurm.key; made and kept in a Secret of our own where none is named.")
    ] = None
    jwt_key_ref: Annotated[
        KeyReference | None, told("The Secret's key with jwt.key; made and kept in a Secret of our own where none is named.")
    ] = None
    jwt_hs256_key_ref: Annotated[KeyReference | None, told("The older name of jwtKeyRef.")] = msgspec.field(
        default=None, name="jwtHs256KeyRef"
    )
    jwks_key_ref: Annotated[KeyReference | None, told("A ConfigMap's key with the public keys (JWKS) of other issuers of tokens.")] = None
    accounting_ref: Annotated[NameReference | None, told("The Accounting that records its jobs.")] = None
    external: Annotated[bool, told("The head runs elsewhere: externalConfig says where, and no slurmctld is made here.")] = False
    external_config: Annotated[ExternalHost | None, told("Where an external slurmctld listens.")] = None
    ha: Annotated[Ha, told("Several slurmctld: not supported yet.")] = msgspec.field(default_factory=Ha)
    slurmctld: Container = msgspec.field(default_factory=dict)
    inplace_reconfigure: Annotated[
        bool | None,
        told("Accepted for compatibility: a change that Slurm can take while it runs is always applied without a restart."),
    ] = None
    reconfigure: Annotated[
        dict[str, Any], told("Accepted for compatibility, and without effect: the operator itself has daemons take a new configuration.")
    ] = msgspec.field(default_factory=dict)
    logfile: Annotated[dict[str, Any], told("Accepted for compatibility, and without effect: slurmctld logs to standard error.")] = (
        msgspec.field(default_factory=dict)
    )
    template: Annotated[PodTemplate, told("Of slurmctld's pod.")] = msgspec.field(default_factory=PodTemplate)
    extra_conf: Annotated[str, told("Lines for slurm.conf. What stands here wins over what the operator would write.")] = ""
    config_file_refs: Annotated[list[NameReference] | None, told("ConfigMaps whose files stand in /etc/slurm on every daemon's host.")] = (
        None
    )
    prolog_script_refs: Annotated[list[NameReference] | None, told("ConfigMaps with Prolog scripts.")] = None
    epilog_script_refs: Annotated[list[NameReference] | None, told("ConfigMaps with Epilog scripts.")] = None
    prolog_slurmctld_script_refs: Annotated[list[NameReference] | None, told("ConfigMaps with PrologSlurmctld scripts.")] = None
    epilog_slurmctld_script_refs: Annotated[list[NameReference] | None, told("ConfigMaps with EpilogSlurmctld scripts.")] = None
    persistence: Annotated[Persistence, told("Where slurmctld keeps its state.")] = msgspec.field(default_factory=Persistence)
    service: Annotated[ServiceTemplate, told("Of slurmctld's Service.")] = msgspec.field(default_factory=ServiceTemplate)
    metrics: Annotated[Metrics, told("slurmctld's own metrics.")] = msgspec.field(default_factory=Metrics)

    @property
    def jwt_reference(self) -> KeyReference | None:
        return self.jwt_key_ref or self.jwt_hs256_key_ref


class ControllerStatus(Conditioned, frozen=True):
    """What a cluster's head is."""

    configuration: Annotated[
        str, told("The digest of the configuration that slurmctld and every slurmd were seen to run; empty while that is in doubt.")
    ] = ""
    configured_since: Annotated[
        int, told("A slurmd that began before this moment, in seconds since 1970, runs an older configuration, and is asked to begin anew.")
    ] = 0


class Controller(msgspec.Struct, kw_only=True, frozen=True):
    """A Slurm cluster's head."""

    metadata: Meta
    spec: ControllerSpec = msgspec.field(default_factory=ControllerSpec)
    status: ControllerStatus = msgspec.field(default_factory=ControllerStatus)

    @property
    def cluster_name(self) -> str:
        return self.spec.cluster_name or f"{self.metadata.namespace}_{self.metadata.name}"
