"""A NodeSet that is deleted, and its claims."""

from typing import Any

import msgspec
import pytest

from slinky.kube import PersistentVolumeClaim
from slinky.operator.nodesets.acts import CreateClaim, CreatePod, DeletePod, DeleteSlurmNode, DisownClaims, Drain, LetGo, OwnClaims, Tell
from slinky.operator.nodesets.plan import JobsNeeded, jobs_needed, plan
from slinky.operator.nodesets.snapshot import ClusterStands
from tests.operator.nodesets.scene import a_job, a_nodeset, a_pod, in_slurm, names, only, scene

LEAVING = a_nodeset(replicas=3, deleted=True)
DELETED = "slurm-operator: NodeSet (hpc/workers) is deleted"
INFO = '{"namespace":"hpc","podName":"workers-0","node":"k0","nodeSetName":"workers","nodeSetUID":"nodeset"}'


def test_all_workers_are_drained_and_none_is_made() -> None:
    acts = plan(scene(LEAVING, [a_pod(0), a_pod(1)], [in_slurm("workers-0"), in_slurm("workers-1", "ALLOCATED")]))
    assert only(acts, Drain) == [Drain(("workers-0", "workers-1"), DELETED)]
    assert only(acts, CreatePod) == only(acts, DeletePod) == only(acts, LetGo) == []


def test_workers_go_as_they_become_free() -> None:
    slurm = [in_slurm("workers-0", "IDLE", "DRAIN", reason=DELETED), in_slurm("workers-1", "MIXED", "DRAIN", reason=DELETED)]
    acts = plan(scene(LEAVING, [a_pod(0), a_pod(1)], slurm, jobs=(a_job(1, "workers-1"),)))
    assert names(acts, DeletePod) == ["workers-0"]
    assert only(acts, LetGo) == []


def test_records_in_slurm_go_next_and_the_finalizer_last() -> None:
    record, foreign = in_slurm("workers-0", "DOWN", comment=INFO), in_slurm("static-1", "DOWN")
    acts = plan(scene(LEAVING, [], [record, foreign]))
    assert names(acts, DeleteSlurmNode) == ["workers-0"]
    assert only(acts, LetGo) == []
    assert only(plan(scene(LEAVING, [], [foreign])), LetGo) == [LetGo()]


def test_a_record_that_slurm_refuses_to_delete_holds_nobody_up() -> None:
    acts = plan(scene(LEAVING, [], [in_slurm("workers-0", "DOWN", comment=INFO)], refused=frozenset({"deletion of workers-0"})))
    assert acts == [LetGo()]


def test_the_partition_stays_while_a_job_waits_in_it() -> None:
    acts = plan(scene(LEAVING, waiting=(4, 5)))
    assert only(acts, LetGo) == []
    assert "4, 5" in only(acts, Tell)[0].note
    assert only(plan(scene(a_nodeset(deleted=True, drainDeadlineSeconds=60), waiting=(4,))), LetGo) == [LetGo()]


def test_jobs_are_asked_for_before_the_partition_goes() -> None:
    unasked = scene(LEAVING, jobs=None)
    assert jobs_needed(unasked) is JobsNeeded.NOW
    assert plan(unasked) == []


@pytest.mark.parametrize("stands", list(ClusterStands))
def test_without_slurm_the_finalizer_stays_only_where_there_is_somebody_to_wait_for(stands: ClusterStands) -> None:
    assert bool(plan(scene(LEAVING, current=False, controller=stands))) is (stands is not ClusterStands.HERE)


@pytest.mark.parametrize("stands", list(ClusterStands))
def test_without_slurm_no_pod_goes_however_its_controller_stands(stands: ClusterStands) -> None:
    assert only(plan(scene(LEAVING, [a_pod(0)], current=False, controller=stands)), DeletePod) == []
    assert only(plan(scene(a_nodeset(replicas=0), [a_pod(0)], current=False, controller=stands)), DeletePod) == []


@pytest.mark.parametrize("stands", list(ClusterStands))
def test_where_nobody_can_ever_be_asked_the_deadline_counts_from_the_deletion_and_an_event_tells(stands: ClusterStands) -> None:
    acts = plan(scene(a_nodeset(deleted=True, drainDeadlineSeconds=60), [a_pod(0)], current=False, controller=stands))
    unasked = stands in (ClusterStands.GONE, ClusterStands.MUTE)
    assert names(acts, DeletePod) == (["workers-0"] if unasked else [])
    assert [told.reason for told in only(acts, Tell)] == (["DrainDeadlineExceeded"] if unasked else [])
    assert (
        only(plan(scene(a_nodeset(deleted=True, drainDeadlineSeconds=7200), [a_pod(0)], current=False, controller=stands)), DeletePod) == []
    )


@pytest.mark.parametrize("current", [True, False])
def test_jobs_that_are_given_up_hold_nothing_and_are_named_where_they_are_known(current: bool) -> None:
    slurm, jobs = [in_slurm("workers-0", "ALLOCATED")], (a_job(7, "workers-0"),) if current else None
    acts = plan(scene(LEAVING, [a_pod(0)], slurm, jobs=jobs, current=current, is_abandoned=True))
    assert names(acts, DeletePod) == ["workers-0"]
    [told] = only(acts, Tell)
    assert told.reason == "JobsAbandoned"
    assert ("job 7 is" in told.note) is current
    records = [in_slurm("workers-0", "ALLOCATED", comment=INFO), in_slurm("workers-1", "DOWN", comment=INFO)]
    acts = plan(scene(LEAVING, [], records, waiting=(4,), is_abandoned=True))
    assert (names(acts, DeleteSlurmNode), only(acts, LetGo)) == (["workers-1"], [LetGo()])


def test_where_the_whole_cluster_is_deleted_no_waiting_job_holds_it() -> None:
    assert only(plan(scene(LEAVING, waiting=(4,), controller=ClusterStands.LEAVING)), LetGo) == [LetGo()]


TEMPLATES: list[dict[str, Any]] = [{"metadata": {"name": "scratch"}, "spec": {}}]


def a_claim(name: str, *owners: str, leaving: bool = False) -> PersistentVolumeClaim:
    kinds = {uid: "Pod" if uid.startswith("uid-") else "NodeSet" for uid in owners}
    meta = {"name": name, "namespace": "hpc", "ownerReferences": [{"kind": kind, "uid": uid} for uid, kind in kinds.items()]}
    meta |= {"deletionTimestamp": "2026-11-15T12:00:00Z"} if leaving else {}
    return msgspec.convert({"metadata": meta}, PersistentVolumeClaim)


def test_each_worker_gets_its_claims_before_its_pod() -> None:
    acts = plan(scene(a_nodeset(replicas=1, volumeClaimTemplates=TEMPLATES)))
    assert [type(act) for act in acts] == [CreateClaim, CreatePod]
    assert acts[0] == CreateClaim("scratch-workers-0", 0, pod="workers-0")


def test_claims_belong_to_the_nodeset_only_where_they_are_to_go_with_it() -> None:
    deleted: dict[str, Any] = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}
    nodeset, kept = a_nodeset(replicas=1, volumeClaimTemplates=TEMPLATES, **deleted), a_nodeset(replicas=1, volumeClaimTemplates=TEMPLATES)
    free, owned = {"scratch-workers-0": a_claim("scratch-workers-0")}, {"scratch-workers-0": a_claim("scratch-workers-0", "nodeset")}
    assert only(plan(scene(nodeset, [a_pod(0)], claims=free)), OwnClaims) == [OwnClaims(("scratch-workers-0",), owned=True)]
    assert only(plan(scene(kept, [a_pod(0)], claims=owned)), OwnClaims) == [OwnClaims(("scratch-workers-0",), owned=False)]
    assert only(plan(scene(kept, [a_pod(0)], claims=free)), OwnClaims) == []


def test_a_worker_that_is_scaled_away_takes_its_claims_where_that_is_asked_for_and_an_updated_one_does_not() -> None:
    policy: dict[str, Any] = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}, "volumeClaimTemplates": TEMPLATES}
    claims, slurm = (
        {"scratch-workers-0": a_claim("scratch-workers-0")},
        [in_slurm("workers-0", "IDLE", "DRAIN", reason="slurm-operator: x")],
    )
    [scaled] = only(plan(scene(a_nodeset(replicas=0, **policy), [a_pod(0)], slurm, claims=claims)), DeletePod)
    [updated] = only(plan(scene(a_nodeset(replicas=1, **policy), [a_pod(0, revision="old")], slurm, claims=claims)), DeletePod)
    assert (scaled.claims, updated.claims) == (("scratch-workers-0",), ())


SCRATCH = "scratch-workers-0"
WITH_POD: dict[str, Any] = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}, "volumeClaimTemplates": TEMPLATES}


@pytest.mark.parametrize("claim", [a_claim(SCRATCH, "uid-gone"), a_claim(SCRATCH, leaving=True)])
def test_a_worker_that_comes_back_waits_until_the_claim_that_goes_is_gone(claim: PersistentVolumeClaim) -> None:
    """Scaled away and back within a moment: a pod on the old claim would keep it from going, and never be scheduled."""
    nodeset = a_nodeset(replicas=1, **WITH_POD)
    assert plan(scene(nodeset, claims={SCRATCH: claim})) == []
    assert [type(act) for act in plan(scene(nodeset))] == [CreateClaim, CreatePod]
    assert names(plan(scene(nodeset, claims={SCRATCH: a_claim(SCRATCH)})), CreatePod) == ["workers-0"]


def test_a_worker_that_stays_after_all_has_its_claims_taken_back_before_it_can_go_for_another_cause() -> None:
    """Its deletion was prepared and did not come to be; a new template must not cost it its data."""
    slurm, claims = [in_slurm("workers-0", "IDLE", "DRAIN", reason="slurm-operator: x")], {SCRATCH: a_claim(SCRATCH, "uid-workers-0")}
    staying = plan(scene(a_nodeset(replicas=1, **WITH_POD), [a_pod(0)], [in_slurm("workers-0")], claims=claims))
    assert only(staying, DisownClaims) == [DisownClaims((SCRATCH,), "uid-workers-0")]
    updated = plan(scene(a_nodeset(replicas=1, **WITH_POD), [a_pod(0, revision="old")], slurm, claims=claims))
    assert (only(updated, DisownClaims), only(updated, DeletePod)) == ([DisownClaims((SCRATCH,), "uid-workers-0")], [])
    scaled = plan(scene(a_nodeset(replicas=0, **WITH_POD), [a_pod(0)], slurm, claims=claims))
    assert (only(scaled, DisownClaims), names(scaled, DeletePod)) == ([], ["workers-0"])


def test_a_claim_that_goes_with_its_pod_is_the_pods_alone_until_it_stays_after_all() -> None:
    """Kubernetes deletes what has lost the last of its owners: beside the NodeSet's its pod's going would change nothing."""
    both: dict[str, Any] = WITH_POD | {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Delete"}}
    slurm, claims = [in_slurm("workers-0", "IDLE", "DRAIN", reason="slurm-operator: x")], {SCRATCH: a_claim(SCRATCH, "uid-workers-0")}
    assert only(plan(scene(a_nodeset(replicas=0, **both), [a_pod(0)], slurm, claims=claims)), OwnClaims) == []
    staying = plan(scene(a_nodeset(replicas=1, **both), [a_pod(0)], [in_slurm("workers-0")], claims=claims))
    assert only(staying, DisownClaims) == [DisownClaims((SCRATCH,), "uid-workers-0")]
    assert only(staying, OwnClaims) == [OwnClaims((SCRATCH,), owned=True)]
