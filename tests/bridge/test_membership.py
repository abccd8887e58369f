"""Which pods make up which workload, whatever comes first: the pod, its group, its Job, or the bridge."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from slinky.bridge.keys import FINALIZER, GANG, JOB_ID, SETTINGS
from slinky.bridge.membership import Membership
from slinky.bridge.workload import COSCHEDULING_LABEL, PodGroup, WorkloadKey, workload_of
from slinky.kube import Cache, Job, Key, Meta, Pod
from slinky.kube.objects import Condition, JobSpec, JobStatus, OwnerReference, PodSpec, PodStatus, SchedulingGroup, WorkloadReference

RING = WorkloadKey("PodGroup", "ns", "ring")
TRAIN = WorkloadKey("Job", "ns", "train")
OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="train-uid", controller=True)


def _pod(name: str, *, group: str = "", label: str = "", job_id: int = 0, owner: OwnerReference | None = None, **more: Any) -> Pod:
    labels = {COSCHEDULING_LABEL: label} if label else {}
    labels |= {JOB_ID: str(job_id)} if job_id else {}
    deleted = dt.datetime.now(dt.UTC) if more.pop("deleting", False) else None
    owners = (owner,) if owner else ()
    meta = Meta(name=name, namespace="ns", uid=f"{name}-uid", labels=labels, owner_references=owners, deletion_timestamp=deleted)
    return Pod(metadata=meta, spec=PodSpec(scheduling_group=SchedulingGroup(pod_group_name=group) if group else None, **more))


def _group(count: int = 2, *, gang: bool = True, builtin: bool = True, **more: Any) -> PodGroup:
    return PodGroup(metadata=Meta(name="ring", namespace="ns"), min_count=count, gang=gang, builtin=builtin, **more)


def _job(**annotations: str) -> Job:
    said = {SETTINGS + name: value for name, value in annotations.items()}
    return Job(metadata=Meta(name="train", namespace="ns", uid="train-uid", annotations=said), spec=JobSpec(parallelism=2))


class World:
    def __init__(self) -> None:
        self.pods: Cache[Pod] = Cache()
        self.jobs: Cache[Job] = Cache()
        self.groups: dict[WorkloadKey, PodGroup] = {}
        self.touched: list[WorkloadKey] = []
        self.membership = Membership(self.pods, self.jobs, self.touched.append, self.groups.get)

    def set_group(self, key: WorkloadKey, group: PodGroup | None) -> None:
        if group is None:
            del self.groups[key]
        else:
            self.groups[key] = group
        self.touched.clear()
        self.membership.group_changed(key)

    def members(self) -> dict[WorkloadKey, list[str]]:
        return {key: sorted(pod.metadata.name for pod in self.membership.pods(key)) for key in self.membership.keys()}  # noqa: SIM118 no mapping


@pytest.fixture
async def world() -> World:
    return World()


async def test_pods_wait_for_their_group_and_are_its_gang(world: World) -> None:
    for name in ("a", "b"):
        world.pods.put(_pod(name, group="ring"))
    assert workload_of(RING, world.membership.pods(RING), world.groups.get(RING)) is None
    world.set_group(RING, _group())
    assert set(world.touched) == {RING}
    workload = workload_of(RING, world.membership.pods(RING), world.groups.get(RING))
    assert workload is not None
    assert workload.is_complete


async def test_pods_of_a_group_that_is_no_gang_go_each_on_its_own(world: World) -> None:
    alone = [WorkloadKey("Pod", "ns", f"{name}-uid") for name in ("a", "b", "c")]
    for name in ("a", "b"):
        world.pods.put(_pod(name, group="ring"))
    world.set_group(RING, _group(1, gang=False))
    world.pods.put(_pod("c", group="ring"))
    assert world.members() == {alone[0]: ["a"], alone[1]: ["b"], alone[2]: ["c"]}
    assert set(world.touched) == {RING, *alone}
    workload = workload_of(alone[0], world.membership.pods(alone[0]))
    assert workload is not None
    assert workload.size == 1


async def test_a_pod_stays_where_its_group_has_put_it(world: World) -> None:
    world.set_group(RING, _group())
    world.pods.put(_pod("a", group="ring"))
    world.set_group(RING, None)
    assert world.touched == [RING]
    world.set_group(RING, _group(1, gang=False))
    assert world.members() == {RING: ["a"]}


async def test_a_new_pod_of_an_old_name_is_looked_at_anew(world: World) -> None:
    world.set_group(RING, _group())
    world.pods.put(_pod("a", group="ring"))
    world.pods.put(Pod(metadata=Meta(name="a", namespace="ns", uid="other")))
    assert world.members() == {WorkloadKey("Pod", "ns", "other"): ["a"]}


async def test_the_replicas_of_a_group_within_a_workload_are_gangs_of_their_own(world: World) -> None:
    for name, replica in (("a", "0"), ("b", "0"), ("c", "1"), ("d", "")):
        reference = WorkloadReference(name="train", pod_group="workers", pod_group_replica_key=replica)
        world.pods.put(_pod(name, workload_ref=reference))
    keys = [WorkloadKey("Workload", "ns", name) for name in ("train/workers/0", "train/workers/1", "train/workers")]
    world.set_group(keys[2], _group())
    assert set(world.touched) == set(keys)
    assert world.members() == {keys[0]: ["a", "b"], keys[1]: ["c"], keys[2]: ["d"]}
    assert all((key.object_name, key.part) == ("train", "workers") for key in keys)
    workload = workload_of(keys[0], world.membership.pods(keys[0]), _group())
    assert workload is not None
    assert workload.name == "train-workers-0"


async def test_pods_of_a_slurm_job_whose_group_is_gone_stay_together(world: World) -> None:
    """After a restart: it cannot be told any more whether the group was a gang."""
    for name, job_id in (("a", 7), ("b", 7), ("c", 8)):
        world.pods.put(_pod(name, label="ring", job_id=job_id))
    seven, eight = (WorkloadKey("CoschedulingPodGroup", "ns", f"ring#{job_id}") for job_id in (7, 8))
    assert world.members() == {seven: ["a", "b"], eight: ["c"]}
    world.set_group(WorkloadKey("CoschedulingPodGroup", "ns", "ring"), _group())
    assert world.members() == {seven: ["a", "b"], eight: ["c"]}
    assert seven.object_name == "ring"


async def test_pods_of_a_slurm_job_whose_job_is_gone_stay_together(world: World) -> None:
    for name, job_id in (("a", 7), ("b", 7), ("c", 8)):
        world.pods.put(_pod(name, owner=OWNER, job_id=job_id))
    assert world.members() == {WorkloadKey("Job", "ns", "train#7"): ["a", "b"], WorkloadKey("Job", "ns", "train#8"): ["c"]}


async def test_pods_that_were_left_behind_by_their_owner_stay_together_if_they_were_bound_as_one_of_several(world: World) -> None:
    """`kubectl delete job --cascade=orphan`, and a restart."""
    for name, tasks in (("a", "2"), ("b", "2"), ("c", "1")):
        pod = _pod(name, job_id=7 if tasks == "2" else 8, node_name="n")
        meta = msgspec.structs.replace(pod.metadata, annotations={"task.slinky.slurm.net/ntasks": tasks})
        world.pods.put(msgspec.structs.replace(pod, metadata=meta))
    assert world.members() == {WorkloadKey("Job", "ns", "#7"): ["a", "b"], WorkloadKey("Pod", "ns", "c-uid"): ["c"]}
    assert WorkloadKey.parse("Job ns/#7") == WorkloadKey("Job", "ns", "#7")


async def test_a_pod_of_an_unknown_job_is_nobodys_until_it_is_deleted(world: World) -> None:
    world.pods.put(_pod("a", owner=OWNER))
    assert world.members() == {}
    world.pods.put(_pod("a", owner=OWNER, deleting=True))
    assert world.members() == {WorkloadKey("Pod", "ns", "a-uid"): ["a"]}


async def test_a_job_that_asks_for_a_gang_has_one(world: World) -> None:
    world.pods.put(_pod("a", owner=OWNER))
    world.jobs.put(_job(gang="true"))
    world.pods.put(_pod("b", owner=OWNER))
    assert GANG == SETTINGS + "gang"
    assert world.members() == {TRAIN: ["a", "b"]}


async def test_a_jobs_pods_in_a_group_wait_for_both(world: World) -> None:
    world.set_group(RING, _group())
    world.pods.put(_pod("a", owner=OWNER, group="ring"))
    assert world.members() == {}
    world.jobs.put(_job())
    assert world.members() == {RING: ["a"]}


def test_a_gang_is_all_pods_that_exist_not_just_the_least() -> None:
    pods = [_pod(f"p-{index}", group="ring") for index in range(6)]
    workload = workload_of(RING, pods, _group(4))
    assert workload is not None
    assert (workload.size, len(workload.pods)) == (4, 6)


def test_annotations_of_the_workload_go_before_the_jobs_and_those_before_the_groups() -> None:
    group = _group(annotations={SETTINGS + "account": "group", SETTINGS + "partition": "group", SETTINGS + "qos": "group"})
    group = _group(annotations=group.annotations, overriding={SETTINGS + "qos": "workload"})
    job = _job(partition="job", qos="job")
    mine, other = _pod("a", group="ring", owner=OWNER), _pod("b", group="ring")
    workload = workload_of(RING, [mine], group, job)
    assert workload is not None
    assert (workload.settings.account, workload.settings.partition, workload.settings.qos) == ("group", "job", "workload")
    mixed = workload_of(RING, [mine, other], group, job)
    assert mixed is not None
    assert mixed.settings.partition == "group", "a Job that owns only some of the pods does not speak for all"


async def test_what_a_kubelet_and_a_job_controller_keep_saying_is_no_reason_to_look(world: World) -> None:
    world.jobs.put(_job(gang="true"))
    world.pods.put(_pod("a", owner=OWNER))
    world.touched.clear()
    ready = PodStatus(phase="Running", conditions=(Condition(type="Ready", status="True"),))
    world.pods.put(msgspec.structs.replace(_pod("a", owner=OWNER), status=ready))
    world.jobs.put(msgspec.structs.replace(_job(gang="true"), status=JobStatus(active=1)))
    assert world.touched == []
    world.jobs.put(msgspec.structs.replace(_job(gang="true"), status=JobStatus(active=1, succeeded=1)))
    assert world.touched == [TRAIN]
    world.touched.clear()
    for change in ({"status": PodStatus(phase="Succeeded")}, {"spec": PodSpec(node_name="n")}):
        world.pods.put(msgspec.structs.replace(_pod("a", owner=OWNER), **change))
    assert world.touched == [TRAIN, TRAIN]


async def test_a_pod_that_was_taken_in_before_its_namespace_could_never_be_managed_is_followed_to_its_end() -> None:
    """Nothing else would take its finalizer off."""
    pods: Cache[Pod] = Cache()
    touched: list[WorkloadKey] = []
    membership = Membership(pods, Cache(), touched.append, never=frozenset({"ns"}))
    pod = _pod("a", job_id=7)
    pods.put(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, finalizers=(FINALIZER,))))
    assert len(membership.keys()) == len(touched) == 1
    pods.put(msgspec.structs.replace(pod, status=PodStatus(phase="Succeeded")))  # released
    assert len(touched) == 2
    pods.remove(Key("ns", "a"))
    assert membership.keys() == []


async def test_pods_of_a_namespace_that_can_never_be_managed_are_part_of_no_workload() -> None:
    pods: Cache[Pod] = Cache()
    membership = Membership(pods, Cache(), lambda _: None, never=frozenset({"ns"}))
    pods.put(_pod("a"))
    pods.put(_pod("a", job_id=7))
    assert membership.keys() == []
    pods.remove(Key("ns", "a"))
    assert membership.keys() == []
