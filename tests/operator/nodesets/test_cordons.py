"""Cordon and drain, both ways; protection from evictions; and what stands on pods and in Slurm."""

from typing import Any

from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import ChangePod, DeletePod, Drain, Resume, SetComment, SetConditions, SetFeatures, SetTopology, Tell
from slinky.operator.nodesets.plan import plan
from slinky.operator.nodesets.slurm_marks import refusal_of
from tests.operator.nodesets.scene import NOW, a_job, a_node, a_nodeset, a_pod, ago, cordoned, in_slurm, names, only, scene

ONE = a_nodeset(replicas=1)
NODE_CORDONED = "slurm-operator: Node (k0) is cordoned"


def changes(acts: list[Any]) -> tuple[dict[str, str | None], dict[str, str | None]]:
    found = only(acts, ChangePod)
    return (dict(found[0].labels), dict(found[0].annotations)) if found else ({}, {})


def test_a_cordoned_kubernetes_node_has_its_worker_drained_and_marked() -> None:
    acts = plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0", "ALLOCATED")], nodes=[a_node("k0", cordoned=True)]))
    assert only(acts, Drain) == [Drain(("workers-0",), NODE_CORDONED)]
    _, annotations = changes(acts)
    assert (annotations[marks.CORDON], annotations[marks.CAUSE]) == ("true", "node")
    assert names(acts, DeletePod) == []


def test_the_reason_is_what_the_node_says_then_its_conditions_then_that_it_is_cordoned() -> None:
    ill = [{"type": "GpuBroken", "status": "True", "reason": "Xid", "message": "Xid 79"}, {"type": "Ready", "status": "True"}]

    def reason(node: Any) -> str:
        [drain] = only(plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0")], nodes=[node], propagated=("GpuBroken",))), Drain)
        return str(drain.reason)

    assert reason(a_node("k0", cordoned=True, conditions=ill)) == "slurm-operator: GpuBroken: Xid 79"
    said = {"nodeset.slinky.slurm.net/node-cordon-reason": "new\nmemory " + "x" * 500}
    assert reason(a_node("k0", cordoned=True, annotations=said, conditions=ill)) == ("slurm-operator: new memory " + "x" * 500)[: 256 + 16]


def test_an_uncordoned_node_is_resumed() -> None:
    acts = plan(scene(ONE, [a_pod(0, annotations=cordoned("node"))], [in_slurm("workers-0", "IDLE", "DRAIN", reason=NODE_CORDONED)]))
    assert names(acts, Resume) == ["workers-0"]
    assert changes(acts)[1] == {marks.CORDON: None, marks.CAUSE: None, marks.SINCE: None}


def test_a_cordon_by_hand_drains_and_stays_until_a_hand_takes_it_away() -> None:
    by_hand = a_pod(0, annotations={marks.CORDON: "true"})
    acts = plan(scene(ONE, [by_hand], [in_slurm("workers-0")]))
    assert names(acts, Drain) == ["workers-0"]
    assert changes(acts)[1] == {}
    drained = in_slurm("workers-0", "IDLE", "DRAIN", reason=only(acts, Drain)[0].reason)
    assert names(plan(scene(ONE, [by_hand], [drained])), Resume) == []
    assert names(plan(scene(ONE, [a_pod(0)], [drained])), Resume) == ["workers-0"]


def test_a_cordon_by_hand_outlives_one_of_ours() -> None:
    acts = plan(scene(ONE, [a_pod(0, annotations={marks.CORDON: "true"})], [in_slurm("workers-0")], nodes=[a_node("k0", cordoned=True)]))
    ours = {key: str(value) for key, value in changes(acts)[1].items()}
    uncordoned = plan(scene(ONE, [a_pod(0, annotations=ours)], [in_slurm("workers-0", "IDLE", "DRAIN", reason=NODE_CORDONED)]))
    assert names(uncordoned, Resume) == []
    assert changes(uncordoned)[1] == {marks.CAUSE: None, marks.SINCE: None}


def test_an_admins_drain_shows_on_the_pod_and_writes_no_cordon() -> None:
    acts = plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0", "ALLOCATED", "DRAIN", reason="bad disk")]))
    assert changes(acts)[1] == {}
    [said] = only(acts, SetConditions)
    assert said.conditions == {"SlurmNodeStateAllocated": ("True", "", "bad disk"), "SlurmNodeStateDrain": ("True", "", "bad disk")}
    assert only(acts, Resume) == only(acts, Drain) == []


def test_an_admins_drain_outlives_a_cordon_of_the_kubernetes_node() -> None:
    admins = in_slurm("workers-0", "IDLE", "DRAIN", reason="bad disk")
    assert only(plan(scene(ONE, [a_pod(0)], [admins], nodes=[a_node("k0", cordoned=True)])), Drain) == []
    assert only(plan(scene(ONE, [a_pod(0, annotations=cordoned("node"))], [admins])), Resume) == []


def test_conditions_that_slurm_no_longer_says_are_taken_away_and_others_stay() -> None:
    import msgspec

    from slinky.kube.objects import Condition

    pod = a_pod(0)
    told = (
        *pod.status.conditions,
        Condition(type="SlurmNodeStateIdle", status="True"),
        Condition(type="SlurmNodeStateDrain", status="True"),
    )
    pod = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=told))
    [said] = only(plan(scene(ONE, [pod], [in_slurm("workers-0", "IDLE")])), SetConditions)
    assert (said.conditions, said.gone) == ({}, ("SlurmNodeStateDrain",))
    assert only(plan(scene(ONE, [pod], [], current=False)), SetConditions) == []
    [unknown] = only(plan(scene(ONE, [pod], [])), SetConditions)
    assert unknown.gone == ("SlurmNodeStateIdle", "SlurmNodeStateDrain")


def test_a_worker_is_protected_while_slurm_may_give_it_jobs_and_not_only_while_it_has_some() -> None:
    def protected(pod: Any, *slurm: Any, **more: Any) -> str | None:
        held = pod.metadata.labels.get(marks.PROTECT)
        return changes(plan(scene(ONE, [pod], list(slurm), **more)))[0].get(marks.PROTECT, held)

    bare = a_pod(0, labels={marks.PROTECT: "no"})
    assert protected(bare, in_slurm("workers-0", "IDLE")) == "true"
    assert protected(bare, in_slurm("workers-0", "ALLOCATED", "DRAIN", reason="x")) == "true"
    assert protected(bare) == "true"
    assert protected(a_pod(0), in_slurm("workers-0", "IDLE", "DRAIN", reason="x")) is None
    assert protected(a_pod(0), in_slurm("workers-0", "IDLE", "DRAIN", reason="x"), jobs=(a_job(1, "workers-0"),)) == "true"
    assert protected(a_pod(0), in_slurm("workers-0", "IDLE", "DRAIN", reason="x"), current=False) == "true"


def test_a_worker_that_was_found_free_and_stays_is_left_as_it_is_while_nobody_asks_for_jobs() -> None:
    """Else its label would come and go with each look, for ever."""
    drained = in_slurm("workers-0", "IDLE", "DRAIN", reason="x")
    free = a_pod(0, labels={marks.PROTECT: "no"})
    for jobs in ((), None):
        assert marks.PROTECT not in changes(plan(scene(ONE, [free], [drained], jobs=jobs)))[0]


def test_protection_that_is_not_wanted_is_taken_away() -> None:
    acts = plan(scene(a_nodeset(replicas=1, workloadDisruptionProtection=False), [a_pod(0)], [in_slurm("workers-0", "ALLOCATED")]))
    assert changes(acts)[0] == {marks.PROTECT: None}


def test_after_the_deadline_a_worker_on_a_cordoned_node_may_be_evicted_and_its_jobs_are_named() -> None:
    pods = [a_pod(0, annotations=cordoned("node", ago(seconds=61)))]
    slurm, node = [in_slurm("workers-0", "ALLOCATED", "DRAIN", reason=NODE_CORDONED)], a_node("k0", cordoned=True)
    acts = plan(scene(a_nodeset(replicas=1, drainDeadlineSeconds=60), pods, slurm, nodes=[node], jobs=(a_job(7, "workers-0"),)))
    assert changes(acts)[0] == {marks.PROTECT: None}
    assert "job 7 " in only(acts, Tell)[0].note
    assert only(acts, DeletePod) == []


def test_until_when_jobs_hold_a_worker_stands_on_its_pod() -> None:
    job = a_job(1, "workers-0", ends=NOW)
    acts = plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0", "ALLOCATED")], jobs=(job,)))
    assert changes(acts)[1] == {marks.DEADLINE: "2026-11-15T12:00:00Z"}
    idle = plan(scene(ONE, [a_pod(0, annotations={marks.DEADLINE: "2026-11-15T12:00:00Z"})], [in_slurm("workers-0")]))
    assert changes(idle)[1] == {marks.DEADLINE: None}


def test_whose_a_node_is_stands_in_its_comment_and_a_comment_of_somebody_else_stays() -> None:
    [comment] = only(plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0")])), SetComment)
    assert comment.comment == '{"namespace":"hpc","podName":"workers-0","node":"k0","nodeSetName":"workers","nodeSetUID":"nodeset"}'
    assert only(plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0", comment=comment.comment)])), SetComment) == []
    assert only(plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0", comment="ask Anna first")])), SetComment) == []


def test_topology_goes_from_the_node_to_the_pod_and_to_slurm() -> None:
    node = a_node("k0", annotations={marks.TOPOLOGY: "tree:s1"})
    acts = plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0", topology="")], nodes=[node]))
    assert only(acts, SetTopology) == [SetTopology(("workers-0",), "tree:s1")]
    assert changes(acts)[1] == {marks.TOPOLOGY: "tree:s1"}
    there = [in_slurm("workers-0", topology="tree:s0:s1")]
    assert only(plan(scene(ONE, [a_pod(0)], there, nodes=[node])), SetTopology) == []
    refused = frozenset({refusal_of(only(acts, SetTopology)[0])})
    assert only(plan(scene(ONE, [a_pod(0)], [in_slurm("workers-0")], nodes=[node], refused=refused)), SetTopology) == []


def test_features_of_the_node_are_added_and_those_of_others_stay() -> None:
    node = a_node("k0", annotations={marks.FEATURES: "nvme, ib"})
    slurm = in_slurm("workers-0", features=["workers", "k8s/old"], active_features=["workers"])
    [act] = only(plan(scene(ONE, [a_pod(0)], [slurm], nodes=[node])), SetFeatures)
    assert (act.available, act.active) == (("workers", "k8s/ib", "k8s/nvme"), ("workers", "k8s/ib", "k8s/nvme"))
    as_told = in_slurm("workers-0", features=list(act.available), active_features=list(act.active))
    assert only(plan(scene(ONE, [a_pod(0)], [as_told], nodes=[node])), SetFeatures) == []
