"""Could a job ever run? Judged by the nodes that there are, and never wrongly with no."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.capacity import NodeRoom, even_share, room_of, shortfall, too_few_nodes
from slinky.bridge.task import PerTask, per_task
from slinky.slurm import JobDescription, Node


def room(cpus: int = 64, memory: int = 262144, partitions: tuple[str, ...] = ("bridge",), **gres: int) -> NodeRoom:
    return NodeRoom(
        partitions=frozenset(partitions), cpus=cpus, memory=memory, gres={name.replace("_", ":"): n for name, n in gres.items()}
    )


def job(tasks: int = 1, partition: str = "bridge", **more: Any) -> JobDescription:
    return JobDescription(partition=partition, tasks=tasks, **more)


@pytest.mark.parametrize(
    ("text", "gres"),
    [
        ("", {}),
        ("gpu:8", {"gpu": 8}),
        ("gpu:h100:8(S:0-1)", {"gpu": 8, "gpu:h100": 8}),
        ("gpu:8(S:0,2)", {"gpu": 8}),
        ("gpu:a:2,gpu:b:2,shard:16", {"gpu": 4, "gpu:a": 2, "gpu:b": 2, "shard": 16}),
        ("gpu:a:2(S:0),gpu:b:2(S:1,3),shard:a:8(S:0)", {"gpu": 4, "gpu:a": 2, "gpu:b": 2, "shard": 8, "shard:a": 8}),
        ("gpu", {"gpu": 1}),
        ("gpu:tesla", {"gpu": 1, "gpu:tesla": 1}),
        ("scratch:2K", {"scratch": 2048}),
    ],
)
def test_gres_as_slurm_writes_them(text: str, gres: dict[str, int]) -> None:
    assert room_of(Node(name="n", gres=text)).gres == gres


def test_a_gres_that_is_not_used_up_fits_any_number_of_tasks() -> None:
    wide = room_of(Node(name="n", cpus=64, partitions=["bridge"], gres="bandwidth:lustre:no_consume:4G"))
    assert shortfall(job(8, tres_per_task="gres/bandwidth:lustre:1000000000"), [wide]) == ""


def test_cpus_that_jobs_may_use_are_what_counts() -> None:
    assert room_of(Node(name="n", cpus=64, effective_cpus=60)).cpus == 60
    assert room_of(Node(name="n", cpus=64)).cpus == 64


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (None, {}),
        ("gres/gpu:h100:2,gres/shard:3", {"gpu:h100": 2, "shard": 3}),
        ("gres:gpu:2", {"gpu": 2}),
        ("gres/gpu=2", {"gpu": 2}),
        ("gres/gpu", {"gpu": 1}),
        ("gres/gpu:h100", {"gpu:h100": 1}),
        ("cpu:4,gres/gpu:1", {"gpu": 1}),
        ("cpu=4,mem=10G,license/matlab:1", {}),
    ],
)
def test_a_tasks_gres_from_slurms_text(text: str | None, counts: dict[str, int]) -> None:
    assert per_task(JobDescription(tres_per_task=text)).typed_gres == counts


def test_a_task_is_what_translate_said() -> None:
    task = per_task(
        JobDescription(cpus_per_task=4, memory_per_cpu=100, tres_per_task="gres/gpu:a:1,gres/gpu:b:2", tres_per_node="gres/nic:1")
    )
    assert (task.cpus, task.memory, task.node_memory) == (4, 400, 0)
    assert task.gres == {"gpu": 3}
    assert task.node_gres == {"nic": 1}
    assert per_task(JobDescription(memory_per_node=512)).node_memory == 512


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (job(partition="other"), "partition other has no nodes"),
        (job(cpus_per_task=65), "no node of partition bridge has 65 CPUs for one pod; the largest has 64 CPUs"),
        (job(cpus_per_task=2, memory_per_cpu=140000), "no node of partition bridge has 2 CPUs, 280000 MiB for one pod"),
        (job(memory_per_node=262145), "262145 MiB"),
        (job(tres_per_task="gres/gpu:9"), "9 gpu for one pod; the largest has 64 CPUs, 262144 MiB, 8 gpu"),
        (job(tres_per_task="gres/gpu:a100:1"), "the largest has 64 CPUs, 262144 MiB, 0 gpu:a100"),
        (job(tres_per_node="gres/gpu:9"), "9 gpu for one pod"),
        (job(17, tres_per_task="gres/gpu:1"), "could hold 16 of 17 pods with 1 CPUs, 1 gpu each on its 2 nodes"),
        (job(9, tres_per_task="gres/gpu:1", maximum_nodes=1), "could hold 8 of 9 pods with 1 CPUs, 1 gpu each on any 1 of its 2 nodes"),
        (job(5, cpus_per_task=32, memory_per_cpu=10), "could hold 4 of 5 pods"),
        (job(5, memory_per_cpu=131072), "could hold 4 of 5 pods"),
    ],
)
def test_what_is_missing_is_said(wanted: JobDescription, words: str) -> None:
    nodes = [room(gpu=8, gpu_h100=8), room(gpu=8, gpu_h100=8), room(cpus=999, memory=1 << 30, partitions=("elsewhere",), gpu=99)]
    assert words in shortfall(wanted, nodes)


@pytest.mark.parametrize(
    "fits",
    [
        job(16, tres_per_task="gres/gpu:h100:1"),
        job(8, tres_per_task="gres/gpu:1", maximum_nodes=1),
        job(128, memory_per_node=262144),
        job(2, tres_per_node="gres/gpu:8"),
        job(partition="other,bridge"),
        JobDescription(tasks=10**6),  # Slurm chooses the partition
        job(constraints="nobody has this", reservation="unknown"),  # not judged here
    ],
)
def test_what_could_run_is_let_go(fits: JobDescription) -> None:
    assert shortfall(fits, [room(gpu=8, gpu_h100=8), room(gpu=8, gpu_h100=8)]) == ""


@given(
    st.lists(st.builds(room, cpus=st.integers(1, 64), memory=st.integers(1, 1000), gpu=st.integers(0, 8)), min_size=1, max_size=8),
    st.integers(1, 16),
    st.integers(1, 100),
    st.integers(0, 4),
    st.data(),
)
def test_if_there_is_a_place_for_each_task_nothing_is_missing(
    rooms: list[NodeRoom], cpus: int, memory_per_cpu: int, gpus: int, data: st.DataObject
) -> None:
    """Tasks are put on nodes one by one while they fit; as many as that must pass."""
    held = 0
    for here in rooms:
        left = [here.cpus, here.memory, here.gres["gpu"]]
        while left[0] >= cpus and left[1] >= cpus * memory_per_cpu and left[2] >= gpus:
            left = [left[0] - cpus, left[1] - cpus * memory_per_cpu, left[2] - gpus]
            held += 1
    tres = f"gres/gpu:{gpus}" if gpus else None
    if held:
        tasks = data.draw(st.integers(1, held))
        assert shortfall(job(tasks, cpus_per_task=cpus, memory_per_cpu=memory_per_cpu, tres_per_task=tres), rooms) == ""
    assert shortfall(job(held + 1, cpus_per_task=cpus, memory_per_cpu=memory_per_cpu, tres_per_task=tres), rooms)


def test_the_components_of_a_hetjob_need_nodes_of_their_own() -> None:
    nodes = {f"n{index}": NodeRoom(partitions=frozenset({"p"}), cpus=8, memory=1000, gres={}) for index in range(3)}
    leader = JobDescription(partition="p", tasks=1, cpus_per_task=1)
    workers = JobDescription(partition="p", tasks=4, cpus_per_task=4)
    assert too_few_nodes([leader, workers], nodes) == ""
    more = JobDescription(partition="p", tasks=5, cpus_per_task=4)
    assert too_few_nodes([leader, more], nodes) == (
        "as a hetjob they would need 4 nodes, as each of its 2 components has nodes of its own, and there are 3"
    )
    apart = JobDescription(partition="p", tasks=3, cpus_per_task=1, tasks_per_node=1)
    assert too_few_nodes([leader, apart], nodes)
    assert too_few_nodes([leader, JobDescription(partition="p", tasks=1, cpus_per_task=99)], nodes) == "", (
        "what is too large is said elsewhere"
    )
    large = {
        name: msgspec.structs.replace(room, features=frozenset({"pool=a"} if name == "n0" else {"pool=b"})) for name, room in nodes.items()
    }
    pooled = [msgspec.structs.replace(leader, constraints=text) for text in ("pool=a", "pool=a")]
    assert too_few_nodes(pooled, large)
    assert too_few_nodes([msgspec.structs.replace(leader, constraints="pool=a|pool=b")] * 2, large) == "", "not judged"
    pinned = [msgspec.structs.replace(job, excluded_nodes=["n[1-2]"]) for job in (leader, leader)]
    assert too_few_nodes(pinned, nodes)
    assert too_few_nodes([leader, msgspec.structs.replace(leader, partition="other")], nodes) == ""


def test_a_job_that_says_how_many_tasks_a_node_has_needs_nodes_that_hold_so_many() -> None:
    two = [room(cpus=16, gpu=8), room(cpus=16, gpu=8)]
    assert shortfall(job(4, cpus_per_task=4, tasks_per_node=2, tres_per_node="gres/gpu:8"), two) == ""
    assert "could hold 2 of 3 pods" in shortfall(job(3, tasks_per_node=1, tres_per_node="gres/gpu:8"), two)
    assert "could hold 1 of 2 pods" in shortfall(job(2, tasks_per_node=1, tres_per_node="gres/gpu:8", maximum_nodes=1), two)
    told = shortfall(job(10, cpus_per_task=4, tasks_per_node=5), two)
    assert told.startswith("no node of partition bridge has room for 5 pods on each node (4 CPUs each); the largest has 16 CPUs")


@pytest.mark.parametrize(
    ("cpus", "tasks", "most", "share"),
    [
        ([16, 16, 16, 16], 64, 64, 16),
        ([16, 16, 16, 16], 20, 64, 16),
        ([64, 16, 16, 16], 64, 64, 64),
        ([64, 16, 16, 16], 60, 20, 16),  # one large node is not enough for nodes of 20 each
        ([64, 16, 16, 16], 20, 20, 20),
        ([16, 16], 64, 64, 64),  # there are too few: `shortfall` tells
        ([], 4, 2, 2),
    ],
)
def test_each_node_gets_so_many_tasks_that_the_nodes_hold_all(cpus: list[int], tasks: int, most: int, share: int) -> None:
    assert even_share([room(cpus=each) for each in cpus], PerTask(cpus=1), tasks, most) == share


def test_an_even_share_goes_by_memory_and_gres_too() -> None:
    rooms = [room(cpus=64, memory=65536, gpu=8)] * 4
    assert even_share(rooms, PerTask(memory=30720), 8, 8) == 2
    assert even_share(rooms, PerTask(typed_gres={"gpu": 4}), 8, 8) == 2
