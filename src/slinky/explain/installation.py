"""An installation as it was seen from both sides: what the doctor judges. Plain values, as in `facts`."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec

from slinky.bridge.settings import Settings
from slinky.explain.findings import Finding
from slinky.explain.rights import Right
from slinky.explain.troubles import Token
from slinky.kube import Lease, Namespace, Pod
from slinky.kube import Node as KubeNode
from slinky.operator.kinds import Written
from slinky.operator.settings import Settings as OperatorSettings
from slinky.slurm import Node, Partition, Qos

__all__ = ["ExporterSide", "Installation", "KubeSide", "OperatorSide", "SlurmSide", "Webhooks"]


class Webhooks(msgspec.Struct, frozen=True, kw_only=True):
    """`found` by kind (`mutating`, `validating`), None where there is none; `wanted` the same as this configuration would write them. `certificate` is PEM, as it is served or lies in the Secret. `endpoints`: addresses behind the Service that are ready; None where it is reached otherwise."""

    found: Mapping[str, Mapping[str, Any] | None] = msgspec.field(default_factory=dict)
    wanted: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    certificate: bytes = b""
    endpoints: int | None = None
    unanswered: str = ""  # what came of a handshake that failed


class KubeSide(msgspec.Struct, frozen=True, kw_only=True):
    """`claim` is the Lease of the bridge's claim. `ahead`: seconds that the API server's clock is ahead of ours. `bridge_user`: whose rights were asked about."""

    troubles: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()
    version: str = ""
    nodes: tuple[KubeNode, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    pods: tuple[Pod, ...] = ()
    lease: Lease | None = None
    claim: Lease | None = None
    webhooks: Webhooks = Webhooks()
    denied: tuple[Right, ...] = ()
    bridge_user: str = ""
    ahead: float | None = None

    def knows(self, what: str) -> bool:
        return what not in self.unread


class SlurmSide(msgspec.Struct, frozen=True, kw_only=True):
    """`conf` is slurm.conf as slurmctld has it; `is_administrator` None where accounting does not tell."""

    troubles: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()
    release: str = ""
    has_accounting: bool = False
    token: Token | None = None
    is_administrator: bool | None = None
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[Node, ...] = ()
    qos: tuple[Qos, ...] = ()
    conf: Mapping[str, Any] = msgspec.field(default_factory=dict)
    ahead: float | None = None

    def knows(self, what: str) -> bool:
        return what not in self.unread


class OperatorSide(msgspec.Struct, frozen=True, kw_only=True):
    """`kinds` are the CRDs by name, None where there is none; `objects` what there is of ours, by kind. What could not be read is told by the Kubernetes side."""

    settings: OperatorSettings
    config: str = ""
    wrong: str = ""  # with the configuration file; then `settings` are the defaults
    kinds: Mapping[str, Mapping[str, Any] | None] = msgspec.field(default_factory=dict)
    lease: Lease | None = None
    webhooks: Webhooks = Webhooks()
    objects: Mapping[str, tuple[Written, ...]] = msgspec.field(default_factory=dict)
    heads: tuple[Pod, ...] = ()  # pods of slurmctld, slurmdbd and slurmrestd
    nodes: Mapping[str, KubeNode] = msgspec.field(default_factory=dict)  # that they are on


class ExporterSide(msgspec.Struct, frozen=True, kw_only=True):
    """One exporter. `up`, `age`, `looks` and `missing` are what it tells of itself: whether Slurm answers it, how old its snapshot is, how many looks it took, and parts that it could not read; None where it did not answer. `token` is what the token in its Secret says of itself."""

    place: str  # Service NAMESPACE/NAME, or an address
    namespace: str = ""
    endpoints: int | None = None  # that are ready; None where it is no Service
    unanswered: str = ""
    up: bool | None = None
    age: float | None = None
    looks: int | None = None
    missing: tuple[str, ...] = ()
    since: dt.datetime | None = None  # when its oldest pod was started
    secret: str = ""
    token: Token | None = None
    without_token: str = ""  # what is the matter with the Secret


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """`wrong` is what is the matter with the configuration file; then `settings` are the defaults. `config` is its name. Of bridge, operator and exporters, those that were looked at are there."""

    now: dt.datetime
    settings: Settings
    config: str = ""
    wrong: str = ""
    has_bridge: bool = True
    kube: KubeSide = KubeSide()
    slurm: SlurmSide = SlurmSide()
    operator: OperatorSide | None = None
    exporters: tuple[ExporterSide, ...] | None = None
