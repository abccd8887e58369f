"""What to let go of, in which order: the place where uninstalling is decided. Pure: from one look at both sides, so that it can be killed at any instant and run again.

Comes in: a look at Kubernetes and Slurm, and what is to become of pods that run and that wait. Goes out: steps, the first of which goes first, and what will be left, with the reason. What must stay true:
- Only what is ours is touched: pods that name our scheduler, jobs with our marker and cluster, Slurm nodes with our mark, and on Kubernetes' nodes our own keys.
- Nothing is taken in any more before anything is let go of.
- A pod loses the label of its job before that job ends: a bridge that starts in between would evict it. A pod whose job stays keeps it.
- The job of a pod that runs on is ended only where its node goes from Slurm too: anywhere else Slurm would give to others what the pod uses.
- A node is removed from Slurm when it takes no jobs, has none, and no live job names it.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Literal

import msgspec

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
    SIGNALLED,
    SLURM_NODE,
    job_id_of,
)
from slinky.bridge.leaving.steps import (
    Act,
    Clear,
    DeleteNode,
    DeletePod,
    Drain,
    EndJob,
    Evict,
    Left,
    LetGo,
    RemoveObject,
    Step,
    Undrain,
)
from slinky.bridge.node_mark import mark_for, owner_of
from slinky.bridge.node_names import label_of
from slinky.bridge.node_reasons import OURS
from slinky.bridge.standing import Standing
from slinky.bridge.views import exit_code_of, exit_codes, pod_view
from slinky.kube import Node, Pod
from slinky.slurm import ConfigurationError, expand
from slinky.slurm import Node as SlurmNode

__all__ = ["Look", "Plan", "Running", "Waiting", "plan_leaving"]

Running = Literal["keep", "evict", "wait"]
Waiting = Literal["keep", "delete"]

WORD = "Uninstalled"
UNSCHEDULED = Standing(
    reason=WORD,
    message="the bridge to Slurm was uninstalled and nobody schedules this pod any more: delete it, and whoever made it makes one that Kubernetes schedules",
    scheduled=WORD,
)
RUNS_ON = Standing(reason=WORD, message="the bridge to Slurm was uninstalled: this pod runs on, and Slurm knows nothing of it", holds=True)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides at one moment. `jobs` are ours and not over, None where Slurm cannot be asked (`slurm_trouble` says why); `users` are by a list of Slurm's nodes the live jobs, anybody's, that are there or name them.

    `objects` are the webhook configurations and the Secret, `foreign` those that have their name and are not ours, with the reason.
    """

    scheduler: str
    cluster: str
    pods: Sequence[Pod] = ()
    nodes: Sequence[Node] = ()
    objects: Sequence[RemoveObject] = ()
    foreign: Sequence[Left] = ()
    jobs: Sequence[Found] | None = ()
    slurm_nodes: Mapping[str, SlurmNode] = {}
    users: Mapping[str, Set[int]] = {}
    shadow_jobs: int = 0
    slurm_trouble: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`runs_on` are the pods that run on, without Slurm."""

    steps: tuple[Step, ...]
    left: tuple[Left, ...]
    runs_on: tuple[str, ...]


def plan_leaving(now: Look, running: Running = "keep", waiting: Waiting = "keep") -> Plan:
    return _Planner(now, running, waiting).plan()


class _Planner:
    def __init__(self, now: Look, running: Running, waiting: Waiting) -> None:
        self.now, self.running, self.waiting = now, running, waiting
        self.left: list[Left] = list(now.foreign)
        self.leaving = {
            name for name, node in now.slurm_nodes.items() if node.is_external and owner_of(node, now.cluster) in ("ours", "born")
        }
        self.slurm_name = {node.metadata.name: label_of(node) or node.metadata.name for node in now.nodes}
        self.holders = self._holders()
        self.staying = {job.submission.job_id: why for job in now.jobs or () if (why := self._stays(job))}

    def plan(self) -> Plan:
        webhooks = [found for found in self.now.objects if found.plural != "secrets"]
        own = [found for found in self.now.objects if found.plural == "secrets"]
        pods, later = self._pods()
        jobs, jobs_later = self._jobs()
        nodes, nodes_later = self._nodes()
        steps = (
            Step(title="webhook configurations removed", acts=tuple(webhooks)),
            Step(title="nodes drained in Slurm", acts=tuple(self._drains())),
            Step(title="pods let go of", acts=tuple(pods), later=tuple(later)),
            Step(title="jobs ended in Slurm", acts=tuple(jobs), later=tuple(jobs_later)),
            Step(title="nodes removed from Slurm", acts=tuple(nodes), later=tuple(nodes_later)),
            Step(title="drains of the bridge's undone in Slurm", acts=tuple(self._undrains())),
            Step(title="taints, conditions and cordons taken off nodes", acts=tuple(self._clears())),
            Step(title="Secrets removed", acts=tuple(own)),
        )
        self._say_what_slurm_keeps()
        runs_on = tuple(str(pod.key) for pod in self.now.pods if _holds(pod)) if self.running == "keep" else ()
        return Plan(steps=steps, left=tuple(self.left), runs_on=runs_on)

    # Pods

    def _holders(self) -> dict[int, list[Pod]]:
        """Of each job its pods whose containers may run: by their label, and, where that is gone, by the job's own word."""
        found: dict[int, list[Pod]] = {}
        named = {name: job.submission.job_id for job in self.now.jobs or () for name in job.pods}
        for pod in self.now.pods:
            if _holds(pod) and (job_id := job_id_of(pod) or named.get(str(pod.key), 0)):
                found.setdefault(job_id, []).append(pod)
        return found

    def _pods(self) -> tuple[list[Act], list[Left]]:
        acts: list[Act] = []
        later: list[Left] = []
        for pod in self.now.pods:
            if pod.is_over or (not pod.spec.node_name and pod.metadata.deletion_timestamp):
                acts += self._let_go(pod)
            elif not pod.spec.node_name:
                acts += self._waits(pod)
            elif self.running == "keep":
                keeps_job = self.now.jobs is None or job_id_of(pod) in self.staying
                acts += self._let_go(pod, word=None if keeps_job else RUNS_ON, tied=keeps_job)
            elif self.running == "evict" and pod.metadata.deletion_timestamp is None:
                acts.append(Evict(pod))
            else:
                why = (
                    "its containers have not ended" if self.running == "wait" else "it is being deleted, and its containers have not ended"
                )
                later.append(Left("pod", str(pod.key), why))
        return acts, later

    def _waits(self, pod: Pod) -> list[Act]:
        if self.waiting == "delete":
            return [DeletePod(pod)]
        why = f"waits, and nobody schedules what names {self.now.scheduler} (which cannot be changed): delete it, or run again with --waiting delete"
        self.left.append(Left("pod", str(pod.key), why))
        return self._let_go(pod, word=UNSCHEDULED)

    @staticmethod
    def _let_go(pod: Pod, word: Standing | None = None, *, tied: bool = False) -> list[Act]:
        """`tied`: its job stays, and it keeps what names it. What containers that start again read stays too, and on a pod that is over everything."""
        meta, loose = pod.metadata, not (tied or pod.is_over)
        said = pod.condition(CONDITION)
        if word is not None and (said.reason == WORD if said else word.holds):
            word = None
        act = LetGo(
            pod,
            labels=tuple(key for key in (JOB_ID,) if loose and key in meta.labels),
            annotations=tuple(key for key in (SLURM_NODE, SIGNALLED, APART) if loose and key in meta.annotations),
            finalizer=FINALIZER in meta.finalizers,
            word=word,
        )
        return [act] if act.labels or act.annotations or act.finalizer or act.word else []

    # Jobs

    def _stays(self, job: Found) -> str:
        """Why a job is not ended though the bridge goes; empty where it is."""
        if self.running != "keep":
            return ""
        there = {self.slurm_name.get(pod.spec.node_name, pod.spec.node_name) for pod in self.holders.get(job.submission.job_id, ())}
        shared = sorted(name for name in there if name in self.now.slurm_nodes and name not in self.leaving)
        if not shared:
            return ""
        return "its pods run on, and on nodes that stay in Slurm, which would give to others what they use: run again when they have ended, or scancel it then"

    def _jobs(self) -> tuple[list[EndJob], list[Left]]:
        acts: list[EndJob] = []
        later: list[Left] = []
        for job in self.now.jobs or ():
            job_id = job.submission.job_id
            if why := self.staying.get(job_id):
                self.left.append(Left("job", str(job_id), why))
            elif self.running != "keep" and job_id in self.holders:
                later.append(Left("job", str(job_id), "its pods have not ended"))
            else:
                acts.append(self._end(job))
        return acts, later

    def _end(self, job: Found) -> EndJob:
        """As cancelled, unless it ran and all of its pods have ended by themselves."""
        job_id = job.submission.job_id
        pods = [pod for pod in self.now.pods if job_id_of(pod) == job_id]
        by_themselves = pods and job.started and all(pod.is_over and pod.metadata.deletion_timestamp is None for pod in pods)
        if not by_themselves:
            return EndJob(job_id, job.to_end)
        components = exit_codes([pod_view(pod) for pod in pods], job.submission)
        return EndJob(job_id, job.to_end, max(map(exit_code_of, pods)), components)

    # Nodes

    def _drains(self) -> Iterator[Act]:
        for name in sorted(self.leaving):
            node = self.now.slurm_nodes[name]
            if "DRAIN" not in node.states and not node.is_down:
                yield Drain(name, mark_for(self.now.cluster) if owner_of(node, self.now.cluster) == "born" else "")

    def _nodes(self) -> tuple[list[Act], list[Left]]:
        acts: list[Act] = []
        later: list[Left] = []
        ours = {job_id for job in self.now.jobs or () for job_id in job.submission.job_ids}
        users, strangers, staying = self._used(ours), self._used(ours, others=True), self._used(self.staying.keys())
        for name in sorted(self.leaving):
            if name in strangers:
                why = "a job of somebody else's is there or names it, and could not be changed any more without it: run again when it has ended"
                self.left.append(Left("node", name, why))
            elif name in staying:
                self.left.append(Left("node", name, "a job that is not ended is there or names it"))
            elif name in users or self.now.slurm_nodes[name].is_busy:
                later.append(Left("node", name, "its jobs have not ended"))
            else:
                acts.append(DeleteNode(name))
        return acts, later

    def _used(self, job_ids: Set[int], *, others: bool = False) -> set[str]:
        """The nodes that one of these jobs, or one of all `others`, uses or names."""
        found: set[str] = set()
        for written, users in self.now.users.items():
            if users - job_ids if others else users & job_ids:
                with contextlib.suppress(ConfigurationError):
                    found.update(expand(written))
        return found

    def _undrains(self) -> Iterator[Act]:
        """Nodes with a slurmd of their own, which stay; and that the bridge drained."""
        for node in self.now.nodes:
            name = self.slurm_name[node.metadata.name]
            found = self.now.slurm_nodes.get(name)
            if found is None or name in self.leaving or owner_of(found, self.now.cluster) == "other":
                continue
            if "DRAIN" not in found.states or not found.reason.startswith(OURS):
                continue
            if node.spec.unschedulable and CORDONED_FOR_SLURM not in node.metadata.annotations:
                why = f"was drained by the bridge ({found.reason}), and its Kubernetes node is cordoned: scontrol update nodename={name} state=undrain when it may be used"
                self.left.append(Left("node", name, why))
            else:
                yield Undrain(name)

    def _clears(self) -> Iterator[Act]:
        for node in self.now.nodes:
            act = Clear(
                node,
                taint=any(taint.key == MANAGED_NODE and taint.value == self.now.scheduler for taint in node.spec.taints),
                cordon=CORDONED_FOR_SLURM in node.metadata.annotations,
                condition=node.condition(NODE_CONDITION) is not None,
                word=OVERRULED in node.metadata.annotations,
            )
            if act.taint or act.cordon or act.condition or act.word:
                yield act

    def _say_what_slurm_keeps(self) -> None:
        if self.now.jobs is None:
            why = f"Slurm cannot be asked ({self.now.slurm_trouble}): jobs and nodes of cluster {self.now.cluster} stay there, if there are any; run again when it answers"
            self.left.append(Left("Slurm", "jobs and nodes", why))
        if self.now.shadow_jobs:
            self.left.append(Left("Slurm", f"{self.now.shadow_jobs} jobs of shadow mode", "slinky bridge shadow-end ends them"))


def _holds(pod: Pod) -> bool:
    """Its containers may run."""
    return bool(pod.spec.node_name) and not pod.is_over
