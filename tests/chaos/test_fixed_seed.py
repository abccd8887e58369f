"""Two minutes of chaos with a fixed seed, on each run of the tests. `make chaos` has other seeds, and more time."""

import asyncio

import pytest

from tests.chaos.report import held
from tests.chaos.run import SHAPE, Plan, chaos
from tests.conftest import ARTEFACTS, Starter

pytestmark = pytest.mark.sandbox

FAULTS = 250  # on a slow machine; three times as many on one that has nothing else to do


def test_under_two_minutes_of_chaos_everything_holds_that_must(start_sandbox: Starter) -> None:
    plan = Plan(seed=20261115, seconds=120, faults_per_second=10)
    folder = ARTEFACTS / "chaos-fixed-seed"
    report = asyncio.run(chaos(start_sandbox("chaos", SHAPE), plan, folder))
    held(report, folder, FAULTS)
