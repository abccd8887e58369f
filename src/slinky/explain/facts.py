"""What was seen on both sides, as plain values: all that the judging functions know.

What must stay true: nothing in here asks anybody; what could not be read is told in `troubles` and left empty, so that a judgement can tell "there is none" from "we do not know" by `knows`.
"""

import datetime as dt
from collections.abc import Mapping

import msgspec

from slinky.bridge.node_names import label_of
from slinky.bridge.settings import Settings
from slinky.explain.findings import Finding
from slinky.kube import Event, Lease, Namespace, Pod
from slinky.kube import Node as KubeNode
from slinky.slurm import Job, Node, Partition, Reservation

__all__ = ["MOST_COUNTED", "Facts", "KubeFacts", "SlurmFacts", "in_slurm"]


MOST_COUNTED = 500  # pods without a job: an overview reads no more of them at each look


class KubeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`unread` names what could not be read; `lease` is the bridge's, `claim` that of its claim; `orphan`: the Job that made the pod is not there any more. `device_resources`: names of resources that a DeviceClass serves, with its name.

    `without_job` is the number of pods that wait for the bridge and have no job; the count stops
    at `MOST_COUNTED`.
    """

    troubles: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()
    version: str = ""
    pod: Pod | None = None
    namespace: Namespace | None = None
    events: tuple[Event, ...] = ()
    lease: Lease | None = None
    claim: Lease | None = None
    node: KubeNode | None = None
    nodes: tuple[KubeNode, ...] = ()
    pods: tuple[Pod, ...] = ()
    without_job: int = 0
    orphan: bool = False
    device_resources: Mapping[str, str] = msgspec.field(default_factory=dict)

    def knows(self, what: str) -> bool:
        return what not in self.unread


class SlurmFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`jobs` is the job that was asked for, all its parts; `asked` its id. `queue` are all jobs that wait or run, None where they were too many to be read; for an overview, some of them, with the `counts` of all by state."""

    troubles: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()
    release: str = ""
    asked: int = 0
    jobs: tuple[Job, ...] = ()
    queue: tuple[Job, ...] | None = None
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[Node, ...] = ()
    reservations: tuple[Reservation, ...] = ()

    def knows(self, what: str) -> bool:
        return what not in self.unread

    def partition(self, name: str) -> Partition | None:
        return next((found for found in self.partitions if found.name == name), None)

    def nodes_of(self, partition: str) -> list[Node]:
        return [node for node in self.nodes if partition in node.partitions]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is what was asked about."""

    now: dt.datetime
    settings: Settings
    name: str = ""
    namespace: str = ""
    kube: KubeFacts = KubeFacts()
    slurm: SlurmFacts = SlurmFacts()

    @property
    def troubles(self) -> tuple[Finding, ...]:
        return (*self.kube.troubles, *self.slurm.troubles)


def in_slurm(node: KubeNode) -> str:
    """What Slurm calls a Node."""
    return label_of(node) or node.metadata.name
