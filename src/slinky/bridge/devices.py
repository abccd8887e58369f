"""Which devices of a node are whose, by Slurm's index: those that the pods on it were told to use with their Binding.

Comes in: pods as they are bound and as they go. Goes out: whom a device still belongs to. What must stay true: a device is its pod's until the pod's containers are gone. Slurm gives it to the next job before that (a preemption, `scancel`), and
where a node has others that are free, the amounts alone would not tell.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slinky.bridge.keys import DEVICES
from slinky.kube import Pod

__all__ = ["NONE", "Devices", "Indices", "devices_of"]

Indices = Mapping[str, Sequence[int]]  # by GRES name
NONE: Indices = {}

_decoder = msgspec.json.Decoder(dict[str, list[int]])


def devices_of(pod: Pod) -> Indices:
    """What its annotation says; nothing where it cannot be read (nobody but the bridge may write it)."""
    text = pod.metadata.annotations.get(DEVICES)
    if not text:
        return NONE
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return NONE


class Devices:
    def __init__(self) -> None:
        self._of: dict[str, dict[str, Indices]] = {}  # node → pod's UID → its devices

    def take(self, node: str, uid: str, devices: Indices) -> None:
        if devices:
            self._of.setdefault(node, {})[uid] = devices

    def free(self, node: str, uid: str) -> None:
        there = self._of.get(node)
        if there is not None and there.pop(uid, None) is not None and not there:
            del self._of[node]

    def holders(self, node: str, wanted: Iterable[Indices], but: Iterable[str]) -> dict[str, str]:
        """Device (`gpu 3`) → the UID of the pod, other than `but`, that has one of those which are wanted."""
        asked = {(name, index) for devices in wanted for name, indices in devices.items() for index in indices}
        own = set(but)
        return {
            f"{name} {index}": uid
            for uid, devices in self._of.get(node, {}).items()
            if uid not in own
            for name, indices in devices.items()
            for index in indices
            if (name, index) in asked
        }
