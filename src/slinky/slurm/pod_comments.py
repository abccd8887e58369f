"""The comment by which a job of the bridge is known, as far as others than the bridge read it: which Kubernetes cluster's job it is, and for which pods.

Pure. Comes in: a job's `admin_comment`. Goes out: what it says, or None where it is no comment of a bridge of ours. What must stay true: nothing is raised, whatever stands there; the bridge writes it and adds to it (`slinky.bridge.marker`), and every reader reads it here.
"""

from typing import TypeVar

import msgspec

__all__ = ["VERSION", "PodComment", "read_pod_comment"]

VERSION = 1


class PodComment(msgspec.Struct):
    """`pods` are `namespace/pod`; `count` may be more than these, as a long list is cut."""

    slinky: int = 0
    marker: str = ""
    cluster: str = ""
    workload: str = ""
    count: int = 0
    pods: tuple[str, ...] = ()


T = TypeVar("T", bound=PodComment)


def read_pod_comment(text: str, kind: type[T]) -> T | None:
    """`kind`: PodComment, or one that reads more of it."""
    if not text.startswith("{"):
        return None
    try:
        said = msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None
    return said if said.slinky == VERSION and said.marker else None
