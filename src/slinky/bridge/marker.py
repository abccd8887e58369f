"""What the bridge writes into a job's `admin_comment`, by which it knows its own jobs again: after a restart, after a lost answer, among everyone else's.

A marker (one word: the cluster's ID, the workload's UID and a hash of its pods' UIDs) for the bridge; `"pods": ["ns/name", …]` for people and for the
tools of the original, cut where it grows too long; where we told the job that it may go (`told`), so that what an administrator says about that can be told from it; and how pods that are gone have failed (`failed`), which nothing else remembers. All components of a hetjob have the marker of the whole, and each the ranks of its own pods. What must stay true: a job without our marker and our cluster is never touched; the same pods give the same marker.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from slinky.slurm.pod_comments import VERSION, PodComment, read_pod_comment

__all__ = [
    "Failure",
    "Marking",
    "Told",
    "comment_for",
    "failures_of",
    "marker_for",
    "read_comment",
    "told_of",
    "with_failures",
    "with_told",
]

MOST_BYTES = 16 * 1024
MOST_RANKS = 100_000
MOST_TOLD = 8 * 1024
MOST_FAILURES = 64  # the worst of them: a job ends with one exit code


class Marking(msgspec.Struct, frozen=True, kw_only=True):
    """What a comment of ours says. `ranks` are those of a component of a hetjob, `where` a word for what its pods say about nodes; any other job has neither."""

    marker: str
    cluster: str
    workload: str
    count: int
    ranks: tuple[int, ...] = ()
    where: str = ""
    pods: tuple[str, ...] = ()


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job was told by us about where it may go: a constraint, and nodes to be left out, as a hostlist."""

    constraint: str = ""
    excluded: str = ""


class Failure(msgspec.Struct, frozen=True, gc=False):
    """Of the last pod in a slot, which is gone."""

    rank: int
    uid: str
    exit_code: int


class _Comment(PodComment):
    ranks: str = ""
    where: str = ""
    told: Told = Told()
    failed: tuple[Failure, ...] = ()


def marker_for(cluster: str, workload: str, uids: Iterable[str], attempt: int = 0) -> str:
    """One word that no other workload of any cluster has. `attempt` tells the jobs of one set of pods apart, where an earlier one is over and Slurm still remembers it."""
    hashed = hashlib.sha256("\n".join([cluster, workload, *sorted(uids)]).encode()).hexdigest()
    return f"slinky-{hashed[:32]}" + (f"-{attempt}" if attempt else "")


def comment_for(
    cluster: str,
    workload: str,
    pods: Iterable[tuple[str, str]],
    uids: Iterable[str],
    attempt: int = 0,
    ranks: Sequence[int] = (),
    where: str = "",
) -> str:
    """`pods` as (namespace, name), in rank order. The marker comes first, so that it is found however much is cut."""
    uids = tuple(uids)
    said: dict[str, str | int] = {
        "slinky": VERSION,
        "marker": marker_for(cluster, workload, uids, attempt),
        "cluster": cluster,
        "workload": workload,
        "count": len(uids),
    }
    if ranks:
        said |= {"ranks": _ranges(ranks), "where": where}
    room = MOST_BYTES - len(json.dumps(said)) - 16
    names = []
    for namespace, name in pods:
        room -= len(namespace) + len(name) + 5
        if room < 0:
            break
        names.append(f"{namespace}/{name}")
    return json.dumps(said | {"pods": names}, separators=(",", ":"))


def read_comment(text: str, cluster: str) -> Marking | None:
    """None for anything that is not ours: another cluster's, the original's, a person's."""
    comment = read_pod_comment(text, _Comment)
    if comment is None or comment.cluster != cluster:
        return None
    return Marking(
        marker=comment.marker,
        cluster=comment.cluster,
        workload=comment.workload,
        count=comment.count,
        ranks=_ranks(comment.ranks),
        where=comment.where,
        pods=comment.pods,
    )


def with_told(comment: str, told: Told) -> str:
    """The same comment, saying this; what is none of ours, or would grow too long, stays as it is."""
    try:
        said = msgspec.json.decode(comment, type=dict[str, Any])
    except msgspec.DecodeError:
        return comment
    said.pop("told", None)
    if told != Told():
        said["told"] = msgspec.to_builtins(told)
    return _written(said, comment)


def with_failures(comment: str, failures: Iterable[Failure]) -> str:
    """The same comment, saying these, and no others."""
    try:
        said = msgspec.json.decode(comment, type=dict[str, Any])
    except msgspec.DecodeError:
        return comment
    said.pop("failed", None)
    worst = sorted(failures, key=lambda failure: (-failure.exit_code, failure.rank))[:MOST_FAILURES]
    if worst:
        said["failed"] = msgspec.to_builtins(worst)
    return _written(said, comment)


def failures_of(comment: str) -> tuple[Failure, ...]:
    try:
        return msgspec.json.decode(comment, type=_Comment).failed
    except msgspec.DecodeError:
        return ()


def _written(said: dict[str, Any], before: str) -> str:
    written = json.dumps(said, separators=(",", ":"))
    return written if len(written) < MOST_BYTES + MOST_TOLD else before


def told_of(comment: str) -> Told:
    try:
        return msgspec.json.decode(comment, type=_Comment).told
    except msgspec.DecodeError:
        return Told()


def _ranges(ranks: Sequence[int]) -> str:
    """0, 2, 3, 4 → `0,2-4`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _ranks(text: str) -> tuple[int, ...]:
    """The other way round; nothing where it is none of ours, or of more than any gang."""
    found: list[int] = []
    for word in filter(None, text.split(",")):
        first, _, last = word.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal() and int(last or first) - int(first) < MOST_RANKS):
            return ()
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
