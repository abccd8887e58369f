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
from slinky.slurm import Node, Partition, Qos

__all__ = ["Installation", "KubeSide", "SlurmSide", "Webhooks"]


class Webhooks(msgspec.Struct, frozen=True, kw_only=True):
    """`found` by kind (`mutating`, `validating`), None where there is none; `wanted` the same as this configuration would write them. `certificate` is PEM, as it is served or lies in the Secret. `endpoints`: addresses behind the Service that are ready; None where it is reached otherwise."""

    found: Mapping[str, Mapping[str, Any] | None] = msgspec.field(default_factory=dict)
    wanted: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    certificate: bytes = b""
    endpoints: int | None = None
    unanswered: str = ""  # what came of a handshake that failed


class KubeSide(msgspec.Struct, frozen=True, kw_only=True):
    """`ahead`: seconds that the API server's clock is ahead of ours. `bridge_user`: whose rights were asked about."""

    troubles: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()
    version: str = ""
    nodes: tuple[KubeNode, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    pods: tuple[Pod, ...] = ()
    lease: Lease | None = None
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


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """`wrong` is what is the matter with the configuration file; then `settings` are the defaults. `config` is its name."""

    now: dt.datetime
    settings: Settings
    config: str = ""
    wrong: str = ""
    kube: KubeSide = KubeSide()
    slurm: SlurmSide = SlurmSide()
