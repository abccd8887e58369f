"""A cluster with nodes of several kinds, on both sides, for what directs jobs to nodes."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from slinky.bridge.annotations import JobSettings
from slinky.bridge.directions import Avoided, Directions
from slinky.bridge.eligibility import Surroundings
from slinky.bridge.judgement import KubernetesJudgement
from slinky.bridge.keeping import SWEEP_SECONDS, Keeper
from slinky.bridge.ledger import Ledger
from slinky.bridge.memory import Known
from slinky.bridge.node_names import NodeNames
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.submission import submission_of
from slinky.bridge.translate import Site, components, members
from slinky.bridge.whereabouts import Whereabouts, noted, put_on_all
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Cache, Key, Namespace, Node, Pod
from slinky.slurm import Job, JobDescription, expand
from slinky.slurm import Node as SlurmNode
from tests.kube.virtual_time import run_in_virtual_time

__all__ = ["GPU", "SITE", "Cluster", "a_pod", "kept"]

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
        self.looks = 0  # at a waiting job, in full
        self.updated: list[int] = []
        self.asked_for: list[WorkloadKey] = []  # workloads of which the keeper wants a look
        self.exclude = ""  # what the annotations of all pods say

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
            key=WorkloadKey("Pod", "team", pod.metadata.uid),
            name=pod.metadata.name,
            pods=(pod,),
            size=1,
            settings=JobSettings(exclude=self.exclude or None),
        )

    async def where(self, pod: Pod, avoided: Mapping[str, Avoided] | None = None) -> Whereabouts:
        workload = self.workload(pod)
        return (await self.directions.of(components(workload, SITE), members(workload, SITE), avoided or {}))[0]

    async def submit(self, pod: Pod) -> None:
        names_version = self.directions.names_version
        workload, job_id = self.workload(pod), len(self.jobs) + 1
        said, (workload, unknown) = workload.settings, await self.directions.known_only(workload)
        jobs = components(workload, SITE)
        directed = await self.directions.directed(jobs, members(workload, SITE), {})
        [sent] = map(noted, put_on_all(jobs, directed.where))
        self.jobs[job_id] = Job(
            job_id=job_id, admin_comment=sent.admin_comment or "", excluded_nodes=",".join(sent.excluded_nodes or ()), features=""
        )
        known = self.known[workload.key] = Known()
        known.take(submission_of(job_id, sent), 0)
        known.said, known.unknown_nodes, known.names_version = said, unknown, names_version
        known.was_directed(directed)
        self.pods[workload.key] = pod

    def lookup(self, key: WorkloadKey) -> tuple[Workload, Known]:
        self.looks += 1
        return self.workload(self.pods[key]), self.known[key]

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
            self.lookup,
            self.asked_for.append,
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
