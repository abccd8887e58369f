"""Placement, on generated allocations: nobody overbooked, everyone in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.placement import PerTask, PlacementError, place
from slinky.slurm import Allocation, Gres, NodeAllocation


def node(name: str, pods: int, gpus_each: int = 1, memory_each: int = 100) -> NodeAllocation:
    count = pods * gpus_each
    gres = [Gres(name="gpu", count=count, index=f"0-{count - 1}" if count > 1 else "0")] if count else []
    return NodeAllocation(node=name, memory=pods * memory_each, gres=gres)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_what_slurm_gave_is_never_overbooked_and_ranks_follow_its_order(rooms: list[int], gpus: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, sum(rooms)))
    allocation = Allocation(7, [node(f"n{index}", room, gpus) for index, room in enumerate(rooms)])
    placed = place([f"u{i}" for i in range(count)], PerTask(memory=100, gres={"gpu": gpus}), allocation)
    assert [p.rank for p in placed] == list(range(count))
    order = [int(p.node[1:]) for p in placed]
    assert order == sorted(order)
    assert placed[0].node == "n0"
    for index, room in enumerate(rooms):
        here = [p for p in placed if p.node == f"n{index}"]
        assert len(here) <= room
        assert [p.local_rank for p in here] == list(range(len(here)))
        given_out = [device for p in here for device in p.devices["gpu"]]
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
    assert [p.devices["gpu"] for p in placed] == [(1, 3), (6, 7)]


def test_whole_nodes_are_shared_out_evenly() -> None:
    allocation = Allocation(1, [NodeAllocation(node=f"n{i}", memory=262144) for i in range(2)])
    placed = place(list("abcd"), PerTask(memory=100), allocation)
    assert [p.node for p in placed] == ["n0", "n0", "n1", "n1"]
