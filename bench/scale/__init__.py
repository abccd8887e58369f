"""The bridge on a large cluster: `python -m bench scale [--part PART] [--quick]`.

The slurmctld, slurmrestd and API server are real. Each part makes a sandbox of its own. In the
part `nodes` the Node objects are still: nothing sends their heartbeats. In all others kwok does.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.rows import Row
from bench.scale.foreign import foreign
from bench.scale.gangs import gangs
from bench.scale.labels import labels
from bench.scale.nodes import nodes
from bench.scale.takeover import takeover

__all__ = ["PARTS", "measure"]

PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "gangs": gangs,
    "nodes": nodes,
    "labels": labels,
    "takeover": takeover,
    "foreign": foreign,
}


def measure(quick: bool, parts: Sequence[str] = ()) -> list[Row]:
    """The rows of these parts; of all by default. Each row names its part."""
    return [replace(row, part=name) for name in parts or PARTS for row in PARTS[name](quick)]
