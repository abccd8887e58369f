"""How a step before binding can end, other than well."""

import msgspec

__all__ = ["NodeRefused", "Underway"]


class NodeRefused(msgspec.Struct, frozen=True):
    """Slurm gave the workload this node, and Kubernetes will not have one of its pods there."""

    node: str
    why: str


class Underway(msgspec.Struct, frozen=True):
    """Not done yet: a change will tell, or the deadline (the loop's time) passes."""

    why: str
    since: float
    until: float
