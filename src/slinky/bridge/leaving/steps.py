"""What uninstalling is made of: acts, in steps, and what is left. Values only.

An act is about one thing and may be repeated; `name` is what people know that thing by. What must stay true: an act that was carried out is not planned again from the next look.
"""

from typing import Literal

import msgspec

from slinky.bridge.standing import Standing
from slinky.kube import Node, Pod

__all__ = [
    "Act",
    "Clear",
    "DeleteNode",
    "DeletePod",
    "Drain",
    "EndJob",
    "Evict",
    "Left",
    "LetGo",
    "RemoveObject",
    "Step",
    "Undrain",
]


class RemoveObject(msgspec.Struct, frozen=True):
    """A webhook configuration, a policy of the bridge, or the Secret of the webhook."""

    plural: Literal[
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "secrets",
    ]
    object_name: str

    @property
    def name(self) -> str:
        return f"{self.plural}/{self.object_name}"


class Drain(msgspec.Struct, frozen=True):
    """A node of ours in Slurm. `mark` is written first where it is not marked yet, as any other change takes away what it is known by."""

    name: str
    mark: str = ""


class Undrain(msgspec.Struct, frozen=True):
    """A node that stays in Slurm, and that the bridge drained."""

    name: str


class LetGo(msgspec.Struct, frozen=True, eq=False):
    """Take off a pod what the bridge wrote: these labels and annotations, the finalizer; and say on it what has become of it."""

    pod: Pod
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    finalizer: bool = False
    word: Standing | None = None

    @property
    def name(self) -> str:
        return str(self.pod.key)


class DeletePod(msgspec.Struct, frozen=True, eq=False):
    """One that waits: whoever made it makes another, which goes to Kubernetes' own scheduler."""

    pod: Pod

    @property
    def name(self) -> str:
        return str(self.pod.key)


class Evict(msgspec.Struct, frozen=True, eq=False):
    pod: Pod

    @property
    def name(self) -> str:
        return str(self.pod.key)


class EndJob(msgspec.Struct, frozen=True):
    """`job_ids` are all that must be ended for it to end; with an exit code where its pods have ended by themselves."""

    job_id: int
    job_ids: tuple[int, ...]
    exit_code: int | None = None
    components: dict[int, int] = {}

    @property
    def name(self) -> str:
        return str(self.job_id)


class DeleteNode(msgspec.Struct, frozen=True):
    """From Slurm."""

    name: str


class Clear(msgspec.Struct, frozen=True, eq=False):
    """Take off a Kubernetes node what the bridge wrote there. `word`: its note that somebody took back what it did."""

    node: Node
    taint: bool = False
    cordon: bool = False
    condition: bool = False
    word: bool = False

    @property
    def name(self) -> str:
        return self.node.metadata.name


Act = RemoveObject | Drain | Undrain | LetGo | DeletePod | Evict | EndJob | DeleteNode | Clear


class Left(msgspec.Struct, frozen=True):
    """What is not let go of, and why; `why` is the same text for things of a kind."""

    kind: str
    name: str
    why: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """`acts` can be carried out now. `later` will be possible, when something else has happened: what, and until when."""

    title: str
    acts: tuple[Act, ...] = ()
    later: tuple[Left, ...] = ()
