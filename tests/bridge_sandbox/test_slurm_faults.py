"""slurmctld hangs, slurmrestd breaks connections in the middle: pods run on, what waits goes on, nothing is submitted twice, and there is no storm of questions."""

import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.own import jobs_of, own_bridge
from tests.conftest import Partition
from tests.faults import Fault, FaultProxy, HeardRequest

pytestmark = pytest.mark.sandbox

BROKEN = (
    Fault.RESET,
    Fault.DONE_RESET,
    Fault.DONE_RESET_MIDDLE,
    Fault.PLAIN_500,
    Fault.DONE_PLAIN_500,
    Fault.DONE_TRUNCATED,
    Fault.DONE_TWO_ANSWERS,
)


@pytest.mark.long
async def test_a_slurm_that_hangs_and_then_breaks_every_fifth_answer(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    chance = random.Random(7)
    heard: Counter[str] = Counter()
    breaks = False

    def plan(request: HeardRequest) -> Fault:
        heard[request.method] += 1
        return chance.choice(BROKEN) if breaks and chance.random() < 0.2 else Fault.NONE

    async with (
        FaultProxy(sandbox.slurm_server, plan) as proxy,
        own_bridge(sandbox, partition, tmp_path, slurmRestApi=proxy.url, absence={"sweepSeconds": 2}) as (bridge, team),
    ):
        await team.create(team.pod("runs"), team.pod("held", said={"priority": "0"}))
        await team.until_running("runs")
        before = await team.until_labelled("runs", "held")
        await sandbox.link.signal("slurmctld", signal.SIGSTOP)
        try:
            heard.clear()
            await team.create_all([team.pod(f"new-{index}") for index in range(6)])

            async def noticed() -> bool:
                return "cannot be read" in bridge.log("run")

            await team.until("the bridge noticed", noticed)
            assert sum(heard.values()) <= 150, heard
        finally:
            await sandbox.link.signal("slurmctld", signal.SIGCONT)
        breaks = True
        await team.create_all([team.pod(f"late-{index}", run_for="1s") for index in range(6)])
        await team.until_running(*(f"{kind}-{index}" for kind in ("new", "late") for index in range(6)))
        breaks = False
        assert await team.until_labelled("runs", "held") == before

        async def one_each() -> bool:
            alive = [job_id for job_id, state in (await jobs_of(team)).items() if state in ("RUNNING", "PENDING")]
            return sorted(alive) == sorted([*before, *await team.until_labelled(*(f"new-{index}" for index in range(6)))])

        await team.until("each pod had one job, and no job was without a pod", one_each)
        assert (await team.get("runs")).status.phase == "Running"
        assert "Traceback" not in bridge.log("run")
