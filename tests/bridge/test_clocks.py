"""A server's clock, by what its answers say: however far it is off, and also when it is set meanwhile."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from slinky.bridge.clocks import AGREEING_READINGS, AGREEING_SECONDS, OLDEST_SECONDS, SLACK_SECONDS, ClockGauges, ClockWatch, RemoteClock
from tests.kube.virtual_time import run_in_virtual_time

NOW = 1_800_000_000


def read(clock: RemoteClock, server: float, here: float, took: float = 0.02) -> None:
    """`server`: its time in the middle of the request, of which it tells the whole seconds."""
    clock.note(int(server), here - took / 2, here + took / 2)


def steady(offset: float = float(NOW)) -> RemoteClock:
    clock = RemoteClock()
    for second in range(10):
        read(clock, offset + second, float(second))
    return clock


@given(
    offset=st.floats(NOW - 1e5, NOW + 1e5),
    drift=st.floats(-4e-4, 4e-4),
    gaps=st.lists(st.tuples(st.floats(1, 25), st.floats(0.001, 2), st.floats(0, 1)), min_size=1, max_size=60),
)
def test_a_clock_that_is_not_set_is_told_within_a_second_and_half_a_requests_time(
    offset: float, drift: float, gaps: list[tuple[float, float, float]]
) -> None:
    clock, here, shortest = RemoteClock(), 0.0, 2.0
    for gap, took, when in gaps:
        here += gap
        shortest = min(shortest, took)
        clock.note(int(offset + (here + when * took) * (1 + drift)), here, here + took)
        here += took
        told = clock.time(here)
        assert told is not None
        assert abs(told - (offset + here * (1 + drift))) <= (1 + took) / 2 + 0.1
    assert not clock.contradictions


def test_what_nobody_read_is_not_told_nor_what_was_read_long_ago() -> None:
    clock = RemoteClock()
    assert clock.time(0.0) is None
    read(clock, NOW, 0.0)
    assert clock.time(1.0) == pytest.approx(NOW + 1, abs=1)
    assert clock.time(OLDEST_SECONDS + 1) is None


def test_an_answer_that_took_long_tells_no_time() -> None:
    clock = RemoteClock()
    clock.note(NOW, 0.0, 10.0)
    assert clock.time(10.0) is None
    read(clock, NOW + 11, 11.0)
    assert clock.time(11.0) == pytest.approx(NOW + 11, abs=1)


@pytest.mark.parametrize("step", [3600.0, -3600.0, 30.0, -4.0])
def test_a_clock_that_was_set_is_not_told_until_several_readings_agree(step: float) -> None:
    clock = steady()
    told = []
    for second in range(10, 30):
        read(clock, NOW + step + second, float(second))
        told.append(clock.time(float(second)))
    unknown = told.index(next(each for each in told if each is not None))
    assert unknown >= max(AGREEING_READINGS - 1, AGREEING_SECONDS)
    assert None not in told[unknown:]
    assert told[-1] == pytest.approx(NOW + step + 29, abs=1)
    assert clock.contradictions == 1


def test_a_step_that_no_deadline_would_notice_is_no_news() -> None:
    clock = steady()
    read(clock, NOW + SLACK_SECONDS - 0.5 + 10, 10.0)
    assert clock.time(10.0) is not None
    assert not clock.contradictions


def test_two_servers_that_answer_in_turn_and_differ_are_never_believed() -> None:
    clock = RemoteClock()
    for second in range(100):
        read(clock, NOW + second + (60 if second % 2 else 0), float(second))
        assert second == 0 or clock.time(float(second)) is None


def test_by_how_much_one_is_ahead_of_another() -> None:
    slurm, kubernetes = steady(NOW + 3600.0), steady(float(NOW))
    assert slurm.ahead_of(kubernetes, 9.0) == pytest.approx(3600, abs=1)
    assert kubernetes.ahead_of(slurm, 9.0) == pytest.approx(-3600, abs=1)
    assert steady(NOW + 1.0).ahead_of(kubernetes, 9.0) == 0, "whole seconds tell no more"
    assert slurm.ahead_of(RemoteClock(), 9.0) == 0, "not known"


class Events:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def record(self, about: Any, reason: str, note: str, **_: bool) -> None:
        assert about.name == "slurm-bridge"
        self.told.append((reason, note))


def test_skews_and_steps_are_reported_once_each() -> None:
    events, registry, clock = Events(), CollectorRegistry(), RemoteClock()
    recorder: Any = events

    async def story() -> None:
        loop = asyncio.get_running_loop()
        server = {"ahead": 3600.0}

        async def readings() -> None:
            while True:
                read(clock, NOW + server["ahead"] + loop.time(), loop.time())
                await asyncio.sleep(1)

        watch = ClockWatch({"slurm": clock}, [], ClockGauges(registry), recorder, ("slinky", "slurm-bridge"), lambda: NOW + loop.time())
        tasks = [asyncio.create_task(work) for work in (readings(), watch.run())]
        await asyncio.sleep(60)
        skew = registry.get_sample_value("slinky_bridge_clock_skew_seconds", {"clock": "slurm"})
        assert skew == pytest.approx(3600, abs=1)
        assert registry.get_sample_value("slinky_bridge_clock_steady", {"clock": "slurm"}) == 1
        server["ahead"] = 0.0
        await asyncio.sleep(3)
        assert registry.get_sample_value("slinky_bridge_clock_steady", {"clock": "slurm"}) == 0
        await asyncio.sleep(60)
        assert registry.get_sample_value("slinky_bridge_clock_steady", {"clock": "slurm"}) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_in_virtual_time(story())
    assert [reason for reason, _ in events.told] == ["ClockSkew", "ClockUnsteady", "ClockSteady"]
    assert "3600 s ahead" in events.told[0][1]
