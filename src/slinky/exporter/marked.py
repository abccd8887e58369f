"""Jobs of the bridge, known by what it writes into their `admin_comment`: which cluster's, and for which pods.

Pure. Comes in: a comment. Goes out: the pods, or None where it is no comment of a bridge of ours.
"""

import msgspec

from slinky.slurm.pod_comments import PodComment, read_pod_comment

__all__ = ["PodsOfJob", "read_marker"]


class PodsOfJob(msgspec.Struct, frozen=True):
    """`count` may be more than the names: a long list is cut. Names are `namespace/pod`."""

    cluster: str
    count: int
    names: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """All pods of a job are of one."""
        return self.names[0].partition("/")[0] if self.names else ""


def read_marker(comment: str) -> PodsOfJob | None:
    said = read_pod_comment(comment, PodComment)
    return PodsOfJob(said.cluster, max(said.count, len(said.pods)), said.pods) if said else None
