"""Slurm's nodes that no pod, or not this one, may be sent to, whatever Kubernetes says of its own. Pure.

Comes in: Slurm's nodes, and which of them are Kubernetes' too. Goes out: the names of those to be left out, and why. What must stay true: an external job may land on any node of its partition, so a node with a slurmd that is no node of Kubernetes, or another cluster's, is kept out of it;
one of our own that is leaving is not named, as it takes no jobs and could not be removed while a job names it; where a kubelet and a slurmd both give out devices, neither knows of the other's, so who asks for one goes elsewhere.
"""

from collections.abc import Mapping
from typing import Protocol

from slinky.bridge.capacity import NodeRoom
from slinky.bridge.node_names import NodeNames

__all__ = ["asks_for_devices", "strangers", "with_devices_of_two"]


def strangers(rooms: Mapping[str, NodeRoom], names: NodeNames, cluster: str) -> dict[str, str]:
    """Those that are no node of this Kubernetes, `cluster`."""
    return {
        name: names.why_unknown(name)
        for name, room in rooms.items()
        if not names.in_kubernetes(name) and (not cluster or room.registrar != cluster)
    }


def with_devices_of_two(rooms: Mapping[str, NodeRoom]) -> dict[str, str]:
    return {
        name: f"node {name} has a slurmd beside its kubelet, and the two may give out one device twice (setting hybrid.devices)"
        for name, room in rooms.items()
        if room.has_slurmd
    }


class Devices(Protocol):
    """What tells of a job whether it asks for devices."""

    @property
    def tres_per_task(self) -> str | None: ...

    @property
    def tres_per_node(self) -> str | None: ...


def asks_for_devices(job: Devices) -> bool:
    return bool(job.tres_per_task or job.tres_per_node)
