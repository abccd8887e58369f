"""Whom the bridge believes: its own markers, and nobody's labels, comments or markers of another cluster."""

import json
from pathlib import Path

import msgspec
import pytest

from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.bridge.marker import comment_for
from slinky.kube import PODS, PatchKind
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobDescription, JobState
from tests.bridge_sandbox.conftest import SCHEDULER, Team
from tests.bridge_sandbox.own import jobs_of, own_bridge
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox


async def foreign_job(team: Team, comment: str, *, external: bool = True) -> int:
    """Somebody's job that waits, with what an administrator (or another bridge) wrote into it."""
    job = JobDescription(name="foreign", partition=team.partition.name if external else "compute", hold=True, admin_comment=comment)
    if external:
        return (await team.slurm.jobs.submit_external(job)).job_id
    plain = msgspec.structs.replace(job, script="#!/bin/sh\ntrue", current_working_directory="/tmp", environment=["PATH=/bin"])
    return (await team.slurm.jobs.submit(plain)).job_id


async def test_jobs_without_our_marker_and_our_cluster_are_never_touched_whatever_their_comment_says(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    """Foreign admin_comment: prose, the original's, another cluster's bridge's, ours on a job that is not external. Beside them a stray of ours is ended, by the sweep of a leader who leads already; and so after a restart."""
    async with own_bridge(sandbox, partition, tmp_path, absence={"sweepSeconds": 1}) as (bridge, team):
        cluster = bridge.settings["cluster"]
        ours = comment_for(cluster, f"Pod {team.namespace}/no-such-uid", [(team.namespace, "gone")], ["no-such-uid"])
        await team.create(team.pod("p"))
        await team.until_running("p")
        kept = [
            await foreign_job(team, "slinky, please"),
            await foreign_job(team, json.dumps({"pods": [f"{team.namespace}/p"]})),
            await foreign_job(team, ours.replace(cluster, "another-cluster")),
            await foreign_job(team, ours.replace('"slinky":1', '"slinky":99')),
            await foreign_job(team, ours, external=False),
        ]
        stray = await foreign_job(team, ours)
        await team.until_job(stray, JobState.CANCELLED)
        await bridge.stop("run")
        second = await foreign_job(team, ours)
        await bridge.start("run")
        await team.until_job(second, JobState.CANCELLED)
        for job_id in kept:
            assert (await team.slurm.jobs.get(job_id)).is_pending
        assert (await team.job_of("p")).is_running
        await team.slurm.jobs.cancel_many(kept)


async def test_a_label_edited_by_a_user_does_nothing_but_get_restored(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    """The webhook refuses it; where it is down, the bridge restores it: of pods that wait and that run, at once and after a restart. A label that names another's job binds, evicts and cancels nothing."""
    async with own_bridge(sandbox, partition, tmp_path, parts=("run",)) as (bridge, team):
        name = bridge.settings["schedulerName"]

        def managed(pod: str, **more: str) -> dict[str, object]:
            """As admission would make it."""
            made = team.pod(pod, said=more)
            made["metadata"] |= {"finalizers": [FINALIZER]}
            made["spec"] |= {"schedulerName": name}
            return made

        assert name != SCHEDULER
        foreign = await foreign_job(team, "somebody's")
        await team.create(managed("runs"), managed("other"), managed("waits", priority="0"))
        await team.until_running("runs", "other")
        before = await team.until_labelled("runs", "other", "waits")

        async def restored() -> bool:
            return await team.until_labelled("runs", "other", "waits") == before

        async def edit(pod: str, value: str | None) -> None:
            await team.kube.patch(PODS, pod, {"metadata": {"labels": {JOB_ID: value}}}, team.namespace)

        for value in (None, str(foreign), str(before[1])):
            for pod in ("runs", "waits"):
                await edit(pod, value)
            await team.until("the labels were restored", restored)
        await bridge.stop("run")
        await edit("runs", str(foreign))
        await edit("other", None)
        await edit("waits", str(before[1]))
        born = managed("born", priority="0")
        born["metadata"] |= {"labels": {JOB_ID: str(before[0])}}  # type: ignore[operator]
        await team.create(born)
        await bridge.start("run")
        await team.until("the labels were restored", restored)

        async def own_job() -> bool:
            return (await team.get("born")).metadata.labels.get(JOB_ID, "") not in ("", *map(str, before))

        await team.until("one that was born with another's label had a job of its own", own_job)
        assert sorted(await jobs_of(team)) == sorted([foreign, *before, (await team.job_of("born")).job_id])
        assert (await team.slurm.jobs.get(foreign)).is_pending
        await team.kube.delete(PODS, "born", team.namespace)
        await edit("runs", None)
        await team.head("scancel", str(before[0]))
        await team.until_gone("runs")
        assert (await team.get("other")).status.phase == "Running"
        assert (await team.slurm.jobs.get(before[1])).is_running
        await team.slurm.jobs.cancel(foreign)


@pytest.mark.long
async def test_pods_left_behind_by_their_job_keep_their_allocation_after_a_restart(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    """`kubectl delete job --cascade=orphan` on a gang that runs."""
    async with own_bridge(sandbox, partition, tmp_path) as (bridge, team):
        template = team.pod("t", run_for="600s")
        template["metadata"].pop("name")
        template["metadata"]["annotations"] = {"sandbox.slinky.slurm.net/run-for": "600s"}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "gang", "annotations": team.said(gang="true")},
            "spec": {"parallelism": 2, "completions": 2, "template": template},
        }
        await team.create(job)

        async def bound() -> bool:
            pods = await team.pods()
            return len(pods) == 2 and all(pod.status.phase == "Running" for pod in pods)

        await team.until("the gang ran", bound)
        names = [pod.metadata.name for pod in await team.pods()]
        [job_id, same] = await team.until_labelled(*names)
        assert job_id == same
        await bridge.stop("run")
        await team.kube.raw("DELETE", f"/apis/batch/v1/namespaces/{team.namespace}/jobs/gang", body={"propagationPolicy": "Orphan"})

        async def orphans() -> bool:
            return all(not pod.metadata.owner_references for pod in await team.pods())

        await team.until("the pods had no owner", orphans)
        for name in names:  # nor the finalizer of the Job's controller
            patch = {"metadata": {"finalizers": [FINALIZER]}}
            await team.kube.patch(PODS, name, patch, team.namespace, kind=PatchKind.MERGE)
        await bridge.start("run")

        async def adopted() -> bool:
            return "1 jobs of theirs in Slurm" in bridge.log("run")

        await team.until("the bridge led", adopted)
        await team.head("scancel", str(job_id))
        await team.until_gone(*names)
