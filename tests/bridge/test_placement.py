"""Placement, on generated allocations: nobody overbooked, everyone in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.placement import Placement, PlacementError, Slot, assign, hetjob_slots, slots_of
from slinky.bridge.task import PerTask
from slinky.slurm import Allocation, Gres, NodeAllocation


def node(name: str, pods: int, gpus_each: int = 1, memory_each: int = 100) -> NodeAllocation:
    count = pods * gpus_each
    gres = [Gres(name="gpu", count=count, index=f"0-{count - 1}" if count > 1 else "0")] if count else []
    return NodeAllocation(node=name, memory=pods * memory_each, gres=gres)


def place(uids: list[str], task: PerTask, allocation: Allocation) -> list[Placement]:
    """All pods of a job that starts."""
    return assign(slots_of(len(uids), task, allocation), {}, uids)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_what_slurm_gave_is_never_overbooked_and_ranks_follow_its_order(rooms: list[int], gpus: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, sum(rooms)))
    allocation = Allocation(7, [node(f"n{index}", room, gpus) for index, room in enumerate(rooms)])
    placed = place([f"u{i}" for i in range(count)], PerTask(memory=100, gres={"gpu": gpus}), allocation)
    assert [p.slot.rank for p in placed] == list(range(count))
    order = [int(p.node[1:]) for p in placed]
    assert order == sorted(order)
    assert placed[0].node == "n0"
    for index, room in enumerate(rooms):
        here = [p for p in placed if p.node == f"n{index}"]
        assert len(here) <= room
        assert [p.slot.local_rank for p in here] == list(range(len(here)))
        given_out = [device for p in here for device in p.slot.devices["gpu"]]
        assert len(given_out) == len(set(given_out)) == len(here) * gpus
        assert set(given_out) <= set(range(room * gpus))
    if count >= len(rooms):
        assert {p.node for p in placed} == {f"n{index}" for index in range(len(rooms))}


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(1, 5))
def test_too_little_room_is_said(rooms: list[int], more: int) -> None:
    allocation = Allocation(7, [node(f"n{index}", room) for index, room in enumerate(rooms)])
    uids = [str(i) for i in range(sum(rooms) + more)]
    with pytest.raises(PlacementError, match=f"job 7 has room for {sum(rooms)} of {len(uids)} pods on {len(rooms)} nodes"):
        place(uids, PerTask(memory=100, gres={"gpu": 1}), allocation)


def test_scattered_devices_keep_their_numbers() -> None:
    allocation = Allocation(
        1,
        [
            NodeAllocation(
                node="n",
                memory=400,
                gres=[Gres(name="gpu", type="a", count=2, index="1,3"), Gres(name="gpu", type="b", count=2, index="6-7")],
            )
        ],
    )
    placed = place(["a", "b"], PerTask(memory=100, gres={"gpu": 2}), allocation)
    assert [p.slot.devices["gpu"] for p in placed] == [(1, 3), (6, 7)]


def test_whole_nodes_are_shared_out_evenly() -> None:
    allocation = Allocation(1, [NodeAllocation(node=f"n{i}", memory=262144) for i in range(2)])
    placed = place(list("abcd"), PerTask(memory=100), allocation)
    assert [p.node for p in placed] == ["n0", "n0", "n1", "n1"]


def with_cores(name: str, count: int) -> NodeAllocation:
    return NodeAllocation(node=name, memory=1000, cpus_bitmap=f"0x{(1 << count) - 1:X}" if count else "")


def test_a_job_that_has_all_cores_of_a_node_is_alone_there() -> None:
    given = [
        NodeAllocation(node=name, memory=1000, cpus_bitmap=f"0x{bits:X}", sockets_per_node=2, cores_per_socket=2)
        for name, bits in (("a", 0b1111), ("b", 0b0111))
    ]
    slots = slots_of(2, PerTask(cpus=1), Allocation(job_id=7, nodes=given))
    assert [(slot.node, slot.alone) for slot in slots] == [("a", True), ("b", False)]
    assert not NodeAllocation(node="c").is_whole


@pytest.mark.parametrize(
    ("cores", "cpus", "pods"),
    [
        ((8, 2), 1, (8, 2)),
        ((8, 2), 2, (4, 1)),
        ((5, 2), 2, (2, 1)),  # rounded up to whole cores
        ((4, 1), 1, (8, 2)),  # each with two threads
        ((8, 0), 1, (5, 5)),  # not told of one of them
        ((0, 0), 1, (5, 5)),
        ((5, 1), 2, (2, 1)),  # which does not come out even
        ((3, 3), 4, (1, 1)),  # two threads each: as many CPUs as it takes
    ],
)
def test_where_memory_goes_by_node_a_node_gets_as_many_pods_as_it_has_cores_for(
    cores: tuple[int, int], cpus: int, pods: tuple[int, int]
) -> None:
    allocation = Allocation(1, [with_cores(f"n{index}", count) for index, count in enumerate(cores)])
    placed = slots_of(sum(pods), PerTask(cpus=cpus), allocation)
    assert tuple(sum(slot.node == f"n{index}" for slot in placed) for index in range(2)) == pods


def test_who_comes_in_anothers_stead_takes_the_free_slot_and_nobody_moves() -> None:
    allocation = Allocation(1, [node("n0", 2), node("n1", 2)])
    slots = slots_of(4, PerTask(memory=100, gres={"gpu": 1}), allocation)
    placed = {p.uid: p.slot for p in assign(slots, {"a": 0, "c": 2}, ["new3", "new1"], {"new3": 3, "new1": 1})}
    assert {uid: slot.rank for uid, slot in placed.items()} == {"a": 0, "c": 2, "new3": 3, "new1": 1}
    assert placed["new3"].node == "n1"
    assert placed["new1"].devices == {"gpu": (1,)}
    crowded = assign(slots, {"a": 0, "b": 1, "c": 2}, ["d", "e"], {"d": 0})
    assert {p.uid for p in crowded} == {"a", "b", "c", "d"}


@given(st.integers(1, 8), st.data())
def test_no_slot_is_given_twice(tasks: int, data: st.DataObject) -> None:
    slots = slots_of(tasks, PerTask(), Allocation(1, [NodeAllocation(node="n", memory=1)]))
    ranks = data.draw(st.lists(st.integers(0, tasks - 1), unique=True))
    held = {f"h{rank}": rank for rank in ranks}
    starting = [f"s{i}" for i in range(data.draw(st.integers(0, 10)))]
    wished = {uid: data.draw(st.integers(0, 12)) for uid in starting if data.draw(st.booleans())}
    placed = assign(slots, held, starting, wished)
    assert len({p.slot.rank for p in placed}) == len(placed) == min(tasks, len(held) + len(starting))
    assert all(placed[index].slot.rank == rank for index, rank in enumerate(held.values()))


def test_the_slots_of_a_hetjob_are_one_row_in_rank_order() -> None:
    small, large = PerTask(memory=100), PerTask(memory=100, gres={"gpu": 2})
    slots = hetjob_slots(
        [((0, 3), small, Allocation(7, [node("n0", 2, 0)])), ((1, 2, 4), large, Allocation(8, [node("n1", 2, 2), node("n2", 1, 2)]))]
    )
    assert [(slot.rank, slot.node, slot.component) for slot in slots] == [
        (0, "n0", 0),
        (1, "n1", 1),
        (2, "n1", 1),
        (3, "n0", 0),
        (4, "n2", 1),
    ]
    assert [slot.devices.get("gpu") for slot in slots] == [None, (0, 1), (2, 3), None, (0, 1)]
    assert [slot.local_rank for slot in slots] == [0, 0, 1, 1, 0]


def test_components_that_share_a_node_share_its_local_ranks() -> None:
    one = Allocation(7, [node("n", 1, 0)])
    slots = hetjob_slots([((0,), PerTask(memory=100), one), ((1,), PerTask(memory=50), one)])
    assert [(slot.rank, slot.local_rank) for slot in slots] == [(0, 0), (1, 1)]


def test_a_component_with_too_little_room_is_named() -> None:
    with pytest.raises(PlacementError, match="job 8 has room for 1 of 2 pods"):
        hetjob_slots(
            [((0,), PerTask(memory=100), Allocation(7, [node("n", 1)])), ((1, 2), PerTask(memory=100), Allocation(8, [node("n", 1)]))]
        )


@given(st.lists(st.integers(0, 2), min_size=1, max_size=10), st.data())
def test_a_pod_of_a_hetjob_gets_a_slot_of_its_own_component_or_none(kinds: list[int], data: st.DataObject) -> None:
    slots = [Slot(node="n", rank=rank, local_rank=rank, component=kind) for rank, kind in enumerate(kinds)]
    held = {f"h{rank}": rank for rank in data.draw(st.lists(st.integers(0, len(kinds) - 1), unique=True))}
    own = {f"s{number}": data.draw(st.integers(-1, 2)) for number in range(data.draw(st.integers(0, 12)))}
    wished = {uid: data.draw(st.integers(0, 12)) for uid in own if data.draw(st.booleans())}
    placed = [placement for placement in assign(slots, held, list(own), wished, own) if placement.uid in own]
    assert all(placement.slot.component == own[placement.uid] for placement in placed)
    for kind in range(3):
        free = [slot for slot in slots if slot.component == kind and slot.rank not in held.values()]
        assert sum(placement.slot.component == kind for placement in placed) == min(len(free), list(own.values()).count(kind))


def test_a_pod_that_asks_for_two_types_gets_some_of_each() -> None:
    gres = [
        Gres(name="gpu", type="a", count=2, index="0-1"),
        Gres(name="gpu", type="b", count=4, index="4-7"),
        Gres(name="hca", count=2, index="0-1"),
    ]
    allocation = Allocation(1, [NodeAllocation(node="n", memory=400, gres=gres)])
    task = PerTask(memory=100, gres={"gpu": 3, "hca": 1}, typed_gres={"gpu:a": 1, "gpu:b": 2, "hca": 1})
    placed = place(["x", "y"], task, allocation)
    assert [p.slot.devices for p in placed] == [{"gpu": (0, 4, 5), "hca": (0,)}, {"gpu": (1, 6, 7), "hca": (1,)}]
    with pytest.raises(PlacementError, match="room for 2 of 3 pods"):
        place(["x", "y", "z"], task, allocation)


def test_no_node_gets_more_pods_than_the_job_says_and_each_gets_its_share_of_the_nodes_devices() -> None:
    """8 GPUs and 600 MiB a node, for two pods there: Slurm alone would put all on one."""
    task = PerTask(node_memory=600, node_gres={"gpu": 8, "nvme": 1}, tasks_per_node=2, node_share=2)
    given = [NodeAllocation(node=name, memory=600, gres=[Gres(name="gpu", count=8, index="0-7")]) for name in ("a", "b")]
    slots = slots_of(3, task, Allocation(7, given))
    assert [(slot.node, slot.devices["gpu"]) for slot in slots] == [("a", (0, 1, 2, 3)), ("a", (4, 5, 6, 7)), ("b", (0, 1, 2, 3))]
    with pytest.raises(PlacementError, match="room for 2 of 3 pods"):
        slots_of(3, task, Allocation(7, given[:1]))


def test_a_type_of_which_a_node_has_none_is_no_obstacle() -> None:
    """Slurm tells all types of the job for each node, without an index where there are none."""
    gres = [Gres(name="gpu", type="h100", count=0, index=None), Gres(name="gpu", type="a100", count=2, index="4-5")]
    [first, second] = slots_of(2, PerTask(gres={"gpu": 1}), Allocation(7, [NodeAllocation(node="n", gres=gres)]))
    assert (first.devices, second.devices) == ({"gpu": (4,)}, {"gpu": (5,)})
