"""What is told of sets: the keys that one can have, and nothing as long as a user likes; what is asked of them.

The rest is tried on a real server, in tests/bridge_sandbox.
"""

from typing import Any

import msgspec
import pytest

from slinky.bridge.groupapis import Source
from slinky.bridge.groups import PodGroups
from slinky.bridge.jobsets import JobSet
from slinky.bridge.leaderworkersets import LWS_GROUP
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Cache, Job
from slinky.kube.cache import Change, ChangeType
from tests.bridge.counting import calls
from tests.bridge.test_jobsets import EXCLUSIVE, IN_ORDER, child, jobset
from tests.bridge.test_leaderworkersets import lws

SETS = Source("LeaderWorkerSet", LWS_GROUP, "v1", "leaderworkersets")


@pytest.mark.parametrize("replicas", [2, 2_000_000_000])
def test_of_a_set_that_changed_one_key_is_told_whatever_its_size(replicas: int) -> None:
    """The parts of it that are known are found where they are known: not each that it could have is asked about."""
    client: Any = None
    touched: list[WorkloadKey] = []
    looked: list[WorkloadKey] = []
    groups = PodGroups(client, touched.append, look=looked.append)
    found = lws(replicas=replicas)
    groups._changed(SETS, Change(ChangeType.ADDED, found.key, None, found))
    assert touched == looked == [WorkloadKey("LeaderWorkerSet", "lab", "serve")]


LINEAR = 1.4  # all parts of a set of twice the size, a part; n² is 2


def asked(found: JobSet, jobs: list[Job]) -> PodGroups:
    """What is known of this set."""
    client: Any = None
    cache: Cache[Job] = Cache()
    groups, sets = PodGroups(client, lambda _: None, jobs=cache), Cache[JobSet]()
    sets.put(found)
    groups.sources.cache = lambda kind: sets if kind == "JobSet" else None  # type: ignore[method-assign]
    for job in jobs:
        cache.put(job)
    return groups


def exclusive(size: int) -> tuple[JobSet, list[str], list[Job]]:
    parts = [f"js-w-{number}/{role}" for number in range(size) for role in ("leader", "workers")]
    return jobset(("w", size, 2, 2), annotations=EXCLUSIVE), parts, [child(f"js-w-{number}") for number in range(size)]


def exclusive_roles(size: int) -> tuple[JobSet, list[str], list[Job]]:
    parts = [f"js-w{number}-0/{role}" for number in range(size) for role in ("leader", "workers")]
    roles = [(f"w{number}", 1, 2, 2) for number in range(size)]
    return jobset(*roles, annotations=EXCLUSIVE), parts, [child(f"js-w{number}-0") for number in range(size)]


def in_order(size: int) -> tuple[JobSet, list[str], list[Job]]:
    names = [f"w{number}" for number in range(size)]
    return jobset(*[(name, 1, 2, 2) for name in names], **IN_ORDER), names, [child(f"js-{name}-0") for name in names]


@pytest.mark.parametrize("kind", [exclusive, exclusive_roles, in_order])
def test_each_part_of_a_jobset_costs_the_same_however_many_jobs_the_set_has(kind: Any) -> None:
    def work(size: int) -> float:
        found, parts, jobs = kind(size)
        groups = asked(found, jobs)
        sizes: list[int] = []
        groups.get(WorkloadKey("JobSet", "lab", f"js/{parts[0]}"))  # reads it

        def ask() -> None:
            for part in parts:
                group = groups.get(WorkloadKey("JobSet", "lab", f"js/{part}"))
                assert group
                sizes.append(group.min_count)

        count = calls(ask)
        assert set(sizes) == ({2} if kind is in_order else {1})
        return count / len(parts)

    assert work(200) < LINEAR * work(100)


def test_of_a_jobsets_jobs_those_count_that_are_its_own_and_of_the_part() -> None:
    jobs = [child("js-a-0", condition="Complete"), child("js-b-0", condition="Complete"), child("js-b-1", condition="Complete", attempt=3)]

    def left(found: JobSet, part: str) -> int:
        group = asked(found, jobs).get(WorkloadKey("JobSet", "lab", f"js/{part}"))
        assert group
        return group.min_count

    together = jobset(("a", 1, 2, 2), ("b", 2, 2, 2))
    assert left(together, "a") == 2, "b's second Job is of another try"
    ordered = jobset(("a", 1, 2, 2), ("b", 2, 2, 2), **IN_ORDER)
    assert (left(ordered, "a"), left(ordered, "b")) == (0, 2)
    apart = jobset(("a", 1, 2, 2), ("b", 2, 2, 2), annotations=EXCLUSIVE)
    assert [left(apart, f"js-{name}/workers") for name in ("a-0", "b-0", "b-1")] == [0, 0, 1]
    others = jobset(("a", 1, 2, 2), **IN_ORDER)
    stranger = msgspec.structs.replace(others, metadata=msgspec.structs.replace(others.metadata, uid="made anew"))
    assert left(stranger, "a") == 2
    assert left(jobset(("a", 1, 2, 2), annotations=EXCLUSIVE), "js-a-0/workers") == 0
