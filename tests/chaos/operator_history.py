"""What was seen of a cluster of the operator's during a run, as plain values that can be written down and judged later.

What must stay true: nothing here was said by the operator. Pods are as a watch on the API server showed them, nodes as slurmctld told them when it was asked past the operator's lines, jobs as accounting has them; `acts` are what the run did itself.
"""

from typing import Literal

import msgspec

from tests.chaos.history import JobRecord, PodSeen

__all__ = ["NodeSample", "OperatorAct", "OperatorHistory", "WorkerLeft"]


class NodeSample(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm node, each time that it said something else. `asked`: when the request was sent, `at`: when its answer was here."""

    asked: float
    at: float
    name: str
    gone: bool = False
    states: tuple[str, ...] = ()
    reason: str = ""
    comment: str = ""


class OperatorAct(msgspec.Struct, frozen=True, kw_only=True):
    """`drained` and `undrained`: a node in Slurm, by an administrator, with his reason; `cancelled`: a job; `nodeset-deleted` and `nodeset-made`. Told before the deed for what begins, after it for what ends."""

    at: float
    kind: Literal["drained", "undrained", "cancelled", "nodeset-deleted", "nodeset-made"]
    subject: str
    detail: str = ""


class WorkerLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A pod at the last look."""

    name: str
    nodeset: str
    ready: bool = True
    release: str = ""
    leaving: bool = False


class OperatorHistory(msgspec.Struct, kw_only=True):
    """`wanted`: workers and release of each NodeSet at the end; `left` and `nodes_left`: the last look, taken at `settled_at`."""

    pods: list[PodSeen] = []
    samples: list[NodeSample] = []
    jobs: list[JobRecord] = []
    acts: list[OperatorAct] = []
    wanted: dict[str, tuple[int, str]] = {}
    left: list[WorkerLeft] = []
    nodes_left: list[NodeSample] = []
    nodesets_left: list[str] = []
    began: float = 0.0
    last_fault: float = 0.0
    settled_at: float = 0.0
