"""A small world for histories: pods and their kubelets, a Slurm with nodes and jobs, and an operator that sees both late.

What the world knows is the truth; what the operator sees is a copy that somebody has to renew. The operator's own part is the real plan; carrying out is what `Carrier` does, in one step.
"""

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from slinky.kube.objects import Condition
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import Act, ChangePod, CreatePod, DeletePod, DeleteSlurmNode, Drain, LetGo, Resume, SetConditions
from slinky.operator.nodesets.drains import is_drained
from slinky.operator.nodesets.memory import Memory
from slinky.operator.nodesets.plan import JobsNeeded, jobs_needed, plan
from slinky.operator.nodesets.slurm_marks import is_nobodys, pod_info
from slinky.operator.nodesets.snapshot import JobOnNodes, SlurmView, Snapshot
from slinky.slurm import Node as SlurmNode
from tests.operator.nodesets.scene import NOW, a_node, a_nodeset, a_pod

ADMIN = "bad disk"
FAN = "broken fan"
SILENT = "Not responding"


@dataclass
class WorldPod:
    name: str
    uid: str
    revision: str
    created: dt.datetime
    node: str = ""
    running: bool = False
    leaving: bool = False
    over: bool = False
    version: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def seen(self) -> Any:
        number = int(self.name.rpartition("-")[2])
        phase = "Failed" if self.over else "Running" if self.running else "Pending"
        state = {"state": {"running": {}}} if self.running else {"state": {"waiting": {"reason": "ContainerCreating"}}}
        pod = a_pod(
            number,
            node=self.node,
            phase=phase,
            ready=self.running,
            ready_since=self.created,
            revision=self.revision,
            created=self.created,
            leaving=self.leaving,
            annotations=dict(self.annotations),
            labels={marks.PROTECT: "", **self.labels},
            slurmd=state,
        )
        said = (
            Condition(type=kind, status=status, reason=reason, message=text) for kind, (status, reason, text) in self.conditions.items()
        )
        status = msgspec.structs.replace(pod.status, conditions=(*pod.status.conditions, *said))
        return msgspec.structs.replace(
            pod, status=status, metadata=msgspec.structs.replace(pod.metadata, uid=self.uid, resource_version=str(self.version))
        )


@dataclass
class WorldJob:
    id: int
    node: str
    uid: str  # of the pod it runs in
    suspended: bool = False


class World:
    def __init__(self) -> None:
        self.now = NOW
        self.spec: dict[str, Any] = {"replicas": 2, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}
        self.revision = "r0"
        self.deleted = self.let_go = False
        self.pods: dict[str, WorldPod] = {}
        self.slurm: dict[str, SlurmNode] = {}
        self.jobs: dict[int, WorldJob] = {}
        self.cordoned: set[str] = set()
        self.answers = True
        self.admin_drained: set[str] = set()
        self.admin_downed: set[str] = set()
        self.counter = 0
        self.killed: list[str] = []
        self.restart()

    # What the operator sees

    def restart(self) -> None:
        """Of the operator: it has heard nothing of Slurm, and lists pods anew."""
        self.heard: dict[str, SlurmNode] | None = None
        self.memory = Memory()
        self.see_pods()

    def see_pods(self) -> None:
        self.cache = {name: pod.seen() for name, pod in self.pods.items()}

    def hear(self) -> None:
        self.heard = {name: _copy(node) for name, node in self.slurm.items()} if self.answers else None

    def snapshot(self) -> Snapshot:
        heard = self.heard
        view = SlurmView() if heard is None else SlurmView(is_current=True, current_since=NOW - dt.timedelta(days=1), nodes=heard)
        nodeset = a_nodeset(deleted=self.deleted, **self.spec)
        nodes = {pod.spec.node_name for pod in self.cache.values()} - {""}
        snapshot = Snapshot(
            nodeset=nodeset,
            revision=self.revision,
            now=self.now,
            pods=self.cache,
            nodes={name: a_node(name, cordoned=name in self.cordoned) for name in nodes},
            slurm=view,
            created=self.memory.unseen_creations(self.cache, self.now.timestamp()),
            deleted=self.memory.unseen_deletions({pod.metadata.uid for pod in self.cache.values()}, self.now.timestamp()),
        )
        if jobs_needed(snapshot) is JobsNeeded.NOT or not self.answers:
            return snapshot
        holding = tuple(JobOnNodes(job.id, frozenset({job.node})) for job in self.jobs.values())
        return replace(snapshot, slurm=replace(view, jobs=holding))

    def turn(self) -> list[Act]:
        if self.let_go:
            return []
        acts = plan(self.snapshot())
        for act in acts:
            self.carry_out(act)
        return acts

    # What it does

    def carry_out(self, act: Act) -> None:
        match act:
            case CreatePod(name, _, _):
                if name not in self.pods:
                    self.counter += 1
                    self.pods[name] = WorldPod(name, f"u{self.counter}", self.revision, self.now, labels={marks.PROTECT: "true"})
                self.memory.created(name, self.now.timestamp())
            case DeletePod():
                self._delete(act)
            case ChangePod(name, uid, labels, annotations):
                pod = self.pods.get(name)
                if pod is not None and pod.uid == uid:
                    pod.version += 1
                    _patch(pod.labels, dict(labels))
                    _patch(pod.annotations, dict(annotations))
            case SetConditions(name, uid, conditions, gone):
                pod = self.pods.get(name)
                if pod is not None and pod.uid == uid:
                    pod.conditions = {kind: said for kind, said in pod.conditions.items() if kind not in gone} | dict(conditions)
            case Drain(names, reason) if self.answers:
                for name in names:
                    there = self.slurm.get(name)
                    if there is not None and (not is_drained(there) or marks.is_ours(there.reason)):
                        told = marks.said_before(there.reason) if there.is_down or is_drained(there) else ""
                        self._state(name, add="DRAIN", reason=marks.with_before(reason, told))
            case Resume(names) if self.answers:
                for name in names:
                    node = self.slurm.get(name)
                    if node is not None and marks.is_ours(node.reason):
                        before = marks.said_before(node.reason) if node.is_down else ""
                        self._state(name, take=("DRAIN",) if before else ("DRAIN", "DOWN"), reason=before)
            case DeleteSlurmNode(name, renewed) if self.answers and name in self.slurm:
                if renewed and (self.slurm[name].is_busy or not is_nobodys(self.slurm[name])):
                    return
                if name in self.admin_drained and not self.deleted:
                    self.killed.append(f"{act} lost an admin's drain")
                if any(job.node == name for job in self.jobs.values()):
                    self.killed.append(f"{act} lost jobs")
                self.slurm_forgets(name)
            case LetGo():
                assert not self.pods, "the finalizer went before the pods"
                self.let_go = True
            case _:
                pass

    def _delete(self, act: DeletePod) -> None:
        pod = self.pods.get(act.name)
        if pod is None or pod.uid != act.uid or (act.version and act.version != str(pod.version)):
            return
        if act.on_word:
            node = self.slurm.get(act.on_word) if self.answers else None
            if node is None or not is_drained(node) or node.is_busy:
                return
            self.comes_back(act.on_word)
            self.start_job(act.on_word)  # at the worst moment: after the look, before the deletion
        self._end_jobs(pod, act)
        pod.leaving, pod.version = True, pod.version + 1
        self.memory.deleted(pod.uid, self.now.timestamp())

    def _end_jobs(self, pod: WorldPod, act: DeletePod) -> None:
        lost = [job for job in self.jobs.values() if job.uid == pod.uid]
        if lost:
            since = pod.annotations.get(marks.SINCE, "")
            limit = self.spec.get("drainDeadlineSeconds")
            allowed = limit is not None and since and self.now - dt.datetime.fromisoformat(since) >= dt.timedelta(seconds=limit)
            if not allowed:
                self.killed.append(f"{act} killed {lost}")
        for job in lost:
            self.end_job(job.id)

    # The world's own doings

    def kubelets(self) -> None:
        """One step of all pods: assigned, started and registered, gone."""
        for pod in list(self.pods.values()):
            pod.version += 1
            if pod.leaving:
                for job in [job for job in self.jobs.values() if job.uid == pod.uid]:
                    self.end_job(job.id)
                del self.pods[pod.name]
                self._state(pod.name, add="NOT_RESPONDING")
            elif not pod.node:
                pod.node = f"k{pod.name.rpartition('-')[2]}"
            elif not pod.running and not pod.over:
                pod.running = True
                if self.answers:
                    self.register(pod)

    def register(self, pod: WorldPod) -> None:
        info = f'{{"namespace":"hpc","podName":"{pod.name}","node":"{pod.node}","nodeSetName":"workers","nodeSetUID":"nodeset"}}'
        held = self.slurm.get(pod.name)
        states = [word for word in (held.states if held else ["IDLE"]) if word not in ("NOT_RESPONDING", "DOWN")] or ["IDLE"]
        is_used_again = held is not None and held.is_down and not is_drained(held)
        self.slurm[pod.name] = SlurmNode(
            pod.name, node_states=states, reason=held.reason if held and not is_used_again else "", comment=info
        )
        self.admin_downed.discard(pod.name)

    def start_job(self, name: str) -> int:
        """Its id; 0 where Slurm starts none there."""
        node, pod = self.slurm.get(name), self.pods.get(name)
        if node is None or pod is None or not pod.running or pod.leaving or not node.takes_jobs or not self.answers:
            return 0
        self.counter += 1
        self.jobs[self.counter] = WorldJob(self.counter, name, pod.uid)
        self._busy(name)
        return self.counter

    def end_job(self, job_id: int) -> None:
        job = self.jobs.pop(job_id)
        self._busy(job.node)

    def suspend(self, job_id: int) -> None:
        self.jobs[job_id].suspended = True
        self._busy(self.jobs[job_id].node)

    def _busy(self, name: str) -> None:
        """Slurm's base state; a suspended job does not show."""
        node = self.slurm.get(name)
        if node is None:
            return
        running = any(job.node == name and not job.suspended for job in self.jobs.values())
        states = [word for word in node.states if word not in ("IDLE", "ALLOCATED")]
        self.slurm[name] = _copy(node, states=["ALLOCATED" if running else "IDLE", *states])

    def admin_drains(self, name: str) -> None:
        if name in self.slurm and self.answers:
            self._state(name, add="DRAIN", reason=ADMIN)
            self.admin_drained.add(name)

    def admin_resumes(self, name: str) -> None:
        if name in self.slurm and self.answers:
            self._state(name, take=("DRAIN", "DOWN"), reason="")
            self.admin_drained.discard(name)
            self.admin_downed.discard(name)

    def goes_down(self, name: str, reason: str) -> None:
        """By slurmctld, whose slurmd does not answer, or by an admin; Slurm ends the jobs there in both cases."""
        node = self.slurm.get(name)
        if node is None or not self.answers:
            return
        for job in [job for job in self.jobs.values() if job.node == name]:
            self.end_job(job.id)
        if reason == FAN:  # a drain that is there is his from now on
            (self.admin_drained if is_drained(node) else self.admin_downed).add(name)
        elif is_drained(node) or node.is_down:
            reason = node.reason
        self._state(name, add="DOWN", reason=reason)

    def comes_back(self, name: str) -> None:
        """ReturnToService=2: a slurmd that registers is used again, whoever set it down."""
        node = self.slurm.get(name)
        if node is not None and node.is_down and self.answers and name in self.pods:
            self._state(name, take=("DOWN",), reason=node.reason if is_drained(node) else "")
            self.admin_downed.discard(name)

    def slurm_forgets(self, name: str) -> None:
        """slurmctld lost its memory of a node, and with it of its jobs, which run on."""
        self.slurm.pop(name, None)
        self.admin_drained.discard(name)
        self.admin_downed.discard(name)

    def _state(self, name: str, *, add: str = "", take: tuple[str, ...] = (), reason: str | None = None) -> None:
        node = self.slurm.get(name)
        if node is not None:
            states = [word for word in node.states if word not in take and word != add] + ([add] if add else [])
            self.slurm[name] = _copy(node, states=states or ["IDLE"], reason=node.reason if reason is None else reason)

    def is_known_to_be_ours(self, name: str) -> bool:
        info = pod_info(self.slurm[name].comment)
        return info is not None and info.nodeset_uid == "nodeset"


def _copy(node: SlurmNode, *, states: list[str] | None = None, reason: str | None = None) -> SlurmNode:
    return SlurmNode(
        node.name,
        node_states=list(node.states if states is None else states),
        reason=node.reason if reason is None else reason,
        comment=node.comment,
    )


def _patch(held: dict[str, str], changes: dict[str, str | None]) -> None:
    for key, value in changes.items():
        if value is None:
            held.pop(key, None)
        else:
            held[key] = value
