"""What is not wrong and yet not as it may look: fields that have no effect here, and what is named and not there yet.

Pure. Comes in: a typed object and, where known, what there is in its namespace. Goes out: sentences that kubectl shows as warnings. What must stay true: nothing that is written is without effect in silence.
"""

from collections.abc import Collection, Iterator
from typing import Any

from slinky.operator.kinds import Accounting, Controller, LoginSet, NameReference, NodeSet, RestApi, Token
from slinky.operator.kinds.common import PodTemplate, ServiceTemplate
from slinky.operator.kinds.controller import Persistence
from slinky.operator.kinds.nodeset import Prune, Retention

__all__ = ["warnings"]

CLAIM = (
    "access_modes",
    "resources",
    "storage_class_name",
    "selector",
    "volume_name",
    "volume_mode",
    "data_source",
    "data_source_ref",
    "volume_attributes_class_name",
)
NOT_EXTERNAL = "spec.externalConfig has no effect: spec.external is false"
LOGFILE = "spec.logfile has no effect: daemons log to standard error here, and need no container for it"


def warnings(found: Any, controllers: Collection[str] | None = None, accountings: Collection[str] | None = None) -> list[str]:
    """`controllers` and `accountings` are the names there are, None where that is not known."""
    return [*_without_effect(found), *_not_there(found, controllers, accountings)]


def _without_effect(found: Any) -> Iterator[str]:
    spec = found.spec
    if isinstance(found, Controller | Accounting | Token) and spec.jwt_hs256_key_ref:
        yield "spec.jwtHs256KeyRef is the older name of jwtKeyRef"
    match found:
        case Controller():
            yield from _of_controller(found)
        case Accounting():
            yield from _of_accounting(found)
        case NodeSet():
            yield from _of_nodeset(found)
        case LoginSet() if spec.initconf:
            yield "spec.initconf has no effect: keys are mounted with the right owner here, and need no container for it"


def _of_controller(found: Controller) -> Iterator[str]:
    spec, claim = found.spec, found.spec.persistence
    if spec.logfile:
        yield LOGFILE
    if spec.reconfigure:
        yield "spec.reconfigure has no effect: the operator itself has the daemons take a new configuration, and needs no container for it"
    if spec.inplace_reconfigure is False:
        yield "spec.inplaceReconfigure has no effect: a change that Slurm can take while it runs is always applied without a restart"
    if spec.ha.backups > 1:
        yield "spec.ha.backups has no effect: spec.ha.enabled is false"
    if spec.external:
        parts = {
            "slurmctld": {key: value for key, value in spec.slurmctld.items() if key not in ("image", "imagePullPolicy")},
            "template": spec.template != PodTemplate(),
            "service": spec.service != ServiceTemplate(),
            "persistence": claim != Persistence(),
            "metrics": spec.metrics.enabled,
        }
        yield from (
            f"spec.{name} has no effect: spec.external is true, and no slurmctld is made here" for name, said in parts.items() if said
        )
        return
    if spec.external_config and spec.external_config.host:
        yield NOT_EXTERNAL
    described = any(getattr(claim, name) for name in CLAIM)
    if described and claim.existing_claim:
        yield "spec.persistence: with existingClaim, what describes a claim of our own has no effect"
    if not claim.enabled and (described or claim.existing_claim):
        yield "spec.persistence: with enabled false, what describes a claim has no effect"
    if spec.metrics.service_monitor.enabled and not spec.metrics.enabled:
        yield "spec.metrics.serviceMonitor has no effect: spec.metrics.enabled is false"


def _of_accounting(found: Accounting) -> Iterator[str]:
    spec = found.spec
    if spec.external:
        parts = {
            "slurmdbd": {key: value for key, value in spec.slurmdbd.items() if key not in ("image", "imagePullPolicy")},
            "template": spec.template != PodTemplate(),
            "service": spec.service != ServiceTemplate(),
            "storageConfig": spec.storage_config is not None and spec.storage_config.host,
            "extraConf": spec.extra_conf.strip(),
        }
        yield from (
            f"spec.{name} has no effect: spec.external is true, and no slurmdbd is made here" for name, said in parts.items() if said
        )
    elif spec.external_config and spec.external_config.host:
        yield NOT_EXTERNAL


def _of_nodeset(found: NodeSet) -> Iterator[str]:
    spec, hostname = found.spec, found.spec.template.spec.get("hostname")
    if spec.logfile:
        yield LOGFILE
    if spec.partition.config.strip() and not spec.partition.enabled:
        yield "spec.partition.config has no effect: spec.partition.enabled is false"
    if (spec.ssh.extra_sshd_config.strip() or spec.ssh.sssd_conf_ref) and not spec.ssh.enabled:
        yield "spec.ssh: with enabled false, extraSshdConfig and sssdConfRef have no effect"
    if hostname and spec.template.spec.get("hostNetwork"):
        yield "spec.template.spec.hostname has no effect: on the host's network a Slurm node has the host's name"
    elif hostname and spec.is_daemon_set:
        yield "spec.template.spec.hostname has no effect in mode DaemonSet: a Slurm node has its Kubernetes node's name, or that of its annotation nodeset.slinky.slurm.net/hostname-override"
    if spec.is_daemon_set:
        parts = {"ordinalPadding": spec.ordinal_padding, "pinToNode": spec.pin_to_node}
        yield from (f"spec.{name} has no effect in mode DaemonSet, where workers have no numbers" for name, said in parts.items() if said)
    elif spec.prune_slurm_node_records is not Prune.NEVER:
        yield "spec.pruneSlurmNodeRecords has no effect in mode StatefulSet, where no worker is of a Kubernetes node"
    policy = spec.persistent_volume_claim_retention_policy
    if Retention.DELETE in (policy.when_deleted, policy.when_scaled) and not spec.volume_claim_templates:
        yield "spec.persistentVolumeClaimRetentionPolicy has no effect: there are no volumeClaimTemplates"
    elif policy.when_scaled is Retention.DELETE and spec.is_daemon_set:
        yield "spec.persistentVolumeClaimRetentionPolicy.whenScaled has no effect in mode DaemonSet, where workers are not scaled: the claims stay"


def _not_there(found: Any, controllers: Collection[str] | None, accountings: Collection[str] | None) -> Iterator[str]:
    match found:
        case RestApi() | NodeSet() | LoginSet():
            yield from _missing("Controller", found.spec.controller_ref, controllers, found.metadata.namespace)
        case Controller():
            yield from _missing("Accounting", found.spec.accounting_ref, accountings, found.metadata.namespace)


def _missing(kind: str, reference: NameReference | None, there: Collection[str] | None, namespace: str) -> Iterator[str]:
    if reference is not None and there is not None and reference.name not in there:
        yield f"there is no {kind} {reference.name} in namespace {namespace} yet"
