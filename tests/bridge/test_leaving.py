"""Uninstalling, as a plan: what is let go of in which order, what is left and why; and from whatever state, however often it is killed, the same end."""

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.adoption import Found
from slinky.bridge.keys import (
    APART,
    CONDITION,
    CORDONED_FOR_SLURM,
    FINALIZER,
    JOB_ID,
    MANAGED_NODE,
    NODE_CONDITION,
    OVERRULED,
    SLURM_NODE,
    SLURM_NODE_NAME,
    TASK,
)
from slinky.bridge.leaving.plan import Look, Plan, Running, Waiting, plan_leaving
from slinky.bridge.leaving.steps import Act, Clear, DeleteNode, DeletePod, Drain, EndJob, Evict, Left, LetGo, RemoveObject, Undrain
from slinky.bridge.node_mark import birth_reason, mark_for
from slinky.bridge.submission import Submission
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Meta, Node, Pod
from slinky.kube.objects import Condition, ContainerState, ContainerStatus, NodeSpec, NodeStatus, PodSpec, PodStatus, Taint
from slinky.slurm import Node as SlurmNode

CLUSTER, SCHEDULER = "c1", "ours"
DELETED = dt.datetime.now(dt.UTC)
WEBHOOKS = (RemoveObject("mutatingwebhookconfigurations", "b"), RemoveObject("validatingwebhookconfigurations", "b"))


def a_pod(
    name: str, job_id: int = 0, node: str = "", phase: str = "", *, deleting: bool = False, finalizer: bool = True, **meta: Any
) -> Pod:
    found = Meta(
        name=name,
        namespace="ns",
        uid=f"uid-{name}",
        labels={"app": "x"} | ({JOB_ID: str(job_id)} if job_id else {}),
        finalizers=("other.org/f", FINALIZER) if finalizer else ("other.org/f",),
        deletion_timestamp=DELETED if deleting else None,
        **meta,
    )
    return Pod(metadata=found, spec=PodSpec(node_name=node), status=PodStatus(phase=phase or ("Running" if node else "Pending")))


def a_job(job_id: int, *pods: str, started: bool = True) -> Found:
    key = WorkloadKey("Pod", "ns", f"uid-{job_id}")
    names = tuple(f"ns/{name}" for name in pods)
    return Found(key, Submission(job_id=job_id, tasks=len(pods) or 1), "m", (job_id,), pods=names, count=len(pods), started=float(started))


def in_slurm(name: str, *states: str, ours: bool = True, **more: Any) -> SlurmNode:
    extra = {"extra": mark_for(CLUSTER)} if ours else {}
    return SlurmNode(name=name, node_states=[*(states or ("IDLE",)), "EXTERNAL"], **(extra | more))


def look(**more: Any) -> Look:
    slurm_nodes = {node.name: node for node in more.pop("slurm_nodes", ())}
    return Look(scheduler=SCHEDULER, cluster=CLUSTER, slurm_nodes=slurm_nodes, **more)


def acts(plan: Plan) -> list[Act]:
    return [act for step in plan.steps for act in step.acts]


def lefts(plan: Plan) -> dict[str, str]:
    return {left.name: left.why for left in plan.left}


# What becomes of pods and jobs


def test_nothing_is_taken_in_any_more_before_anything_is_let_go_of() -> None:
    now = look(pods=[a_pod("p", 7)], jobs=[a_job(7, "p")], slurm_nodes=[in_slurm("n")], objects=[*WEBHOOKS, RemoveObject("secrets", "s")])
    kinds = [type(act) for act in acts(plan_leaving(now))]
    assert kinds == [RemoveObject, RemoveObject, Drain, LetGo, EndJob, DeleteNode, RemoveObject]


def test_a_pod_that_runs_is_let_go_of_and_runs_on_and_its_job_ends() -> None:
    said = {SLURM_NODE: "n", TASK + "procid": "0", "mine": "x"}
    now = look(
        pods=[a_pod("p", 7, "n", annotations=said)],
        jobs=[a_job(7, "p")],
        slurm_nodes=[in_slurm("n", "ALLOCATED", "DRAIN")],
        users={"n": {7}},
    )
    plan = plan_leaving(now)
    let_go, end = acts(plan)
    assert isinstance(let_go, LetGo)
    assert (let_go.labels, let_go.annotations, let_go.finalizer) == ((JOB_ID,), (SLURM_NODE,), True), "what containers read stays"
    assert end == EndJob(7, (7,))
    assert (plan.runs_on, plan.left) == (("ns/p",), ())
    assert [step.later for step in plan.steps if step.later] == [(Left("node", "n", "its jobs have not ended"),)]


@pytest.mark.parametrize("hybrid", ["n", "slurm-n"])
def test_where_the_node_stays_in_slurm_the_job_of_a_pod_that_runs_on_stays_too(hybrid: str) -> None:
    """Slurm would give to others what the pod uses."""
    node = Node(metadata=Meta(name="n", labels={SLURM_NODE_NAME: hybrid}))
    now = look(pods=[a_pod("p", 7, "n")], nodes=[node], jobs=[a_job(7, "p")], slurm_nodes=[SlurmNode(name=hybrid, node_states=["MIXED"])])
    plan = plan_leaving(now)
    [let_go] = acts(plan)
    assert isinstance(let_go, LetGo)
    assert (let_go.labels, let_go.finalizer) == ((), True), "it keeps what names its job"
    assert "on nodes that stay in Slurm" in lefts(plan)["7"]

    ended = msgspec.structs.replace(now, pods=[a_pod("p", 7, "n", "Succeeded", finalizer=False)])
    assert [act.name for act in acts(plan_leaving(ended))] == ["7"]
    unlabelled = msgspec.structs.replace(now, pods=[a_pod("p", 0, "n")])
    assert "7" in lefts(plan_leaving(unlabelled)), "a label that somebody took off changes nothing: the job names its pods too"


def test_pods_that_wait_are_left_and_told_or_deleted() -> None:
    now = look(pods=[a_pod("p", 7), a_pod("gone", 8, deleting=True)], jobs=[a_job(7, "p", started=False), a_job(8, "gone")])
    plan = plan_leaving(now)
    [p, gone, *ends] = acts(plan)
    assert isinstance(p, LetGo)
    assert p.word is not None
    assert "nobody schedules this pod" in p.word.message
    assert isinstance(gone, LetGo)
    assert gone.word is None
    assert ends == [EndJob(7, (7,)), EndJob(8, (8,))]
    assert list(lefts(plan)) == ["ns/p"]
    assert "--waiting delete" in lefts(plan)["ns/p"]

    plan = plan_leaving(now, waiting="delete")
    assert isinstance(acts(plan)[0], DeletePod)
    assert not plan.left


def test_pods_that_run_are_evicted_or_waited_for_and_their_jobs_end_after_them() -> None:
    now = look(
        pods=[a_pod("p", 7, "n"), a_pod("q", 8, "n", deleting=True)],
        jobs=[a_job(7, "p"), a_job(8, "q")],
        slurm_nodes=[in_slurm("n", "DRAIN", "MIXED")],
    )
    plan = plan_leaving(now, running="evict")
    assert [(type(act), act.name) for act in acts(plan)] == [(Evict, "ns/p")]
    assert {left.name for step in plan.steps for left in step.later} == {"ns/q", "7", "8", "n"}

    plan = plan_leaving(now, running="wait")
    assert acts(plan) == []
    assert {left.name for step in plan.steps for left in step.later} == {"ns/p", "ns/q", "7", "8", "n"}


def test_the_job_of_pods_that_ended_by_themselves_ends_with_their_exit_code() -> None:
    failed = a_pod("p", 7, "n", "Failed")
    state = msgspec.convert({"terminated": {"exitCode": 5}}, ContainerState)
    failed = msgspec.structs.replace(failed, status=PodStatus(phase="Failed", container_statuses=(ContainerStatus(state=state),)))
    plan = plan_leaving(look(pods=[failed], jobs=[a_job(7, "p")]))
    [let_go, end] = acts(plan)
    assert isinstance(let_go, LetGo)
    assert (let_go.labels, let_go.finalizer) == ((), True), "it tells which job it was"
    assert end == EndJob(7, (7,), 5)


def test_without_slurm_pods_are_let_go_of_but_those_that_run_keep_what_names_their_job() -> None:
    now = look(pods=[a_pod("waits", 7), a_pod("runs", 8, "n")], jobs=None, slurm_trouble="refused", objects=WEBHOOKS)
    plan = plan_leaving(now)
    waits, runs = (act for act in acts(plan) if isinstance(act, LetGo))
    assert (waits.labels, waits.finalizer) == ((JOB_ID,), True)
    assert (runs.labels, runs.finalizer) == ((), True)
    assert "Slurm cannot be asked (refused)" in lefts(plan)["jobs and nodes"]


# Nodes


def test_only_nodes_with_our_mark_are_removed_and_one_that_was_just_born_is_marked_first() -> None:
    born = in_slurm("born", ours=False, reason=birth_reason(CLUSTER))
    others = [
        in_slurm("other", ours=False, extra=mark_for("c2")),
        in_slurm("other-born", ours=False, reason=birth_reason("c2")),
        in_slurm("nobody", ours=False),
        SlurmNode(name="slurmd", node_states=["IDLE"], extra=mark_for(CLUSTER)),
    ]
    plan = plan_leaving(look(slurm_nodes=[born, in_slurm("ours", "DOWN"), *others]))
    assert acts(plan) == [Drain("born", mark_for(CLUSTER)), DeleteNode("born"), DeleteNode("ours")]


def test_a_node_that_a_job_of_others_names_is_left() -> None:
    now = look(
        slurm_nodes=[in_slurm("n1", "IDLE", "DRAIN"), in_slurm("n2", "IDLE", "DRAIN")], users={"n[1-9]": {99}, "broken[": {98}}, jobs=[]
    )
    assert "somebody else's" in lefts(plan_leaving(now))["n1"]
    assert acts(plan_leaving(now)) == []
    own = msgspec.structs.replace(now, users={"n[1-9]": {7}}, jobs=[a_job(7)])
    assert acts(plan_leaving(own)) == [EndJob(7, (7,))], "ours ends first"
    assert acts(plan_leaving(msgspec.structs.replace(own, jobs=[], users={}))) == [DeleteNode("n1"), DeleteNode("n2")]


def test_what_the_bridge_wrote_on_nodes_goes_and_what_others_wrote_stays() -> None:
    ours = Taint(key=MANAGED_NODE, value=SCHEDULER, effect="NoSchedule")
    condition = Condition(type=NODE_CONDITION, status="True")
    nodes = [
        Node(metadata=Meta(name="tainted"), spec=NodeSpec(taints=(ours, Taint(key="x")))),
        Node(metadata=Meta(name="cordoned", annotations={CORDONED_FOR_SLURM: "down"}), spec=NodeSpec(unschedulable=True)),
        Node(metadata=Meta(name="said"), status=NodeStatus(conditions=(condition,))),
        Node(metadata=Meta(name="overruled", annotations={OVERRULED: "cordon"})),
        Node(metadata=Meta(name="theirs"), spec=NodeSpec(unschedulable=True, taints=(Taint(key=MANAGED_NODE, value="another-scheduler"),))),
    ]
    found = {act.name: act for act in acts(plan_leaving(look(nodes=nodes))) if isinstance(act, Clear)}
    assert {name: (act.taint, act.cordon, act.condition, act.word) for name, act in found.items()} == {
        "tainted": (True, False, False, False),
        "cordoned": (False, True, False, False),
        "said": (False, False, True, False),
        "overruled": (False, False, False, True),
    }


def test_a_drain_of_the_bridges_on_a_node_that_stays_is_undone_unless_people_cordoned_it() -> None:
    reason = "slurm-bridge: cordoned in Kubernetes"
    nodes = [Node(metadata=Meta(name=name)) for name in ("a", "theirs", "foreign")]
    nodes.append(Node(metadata=Meta(name="cordoned"), spec=NodeSpec(unschedulable=True)))
    slurm_nodes = [
        SlurmNode(name="a", node_states=["IDLE", "DRAIN"], reason=reason),
        SlurmNode(name="theirs", node_states=["IDLE", "DRAIN"], reason="bad disk"),
        SlurmNode(name="cordoned", node_states=["IDLE", "DRAIN"], reason=reason),
        in_slurm("foreign", "IDLE", "DRAIN", ours=False, reason=reason, extra=mark_for("c2")),
    ]
    plan = plan_leaving(look(nodes=nodes, slurm_nodes=slurm_nodes))
    assert acts(plan) == [Undrain("a")]
    assert list(lefts(plan)) == ["cordoned"]


# From any state, killed at any instant, to the same end


class World:
    """Both sides, as far as the plan goes: each act does what the servers would."""

    def __init__(self, now: Look) -> None:
        self.now = now

    def put(self, **more: Any) -> None:
        self.now = msgspec.structs.replace(self.now, **more)

    def replace(self, pod: Pod, new: Pod | None) -> None:
        self.put(pods=[found for found in self.now.pods if found is not pod] + ([new] if new else []))

    def do(self, act: Act) -> None:
        match act:
            case RemoveObject():
                self.put(objects=[found for found in self.now.objects if found != act])
            case Drain(name):
                node = self.now.slurm_nodes[name]
                self.put(
                    slurm_nodes={
                        **self.now.slurm_nodes,
                        name: msgspec.structs.replace(node, node_states=[*node.states, "DRAIN"], extra=mark_for(CLUSTER)),
                    }
                )
            case LetGo(pod):
                meta = msgspec.structs.replace(
                    pod.metadata,
                    labels={key: value for key, value in pod.metadata.labels.items() if key not in act.labels},
                    finalizers=tuple(name for name in pod.metadata.finalizers if name != FINALIZER or not act.finalizer),
                )
                status = pod.status
                if act.word:
                    status = msgspec.structs.replace(status, conditions=(Condition(type=CONDITION, reason=act.word.reason),))
                self.replace(
                    pod, None if meta.deletion_timestamp and pod.is_over else msgspec.structs.replace(pod, metadata=meta, status=status)
                )
            case DeletePod(pod):
                self.replace(pod, None)
            case Evict(pod):
                self.replace(pod, msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=DELETED)))
            case EndJob(job_id):
                tied = [pod for pod in self.now.pods if pod.metadata.labels.get(JOB_ID) == str(job_id) and not pod.is_over]
                assert not [pod for pod in tied if not (pod.metadata.deletion_timestamp and not pod.spec.node_name)], (
                    "a bridge that starts now would evict it"
                )
                self.put(jobs=[job for job in self.now.jobs or () if job.submission.job_id != job_id])
                self.put(users={written: left for written, ids in self.now.users.items() if (left := set(ids) - {job_id})})
            case DeleteNode(name):
                assert not any(name in written for written in self.now.users)
                self.put(slurm_nodes={other: node for other, node in self.now.slurm_nodes.items() if other != name})
            case _:
                raise AssertionError(act)

    def time_passes(self) -> None:
        """Kubelets end what is being deleted, and what runs comes to an end; Slurm's nodes are free when their jobs are over."""
        for pod in list(self.now.pods):
            if pod.spec.node_name and not pod.is_over:
                self.replace(pod, msgspec.structs.replace(pod, status=PodStatus(phase="Succeeded")))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    pods, jobs, users = [], [], {}
    for number in range(draw(st.integers(0, 6))):
        job_id = draw(st.sampled_from([0, 1, 2, 3]))
        node = draw(st.sampled_from(["", "ours-1", "ours-2"])) if job_id else ""
        phase = draw(st.sampled_from(["", "Succeeded", "Failed"])) if node else ""
        pods.append(a_pod(f"p{number}", job_id, node, phase, deleting=draw(st.booleans()), finalizer=draw(st.booleans())))
    for job_id in draw(st.sets(st.integers(1, 4))):
        jobs.append(a_job(job_id, *(pod.metadata.name for pod in pods if pod.metadata.labels.get(JOB_ID) == str(job_id))))
        users[draw(st.sampled_from(["ours-1", "ours-2", "theirs"]))] = {job_id}
    slurm_nodes = [
        in_slurm("ours-1", *draw(st.sampled_from([("IDLE",), ("IDLE", "DRAIN"), ("DOWN",)]))),
        in_slurm("ours-2"),
        in_slurm("theirs", ours=False),
    ]
    return World(look(pods=pods, jobs=jobs, users=users, slurm_nodes=slurm_nodes, objects=WEBHOOKS))


@given(worlds(), st.sampled_from(["keep", "evict", "wait"]), st.sampled_from(["keep", "delete"]), st.data())
def test_from_any_state_and_killed_at_any_instant_nothing_of_ours_is_left(
    world: World, running: Running, waiting: Waiting, data: st.DataObject
) -> None:
    for _ in range(200):
        plan = plan_leaving(world.now, running, waiting)
        step = next((step for step in plan.steps if step.acts), None)
        if step is None:
            if not any(step.later for step in plan.steps):
                break
            world.time_passes()
            continue
        if step.title != "webhook configurations removed":
            assert not world.now.objects
        done = data.draw(st.integers(1, len(step.acts)))  # and then it is killed
        for act in step.acts[:done]:
            world.do(act)
    else:
        pytest.fail("it does not come to an end")
    assert not [pod for pod in world.now.pods if FINALIZER in pod.metadata.finalizers]
    assert not world.now.jobs
    assert list(world.now.slurm_nodes) == ["theirs"]
    assert all(left.kind == "pod" and waiting == "keep" for left in plan.left)


def test_annotations_of_a_pod_set_apart_go_too() -> None:
    [act] = acts(plan_leaving(look(pods=[a_pod("p", annotations={APART: "true"})])))
    assert isinstance(act, LetGo)
    assert act.annotations == (APART,)
