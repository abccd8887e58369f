"""A second copy of a Kubernetes cluster that reaches the same Slurm: on the real Slurm, with the real API server."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from slinky.bridge.claim import Claim, claim_of, conflict_in
from slinky.bridge.keys import CLAIM, TAKE_OVER
from slinky.bridge.marker import with_claim
from slinky.kube import LEASES
from slinky.sandbox.bridge import SandboxBridge, bridge_settings
from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.own import metric, own_bridge, readiness
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox


async def test_a_copy_of_the_cluster_ends_none_of_productions_jobs(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    """The copy has production's identity and none of its pods, as after a restore from a backup; it looks for leftovers every second."""
    async with own_bridge(sandbox, partition, tmp_path / "production", absence={"sweepSeconds": 1}) as (production, team):
        await team.create(team.pod("runs"), team.pod("waits", said={"priority": "0"}))
        await team.until_running("runs")
        jobs = await team.until_labelled("runs", "waits")
        assert None not in [claim_of((await team.slurm.jobs.get(job_id)).admin_comment) for job_id in jobs]

        async def shown() -> Claim:
            """The newest that production's jobs show: a beat is written on one of the oldest, the one with the shortest comment."""
            found = [claim_of((await team.slurm.jobs.get(job_id)).admin_comment) for job_id in jobs]
            return max((claim for claim in found if claim is not None), key=lambda claim: (claim.generation, claim.beat))

        async def beaten() -> bool:
            return (await shown()).beat > 0

        await team.until("production showed in Slurm that it leads", beaten)

        settings = await asyncio.to_thread(
            bridge_settings,
            sandbox,
            "copy",
            cluster=production.settings["cluster"],
            managedNamespaceSelector={"matchLabels": {"bridge": "copy"}},
            absence={"sweepSeconds": 1},
        )
        copy = SandboxBridge(sandbox, settings, tmp_path)
        copy.folder.joinpath("run.log").touch()
        starts = asyncio.create_task(copy.start("run"))
        try:

            async def holds() -> bool:
                return "which this Kubernetes did not write" in copy.log("run")

            await team.until("the copy said that it does nothing", holds)
            status, text = await readiness(copy)
            assert status == 503
            assert TAKE_OVER in text
            assert await metric(copy, "slinky_bridge_claim_conflict") == 1
            events = json.loads(await team.kube.raw("GET", "/apis/events.k8s.io/v1/namespaces/kube-system/events"))["items"]
            shown_there = await team.kube.get(LEASES, "copy-claim", "kube-system")
            assert conflict_in(shown_there.metadata.annotations) is not None
            assert any(each["reason"] == "ClaimConflict" and each["regarding"]["name"] == "copy-claim" for each in events)

            seen = await shown()

            async def several_beats_later() -> bool:
                return (await shown()).beat > seen.beat + 2

            await team.until("production went on for longer than leftovers are left alone", several_beats_later, 90)
            assert [(await team.slurm.jobs.get(job_id)).state.name for job_id in jobs] == ["RUNNING", "PENDING"]
            await team.create(team.pod("more"))
            await team.until_running("more")
            assert "cancel" not in copy.log("run")
            assert "it is ended" not in copy.log("run")

            # An administrator decides for the copy: it may act, and production stops by itself.
            word = (await shown()).word
            await team.kube.patch(LEASES, "copy-claim", {"metadata": {"annotations": {TAKE_OVER: word}}}, "kube-system")

            async def production_stopped() -> bool:
                return "which this Kubernetes did not write" in production.log("run")

            await team.until("production noticed", production_stopped, 90)
            assert await metric(production, "slinky_bridge_claim_conflict") == 1
        finally:
            starts.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await starts
            await copy.end()
        # And for production again; where the copy has ended the job that they differ over, that is not needed any more.
        lease = production.settings["leader"]["name"] + "-claim"
        told = (await readiness(production))[1].partition(f"{TAKE_OVER}=")[2].split()
        if told:
            await team.kube.patch(LEASES, lease, {"metadata": {"annotations": {TAKE_OVER: told[0]}}}, "kube-system")
        await team.create(team.pod("last"))
        await team.until_running("last")
        assert CLAIM in (await team.kube.get(LEASES, lease, "kube-system")).metadata.annotations


async def test_a_restart_and_a_second_replica_of_production_go_on_without_a_word(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    async with own_bridge(sandbox, partition, tmp_path) as (bridge, team):
        await team.create(team.pod("p"))
        await team.until_running("p")
        for _ in range(2):
            await bridge.stop("run")
            await bridge.start("run")
            await team.create(team.pod(f"after-{_}"))
            await team.until_running(f"after-{_}")
        assert "which this Kubernetes did not write" not in bridge.log("run")
        assert (await team.job_of("p")).is_running


async def test_the_owner_of_a_job_does_not_stop_the_bridge(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    """She may change the job's `Extra` and `Comment`, and writes a newer claim there; Slurm keeps `AdminComment` from her."""
    policy = {"default": {"partitions": ["*"], "accounts": ["*"], "users": ["*"], "groups": ["*"]}}
    async with own_bridge(sandbox, partition, tmp_path, policy=policy) as (bridge, team):
        said = {"user-id": "alice", "group-id": "users", "account": "physics"}
        await team.create(team.pod("hers", said=said))
        await team.until_running("hers")
        job_id = (await team.job_of("hers")).job_id
        as_alice = ("runuser", "-u", "alice", "--", "scontrol", "update", f"jobid={job_id}")
        forged = "999999.abc.1"
        await team.head(*as_alice, f"Extra=slinky-claim={forged}")
        own = (await team.slurm.jobs.get(job_id)).admin_comment
        await team.head(*as_alice, f"Comment={with_claim(own, forged)}")
        with pytest.raises(Exception, match="denied"):
            await team.head(*as_alice, f"AdminComment={with_claim(own, forged)}")

        async def beat() -> int:
            found = claim_of((await team.slurm.jobs.get(job_id)).admin_comment)
            assert found is not None
            return found.beat

        seen = await beat()

        async def two_beats_later() -> bool:
            return await beat() > seen + 1

        await team.until("the bridge looked at the job twice", two_beats_later)
        await bridge.stop("run")
        await bridge.start("run")
        await team.create(team.pod("later"))
        await team.until_running("later")
        assert await metric(bridge, "slinky_bridge_claim_conflict") == 0
        assert "which this Kubernetes did not write" not in bridge.log("run")
