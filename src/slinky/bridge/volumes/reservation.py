"""What was begun for one pod's claims, and how far it has come. Pure.

Comes in: the steps that were decided, the stock as the watch shows it. Goes out: for each step whether it is done, waits, or has failed. What must stay true: a state older than what we wrote is not taken for an answer to it.
"""

import msgspec

from slinky.bridge.volumes.matching import node_suits
from slinky.bridge.volumes.stock import SELECTED_NODE, Stock
from slinky.kube import Key, Node, PersistentVolumeClaim, Pod

__all__ = ["DONE", "Failed", "Reservation", "Step", "Waits", "progress"]


class Step(msgspec.Struct, kw_only=True):
    """`volume` is to be given to the claim; where it is empty, one is to be made for the node. `tried`: a write of ours may have been done; `written` is the version that it made, of the volume or of the claim."""

    claim: Key
    uid: str
    volume: str = ""
    by_name: bool = False  # the volume's owner had reserved it for a claim of that name
    tried: bool = False
    written: str = ""


class Reservation(msgspec.Struct, kw_only=True):
    """Of one pod on one node."""

    pod: Pod
    node: str
    steps: list[Step] = []


class Waits(msgspec.Struct, frozen=True):
    why: str


class Failed(msgspec.Struct, frozen=True):
    why: str


class _Done:
    pass


DONE = _Done()


def progress(step: Step, node: Node, stock: Stock) -> Waits | Failed | _Done:
    claim = stock.claim(step.claim)
    if claim is None or claim.metadata.uid != step.uid:
        return Failed(f"claim {step.claim} is gone")
    if claim.metadata.deletion_timestamp is not None:
        return Failed(f"claim {step.claim} is being deleted")
    if claim.is_bound:
        return _bound(claim, node, stock)
    if step.volume:
        return _given(step, stock)
    if _older(claim.metadata.resource_version, step.written):
        return Waits(f"claim {step.claim} waits for its volume to be made")
    where = claim.metadata.annotations.get(SELECTED_NODE)
    if where != node.metadata.name:
        return Failed(f"no volume could be made for claim {step.claim} on node {node.metadata.name}: the driver gave the node back")
    return Waits(f"claim {step.claim} waits for its volume to be made by {_maker(claim, stock)}")


def _bound(claim: PersistentVolumeClaim, node: Node, stock: Stock) -> Waits | Failed | _Done:
    volume = stock.volume(claim.spec.volume_name)
    if volume is None:
        return Waits(f"claim {claim.key} is bound to volume {claim.spec.volume_name}, which is not seen yet")
    if not node_suits(volume, node.metadata.labels):
        return Failed(
            f"volume {volume.metadata.name}, to which claim {claim.key} was bound, cannot be had on node {node.metadata.name}, by the volume's node affinity"
        )
    return DONE


def _given(step: Step, stock: Stock) -> Waits | Failed:
    volume = stock.volume(step.volume)
    if volume is None:
        return Failed(f"volume {step.volume}, which claim {step.claim} was to get, is gone")
    if _older(volume.metadata.resource_version, step.written):
        return Waits(f"claim {step.claim} waits to be bound to volume {step.volume}")
    ref = volume.spec.claim_ref
    if ref is None or ref.uid != step.uid:
        return Failed(
            f"volume {step.volume}, which claim {step.claim} was to get, went to {f'{ref.namespace}/{ref.name}' if ref else 'nobody'}"
        )
    return Waits(f"claim {step.claim} waits to be bound to volume {step.volume}")


def _maker(claim: PersistentVolumeClaim, stock: Stock) -> str:
    storage = stock.storage_class(claim.class_name)
    return storage.provisioner if storage else f"the driver of class {claim.class_name}"


def _older(shown: str, written: str) -> bool:
    """Versions of one kind of object can be compared as numbers. Where nothing is written yet, all that is shown is older."""
    if not written:
        return True
    return int(shown) < int(written) if shown.isdecimal() and written.isdecimal() else False
