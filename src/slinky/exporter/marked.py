"""Jobs of the bridge, known by what it writes into their `admin_comment`: which cluster's, and for which pods.

Pure. Comes in: a comment. Goes out: the pods, or None where it is no comment of a bridge of ours. What must stay true: what the bridge writes (`slinky.bridge.marker`) is read here; the two share no code, as neither package
knows the other, and a test holds them against each other.
"""

import msgspec

__all__ = ["PodsOfJob", "read_marker"]

VERSION = 1


class PodsOfJob(msgspec.Struct, frozen=True):
    """`count` may be more than the names: a long list is cut. Names are `namespace/pod`."""

    cluster: str
    count: int
    names: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """All pods of a job are of one."""
        return self.names[0].partition("/")[0] if self.names else ""


class _Comment(msgspec.Struct):
    slinky: int = 0
    marker: str = ""
    cluster: str = ""
    count: int = 0
    pods: tuple[str, ...] = ()


def read_marker(comment: str) -> PodsOfJob | None:
    if not comment.startswith("{"):
        return None
    try:
        said = msgspec.json.decode(comment, type=_Comment)
    except msgspec.DecodeError:
        return None
    if said.slinky != VERSION or not said.marker:
        return None
    return PodsOfJob(said.cluster, max(said.count, len(said.pods)), said.pods)
