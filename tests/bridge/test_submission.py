"""A job as it is remembered, and what its pods are told of their place in it."""

import random
from typing import Any

import msgspec
import pytest

from slinky.bridge.keys import DEVICES, SLURM_NODE, TASK, TASK_ENVIRONMENT
from slinky.bridge.marker import comment_for
from slinky.bridge.placement import Slot
from slinky.bridge.submission import Component, Layout, Submission, hetjob_of, submission_from, submission_of, task_annotations
from slinky.bridge.task import PerTask
from slinky.kube import Pod, PodSpec
from slinky.kube.objects.sharing import compact_pod
from slinky.slurm import Job, JobDescription, expand
from tests.bridge.counting import calls


def spec_of(**fields: Any) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def showing(*paths: str) -> dict[str, Any]:
    """A container whose variables show these fields of its pod."""
    return {
        "name": "c",
        "env": [{"name": f"V{number}", "valueFrom": {"fieldRef": {"fieldPath": path}}} for number, path in enumerate(paths)],
    }


WHOLE = spec_of(volumes=[{"name": "all", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.annotations"}}]}}])


def slots(*nodes: tuple[str, int]) -> list[Slot]:
    places = [(node, local) for node, count in nodes for local in range(count)]
    return [Slot(node=node, rank=rank, local_rank=local) for rank, (node, local) in enumerate(places)]


def told(job: Submission, slot: Slot, places: list[Slot], spec: PodSpec = WHOLE) -> dict[str, str]:
    return {name.removeprefix(TASK): value for name, value in task_annotations(Layout(job, places), slot, spec).items()}


def test_a_task_knows_its_place() -> None:
    places = slots(("n01", 8), ("n02", 8), ("n03", 4))
    job = Submission(job_id=7, name="lab/train", partition="bridge", account="a", qos="q", tasks=20, task=PerTask(cpus=4))
    said = told(job, places[17], places)
    assert said["nodelist"] == "n[01-03]"
    assert said["tasks-per-node"] == "8(x2),4"
    assert (said["procid"], said["localid"], said["nodeid"], said["ntasks"], said["nnodes"]) == ("17", "1", "2", "20", "3")
    assert (said["cpus-per-task"], said["cpus-on-node"]) == ("4", "16")
    assert (said["job-name"], said["partition"], said["account"], said["qos"]) == ("lab/train", "bridge", "a", "q")
    assert (said["nodename"], said[SLURM_NODE]) == ("n03", "n03")
    assert DEVICES not in said


NAMESPACE_FILE = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
RANK_FILE = {"path": "rank", "fieldRef": {"fieldPath": f"metadata.annotations['{TASK}ntasks']"}}
CPUS = f"metadata.annotations['{TASK}cpus-per-task']"


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        ({"containers": [{"name": "c"}]}, {"procid"}),
        ({"containers": [showing(CPUS)]}, {"procid", "cpus-per-task"}),
        ({"containers": [{"name": "c"}], "initContainers": [showing(CPUS, "metadata.name")]}, {"procid", "cpus-per-task"}),
        ({"volumes": [{"name": "token", "projected": {"sources": [{"downwardAPI": {"items": [NAMESPACE_FILE]}}]}}]}, {"procid"}),
        ({"volumes": [{"name": "rank", "projected": {"sources": [{"downwardAPI": {"items": [RANK_FILE]}}]}}]}, {"procid", "ntasks"}),
        ({"volumes": [{"name": "rank", "downwardAPI": {"items": [RANK_FILE]}}]}, {"procid", "ntasks"}),
    ],
)
def test_a_pod_alone_in_its_job_is_told_only_what_its_containers_see(spec: dict[str, Any], keys: set[str]) -> None:
    places = slots(("n1", 1))
    job = Submission(job_id=7, partition="bridge", tasks=1, task=PerTask(cpus=4))
    whole = told(job, places[0], places)
    assert len(whole) > 10
    for decoded in (spec_of(**spec), compact_pod(Pod(spec=spec_of(**spec))).spec):
        assert told(job, places[0], places, decoded) == {key: whole[key] for key in keys | {SLURM_NODE}}


def test_a_pod_with_the_whole_environment_of_a_task_is_told_all_of_it() -> None:
    places, job = slots(("n1", 1)), Submission(job_id=7, name="j", partition="p", account="a", qos="q", tasks=1)
    found = told(
        job,
        places[0],
        places,
        spec_of(containers=[showing(*(f"metadata.annotations['{TASK}{key}']" for key in TASK_ENVIRONMENT.values()))]),
    )
    assert found == told(job, places[0], places)


def test_a_pod_of_a_gang_is_told_all() -> None:
    places, job = slots(("n1", 2)), Submission(job_id=7, tasks=2)
    assert told(job, places[0], places, spec_of()) == told(job, places[0], places)


@pytest.mark.parametrize(
    ("nodes", "nodelist", "per_node"),
    [
        ([("n1", 1)], "n1", "1"),
        ([("n1", 2), ("n2", 2), ("n3", 1), ("n4", 2)], "n[1-4]", "2(x2),1,2"),
        ([("n2", 1), ("n1", 1)], "n[2,1]", "1(x2)"),
        ([("login", 1), ("n1", 1), ("n2", 1)], "login,n[1-2]", "1(x3)"),
    ],
)
def test_nodes_are_written_as_slurm_writes_them_in_rank_order(nodes: list[tuple[str, int]], nodelist: str, per_node: str) -> None:
    places = slots(*nodes)
    said = told(Submission(job_id=1, tasks=len(places)), places[0], places)
    assert (said["nodelist"], said["tasks-per-node"]) == (nodelist, per_node)


def cloud_names(count: int) -> list[str]:
    return [f"ip-10-0-{number // 250}-{number % 250}.eu-west-1.compute.internal" for number in range(count)]


def odd_names(count: int) -> list[str]:
    """With letters drawn by lot, as a cloud's node pools have them: nothing in them can be joined."""
    dice = random.Random(1)
    return [f"gke-pool-1-a1b2c3d4-{''.join(dice.choices('abcdefghijkmnpqrstuvwxyz', k=5))}" for _ in range(count)]


def test_numbers_in_the_middle_of_names_are_joined_too() -> None:
    places = slots(*((name, 1) for name in cloud_names(3200)))
    said = told(Submission(job_id=1, tasks=3200), places[3000], places)
    assert len(said["nodelist"]) < 1000
    assert expand(said["nodelist"]) == cloud_names(3200)


@pytest.mark.parametrize(("count", "on_all", "on_first"), [(300, True, True), (700, True, True), (3200, False, True), (5000, False, False)])
def test_a_list_that_is_long_is_not_on_each_pod(count: int, on_all: bool, on_first: bool) -> None:
    names = odd_names(count)
    places = slots(*((name, 1) for name in names))
    layout = Layout(Submission(job_id=1, tasks=count), places)
    said = [task_annotations(layout, slot, WHOLE) for slot in places]
    assert [TASK + "nodelist" in each for each in (said[0], said[1], said[-1])] == [on_first, on_all, on_all]
    assert bool(layout.withheld) is not on_all
    if on_first:
        assert expand(said[0][TASK + "nodelist"]) == names
    if not on_all:
        assert f"the job's {count:,} nodes" in said[1][TASK + "nodelist-withheld"]
    assert all(each[TASK + "nnodes"] == str(count) for each in said)
    assert sum(len(value) for each in said for value in each.values()) < 24 * 1024**2
    assert max(len(value) for each in said for value in each.values()) < 128 * 1024


def test_what_pods_are_told_is_reckoned_in_proportion_to_their_number() -> None:
    def work(count: int) -> int:
        places = slots(*((name, 2) for name in odd_names(count)))

        def tell() -> None:
            layout = Layout(Submission(job_id=1, tasks=2 * count), places)
            for slot in places:
                task_annotations(layout, slot, WHOLE)

        return calls(tell)

    assert work(2000) <= 11 * work(200)


def test_devices_are_told_by_their_numbers() -> None:
    slot = Slot(node="n", rank=0, local_rank=0, devices={"gpu": (2, 3), "nic": (0,)})
    said = told(Submission(job_id=1), slot, [slot])
    assert said["gpus"] == "2,3"
    assert msgspec.json.decode(said[DEVICES]) == {"gpu": [2, 3], "nic": [0]}


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def test_what_slurm_tells_of_a_job_gives_the_same_as_what_we_sent() -> None:
    """As after a restart; Slurm writes numbers as triplets, and adds the CPUs to the TRES of a task."""
    sent = JobDescription(
        name="lab/a",
        partition="bridge",
        account="x",
        qos="normal",
        tasks=4,
        cpus_per_task=2,
        memory_per_cpu=512,
        tres_per_task="gres/gpu:1",
    )
    unset = {"set": False, "infinite": False, "number": 0}
    shown = {
        "job_id": 7,
        "name": "lab/a",
        "partition": "bridge",
        "account": "x",
        "qos": "normal",
        "tasks": number(4),
        "cpus_per_task": number(2),
        "memory_per_cpu": number(512),
        "memory_per_node": unset,
        "tres_per_task": "cpu=2,gres/gpu:1",
        "tres_per_node": "",
    }
    assert submission_of(7, msgspec.convert(shown, Job)) == submission_of(7, sent)


def test_a_pod_on_its_own_has_its_memory_by_node() -> None:
    sent = submission_of(7, JobDescription(name="p", partition="bridge", tasks=1, cpus_per_task=1, memory_per_node=256))
    shown = {
        "job_id": 7,
        "name": "p",
        "partition": "bridge",
        "tasks": number(1),
        "cpus_per_task": number(1),
        "memory_per_node": number(256),
    }
    assert submission_of(7, msgspec.convert(shown, Job)) == sent
    assert sent.task.node_memory == 256


def test_a_task_of_a_hetjob_knows_its_place_in_the_whole() -> None:
    components = (Component(job_id=7, ranks=(0,), task=PerTask(cpus=1)), Component(job_id=8, ranks=(1, 2), task=PerTask(cpus=4)))
    job = Submission(job_id=7, tasks=3, task=PerTask(cpus=1), components=components)
    places = [
        Slot(node="n1", rank=0, local_rank=0),
        Slot(node="n2", rank=1, local_rank=0, component=1),
        Slot(node="n2", rank=2, local_rank=1, component=1),
    ]
    first, last = told(job, places[0], places), told(job, places[2], places)
    assert (first["procid"], first["ntasks"], first["nodelist"], first["tasks-per-node"]) == ("0", "3", "n[1-2]", "1,2")
    assert (first["cpus-per-task"], first["cpus-on-node"], first["het-group"], first["het-size"]) == ("1", "1", "0", "2")
    assert (last["procid"], last["localid"], last["nodeid"]) == ("2", "1", "1")
    assert (last["cpus-per-task"], last["cpus-on-node"], last["het-group"]) == ("4", "8", "1")
    assert job.job_ids == (7, 8)


def part(job_id: int, tasks: int, ranks: tuple[int, ...], cpus: int = 1) -> Job:
    shown = {
        "job_id": job_id,
        "name": "lab/a",
        "tasks": number(tasks),
        "cpus_per_task": number(cpus),
        "admin_comment": comment_for("c1", "Job lab/a", [], ["u"], 0, ranks),
    }
    return msgspec.convert(shown, Job)


def test_a_hetjob_is_read_from_its_parts_with_the_ranks_that_each_names() -> None:
    found = submission_from([part(7, 2, (0, 3)), part(8, 3, (1, 2, 4), 2)], "c1")
    assert (found.job_id, found.tasks, found.name, found.job_ids) == (7, 5, "lab/a", (7, 8))
    assert [(each.ranks, each.task.cpus) for each in found.components] == [((0, 3), 1), ((1, 2, 4), 2)]
    assert submission_from([part(7, 2, ())], "c1").components == ()


@pytest.mark.parametrize("ranks", [[(), ()], [(0,), (0, 1)], [(0, 1), (2, 3)], [(0,), (1, 5)]])
def test_ranks_that_cannot_be_are_dealt_out_anew(ranks: list[tuple[int, ...]]) -> None:
    found = hetjob_of([Submission(job_id=7, tasks=1), Submission(job_id=8, tasks=2)], [(own, "") for own in ranks])
    assert [component.ranks for component in found.components] == [(0,), (1, 2)]
