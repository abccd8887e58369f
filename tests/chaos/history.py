"""What was seen of both sides during a run, as plain values that can be written down and judged later.

What must stay true: nothing here was said by the bridge. Pods and nodes are as a watch on the API server showed them, version by version, in the order of their revisions; jobs are as accounting has them; `acts` are what the users and the
faults of the run did themselves.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

__all__ = ["FORGOTTEN", "Act", "History", "JobRecord", "LiveJob", "NodeSeen", "PodSeen", "read_history", "write_history"]

FORGOTTEN = "FORGOTTEN"  # the state of a job that Slurm was set back behind


class PodSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A pod at one revision. Amounts as requested, CPUs in thousandths. `begun`: containers were started; `ended`: none runs any more. Moments are seconds since 1970, of whole seconds, cut, where Kubernetes tells them (`scheduled`, `finished`)."""

    revision: int
    at: float
    uid: str
    namespace: str
    name: str
    gone: bool = False
    node: str = ""
    phase: str = "Pending"
    job_id: int = 0
    scheduled: float = 0.0
    begun: bool = False
    ended: bool = False
    finished: float = 0.0
    deleting: bool = False
    held: bool = False
    owner: str = ""
    group: str = ""
    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    devices: tuple[str, ...] = ()
    exit_code: int | None = None
    reason: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    revision: int
    at: float
    name: str
    gone: bool = False
    ready: bool = True
    cpu: int = 0
    memory: int = 0
    gpus: int = 0


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as accounting has it. `start` and `end` are whole seconds, cut, not rounded; 0 where it has none. `pods` and `workload` are from its admin_comment; `cluster` is empty where that is none of a bridge."""

    job_id: int
    name: str
    state: str
    submit: float
    start: float = 0.0
    end: float = 0.0
    nodes: tuple[str, ...] = ()
    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    cluster: str = ""
    workload: str = ""
    marker: str = ""
    pods: tuple[str, ...] = ()


class LiveJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is not over, by slurmctld's own word at the end."""

    job_id: int
    state: str
    cluster: str = ""
    workload: str = ""
    pods: tuple[str, ...] = ()


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a user or a fault did, or may have done: a pod or its owner deleted (`subject` its namespace/name), a job cancelled (its id), a node taken away (its name)."""

    at: float
    kind: Literal["created", "deleted", "cancelled", "node-gone", "node-down", "old-state", "binding"]
    subject: str
    detail: str = ""


class History(msgspec.Struct, kw_only=True):
    """`pods` and `nodes` in the order of their revisions. `settled_at`: when the last look was taken, `last_fault` when the last fault was over; `live` what slurmctld had then; `orphans` by a waiting pod's UID its owner, where the API server had none such then."""

    cluster: str
    pods: list[PodSeen] = []
    nodes: list[NodeSeen] = []
    jobs: list[JobRecord] = []
    acts: list[Act] = []
    live: list[LiveJob] = []
    orphans: dict[str, str] = {}
    began: float = 0.0
    last_fault: float = 0.0
    settled_at: float = 0.0


H = TypeVar("H", bound=msgspec.Struct)


def write_history(history: msgspec.Struct, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(history))


def read_history(path: Path, kind: type[H]) -> H:
    return msgspec.json.decode(path.read_bytes(), type=kind)
