"""What the bridge writes into a job's `admin_comment`, by which it knows its own jobs again: after a restart, after a lost answer, among everyone else's.

A marker (one word: the cluster's ID, the workload's UID and a hash of its pods' UIDs) for the bridge; `"pods": ["ns/name", …]` for people and for the
tools of the original, cut where it grows too long; where we told the job that it may go (`told`), so that what an administrator says about that can be told from it, in full or, where that is too long, as checksums; and how pods that are gone have failed (`failed`), which nothing else remembers. All components of a hetjob have the marker of the whole, and each the ranks of its own pods. What must stay true: a job without our marker and our cluster is never touched; the same pods give the same marker.
"""

import base64
import functools
import hashlib
import itertools
import json
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from slinky.slurm import expand
from slinky.slurm.pod_comments import VERSION, PodComment, read_pod_comment

__all__ = [
    "Failure",
    "Marking",
    "Told",
    "comment_for",
    "failures_of",
    "made_by_others",
    "marker_for",
    "names_in",
    "read_comment",
    "told_of",
    "told_that",
    "with_claim",
    "with_failures",
    "with_told",
]

MOST_BYTES = 16 * 1024
_encoded = json.JSONEncoder(separators=(",", ":")).encode  # one for all comments; its text is ASCII
MOST_RANKS = 100_000
MOST_REST = 12 * 1024  # for what was told and for failures, which have limits of their own
MOST_EXCLUDED = 4 * 1024  # characters of a hostlist; of a longer one the comment has checksums
MOST_CONSTRAINT = 1024  # characters; of a longer one the comment has a digest
GROUPS = 256  # of excluded nodes, by a hash of their names: each has a checksum
SUM_BYTES = 6
MOST_TRIES = 50_000  # for one job, to find which names others have added
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
    claim: str = ""  # as `slinky.bridge.claim` writes it


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job was told by us about where it may go: a constraint, and nodes to be left out, as a hostlist.

    A hostlist that is too long for a comment is `sums` instead: checksums by which its names are known again in the
    job's own list. A constraint that is too long is its digest.
    """

    constraint: str = ""
    excluded: str = ""
    sums: str = ""

    def is_ours(self, constraint: str) -> bool:
        """Whether a job's constraint is the one that it was told."""
        return self.constraint in (constraint, _digest(constraint))


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
    claim: str = ""


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
    room = MOST_BYTES - len(_encoded(said)) - 16
    names = []
    for namespace, name in pods:
        room -= len(namespace) + len(name) + 5
        if room < 0:
            break
        names.append(f"{namespace}/{name}")
    return _encoded(said | {"pods": names})


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
        claim=comment.claim,
    )


def told_that(constraint: str, excluded: str) -> Told:
    """In a form that fits into a comment, whatever it is. `excluded` is a hostlist."""
    kept = constraint if len(constraint) <= MOST_CONSTRAINT else _digest(constraint)
    if len(excluded) <= MOST_EXCLUDED:
        return Told(kept, excluded)
    return Told(kept, sums=_sums_of(excluded))


def made_by_others(there: frozenset[str], told: Told, likely: frozenset[str] = frozenset()) -> frozenset[str]:
    """Of the nodes that a job leaves out, those that somebody else has it leave out. `likely`: nodes that we may have named.

    *Invariants:* where the list was not changed since it was told, none. Of a list that is known by checksums only, a
    change that is too large to be traced within a group of names counts as somebody else's for that group.
    """
    if not told.sums:
        return there - names_in(told.excluded)
    sums = _read_sums(told.sums)
    if sums is None:
        return there
    left = MOST_TRIES
    found: set[str] = set()
    groups = _grouped(there)
    possible = _grouped(likely - there)
    for group, names in groups.items():
        others, tries = _added(names, possible.get(group, []), sums[group], left)
        left -= tries
        found |= others
    return frozenset(found)


def _grouped(names: Iterable[str]) -> dict[int, list[str]]:
    groups: dict[int, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(_hash(name) % GROUPS, []).append(name)
    return groups


def _added(there: list[str], missing: list[str], wanted: int, most: int) -> tuple[set[str], int]:
    """Which of these names were added to those with this checksum, where as few as possible were, or were taken out; all where that is not found. And after how many tries."""
    sums = {name: _hash(name) >> 16 for name in (*there, *missing)}
    total = functools.reduce(operator.xor, (sums[name] for name in there), 0)
    if total == wanted:
        return set(), 0
    tries = 0
    for number in range(1, len(sums) + 1):
        for chosen in itertools.combinations(sums, number):
            tries += 1
            if tries > most:
                return set(there), most
            if functools.reduce(operator.xor, map(sums.__getitem__, chosen), total) == wanted:
                return set(there).intersection(chosen), tries
    return set(there), tries


@functools.lru_cache(maxsize=16)
def names_in(hostlist: str) -> frozenset[str]:
    """Remembered for a few lists: jobs that may go to the same nodes have the same one."""
    return frozenset(expand(hostlist)) if hostlist else frozenset()


@functools.lru_cache(maxsize=16)
def _sums_of(hostlist: str) -> str:
    sums = [0] * GROUPS
    for name in names_in(hostlist):
        found = _hash(name)
        sums[found % GROUPS] ^= found >> 16
    return base64.b64encode(b"".join(number.to_bytes(SUM_BYTES, "big") for number in sums)).decode()


def _read_sums(text: str) -> list[int] | None:
    """None where it is none of ours."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    if len(found) != GROUPS * SUM_BYTES:
        return None
    return [int.from_bytes(found[start : start + SUM_BYTES], "big") for start in range(0, len(found), SUM_BYTES)]


@functools.lru_cache(maxsize=20_000)
def _hash(name: str) -> int:
    """64 bits: the lower 16 choose the group, the upper 48 are what is summed up."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


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


def with_claim(comment: str, claim: str) -> str:
    """The same comment with this claim; a text that is not a comment of a bridge stays as it is."""
    try:
        said = msgspec.json.decode(comment, type=dict[str, Any])
    except msgspec.DecodeError:
        return comment
    return _encoded(said | {"claim": claim})


def failures_of(comment: str) -> tuple[Failure, ...]:
    try:
        return msgspec.json.decode(comment, type=_Comment).failed
    except msgspec.DecodeError:
        return ()


def _written(said: dict[str, Any], before: str) -> str:
    written = _encoded(said)
    return written if len(written) < MOST_BYTES + MOST_REST else before


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
