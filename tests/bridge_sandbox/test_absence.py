"""Slurm that has forgotten: restored from an old state file, or begun again from nothing. Pods that run keep running; those that wait are submitted anew; nobody else's job is touched."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from slinky.bridge.keys import ABSENCE_CONFIRMED, FINALIZER, JOB_ID
from slinky.kube import LEASES, PODS
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobDescription, JobState
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import SlurmMemory, jobs_of, metric, own_bridge, readiness
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox

SWIFT: dict[str, Any] = {"absence": {"share": 0.5, "jobs": 3, "sweepSeconds": 2}}


async def label_of(team: Team, name: str) -> int:
    return int((await team.get(name)).metadata.labels.get(JOB_ID, "0"))


async def events_on(team: Team, name: str, namespace: str) -> list[str]:
    listed = msgspec.json.decode(await team.kube.raw("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"), type=dict[str, Any])
    return [event["reason"] for event in listed["items"] if event["regarding"]["name"] == name]


async def someone_elses(team: Team, job_id: int) -> None:
    """A job of that number, as only root may choose it: external, on hold, without a marker."""
    job = JobDescription(name="foreign", partition=team.partition.name, hold=True, job_id=job_id, admin_comment="somebody's")
    assert (await team.slurm.jobs.submit_external(job)).job_id == job_id


@pytest.mark.long
async def test_slurm_restored_from_an_old_state_file(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    """A job that ended since runs again in Slurm: it is ended. One that was submitted since is unknown: its pod runs on, and when its id is given to another pod's job, neither is mistaken for the other."""
    memory = SlurmMemory(sandbox, partition)
    async with own_bridge(sandbox, partition, tmp_path, **SWIFT) as (bridge, team):
        await team.create(team.pod("stays"), team.pod("ends"), team.pod("held", said={"priority": "0"}))
        await team.until_running("stays", "ends")
        [stays, ends, held] = await team.until_labelled("stays", "ends", "held")
        await memory.put_aside("old")
        await team.kube.delete(PODS, "ends", team.namespace)
        await team.until_gone("ends")
        await team.until_job(ends, JobState.CANCELLED)
        await team.create(team.pod("since"))
        await team.until_running("since")
        since = await label_of(team, "since")

        await memory.bring_back("old")
        await team.create(team.pod("after"))
        await team.until_running("after")
        assert await label_of(team, "after") == since, "the id was given out again"
        await team.until_condition("since", "Lost")

        async def ended() -> bool:
            return (await jobs_of(team)).get(ends) != "RUNNING"

        await team.until("the job that had ended was ended again", ended)
        assert (await team.slurm.jobs.get(stays)).is_running
        assert [await label_of(team, name) for name in ("stays", "held", "since")] == [stays, held, since]
        await team.kube.delete(PODS, "since", team.namespace)
        await team.until_gone("since")
        assert (await team.slurm.jobs.get(since)).is_running, "it is the job of another pod now"
        assert (await team.get("after")).status.phase == "Running"
        assert "Traceback" not in bridge.log("run")


@pytest.mark.long
async def test_a_bridge_that_starts_on_an_old_state_leaves_pods_alone_whose_workload_had_ended_then(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    """A gang's first job was over when the state was written, and its second, by which its pods run, is unknown there."""
    memory = SlurmMemory(sandbox, partition)
    async with own_bridge(sandbox, partition, tmp_path, **SWIFT) as (bridge, team):
        template = team.pod("t", run_for="600s")
        template["metadata"].pop("name")
        spec = {"parallelism": 2, "completions": 2, "template": template}
        await team.create(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gang", "annotations": team.said(gang="true")}, "spec": spec}
        )

        async def suspend(yes: bool) -> None:
            path = f"/apis/batch/v1/namespaces/{team.namespace}/jobs/gang"
            await team.kube.raw("PATCH", path, body={"spec": {"suspend": yes}}, content_type="application/merge-patch+json")

        async def gang() -> list[str]:
            async def runs() -> bool:
                return [pod.status.phase for pod in await team.pods()] == ["Running"] * 2

            await team.until("the gang ran", runs)
            return [pod.metadata.name for pod in await team.pods()]

        before = await gang()
        [first, _] = await team.until_labelled(*before)
        await suspend(True)
        await team.until_gone(*before)
        await team.until_job(first, JobState.CANCELLED)
        await memory.put_aside("over")
        await suspend(False)
        names = await gang()
        [second, same] = await team.until_labelled(*names)
        assert first < second == same

        await bridge.stop("run")
        await memory.bring_back("over")
        assert second not in await jobs_of(team)
        await bridge.start("run")
        for name in names:
            assert "pods that run go on" in await team.until_condition(name, "Lost")
        assert await gang() == names
        assert await team.until_labelled(*names) == [second, second]
        assert "Traceback" not in bridge.log("run")


async def test_mass_absence_stops_all_deletion_and_raises_an_alarm_until_an_administrator_confirms_it(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    """Slurm is replaced by an empty one, whose job ids start again; then the old one comes back."""
    memory = SlurmMemory(sandbox, partition)
    async with own_bridge(sandbox, partition, tmp_path, **SWIFT) as (bridge, team):
        names = [f"runs-{index}" for index in range(4)]
        await team.create(*(team.pod(name) for name in names), team.pod("held", said={"priority": "0"}))
        await team.until_running(*names)
        ids = dict(zip(names, await team.until_labelled(*names), strict=True))
        [held] = await team.until_labelled("held")
        await memory.put_aside("whole")
        try:
            await memory.take_away()
            await memory.make_nodes()
            await someone_elses(team, ids["runs-0"])

            async def alarmed() -> bool:
                return await metric(bridge, "slinky_bridge_absence_alarm") == 1

            await team.until("there was an alarm", alarmed)
            status, words = await readiness(bridge)
            assert (status, "4 of 4 jobs" in words) == (503, True), words

            async def anew() -> bool:
                return await label_of(team, "held") not in (0, held)

            await team.until("who waits was submitted anew", anew)
            await team.until_condition("runs-1", "Absent")
            await team.kube.delete(PODS, "runs-3", team.namespace)

            async def stopped() -> bool:
                return (await team.get("runs-3")).status.phase == "Failed"

            await team.until("its containers were gone", stopped)
            assert FINALIZER in (await team.get("runs-3")).metadata.finalizers, "nothing is let go on that ground"
            assert "AbsenceAlarm" in await events_on(team, bridge.settings["leader"]["name"], "kube-system")

            word = words.partition(f"{ABSENCE_CONFIRMED}=")[2].split()[0]
            lease = bridge.settings["leader"]["name"]
            await team.kube.patch(LEASES, lease, {"metadata": {"annotations": {ABSENCE_CONFIRMED: word}}}, "kube-system")
            await team.until_gone("runs-3")
            assert "pods that run go on" in await team.until_condition("runs-1", "Lost")

            async def told() -> bool:
                return "JobLost" in await events_on(team, "runs-1", team.namespace)

            await team.until("an Event said so too", told)
            assert await metric(bridge, "slinky_bridge_absence_alarm") == 0
            assert (await readiness(bridge))[0] == 200
            assert {(await team.get(name)).status.phase for name in names[:3]} == {"Running"}
            await team.kube.delete(PODS, "runs-0", team.namespace)
            await team.until_gone("runs-0")
            assert (await team.slurm.jobs.get(ids["runs-0"])).is_pending, "a job of that number that is not ours"
            anew_id = await label_of(team, "held")
        finally:
            await memory.bring_back("whole")

        async def back() -> bool:
            found = (await team.get("runs-1")).condition("slinky.slurm.net/Slurm")
            return found is not None and found.status == "True" and f"job {ids['runs-1']} runs" in found.message

        await team.until("its job was back", back)
        await team.until_job(ids["runs-0"], JobState.CANCELLED)  # whose pods went meanwhile

        async def settled() -> bool:
            return await label_of(team, "held") not in (0, anew_id) and (await team.job_of("held")).is_pending

        await team.until("who waits had a job again", settled)
        await team.until_job(held, JobState.CANCELLED) if await label_of(team, "held") != held else None
        assert "Traceback" not in bridge.log("run")
