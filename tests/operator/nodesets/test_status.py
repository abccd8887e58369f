"""What a NodeSet's status says."""

from typing import Any

import pytest

from slinky.operator.conditions import is_available
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import ChangePod, CreatePod, DeletePod
from slinky.operator.nodesets.plan import choose, plan
from slinky.operator.nodesets.snapshot import ClusterStands
from slinky.operator.nodesets.status import numbers, standing
from tests.operator.nodesets.scene import a_job, a_node, a_nodeset, a_pod, ago, cordoned, in_slurm, names, only, scene


def said(snapshot: Any) -> tuple[bool, bool, bool, str]:
    found = standing(snapshot, choose(snapshot))
    return found["Ready"].status, found["Progressing"].status, found["Degraded"].status, found["Ready"].reason


def test_numbers_count_pods_and_slurm_nodes() -> None:
    pods = [a_pod(0), a_pod(1, revision="old"), a_pod(2, ready=False), a_pod(3, leaving=True)]
    slurm = [in_slurm("workers-0", "MIXED"), in_slurm("workers-1", "IDLE", "DRAIN", reason="x"), in_slurm("workers-2", "DOWN")]
    snapshot = scene(a_nodeset(replicas=4), pods, slurm)
    found = numbers(snapshot, choose(snapshot))
    assert {
        key: found[key] for key in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas", "desired")
    } == {
        "replicas": 3,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "unavailableReplicas": 2,
        "desired": 4,
    }
    assert [found[key] for key in ("slurmIdle", "slurmAllocated", "slurmDown", "slurmDrain")] == [1, 1, 1, 1]
    assert found["selector"] == "app.kubernetes.io/name=slurmd,app.kubernetes.io/instance=workers"


def test_a_nodeset_with_all_its_workers_is_ready() -> None:
    assert said(scene(a_nodeset(replicas=1), [a_pod(0)], [in_slurm("workers-0")])) == (True, False, False, "AsWritten")
    assert said(scene(a_nodeset(replicas=0))) == (True, False, False, "AsWritten")


def test_workers_that_start_are_progress() -> None:
    assert said(scene(a_nodeset(replicas=2), [a_pod(0)], [in_slurm("workers-0")])) == (False, True, False, "WorkersStarting")


def test_an_image_that_cannot_be_had_is_said() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    snapshot = scene(a_nodeset(replicas=1), [a_pod(0, ready=False, phase="Pending", slurmd=waiting)])
    assert said(snapshot) == (False, False, True, "WorkersFailing")
    assert "ImagePullBackOff no such image" in standing(snapshot, choose(snapshot))["Degraded"].message


def test_a_worker_that_slurm_does_not_know_is_said_after_a_while() -> None:
    assert said(scene(a_nodeset(replicas=1), [a_pod(0)]))[3] == "SlurmNodeNotRegistered"
    assert said(scene(a_nodeset(replicas=1), [a_pod(0, ready_since=ago(seconds=5))]))[3] == "WorkersStarting"


def test_a_worker_that_slurm_refuses_is_said_in_slurms_words() -> None:
    refused = in_slurm("workers-0", "DOWN", "DRAIN", "INVALID_REG", reason="gres/disk count reported lower than configured (2 < 4)")
    snapshot = scene(a_nodeset(replicas=1), [a_pod(0)], [refused])
    assert said(snapshot) == (False, False, True, "SlurmNodeInvalid")
    assert (
        "0 of 1 workers available; Slurm does not use node workers-0: gres/disk count"
        in standing(snapshot, choose(snapshot))["Degraded"].message
    )


def test_what_holds_a_worker_that_is_to_go_is_named() -> None:
    slurm = [in_slurm("workers-0", "ALLOCATED", "DRAIN", reason="slurm-operator: x")]
    snapshot = scene(a_nodeset(replicas=0), [a_pod(0, annotations=cordoned("scale-in"))], slurm, jobs=(a_job(7, "workers-0"),))
    assert said(snapshot) == (True, True, False, "ScalingDown")
    assert "workers-0: job 7 is on node workers-0" in standing(snapshot, choose(snapshot))["Progressing"].message


def test_where_workers_are_pinned_their_nodes_are_kept_and_used() -> None:
    pinned = a_nodeset(replicas=2, pinToNode=True, status={"ordinalToNode": {"1": "k7", "5": "gone"}})
    snapshot = scene(pinned, [a_pod(0)], nodes=[a_node("k0"), a_node("k7")])
    choice = choose(snapshot)
    assert [(act.name, act.node) for act in choice.missing] == [("workers-1", "k7")]
    assert numbers(snapshot, choice)["ordinalToNode"] == {"0": "k0", "1": "k7"}


def test_without_a_restapi_pods_that_are_ready_suffice_and_it_is_said_that_no_worker_can_go() -> None:
    def mute(replicas: int, **spec: Any) -> tuple[bool, bool, bool, str]:
        return said(scene(a_nodeset(replicas=replicas, **spec), [a_pod(0)], current=False, controller=ClusterStands.MUTE))

    assert mute(1) == (True, False, False, "NoRestApi")
    assert mute(2) == (False, True, False, "WorkersStarting")
    assert mute(0) == (False, False, True, "NoRestApi")


def test_without_a_restapi_a_worker_is_cordoned_and_goes_when_its_deadline_is_over() -> None:
    mute: dict[str, Any] = {"current": False, "controller": ClusterStands.MUTE}
    nodeset = a_nodeset(replicas=0, drainDeadlineSeconds=60)
    acts = plan(scene(nodeset, [a_pod(0)], **mute))
    assert only(acts, ChangePod)[0].annotations[marks.CAUSE] == "scale-in"
    assert names(acts, DeletePod) == []
    assert names(plan(scene(nodeset, [a_pod(0, annotations=cordoned("scale-in", ago(seconds=61)))], **mute)), DeletePod) == ["workers-0"]


@pytest.mark.parametrize(("stands", "reason"), [(ClusterStands.GONE, "ControllerGone"), (ClusterStands.MUTE, "NoRestApi")])
def test_a_nodeset_that_stays_because_nobody_can_be_asked_says_so_and_what_would_end_it(stands: ClusterStands, reason: str) -> None:
    snapshot = scene(a_nodeset(deleted=True), [a_pod(0)], current=False, controller=stands)
    assert said(snapshot)[3] == reason
    message = standing(snapshot, choose(snapshot))["Degraded"].message
    assert "drainDeadlineSeconds" in message
    assert "slinky.slurm.net/abandon-jobs=true" in message


def test_a_nodeset_without_workers_says_why_it_stays() -> None:
    def message(**more: Any) -> str:
        snapshot = scene(a_nodeset(deleted=True), **more)
        return standing(snapshot, choose(snapshot))["Progressing"].message

    assert "Slurm does not answer" in message(current=False)
    assert "jobs wait in its partition, which goes with it: 4, 5" in message(waiting=(4, 5))


def test_a_pod_that_is_pinned_to_a_node_that_is_gone_is_made_anew_elsewhere() -> None:
    terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    pinned = a_nodeset(replicas=1, pinToNode=True, status={"ordinalToNode": {"0": "gone"}})
    stuck = a_pod(0, node="", phase="Pending", ready=False, spec=spec)
    assert names(plan(scene(pinned, [stuck], current=False)), DeletePod) == ["workers-0"]
    assert only(plan(scene(pinned, current=False)), CreatePod) == [CreatePod("workers-0", ordinal=0)]


def stands(snapshot: Any) -> tuple[bool, bool, str]:
    """Ready, Available, and the reason."""
    found = standing(snapshot, choose(snapshot))
    return found["Ready"].status, is_available(found), found["Ready"].reason


def test_a_nodeset_without_a_usable_worker_is_never_ready_nor_available() -> None:
    """One replica, maxUnavailable 25%, and a template that could not start was mended."""
    rolling: dict[str, Any] = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "25%"}}}
    crashing = {"state": {"running": {"startedAt": ago(seconds=20)}}}
    old = a_pod(0, ready=False, ready_since=ago(seconds=30), revision="old", slurmd=crashing)
    found = stands(scene(a_nodeset(replicas=1, **rolling), [old]))
    assert found == (False, False, "WorkersStarting")


def test_ready_waits_for_the_present_template_and_available_does_not() -> None:
    slurm = [in_slurm("workers-0"), in_slurm("workers-1")]
    pods = [a_pod(0), a_pod(1, revision="old")]
    assert stands(scene(a_nodeset(replicas=2), pods, slurm)) == (False, True, "RollingUpdate")
    on_delete = a_nodeset(replicas=2, updateStrategy={"type": "OnDelete"})
    assert stands(scene(on_delete, pods, slurm)) == (True, True, "AsWritten")


def test_some_may_be_away_from_one_that_can_be_used_but_not_from_one_that_is_ready() -> None:
    slurm = [in_slurm(f"workers-{number}") for number in range(3)]
    three = [a_pod(number) for number in range(3)]
    assert stands(scene(a_nodeset(replicas=4), three, slurm)) == (False, True, "WorkersStarting")
    assert stands(scene(a_nodeset(replicas=8), three, slurm)) == (False, False, "WorkersStarting")


def test_a_worker_on_a_lost_kubernetes_node_is_named_with_the_node() -> None:
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": ago(seconds=50)}
    lost = a_node("k0", conditions=[condition])
    pods, slurm = [a_pod(0, ready=False, ready_since=ago(seconds=50)), a_pod(1)], [in_slurm("workers-1")]
    snapshot = scene(a_nodeset(replicas=2), pods, slurm, nodes=[lost, a_node("k1")])
    assert stands(snapshot) == (False, True, "NodeNotReady")
    found = standing(snapshot, choose(snapshot))
    assert "1 of 2 workers available; pod workers-0 is on Kubernetes node k0" in found["Ready"].message
    assert "kubectl taint nodes k0" in found["Ready"].message
    assert not found["Degraded"].status  # some of many are always away
    alone = scene(a_nodeset(replicas=1), pods[:1], nodes=[lost])
    assert standing(alone, choose(alone))["Degraded"].status


def test_a_slurm_that_is_silent_for_a_moment_leaves_a_nodeset_available_and_for_long_does_not() -> None:
    def silent(is_silent: bool) -> tuple[bool, bool, str]:
        pods = [a_pod(0)]
        return stands(scene(a_nodeset(replicas=1), pods, current=False, is_silent=is_silent))

    assert silent(False) == (False, True, "SlurmNotAnswering")
    assert silent(True) == (False, False, "SlurmNotAnswering")
