"""From a JobSet or LeaderWorkerSet to the group of pods that a workload of it is. Pure.

Comes in: the object, its Jobs and pods as they are now. Goes out: the part that a pod is of, and the `PodGroup` of a part. What must stay true: annotations on the
object speak for all of its pods; those of a template do not override them; what is made here is no longer for a set of a million pods than for one of two.
"""

from collections.abc import Iterable, Sequence

from slinky.bridge import jobsets, leaderworkersets
from slinky.bridge.jobsets import JobSet
from slinky.bridge.leaderworkersets import LeaderWorkerSet, place_in_group
from slinky.bridge.workload import PART, Coming, PodGroup, asks_for_gang, completion_index
from slinky.kube.objects import Job, Pod

__all__ = ["Root", "group_of_root", "largest_gang", "part_in", "says_the_same"]

Root = JobSet | LeaderWorkerSet


def largest_gang(root: Root) -> int:
    """How many pods the largest of its gangs has."""
    if not asks_for_gang(root.metadata, default=True):
        return 1
    return jobsets.largest_part(root) if isinstance(root, JobSet) else max(root.spec.leader_worker_template.size, 1)


def part_in(root: Root, pod: Pod) -> str:
    """Which part of it this pod is of."""
    if isinstance(root, JobSet):
        owner = pod.metadata.controller
        replicated = pod.metadata.labels.get(jobsets.REPLICATED_JOB, "")
        return jobsets.part_of(root, replicated, owner.name if owner else "", completion_index(pod))
    place = place_in_group(pod)
    if place is None:
        return ""
    role = ("/workers" if place.worker else "/leader") if leaderworkersets.is_exclusive(root) else ""
    return f"{place.group}{role}"


def group_of_root(root: Root, part: str, jobs: Iterable[Job] = (), pods: Sequence[Pod] = ()) -> PodGroup | None:
    """`jobs` are those that it owns, `pods` those of this part. Without a part: what can be said of all of it, which is its annotations, and whether it is a gang. None where it has no such part."""
    said, gang = root.metadata.annotations, asks_for_gang(root.metadata, default=True)
    if not part:
        return PodGroup(metadata=root.metadata, min_count=1, builtin=False, gang=gang, annotations=said)
    if isinstance(root, JobSet):
        return _part_of_jobset(root, part, jobs, pods)
    return _group_of_lws(root, part, tuple(pods))


def says_the_same(old: Root, new: Root) -> bool:
    """Whether nothing changed that a workload's next step could depend on: the status of a set changes often."""
    before, after = old.metadata, new.metadata
    if (old.spec, before.annotations, before.deletion_timestamp) != (new.spec, after.annotations, after.deletion_timestamp):
        return False
    if isinstance(old, JobSet) and isinstance(new, JobSet):
        return (old.status.restarts, jobsets.is_awaited(old)) == (new.status.restarts, jobsets.is_awaited(new))
    return True


def _part_of_jobset(root: JobSet, part: str, jobs: Iterable[Job], pods: Sequence[Pod]) -> PodGroup | None:
    ranks = jobsets.first_ranks(root, part)
    if not ranks:
        return None
    left = jobsets.expected(root, part, jobs, jobsets.succeeded_of(pods))
    return PodGroup(
        metadata=root.metadata,
        min_count=left,
        builtin=False,
        annotations=root.metadata.annotations,
        awaited=left > 0 and jobsets.is_awaited(root),
        completed=jobsets.is_completed(root),
        elastic=False,
        whole=jobsets.is_whole(root),
        first_ranks=ranks,
        time_limit=jobsets.time_limit(root, part),
    )


def _group_of_lws(root: LeaderWorkerSet, part: str, pods: tuple[Pod, ...]) -> PodGroup | None:
    index, _, role = part.partition(PART)
    if not (index.isascii() and index.isdigit() and len(index) < 10):
        return None
    group, size = int(index), leaderworkersets.group_size(root, pods)
    least = {"leader": 1, "workers": max(size - 1, 1)}.get(role, size)
    coming: Coming | None = None
    if not role and leaderworkersets.follows(root):
        leader = next((pod for pod in pods if (place := place_in_group(pod)) and not place.worker), None)
        least = 1
        coming = Coming(leaderworkersets.follower(root, group, leader), range(1, size), f"{root.metadata.name}-{group}-")
    return PodGroup(
        metadata=root.metadata,
        min_count=least,
        builtin=False,
        annotations=root.metadata.annotations,
        coming=coming,
        awaited=leaderworkersets.is_awaited(root, group),
        elastic=False,
        whole=False,
    )
