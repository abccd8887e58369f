"""Jobs end by slurmctld's clock: an hour ahead of everyone else's, an hour behind, and set back while pods run. slurmctld runs under libfaketime."""

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from slinky.bridge.keys import SIGNALLED
from slinky.kube import EVENTS
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import JobState
from tests.bridge_sandbox.own import metric, own_bridge
from tests.conftest import Partition, Starter

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

LIBRARY = "libfaketimeMT.so.1"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian's package, unpacked."""
    folder = tmp_path_factory.mktemp("faketime")
    try:
        subprocess.run(["apt-get", "download", "-qq", "libfaketime"], cwd=folder, check=True, capture_output=True, timeout=120)
        [package] = folder.glob("libfaketime_*.deb")
        subprocess.run(["dpkg", "-x", package.name, "."], cwd=folder, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        pytest.skip(f"Debian's package libfaketime cannot be fetched: {error}")
    return next(folder.rglob(LIBRARY))


@pytest.fixture(scope="module")
def own(start_sandbox: Starter, library: Path) -> Sandbox:
    sandbox = start_sandbox("clocks", Shape(nodes=2))
    shutil.copyfile(library, sandbox.head / "var/lib" / LIBRARY)
    return sandbox


async def set_clock(sandbox: Sandbox, ahead: int) -> None:
    """slurmctld begins anew with a clock that is so many seconds ahead."""
    part = await sandbox.stop("slurmctld")
    command = part.command[part.command.index("slurmctld") :]
    if ahead:
        faked = [f"LD_PRELOAD=/var/lib/{LIBRARY}", f"FAKETIME={ahead:+d}s", "FAKETIME_DONT_RESET=1", "DONT_FAKE_MONOTONIC=1"]
        command = ["env", *faked, *command]
    await sandbox.link.start(msgspec.structs.replace(part, command=command))
    await sandbox.until("slurmctld", "it answered", lambda: sandbox.link.run("head", "scontrol", "--quiet", "ping"))


@asynccontextmanager
async def clock_of_slurm(sandbox: Sandbox, ahead: int) -> AsyncIterator[None]:
    await set_clock(sandbox, ahead)
    try:
        yield
    finally:
        await set_clock(sandbox, 0)


@pytest.mark.parametrize("ahead", [3600, -3600])
async def test_an_hours_job_is_left_alone_and_a_minutes_is_evicted_in_time(own: Sandbox, tmp_path: Path, ahead: int) -> None:
    async with clock_of_slurm(own, ahead), own_bridge(own, Partition("bridge", ()), tmp_path) as (bridge, team):
        hour = team.pod("hour", said={"timelimit": "60", "signal": "USR1@60"})
        minute = team.pod("minute", said={"timelimit": "1"})
        minute["spec"]["terminationGracePeriodSeconds"] = 5
        await team.create(hour, minute)
        await team.until_running("hour", "minute")
        [long, short] = await team.until_labelled("hour", "minute")

        async def over() -> bool:
            return (await team.slurm.jobs.get(short)).is_finished

        await team.until("the minute was over", over, 150)
        ended = await team.slurm.jobs.get(short)
        assert ended.state is JobState.CANCELLED, "by the bridge, before Slurm's own TIMEOUT"
        assert "has reached its time limit" in ended.comment
        pod = await team.get("hour")
        assert (pod.status.phase, pod.metadata.deletion_timestamp) == ("Running", None)
        assert SIGNALLED not in pod.metadata.annotations
        assert (await team.slurm.jobs.get(long)).is_running
        assert abs(await metric(bridge, "slinky_bridge_clock_skew_seconds") - ahead) < 10, "Kubernetes' own is 0 or so"


async def test_while_slurms_clock_is_set_back_no_pod_is_evicted(own: Sandbox, tmp_path: Path) -> None:
    async with clock_of_slurm(own, 3600), own_bridge(own, Partition("bridge", ()), tmp_path) as (bridge, team):
        await team.create(team.pod("p", said={"timelimit": "30"}))
        await team.until_running("p")

        async def said(reason: str) -> bool:
            found = (await team.kube.list(EVENTS, "kube-system")).items
            name = bridge.settings["leader"]["name"]
            return any(event.regarding.name == name and event.reason == reason for event in found)

        await team.until("the skew was reported", lambda: said("ClockSkew"))
        await set_clock(own, 0)
        await team.until("the step was reported", lambda: said("ClockUnsteady"))
        await team.until("the clock was believed again", lambda: said("ClockSteady"))
        pod = await team.get("p")
        assert (pod.status.phase, pod.metadata.deletion_timestamp) == ("Running", None)
