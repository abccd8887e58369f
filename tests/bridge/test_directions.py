"""Where jobs are sent in a cluster with nodes of several kinds: only what Slurm cannot know is named, and judged once for all jobs that ask the same."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.bridge.annotations import JobSettings
from slinky.bridge.directions import Avoided, Directions
from slinky.bridge.eligibility import Surroundings
from slinky.bridge.judgement import KubernetesJudgement
from slinky.bridge.keeping import SWEEP_SECONDS, Keeper, concerns_slurm
from slinky.bridge.ledger import Ledger
from slinky.bridge.memory import Known
from slinky.bridge.node_names import NodeNames
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.submission import submission_of
from slinky.bridge.translate import Site, components, members
from slinky.bridge.whereabouts import Whereabouts, noted, put_on_all
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Cache, Key, Namespace, Node, Pod
from slinky.slurm import Job, JobDescription, compress, expand
from slinky.slurm import Node as SlurmNode
from tests.kube.virtual_time import run_in_virtual_time

GPU, PER_NODE = "nvidia.com/gpu", 8
SITE = Site(cluster="c1", partition="bridge")


def cloud_name(number: int) -> str:
    return f"ip-10-{number // 251}-{number * 7919 % 251}-{number % 251}.eu-central-1.compute.internal"


def a_pod(name: str, gpus: int = 0, **spec: Any) -> Pod:
    requests = {"cpu": "1", "memory": "1Gi"} | ({GPU: str(gpus)} if gpus else {})
    containers = [{"name": "c", "resources": {"requests": requests}}]
    meta = {"name": name, "namespace": "team", "uid": name, "labels": {"job": name}}
    return msgspec.convert({"metadata": meta, "spec": {"containers": containers, **spec}}, Pod)


class Cluster:
    """Every other node has GPUs. Slurm knows them as they were made. As Slurm it has jobs, of which it counts what is read and updated."""

    def __init__(self, size: int) -> None:
        self.kube_nodes: Cache[Node] = Cache()
        self.own: Cache[Pod] = Cache()
        self.foreign: Cache[Pod] = Cache()
        self.names = [cloud_name(number) for number in range(size)]
        for number, name in enumerate(self.names):
            self.put(name, gpus=PER_NODE * (number % 2), zone=f"z{number % 5}")
        self.in_slurm = {name: self.slurm_node(name, PER_NODE * (number % 2)) for number, name in enumerate(self.names)}
        self.ledger = Ledger([self.own], self.kube_nodes, [self.foreign], [GPU])
        self.surroundings = Surroundings([self.own, self.foreign], self.kube_nodes, Cache[Namespace]())
        self.nodes: Any = self  # in place of `client.nodes`
        me: Any = self
        self.slurm_nodes = SlurmNodes(me)
        judgement = KubernetesJudgement(self.surroundings, self.ledger)
        self.directions = Directions(judgement, self.slurm_nodes, {}, NodeNames(self.kube_nodes), cluster="c1")
        self.jobs: dict[int, Job] = {}
        self.known: dict[WorkloadKey, Known] = {}
        self.pods: dict[WorkloadKey, Pod] = {}
        self.records_read = 0
        self.updated: list[int] = []

    def put(self, name: str, gpus: int = 0, **labels: str) -> None:
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"} | ({GPU: str(gpus)} if gpus else {})
        self.kube_nodes.put(msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}, Node))

    def relabel(self, name: str, **labels: str) -> None:
        node = self.kube_nodes.by_key(Key("", name))
        assert node is not None
        meta = msgspec.structs.replace(node.metadata, labels={**node.metadata.labels, **labels})
        self.kube_nodes.put(msgspec.structs.replace(node, metadata=meta))

    @staticmethod
    def slurm_node(name: str, gpus: int) -> SlurmNode:
        gres = f"gpu:{gpus}" if gpus else ""
        return SlurmNode(name=name, cpus=64, real_memory=256 * 1024, gres=gres, partitions=["bridge"], node_states=["IDLE", "EXTERNAL"])

    async def since(self, _: int) -> tuple[list[SlurmNode], int]:
        return list(self.in_slurm.values()), 0

    # Of a workload

    def workload(self, pod: Pod) -> Workload:
        return Workload(
            key=WorkloadKey("Pod", "team", pod.metadata.uid), name=pod.metadata.name, pods=(pod,), size=1, settings=JobSettings()
        )

    async def where(self, pod: Pod, avoided: Mapping[str, Avoided] | None = None) -> Whereabouts:
        workload = self.workload(pod)
        return (await self.directions.of(components(workload, SITE), members(workload, SITE), avoided or {}))[0]

    async def submit(self, pod: Pod) -> None:
        workload, job_id = self.workload(pod), len(self.jobs) + 1
        jobs = components(workload, SITE)
        directed = await self.directions.directed(jobs, members(workload, SITE), {})
        [sent] = map(noted, put_on_all(jobs, directed.where))
        self.jobs[job_id] = Job(
            job_id=job_id, admin_comment=sent.admin_comment or "", excluded_nodes=",".join(sent.excluded_nodes or ()), features=""
        )
        known = self.known[workload.key] = Known()
        known.take(submission_of(job_id, sent), 0)
        known.said = workload.settings
        known.was_directed(directed.where, directed.asked)
        self.pods[workload.key] = pod

    # As the executor

    async def site_for(self, _: Workload) -> Site:
        return SITE

    async def record(self, job_id: int) -> Job:
        self.records_read += 1
        return self.jobs[job_id]

    async def update_waiting(self, job_id: int, change: JobDescription) -> None:
        self.updated.append(job_id)
        excluded = ",".join(change.excluded_nodes) if change.excluded_nodes is not None else self.jobs[job_id].excluded_nodes
        self.jobs[job_id] = msgspec.structs.replace(
            self.jobs[job_id], excluded_nodes=excluded, admin_comment=change.admin_comment or self.jobs[job_id].admin_comment
        )

    def keeper(self) -> Keeper:
        async def still_own(_: Known) -> bool:
            return True

        me: Any = self
        return Keeper(
            me,
            self.directions,
            lambda: self.known.items(),
            lambda key: (self.workload(self.pods[key]), self.known[key]),
            lambda _: None,
            still_own,
            lambda key: [self.pods[key]],
        )

    def restart(self) -> None:
        """What was remembered is gone; pods, nodes and jobs are there."""
        for key, known in list(self.known.items()):
            job = self.jobs[known.job_id]
            self.known[key] = Known()
            self.known[key].take(submission_of(job.job_id, msgspec.structs.replace(job, partition="bridge")), 0)

    def excluded(self, job_id: int) -> set[str]:
        return set(expand(self.jobs[job_id].excluded_nodes))


# What is left to Slurm


async def test_a_job_names_no_node_that_slurm_itself_would_not_use() -> None:
    cluster = Cluster(300)
    assert (await cluster.where(a_pod("p", gpus=1))).excluded == ()
    chosen = (await cluster.where(a_pod("p", gpus=1, nodeSelector={"zone": "z1"}))).excluded
    assert chosen
    assert all(cluster.in_slurm[name].gres for name in chosen), "of nodes with GPUs only"
    for_cpus = (await cluster.where(a_pod("p", nodeSelector={"zone": "z1"}))).excluded
    assert set(for_cpus) == {name for number, name in enumerate(cluster.names) if number % 5 != 1}


@pytest.mark.parametrize("cause", ["Kubernetes has fewer", "others have them"])
async def test_a_node_that_has_gpus_for_slurm_only_is_named(cause: str) -> None:
    """As while its device plugin is away, or where other schedulers' pods have them: Slurm would choose it."""
    cluster = Cluster(20)
    name = cluster.names[3]
    if cause == "Kubernetes has fewer":
        cluster.put(name, gpus=1, zone="z3")
    else:
        cluster.foreign.put(a_pod("foreign", gpus=7, nodeName=name))
    assert (await cluster.where(a_pod("p", gpus=2))).excluded == (name,)
    assert (await cluster.where(a_pod("p", gpus=1))).excluded == ()


async def test_a_node_that_did_not_work_out_is_named_whatever_slurm_is_thought_to_count() -> None:
    cluster = Cluster(20)
    without = cluster.names[0]
    avoided = cluster.directions.avoid(without, "it was refused")
    assert (await cluster.where(a_pod("p", gpus=1), {without: avoided})).excluded == (without,)
    cluster.directions.node_changed(without)
    assert (await cluster.where(a_pod("p", gpus=1), {without: avoided})).excluded == (), "judged again once it changed"


async def test_where_no_node_is_left_all_are_counted_with_their_reasons() -> None:
    cluster = Cluster(10)
    nowhere = (await cluster.where(a_pod("p", gpus=1, nodeSelector={"zone": "none"}))).nowhere
    assert "none of the 10 nodes" in nowhere
    assert "zone=none" in nowhere


# Once for all that ask the same


SHAPES: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 2, "nodeSelector": {"zone": "z1"}},
    {"nodeSelector": {"zone": "z1"}},
    {"nodeSelector": {"zone": "z2"}, "tolerations": [{"operator": "Exists"}]},
]


@pytest.mark.parametrize("size", [50, 500])
async def test_nodes_are_judged_once_for_each_shape_of_pods_however_many_jobs_there_are(size: int) -> None:
    cluster = Cluster(size)
    for number in range(80):
        await cluster.submit(a_pod(f"p{number}", **SHAPES[number % 4]))
    assert cluster.directions.judged == 4
    assert cluster.surroundings.judged == 3 * size, "those with GPUs and without say the same of labels, twice"
    assert cluster.ledger.judged == 3 * size
    cluster.relabel(cluster.names[7], color="red")
    for number in range(80):
        await cluster.where(a_pod(f"q{number}", **SHAPES[number % 4]))
    assert cluster.surroundings.judged == 3 * size + 3
    assert cluster.ledger.judged == 3 * size
    assert cluster.directions.judged == 4, "nobody is refused, or accepted, who was not"


async def test_pods_that_keep_apart_are_judged_once_until_a_pod_comes_or_goes() -> None:
    cluster = Cluster(30)
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "job", "operator": "Exists"}]}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    opinions = {cluster.surroundings.answer(a_pod(f"p{number}", affinity=affinity)).version for number in range(20)}
    assert len(opinions) == 1
    cluster.own.put(a_pod("there", nodeName=cluster.names[0]))
    after = {cluster.surroundings.answer(a_pod(f"p{number}", affinity=affinity)).version for number in range(20)}
    assert len(after) == 1
    assert opinions.isdisjoint(after)
    assert set((await cluster.where(a_pod("p", affinity=affinity))).excluded) == set(cluster.names[::5])


def kept(cluster: Cluster, *changes: Callable[[], None], start: Callable[[], Any]) -> None:
    """The keeper's work after each of these changes, until it has nothing left to do."""

    async def story() -> None:
        await start()
        keeper = cluster.keeper()
        task = asyncio.create_task(keeper.run())
        try:
            await asyncio.sleep(3 * SWEEP_SECONDS)
            for change in changes:
                change()
                keeper.nodes_changed()
                await asyncio.sleep(120)
        finally:
            task.cancel()

    run_in_virtual_time(story())


def test_only_jobs_whose_own_nodes_change_are_read_and_updated() -> None:
    cluster = Cluster(40)
    before: list[int] = []

    async def start() -> None:
        for number in range(60):
            await cluster.submit(a_pod(f"p{number}", **SHAPES[number % 4]))

    def relabel() -> None:
        assert cluster.updated == [], "nothing has changed"
        assert cluster.records_read == 0
        before.append(cluster.directions.judged)
        cluster.relabel(cluster.names[0], zone="z1")  # no GPUs there: z0 before

    def no_matter() -> None:
        assert sorted(cluster.updated) == [number + 1 for number in range(60) if number % 4 == 2]
        assert cluster.records_read == 15
        assert cluster.directions.judged == before[0] + 3, "once for each shape that asks for a zone, whose words or nodes are others"
        before.append(cluster.directions.judged)
        cluster.relabel(cluster.names[0], color="red")

    kept(cluster, relabel, no_matter, start=start)
    assert len(cluster.updated) == 15
    assert cluster.directions.judged == before[1]
    assert all(cluster.names[0] not in cluster.excluded(job_id) for job_id in cluster.updated)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_jobs_that_wait_are_told_what_a_job_that_is_submitted_now_would_be(chance: random.Random) -> None:
    cluster = Cluster(12)

    async def start() -> None:
        for number in range(8):
            await cluster.submit(a_pod(f"p{number}", **SHAPES[number % 4]))

    def change() -> None:
        name = chance.choice(cluster.names)
        match chance.randrange(4):
            case 0:
                cluster.relabel(name, zone=f"z{chance.randrange(4)}")
            case 1:
                cluster.put(name, gpus=chance.choice([0, 1, 8]), zone="z1")
            case 2:
                cluster.foreign.put(a_pod(f"f{name}", gpus=chance.choice([1, 8]), nodeName=name))
            case _:
                cluster.foreign.remove(Key("team", f"f{name}"))

    def changes() -> None:
        for _ in range(3):
            change()

    kept(cluster, changes, changes, changes, start=start)

    async def compare() -> None:
        for key, pod in cluster.pods.items():
            fresh = Directions(
                KubernetesJudgement(
                    Surroundings([cluster.own, cluster.foreign], cluster.kube_nodes, Cache[Namespace]()),
                    Ledger([cluster.own], cluster.kube_nodes, [cluster.foreign], [GPU]),
                ),
                cluster.slurm_nodes,
                {},
                NodeNames(cluster.kube_nodes),
                cluster="c1",
            )
            workload = cluster.workload(pod)
            [wanted] = await fresh.of(components(workload, SITE), members(workload, SITE), {})
            if not wanted.nowhere and not cluster.known[key].rejected:
                assert cluster.excluded(cluster.known[key].job_id) == set(wanted.excluded), pod

    run_in_virtual_time(compare())


# Exclusions that are too many for a comment


@pytest.mark.parametrize("theirs", [(), (0,), (0, 1, 2, 3)])
def test_three_thousand_exclusions_go_with_their_cause_after_a_restart_and_an_administrators_stay(theirs: Iterable[int]) -> None:
    cluster = Cluster(3100)
    added = {cluster.names[number] for number in theirs}

    async def start() -> None:
        for name in cluster.names[:100]:
            cluster.relabel(name, pool="a")
        await cluster.submit(a_pod("p", nodeSelector={"pool": "a"}))
        assert cluster.excluded(1) == set(cluster.names[100:])
        job = cluster.jobs[1]
        assert len(job.admin_comment) < 4096
        cluster.jobs[1] = msgspec.structs.replace(job, excluded_nodes=compress(sorted(cluster.excluded(1) | added)))
        cluster.restart()

    def half() -> None:
        assert cluster.updated == [], "what it was told before holds"
        for name in cluster.names[100:1600]:
            cluster.relabel(name, pool="a")

    def all_of_them() -> None:
        assert cluster.excluded(1) == set(cluster.names[1600:]) | added
        cluster.restart()
        for name in cluster.names[1600:]:
            cluster.relabel(name, pool="a")

    kept(cluster, half, all_of_them, start=start)
    assert cluster.excluded(1) == added
    assert len(cluster.updated) == 2


# What is read of Slurm again


def test_a_label_that_slurm_is_not_told_of_is_no_reason_to_read_its_nodes() -> None:
    def node(allocatable: str = "1", **labels: str) -> Node:
        return msgspec.convert({"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"cpu": allocatable}}}, Node)

    assert not concerns_slurm(node(), node(color="red"), ["zone"])
    assert concerns_slurm(node(), node(zone="a"), ["zone"])
    assert concerns_slurm(node(), node(allocatable="2"), [])
    assert concerns_slurm(None, node(), [])
    assert concerns_slurm(node(), None, [])
    assert concerns_slurm(node(), node(**{"slinky.slurm.net/slurm-nodename": "x"}), [])
