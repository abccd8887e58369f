"""A minute and a half of chaos around the operator, with a fixed seed. `make chaos OPTIONS=--operator` has other seeds, and more time."""

import asyncio

import pytest

from tests.chaos.operator_plan import SHAPE, OperatorPlan
from tests.chaos.operator_run import operator_chaos
from tests.chaos.report import held
from tests.conftest import ARTEFACTS, Starter

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

FAULTS = 60  # on a slow machine


def test_under_chaos_no_worker_goes_with_a_job_and_nothing_is_left_over(start_sandbox: Starter) -> None:
    plan = OperatorPlan(seed=20261116, seconds=90)
    folder = ARTEFACTS / "chaos-operator-fixed-seed"
    report = asyncio.run(operator_chaos(start_sandbox("chaos-operator", SHAPE), plan, folder))
    held(report, folder, FAULTS)
