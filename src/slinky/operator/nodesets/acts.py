"""What can be done about a NodeSet: each act is a value, decided on by `plan` and carried out by `controller`.

What must stay true: an act names the very object it is about (a pod by its uid); doing one twice does no harm.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = [
    "Act",
    "ChangePod",
    "CreateClaim",
    "CreatePod",
    "DeletePod",
    "DeleteSlurmNode",
    "DisownClaims",
    "Drain",
    "LetGo",
    "OwnClaims",
    "Resume",
    "SetComment",
    "SetConditions",
    "SetFeatures",
    "SetTopology",
    "Tell",
    "in_order",
]


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """As people count, n2 before n10: Slurm's hostlists are short then."""
    return tuple(sorted(names, key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]))


@dataclass(frozen=True, slots=True)
class CreatePod:
    """`ordinal` in mode StatefulSet; `node` where it is made for one, or pinned to it."""

    name: str
    ordinal: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """`on_word`: the Slurm node that was drained and free, to be looked at once more. `version`: only if the pod has not changed since. `claims` go with it."""

    name: str
    uid: str
    why: str
    on_word: str = ""
    version: str = ""
    at_once: bool = False  # nobody is there to end it: its Kubernetes node is gone
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangePod:
    """Labels and annotations; None takes one away."""

    name: str
    uid: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drain:
    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Those that we drained or set down; each is looked at once more before."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteSlurmNode:
    """`renewed`: a new pod is about to bring it back, so somebody else's drain on it has to stay, and it with that."""

    name: str
    renewed: bool = False


@dataclass(frozen=True, slots=True)
class SetComment:
    """Whose the node is, for people and tools who look at it in Slurm."""

    name: str
    comment: str


@dataclass(frozen=True, slots=True)
class SetTopology:
    names: tuple[str, ...]
    topology: str


@dataclass(frozen=True, slots=True)
class SetFeatures:
    names: tuple[str, ...]
    available: tuple[str, ...]
    active: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetConditions:
    """A pod's own conditions: type to (status, reason, message); `gone` are taken away."""

    name: str
    uid: str
    conditions: Mapping[str, tuple[str, str, str]]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateClaim:
    name: str
    template: int  # which of the NodeSet's volumeClaimTemplates
    pod: str = ""


@dataclass(frozen=True, slots=True)
class OwnClaims:
    """Whether the NodeSet owns these, so that they go with it."""

    names: tuple[str, ...]
    owned: bool


@dataclass(frozen=True, slots=True)
class DisownClaims:
    """These were to go with a pod, which stays after all, or goes for another cause."""

    names: tuple[str, ...]
    uid: str


@dataclass(frozen=True, slots=True)
class LetGo:
    """The NodeSet's finalizer is taken away: nothing of it is left."""


@dataclass(frozen=True, slots=True)
class Tell:
    """An Event of the NodeSet, or of one of its pods."""

    reason: str
    note: str
    warning: bool = False
    pod: str = ""


Act = (
    CreatePod
    | DeletePod
    | ChangePod
    | Drain
    | Resume
    | DeleteSlurmNode
    | SetComment
    | SetTopology
    | SetFeatures
    | SetConditions
    | CreateClaim
    | OwnClaims
    | DisownClaims
    | LetGo
    | Tell
)
