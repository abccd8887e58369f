"""A NodeSet and all that bears on it, at one moment. `Worker` is a pod seen together with its Kubernetes node and its Slurm node.

In: objects of the caches, and what a cluster's watcher last heard of Slurm. Out: one frozen value, from which everything is decided.
What must stay true: `slurm.is_current` only where Slurm has answered lately and in full; a pod that we have just deleted counts as leaving before the watch shows it, and one just created as there.
"""

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from slinky.kube import Node, PersistentVolumeClaim, Pod
from slinky.operator.kinds import NodeSet
from slinky.operator.nodesets import marks
from slinky.slurm import Node as SlurmNode

__all__ = ["ClusterStands", "JobOnNodes", "SlurmView", "Snapshot", "Worker", "slurm_name", "target_of"]


class ClusterStands(enum.Enum):
    """Of the NodeSet's Controller."""

    HERE = enum.auto()
    MUTE = enum.auto()  # no RestApi is there to ask it
    LEAVING = enum.auto()  # being deleted; it can be asked until its NodeSets are gone
    GONE = enum.auto()  # no such object


@dataclass(frozen=True, slots=True)
class JobOnNodes:
    """A job that holds nodes, running or suspended. `ends`: None for one without a limit."""

    id: int
    nodes: frozenset[str]
    ends: dt.datetime | None = None
    partition: str = ""
    user: str = ""


@dataclass(frozen=True)
class SlurmView:
    """What Slurm said last. `jobs` are those that hold nodes, None where they were not asked for; they are younger than `nodes`.

    Without `knows_all_jobs`, jobs that show on their nodes as an allocation may be missing, and no others.
    """

    is_current: bool = False
    current_since: dt.datetime | None = None  # has answered without a gap since then
    nodes: Mapping[str, SlurmNode] = field(default_factory=dict)
    heard_at: float = 0.0  # of time.monotonic(), when `nodes` were heard
    jobs: tuple[JobOnNodes, ...] | None = None
    knows_all_jobs: bool = True
    waiting: tuple[int, ...] = ()  # jobs that wait in the NodeSet's own partition; asked for where it is to go

    @cached_property
    def jobs_by_node(self) -> Mapping[str, tuple[JobOnNodes, ...]]:
        found: dict[str, tuple[JobOnNodes, ...]] = {}
        for job in self.jobs or ():
            for name in job.nodes:
                found[name] = (*found.get(name, ()), job)
        return found


NOTHING_HEARD = SlurmView()


@dataclass(frozen=True, eq=False)
class Worker:
    """A pod, its Kubernetes node and its Slurm node, where there are such."""

    pod: Pod
    hostname: str  # the Slurm node's name
    node: Node | None
    slurm: SlurmNode | None  # None also where the node of that name is another namespace's worker
    is_leaving: bool  # its deletion has begun

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def ordinal(self) -> int:
        """-1 where it has none."""
        written = self.pod.metadata.labels.get(marks.INDEX, "")
        return int(written) if written.isdecimal() else -1

    @property
    def revision(self) -> str:
        return self.pod.metadata.labels.get(marks.REVISION, "")

    @property
    def is_assigned(self) -> bool:
        return bool(self.pod.spec.node_name)

    @property
    def is_ready(self) -> bool:
        ready = self.pod.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def ready_changed_at(self) -> dt.datetime | None:
        ready = self.pod.condition("Ready")
        return None if ready is None else ready.last_transition_time

    @property
    def never_ready_since(self) -> dt.datetime | None:
        """Since when slurmd runs without having been ready once; None where it was, or where that is not known."""
        status = next((one for one in self.pod.status.container_statuses if one.name == marks.SLURMD), None)
        started = status.state.running.started_at if status is not None and status.state.running is not None else None
        changed = self.ready_changed_at
        if self.is_ready or started is None or changed is None or changed > started:
            return None
        return started

    def is_available(self, now: dt.datetime, min_ready_seconds: int) -> bool:
        since = self.ready_changed_at
        return self.is_ready and (not min_ready_seconds or (since is not None and now - since >= dt.timedelta(seconds=min_ready_seconds)))

    @property
    def is_cordoned(self) -> bool:
        return self.pod.metadata.annotations.get(marks.CORDON) == "true"

    @property
    def cause(self) -> str:
        """Why we cordoned it; empty where we did not."""
        return self.pod.metadata.annotations.get(marks.CAUSE, "")

    @property
    def leaves_since(self) -> dt.datetime | None:
        return _moment(self.pod.metadata.annotations.get(marks.SINCE, ""))

    @property
    def was_never_started(self) -> bool:
        """Kubernetes says that slurmd's container never ran, and cannot for now."""
        status = next((one for one in self.pod.status.container_statuses if one.name == marks.SLURMD), None)
        if status is None or status.restart_count or status.last_state.terminated or status.state.waiting is None:
            return False
        return status.state.waiting.reason not in ("", "ContainerCreating", "PodInitializing")

    @property
    def is_stopped(self) -> bool:
        """Kubernetes says that slurmd's container does not run at the moment."""
        status = next((one for one in self.pod.status.container_statuses if one.name == marks.SLURMD), None)
        return status is not None and status.state.running is None and (status.state.waiting or status.state.terminated) is not None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """`pods` are those that the NodeSet controls. `nodes`: every Kubernetes node in mode DaemonSet, otherwise those that hold a pod or are pinned to."""

    nodeset: NodeSet
    revision: str
    now: dt.datetime
    pods: Mapping[str, Pod] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    slurm: SlurmView = NOTHING_HEARD
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    controller: ClusterStands = ClusterStands.HERE
    is_abandoned: bool = False  # it is being deleted, and an administrator gives its jobs up
    deleted: frozenset[str] = frozenset()  # uids of pods that we deleted, and the watch has not shown yet
    created: frozenset[str] = frozenset()  # names of pods that we created, and the watch has not shown yet
    refused: frozenset[str] = frozenset()  # what Slurm has lately refused, see `slurm_marks.refusal_of`
    taken: Mapping[str, str] = field(
        default_factory=dict
    )  # names in Slurm that another NodeSet of the cluster has or is to have, and which
    is_silent: bool = False  # Slurm has not answered for longer than is borne
    lent: Mapping[str, str] = field(default_factory=dict)  # names that workers of another namespace have at the same external head
    propagated: tuple[str, ...] = ()  # conditions of Kubernetes nodes that become a drain's reason

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self._worker(pod) for pod in self.pods.values())

    @property
    def key(self) -> str:
        meta = self.nodeset.metadata
        return f"{meta.namespace}/{meta.name}"

    @property
    def is_being_deleted(self) -> bool:
        return self.nodeset.metadata.deletion_timestamp is not None

    def _worker(self, pod: Pod) -> Worker:
        hostname = slurm_name(pod)
        return Worker(
            pod=pod,
            hostname=hostname,
            node=self.nodes.get(pod.spec.node_name),
            slurm=None if hostname in self.lent else self.slurm.nodes.get(hostname),
            is_leaving=pod.metadata.deletion_timestamp is not None or pod.metadata.uid in self.deleted,
        )


def slurm_name(pod: Pod) -> str:
    """What slurmd calls itself: the pod's hostname, or with the host's network the Kubernetes node's name; up to its first dot, as Slurm does."""
    if pod.spec.host_network:
        return pod.spec.node_name.split(".", 1)[0]
    return pod.spec.hostname or pod.metadata.labels.get(marks.HOSTNAME, "") or pod.metadata.name


def target_of(pod: Pod) -> str:
    """The node that a pod is on, or is to be on."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        for asked in term.match_fields:
            if asked.key == "metadata.name" and len(asked.values) == 1:
                return asked.values[0]
    return ""


def _moment(written: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(written)
    except ValueError:
        return None
    return moment if moment.tzinfo else None
