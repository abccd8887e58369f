"""What a LeaderWorkerSet says of its pods: which group they are of, whom to wait for, and who comes only later."""

from typing import Any

import msgspec
import pytest

from slinky.bridge.leaderworkersets import LeaderWorkerSet, place_in_group
from slinky.bridge.needs import needs_of
from slinky.bridge.roots import group_of_root, largest_gang, part_in, says_the_same
from slinky.bridge.translate import Site, translate
from slinky.bridge.workload import WorkloadKey, group_of, workload_of
from slinky.kube.objects import Pod
from tests.bridge.counting import calls

PREFIX = "leaderworkerset.sigs.k8s.io/"


def lws(size: int = 3, replicas: int = 2, annotations: dict[str, str] | None = None, **spec: Any) -> LeaderWorkerSet:
    worker = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}
    meta = {"name": "serve", "namespace": "lab", "uid": "lws-uid", "annotations": annotations or {}}
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": worker}, **spec}
    return msgspec.convert({"metadata": meta, "spec": spec}, LeaderWorkerSet)


def pod(group: int, worker: int, size: int = 3, owner: str = "StatefulSet") -> Pod:
    name = f"serve-{group}-{worker}" if worker else f"serve-{group}"
    labels = {PREFIX + "name": "serve", PREFIX + "group-index": str(group), PREFIX + "worker-index": str(worker)}
    labels["apps.kubernetes.io/pod-index"] = str(worker or group)
    meta = {"name": name, "namespace": "lab", "uid": name, "labels": labels, "annotations": {PREFIX + "size": str(size)}}
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "serve", "uid": "sts", "controller": True}]
    return msgspec.convert({"metadata": meta | {"ownerReferences": owners}}, Pod)


def test_each_group_is_a_workload_led_by_its_leader() -> None:
    assert group_of(pod(1, 2)) == WorkloadKey("LeaderWorkerSet", "lab", "serve")
    assert part_in(lws(), pod(1, 2)) == "1"
    pods = [pod(1, 2), pod(1, 1), pod(1, 0)]
    workload = workload_of(WorkloadKey("LeaderWorkerSet", "lab", "serve/1"), pods, group_of_root(lws(), "1", pods=pods))
    assert workload is not None
    assert (workload.name, workload.size, workload.is_complete) == ("serve-1", 3, True)
    assert workload.wished_ranks == {"serve-1": 0, "serve-1-1": 1, "serve-1-2": 2}
    assert workload.everyone == workload.pods


def test_labels_alone_make_no_pod_part_of_a_set() -> None:
    assert place_in_group(pod(0, 1, owner="ReplicaSet")) is None
    assert group_of(pod(0, 1, owner="ReplicaSet")) is None


def test_workers_that_come_when_the_leader_is_ready_have_room_in_its_job() -> None:
    found = lws(startupPolicy="LeaderReady")
    workload = workload_of(WorkloadKey("LeaderWorkerSet", "lab", "serve/0"), [pod(0, 0)], group_of_root(found, "0", pods=[pod(0, 0)]))
    assert workload is not None
    assert (workload.size, workload.is_complete, len(workload.everyone)) == (1, True, 3)
    assert [workload.name_at(rank) for rank in range(3)] == ["serve-0", "serve-0-1", "serve-0-2"]
    assert [needs_of(each).cpu for each in workload.everyone[1:]] == [4, 4]
    assert list(workload.uids) == ["serve-0"]
    both = [pod(0, 0), pod(0, 2)]
    later = workload_of(WorkloadKey("LeaderWorkerSet", "lab", "serve/0"), both, group_of_root(found, "0", pods=both))
    assert later is not None
    assert [later.name_at(rank) for rank in range(3)] == ["serve-0", "serve-0-1", "serve-0-2"]
    assert (later.coming is not None, later.count, later.uids) == (True, 3, ("serve-0", "serve-0-2"))
    assert later.coming is not None
    assert list(later.coming.left()) == [1]
    everyone = [pod(0, worker) for worker in range(3)]
    last = workload_of(WorkloadKey("LeaderWorkerSet", "lab", "serve/0"), everyone, group_of_root(found, "0", pods=everyone))
    assert last is not None
    assert (last.coming, last.everyone) == (None, last.pods)


def test_with_exclusive_topology_leader_and_workers_are_two() -> None:
    found = lws(annotations={PREFIX + "exclusive-topology": "rack"})
    assert [part_in(found, pod(1, worker)) for worker in (0, 1)] == ["1/leader", "1/workers"]
    sizes = [group.min_count for role in ("leader", "workers") if (group := group_of_root(found, f"1/{role}"))]
    assert sizes == [1, 2]
    pods = [pod(1, worker) for worker in (1, 2)]
    workload = workload_of(WorkloadKey("LeaderWorkerSet", "lab", "serve/1/workers"), pods, group_of_root(found, "1/workers", pods=pods))
    assert workload is not None
    assert (workload.name, list(workload.wished_ranks.values())) == ("serve-1-workers", [0, 1])


def test_while_a_new_size_is_rolled_out_a_group_has_the_size_that_its_pods_say() -> None:
    old, new = (group_of_root(lws(size=5), "0", pods=[pod(0, 0, size=size)]) for size in (3, 5))
    assert old is not None
    assert new is not None
    assert (old.min_count, new.min_count) == (3, 5)


@pytest.mark.parametrize(("group", "awaited"), [(0, True), (1, True), (2, False)])
def test_a_group_beyond_the_sets_replicas_is_not_made_again(group: int, awaited: bool) -> None:
    found = group_of_root(lws(), str(group))
    assert found is not None
    assert found.awaited is awaited


def test_only_what_a_group_rests_on_is_a_reason_to_look() -> None:
    assert says_the_same(lws(), lws())
    assert not says_the_same(lws(), lws(replicas=3))
    assert not says_the_same(lws(), lws(annotations={"a": "b"}))


@pytest.mark.parametrize(("size", "replicas"), [(1, 2_000_000_000), (2_000_000_000, 1), (99_999, 1)])
@pytest.mark.parametrize("policy", ["LeaderReady", "LeaderCreated"])
def test_what_is_known_of_a_set_is_no_longer_for_its_size(size: int, replicas: int, policy: str) -> None:
    """Each worker to come used to be an object of its own at every look, so a set of more than 100,000 pods was left out; now only a group of it is too large for a gang."""

    def look(root: LeaderWorkerSet) -> None:
        pods = [pod(0, 0, size=root.spec.leader_worker_template.size)]
        workload = workload_of(WorkloadKey("LeaderWorkerSet", "lab", "serve/0"), pods, group_of_root(root, "0", pods=pods))
        assert workload is not None
        assert max(workload.size, workload.count) == largest_gang(root)

    large, small = lws(size, replicas, startupPolicy=policy), lws(3, 2, startupPolicy=policy)
    assert calls(lambda: look(large)) <= 2 * calls(lambda: look(small))


def test_the_workers_to_come_are_one_object_in_a_job_of_ten_thousand() -> None:
    found = lws(10_000, startupPolicy="LeaderReady")
    workload = workload_of(
        WorkloadKey("LeaderWorkerSet", "lab", "serve/0"), [pod(0, 0, 10_000)], group_of_root(found, "0", pods=[pod(0, 0, 10_000)])
    )
    assert workload is not None
    assert (len(workload.everyone), len(set(map(id, workload.everyone)))) == (10_000, 2)
    job = translate(workload, Site(cluster="c", partition="p"))
    assert (job.tasks, workload.name_at(9_999)) == (10_000, "serve-0-9999")
