"""Taking over from the original, as a plan: only what both sides agree on, nothing on pods that run, and a reason for whatever cannot be."""

import datetime as dt
import json
from typing import Any

import msgspec
import pytest

from slinky.bridge.adoption import found_in
from slinky.bridge.keys import EXTERNAL_NODE, FINALIZER, JOB_ID, MANAGED_NODE, SLURM_NODE_NAME, TOPOLOGY
from slinky.bridge.marker import comment_for, read_comment
from slinky.bridge.migration.plan import (
    Handover,
    MarkNodes,
    PreparePod,
    Scene,
    SingleOut,
    TakeJob,
    Unhook,
    plan_migration,
    pods_of_original,
)
from slinky.bridge.node_mark import mark_for, owner_of
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Meta, Node, Pod
from slinky.kube.objects import PodSpec, PodStatus, Toleration
from slinky.slurm import Job
from slinky.slurm import Node as SlurmNode

CLUSTER, SCHEDULER = "c1", "slurm-bridge-scheduler"
THEIRS = Toleration(key=MANAGED_NODE, operator="Equal", value=SCHEDULER, effect="NoExecute")


def a_pod(name: str, job_id: int = 0, node: str = "", phase: str = "", *, deleting: bool = False) -> Pod:
    """As the original has it: label and finalizer come together."""
    meta = Meta(
        name=name,
        namespace="ns",
        uid=f"uid-{name}",
        labels={JOB_ID: str(job_id)} if job_id else {},
        finalizers=(FINALIZER,) if job_id else (),
        deletion_timestamp=dt.datetime.now(dt.UTC) if deleting else None,
    )
    return Pod(
        metadata=meta,
        spec=PodSpec(node_name=node, tolerations=(THEIRS,)),
        status=PodStatus(phase=phase or ("Running" if node else "Pending")),
    )


def a_job(job_id: int, *pods: str, state: str = "RUNNING", comment: str | None = None, **more: Any) -> Job:
    text = json.dumps({"pods": [f"ns/{name}" for name in pods]}) if comment is None else comment
    return Job(job_id=job_id, job_states=[state], admin_comment=text, flags=["EXTERNAL_JOB"], **more)


def scene(pods: list[Pod], *jobs: Job, keys: dict[str, WorkloadKey] | None = None, **more: Any) -> Scene:
    workloads = {pod.metadata.uid: (keys or {}).get(pod.metadata.name) or WorkloadKey("Pod", "ns", pod.metadata.uid) for pod in pods}
    return Scene(scheduler=SCHEDULER, cluster=CLUSTER, pods=pods, jobs=jobs, workloads=workloads, **more)


def taken(plan: Handover) -> dict[int, str]:
    """By job the workload that it is from now on."""
    found = {}
    for move in plan.moves:
        if isinstance(move, TakeJob):
            marking = read_comment(move.comment, CLUSTER)
            assert marking is not None
            found[move.job_id] = marking.workload
    return found


def refused(plan: Handover) -> dict[str, str]:
    return {left.name: left.why for left in plan.refused}


def test_a_job_and_its_pod_that_agree_are_taken_and_the_pod_is_not_touched() -> None:
    job = a_job(7, "p")
    plan = plan_migration(scene([a_pod("p", 7, "n")], job))
    [move] = plan.moves
    assert isinstance(move, TakeJob)
    assert json.loads(move.comment)["pods"] == ["ns/p"], "what the original's tools look for stays"
    found = found_in(msgspec.structs.replace(job, admin_comment=move.comment), CLUSTER)
    assert found is not None
    assert (found.key, found.count) == (WorkloadKey("Pod", "ns", "uid-p"), 1)
    assert not plan.refused


def test_a_gang_is_taken_as_one_workload() -> None:
    ring = WorkloadKey("CoschedulingPodGroup", "ns", "ring")
    pods = [a_pod("a", 7, "n1"), a_pod("b", 7, "n2")]
    assert taken(plan_migration(scene(pods, a_job(7, "a", "b"), keys={"a": ring, "b": ring}))) == {7: str(ring)}


def test_what_the_original_never_took_for_a_gang_is_told_that_it_is_none() -> None:
    jobset = WorkloadKey("JobSet", "ns", "train/workers")
    pods = [a_pod("a", 7, "n1"), a_pod("b", 8), a_pod("c")]
    plan = plan_migration(scene(pods, a_job(7, "a"), a_job(8, "b", state="PENDING"), keys=dict.fromkeys("abc", jobset)))
    assert [move.name for move in plan.moves if isinstance(move, SingleOut)] == ["JobSet ns/train"]
    assert taken(plan) == {7: "Pod ns/uid-a", 8: "Pod ns/uid-b"}


@pytest.mark.parametrize(
    ("pods", "jobs", "name", "why"),
    [
        ([a_pod("p", 7)], [a_job(7, "q")], "ns/p", "its label names job 7, which does not name it"),
        ([a_pod("p", 9)], [a_job(7, "p")], "ns/p", "its label names job 9, which Slurm does not know as one of the original's"),
        ([a_pod("p")], [a_job(7, "p")], "ns/p", "job 7 names it, but it has no label"),
        ([a_pod("p", 7, "n")], [a_job(7, "p", state="TIMEOUT")], "ns/p", "its job 7 is over in Slurm (TIMEOUT)"),
        ([], [a_job(7, "p")], "7", "none of its pods (ns/p) is there and names it"),
    ],
)
def test_where_the_two_sides_disagree_nothing_is_tied_and_the_reason_is_said(pods: list[Pod], jobs: list[Job], name: str, why: str) -> None:
    plan = plan_migration(scene(pods, *jobs))
    assert taken(plan) == {}
    assert why in refused(plan)[name]


def test_a_group_with_several_jobs_and_a_job_with_several_workloads_are_refused() -> None:
    ring = WorkloadKey("PodGroup", "ns", "ring")
    pods = [a_pod("a", 7, "n1"), a_pod("b", 8, "n2"), a_pod("c", 9, "n3"), a_pod("d", 9, "n4")]
    plan = plan_migration(scene(pods, a_job(7, "a"), a_job(8, "b"), a_job(9, "c", "d"), keys={"a": ring, "b": ring}))
    assert taken(plan) == {}
    assert "PodGroup ns/ring has several jobs (7, 8)" in refused(plan)["7"]
    assert "several workloads" in refused(plan)["9"]


def test_what_is_in_a_namespace_that_can_never_be_managed_is_left_as_it_is() -> None:
    now = scene([a_pod("p", 7), a_pod("new")], a_job(7, "p"), never=frozenset({"ns"}))
    plan = plan_migration(msgspec.structs.replace(now, workloads={}))
    assert plan.moves == ()
    assert "a namespace that can never be managed" in refused(plan)["7"]


@pytest.mark.parametrize(
    "comment",
    ["", "a text", '{"site": "x"}', "[]", '{"pods": 5}', comment_for("c2", "Pod ns/x", [("ns", "p")], ["u"])],
)
def test_a_comment_of_anybody_elses_is_nothing_to_the_migration(comment: str) -> None:
    assert pods_of_original(a_job(7, comment=comment)) == ()


def test_a_regular_job_is_nobodys_whatever_its_comment_says() -> None:
    assert pods_of_original(msgspec.structs.replace(a_job(7, "p"), flags=[])) == ()


def test_pods_that_wait_get_what_admission_would_have_given_them_and_no_others_do() -> None:
    ours = Toleration(key=MANAGED_NODE, operator="Equal", value=SCHEDULER)
    ready = a_pod("ready", 8)
    ready = msgspec.structs.replace(ready, spec=msgspec.structs.replace(ready.spec, tolerations=(ours,)))
    pods = [a_pod("new"), a_pod("waits", 7), ready, a_pod("runs", 9, "n"), a_pod("over", 9, "n", "Failed"), a_pod("leaves", deleting=True)]
    found = {move.name: move.patch for move in plan_migration(scene(pods)).moves if isinstance(move, PreparePod)}
    assert {name: [each["path"] for each in patch[1:]] for name, patch in found.items()} == {
        "ns/new": ["/spec/tolerations/-", "/metadata/finalizers"],
        "ns/waits": ["/spec/tolerations/-"],
    }


def test_jobs_that_are_ours_already_are_left_as_they_are() -> None:
    plan = plan_migration(scene([a_pod("p", 7, "n")], taken=frozenset({7})))
    assert (plan.moves, plan.refused, plan.already) == ((), (), 1)


def test_the_originals_nodes_are_taken_and_others_are_not() -> None:
    def node(name: str, **more: Any) -> Node:
        return Node(metadata=Meta(name=name, labels={EXTERNAL_NODE: ""} | more.pop("labels", {}), **more))

    nodes = [
        node("a"),
        node("b"),
        node("switched", annotations={TOPOLOGY: "topo-switch:s1"}),
        node("hybrid", labels={SLURM_NODE_NAME: "hybrid"}),
    ]
    nodes += [node("other"), node("new"), Node(metadata=Meta(name="unlabelled"))]
    external = ["IDLE", "EXTERNAL"]
    slurm_nodes = [
        SlurmNode(name="a", node_states=external, gres="gpu:h100:8(S:0,1),nic:2"),
        SlurmNode(name="b", node_states=external, gres="gpu:h100:8(S:0,1),nic:2"),
        SlurmNode(name="switched", node_states=external),
        SlurmNode(name="hybrid", node_states=["IDLE"]),
        SlurmNode(name="other", node_states=external, extra=mark_for("c2")),
        SlurmNode(name="unlabelled", node_states=external),
        SlurmNode(name="ghost", node_states=external),
    ]
    plan = plan_migration(scene([], nodes=nodes, slurm_nodes={node.name: node for node in slurm_nodes}))
    assert plan.moves == (
        MarkNodes(("a", "b"), mark_for(CLUSTER, "", ["gpu", "nic"])),
        MarkNodes(("switched",), mark_for(CLUSTER, "topo-switch:s1")),
    )
    assert "is another's in Slurm" in refused(plan)["other"]
    assert "ghost (1 in all)" in plan.notes[0]
    marked = msgspec.structs.replace(slurm_nodes[0], extra=mark_for(CLUSTER, "", ["gpu", "nic"]))
    assert owner_of(marked, CLUSTER) == "ours"


def test_the_originals_webhooks_go_first() -> None:
    plan = plan_migration(scene([a_pod("p", 7)], a_job(7, "p"), webhooks=[("mutatingwebhookconfigurations", "slurm-bridge-admission")]))
    assert [type(move) for move in plan.moves] == [Unhook, PreparePod, TakeJob]
