"""Kubernetes and Slurm in memory, and the loop between them: for what the real servers do too seldom. The real servers are in tests/bridge_sandbox."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from slinky.bridge.binding import Binder
from slinky.bridge.capacity import NodeRoom
from slinky.bridge.directions import Directions
from slinky.bridge.eligibility import InFlight
from slinky.bridge.eligibility.surroundings import Placed
from slinky.bridge.jobs import Jobs
from slinky.bridge.judgement import Opinion
from slinky.bridge.keys import APART, FINALIZER, GANG, JOB_ID
from slinky.bridge.ledger import Ledger
from slinky.bridge.lines import Siblings, SubmitLimits
from slinky.bridge.marker import Failure, with_failures
from slinky.bridge.membership import Membership
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.pacing import Pace
from slinky.bridge.policy import Grant, Policy
from slinky.bridge.poller import JobPoller
from slinky.bridge.reconciler import Reconciler
from slinky.bridge.settings import Settings
from slinky.bridge.slurm_nodes import FITS
from slinky.bridge.submission import Submission, submission_of
from slinky.bridge.submitting import Submitter
from slinky.bridge.translate import Site, translate
from slinky.bridge.volumes.binder import VolumeBinder
from slinky.bridge.whereabouts import Whereabouts, put_on_all
from slinky.bridge.windows import Window
from slinky.bridge.workload import PodGroup, Workload, WorkloadKey
from slinky.kube import Cache, ConnectionFailedError, Key, Meta, Node, Pod
from slinky.kube import Job as KubeJob
from slinky.kube import OutcomeUnknownError as LostAnswerError
from slinky.kube.objects import Condition, Container, JobSpec, NodeStatus, OwnerReference, PodSpec, PodStatus, ResourceNeeds
from slinky.slurm import (
    Allocation,
    Diagnostics,
    Job,
    JobDescription,
    JobStatus,
    NodeAllocation,
    NotFoundError,
    OutcomeUnknownError,
    SlurmError,
    UnavailableError,
)
from tests.kube.virtual_time import run_in_virtual_time

__all__ = ["GRANTS", "OWNER", "Silent", "World", "diagnostics", "runs", "told"]

GRANTS = partial(Policy(Settings(partition="bridge")).grant, labels={})
SITE = Site(cluster="c1", partition="bridge")
OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="train-uid", controller=True)


def diagnostics(started: int, midnights: int = 0, requests: int = 1000, now: int = 0) -> Diagnostics:
    """Of a slurmctld that was started at this moment, and has seen so many midnights since; `now` by its clock."""
    times = {"req_time_start": {"set": True, "number": started + 86400 * midnights}, "req_time": {"set": bool(now), "number": now}}
    counts = [{"message_type": "REQUEST_PING", "count": requests if midnights or started == 1 else 1}]
    return msgspec.convert({**times, "rpcs_by_message_type": counts}, Diagnostics)


class Silent:
    """In place of the teller, and of what Slurm's nodes could hold."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None

    version = 0  # of Slurm's nodes

    async def shortfall(self, _: JobDescription) -> Any:
        return FITS

    async def rooms_of(self, _: str) -> dict[str, NodeRoom]:
        return {}


class World:
    """Pods as Kubernetes has them, jobs as Slurm has them. `acts` is what was done, in order. Both change at once, and the watch shows it at once."""

    def __init__(self, storage: "Callable[[World], VolumeBinder] | None" = None) -> None:
        self.pods: Cache[Pod] = Cache()
        self.kube_jobs: Cache[KubeJob] = Cache()
        self.nodes: Cache[Node] = Cache()
        self.nodes.put(Node(metadata=Meta(name="n"), status=NodeStatus(allocatable={"cpu": "64", "memory": "64Gi", "pods": "110"})))
        self.held: dict[int, Job] = {}
        self.born = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self.down = False
        self.started = 1  # of slurmctld
        self.read: set[int] = set()  # jobs that were read, or submitted by this client
        self.requests: list[str] = []  # for jobs that others may have
        self.acts: list[str] = []
        self.interferes = ""  # what keeps a pod from being in flight with another
        self.comments: dict[int, str] = {}  # of jobs that were cancelled
        self.tries = 0
        self.refuse_binding: set[str] = set()
        self.out_of_reach: set[str] = set()  # pods that cannot be written to
        self.lost_bindings: set[str] = set()  # pods whose Bindings are neither done nor answered
        self.lose_answers = 0
        self.labels_go_along = True
        self.labels_written = 0  # by themselves
        self.takes_labels = True  # with a Binding
        self.budget = ""  # what the disruption budget of all pods says to an eviction
        self.reasons: dict[str, str] = {}  # of evictions, by pod
        self.slurm_nodes = ["n"]
        self.priorities: dict[int, int] = {}
        self.given = ["n"]  # to each job
        self.refuse_submit: SlurmError | None = None
        self.unfit: dict[str, str] = {}  # nodes that Kubernetes refuses, and why
        self.seen_unfit: dict[str, str] = {}  # those of them that are known when a job is submitted
        self.jobs = self.accounting = self
        self.site = SITE
        self.answers, self.allocations_asked = asyncio.Event(), 0  # to who asks for an allocation
        self.answers.set()
        self.granted: Grant | None = GRANTS("ns")
        metrics, teller = BridgeMetrics(CollectorRegistry()), Silent()
        self.ledger = Ledger([self.pods], self.nodes)
        self.groups: dict[WorkloadKey, PodGroup] = {}
        self.membership = Membership(
            self.pods, self.kube_jobs, lambda key: self.loop.touched(key) if hasattr(self, "loop") else None, self.groups.get
        )
        me: Any = self
        self.window = Window(10, 10)
        poller = JobPoller(me, lambda job_id: self.loop.job_changed(job_id))
        volumes = storage(self) if storage else None
        self.directions = directions = Directions(self, me, {})
        self.loop = Reconciler(
            me,
            self.membership,
            self.groups.get,
            jobs := Jobs(me, poller, "c1"),
            poller,
            Submitter(
                me,
                teller,  # type: ignore[arg-type]
                directions,
                poller,
                teller,  # type: ignore[arg-type]
                metrics,
                lambda _: self.granted,
                SubmitLimits(lambda *turn: self.loop.call(*turn)),
                Siblings(self.in_flight, self.interference, lambda *turn: self.loop.call(*turn)),
            ),
            lambda wake: Binder(me, me, self.ledger, self, teller, metrics, wake, volumes, None, lambda: poller.is_current, jobs.runs),  # type: ignore[arg-type]
            self.window,
            teller,  # type: ignore[arg-type]
            metrics,
            volumes.hold if volumes else lambda *_: "",
        )
        self.poller = poller
        self.metrics = metrics

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(work)
            for work in (
                self.poller.run(),
                self.loop.queue.serve(self.loop.reconcile, workers=4),
                self.loop.submits.serve(self.loop.submit, workers=2),
            )
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, what: Callable[[], Any], seconds: float = 120) -> None:
        async with asyncio.timeout(seconds):
            while not what():
                await asyncio.sleep(0.05)

    # As the executor

    async def site_for(self, _: Workload) -> Site:
        return SITE

    async def submit(self, workload: Workload, whereabouts: Sequence[Whereabouts] = (), _: Site | None = None) -> Submission:
        self.tries += 1
        await asyncio.sleep(0.01)
        self.check()
        if self.refuse_submit:
            raise self.refuse_submit
        description = put_on_all([translate(workload, SITE)], whereabouts)[0]
        job_id = max(self.held, default=0) + 1
        tasks = {"set": True, "infinite": False, "number": description.tasks}
        record = {
            "job_id": job_id,
            "job_state": ["PENDING"],
            "flags": ["EXTERNAL_JOB"],
            "admin_comment": description.admin_comment,
            "tasks": tasks,
        }
        self.held[job_id] = msgspec.convert(record, Job)
        self.read.add(job_id)
        self.acts.append(f"submit {job_id} x{description.tasks}")
        if self.lose_answers:
            self.lose_answers -= 1
            self.down = True
            raise OutcomeUnknownError("the connection broke")
        return submission_of(job_id, description)

    async def begin(self) -> None:
        pass

    async def diag(self) -> Any:
        self.check()
        return diagnostics(self.started)

    async def distrust_markers(self) -> None:
        self.read = set()

    async def submits_alone(self, marker_in: str) -> None:
        assert marker_in == "admin_comment"
        self.read = set()

    async def ids_used(self, job_id: int) -> None: ...

    async def last_id(self) -> int:
        return max(self.read, default=0)

    async def unread(self, *, live: bool = False) -> list[int]:
        self.check()
        self.requests.append("states")
        return sorted(job_id for job_id, job in self.held.items() if job_id not in self.read and not (live and job.is_finished))

    async def records(self, job_ids: Iterable[int], *, learn: bool = False) -> list[Job]:
        self.check()
        asked = [job_id for job_id in job_ids if job_id in self.held]
        self.requests += [f"job {job_id}" for job_id in asked]
        await asyncio.sleep(0.001 * len(asked))
        if learn:
            self.read.update(asked)
        return [self.held[job_id] for job_id in asked if job_id in self.held]

    async def newest(self, since: float = 0.0) -> AsyncIterator[list[Job]]:
        """In groups of 50, until all of one were submitted earlier."""
        ids = await self.unread()
        for end in range(len(ids), 0, -50):
            found = await self.records(ids[max(0, end - 50) : end], learn=True)
            yield found
            if all(isinstance(job.submit_time, int) and job.submit_time < since for job in found):
                return

    def adopting(self, *_: object) -> None:
        pass

    async def find(self, workload: Workload, _: float = 0.0) -> Submission | None:
        self.check()
        sent = translate(workload, SITE)
        mine = [job_id for job_id, job in self.held.items() if job.admin_comment == sent.admin_comment and not job.is_finished]
        return submission_of(mine[0], sent) if mine else None

    async def record(self, job_id: int) -> Job:
        triplet = {"set": True, "infinite": False, "number": self.priorities.get(job_id, 0)}
        await self.get(job_id)
        return msgspec.convert({"job_id": job_id, "job_state": self.held[job_id].job_states, "priority": triplet}, Job)

    async def update_waiting(self, job_id: int, change: JobDescription) -> None:
        self.acts.append(f"update {job_id} {change.constraints or ''} {','.join(change.excluded_nodes or ())}".strip())

    async def catch_up(self, job_id: int, priority: int) -> None:
        self.acts.append(f"priority {job_id} {priority}")

    def reach(self, pod: Pod) -> None:
        if pod.metadata.name in self.out_of_reach:
            raise ConnectionFailedError("PATCH", str(pod.key), "not now")

    async def label(self, pod: Pod, job_id: int) -> None:
        self.labels_written += 1
        self.reach(pod)
        if self.pods.by_key(pod.key):
            self.change(pod.metadata.name, labels={JOB_ID: str(job_id)} if job_id else {})

    async def remember(self, job_id: int, failures: Iterable[Failure]) -> None:
        self.check()
        job = self.held[job_id]
        self.held[job_id] = msgspec.structs.replace(job, admin_comment=with_failures(job.admin_comment, failures))

    async def set_apart(self, pod: Pod) -> None:
        self.acts.append(f"apart {pod.metadata.name}")
        self.change(pod.metadata.name, annotations={**pod.metadata.annotations, APART: "true"})

    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str], job_id: int) -> bool:
        await asyncio.sleep(0.01)
        self.reach(pod)
        if pod.metadata.name in self.lost_bindings:
            raise LostAnswerError("POST", f"{pod.key}/binding", "the connection broke")
        if pod.metadata.name in self.refuse_binding:
            self.delete(pod.metadata.name)
            return False
        self.acts.append(f"bind {pod.metadata.name}")
        labels = {JOB_ID: str(job_id)} if self.takes_labels else self.pod(pod.metadata.name).metadata.labels
        self.change(pod.metadata.name, annotations=annotations, labels=labels)
        now = self.pod(pod.metadata.name)
        scheduled = Condition(type="PodScheduled", status="True", last_transition_time=self.born)
        status = msgspec.structs.replace(now.status, conditions=(*now.status.conditions, scheduled))
        self.pods.put(msgspec.structs.replace(now, spec=msgspec.structs.replace(now.spec, node_name=node), status=status))
        return True

    async def evict(self, pod: Pod, reason: str, _: str) -> str:
        if self.budget:
            self.acts.append(f"refused {pod.metadata.name}")
            return self.budget
        self.acts.append(f"evict {pod.metadata.name}")
        self.reasons[pod.metadata.name] = reason
        self.delete(pod.metadata.name)
        return ""

    async def remove(self, pod: Pod, reason: str, _: str) -> None:
        self.acts.append(f"remove {pod.metadata.name}")
        self.reasons[pod.metadata.name] = reason
        self.delete(pod.metadata.name)

    async def shorten(self, pod: Pod) -> None:
        self.acts.append(f"shorten {pod.metadata.name}")
        own = msgspec.structs.replace(pod.metadata, deletion_grace_period_seconds=pod.spec.termination_grace_period_seconds)
        self.pods.put(msgspec.structs.replace(pod, metadata=own))

    async def release(self, pod: Pod) -> bool:
        now = self.pods.by_key(pod.key)
        if now is not None and now.metadata.deletion_timestamp:
            self.pods.remove(pod.key)
        elif now is not None:
            self.change(pod.metadata.name, finalizers=())
        return True

    async def end_job(self, job_id: int, exit_code: int | None, why: str, **manner: object) -> None:
        self.acts.append(f"end {job_id} {exit_code}")
        if exit_code is None and manner.get("noted"):
            self.comments[job_id] = why
        self.set_job(job_id, "CANCELLED")

    # As Kubernetes' judgement on nodes

    def refusal(self, _: Pod, node: str) -> str:
        return self.unfit.get(node, "")

    async def prepare(self, _pod: Pod, _pace: Pace) -> None: ...

    def opinion(self, _: Pod) -> Opinion:
        return Opinion(self.seen_unfit)

    async def place(self, placements: Sequence[tuple[Pod, str]], _: Pace) -> Placed:
        return Placed(next(((pod, why) for pod, node in placements if (why := self.refusal(pod, node))), None))

    def refusal_since(self, *_: object) -> None: ...

    def assume(self, pod: Pod, node: str) -> None: ...

    def withdraw(self, pod: Pod) -> None: ...

    def in_flight(self) -> InFlight:
        return InFlight(lambda *_: None)

    def interference(self, _: Pod, __: str, others: InFlight) -> str:
        return self.interferes if others else ""

    # As Slurm

    version = names_version = 0  # of its nodes

    async def rooms_of(self, _: str) -> dict[str, NodeRoom]:
        return {node: NodeRoom(partitions=frozenset({"bridge"}), cpus=64, memory=1 << 20, gres={}) for node in self.slurm_nodes}

    def check(self) -> None:
        if self.down:
            raise UnavailableError("slurmctld is not there")

    async def get(self, job_id: int) -> Job:
        self.check()
        if job_id not in self.held:
            raise NotFoundError(f"there is no job {job_id}")
        return self.held[job_id]

    async def parts(self, job_id: int, **_: bool) -> list[Job]:
        return [await self.get(job_id)]

    async def job(self, job_id: int) -> Any:
        raise NotFoundError(f"accounting has no job {job_id}")

    async def states(self, job_ids: Iterable[int]) -> list[JobStatus]:
        self.check()
        return [JobStatus(str(job_id), self.held[job_id].job_states) for job_id in job_ids if job_id in self.held]

    async def allocation(self, job_id: int) -> Allocation:
        self.allocations_asked += 1
        await self.answers.wait()
        return Allocation(job_id, [NodeAllocation(node=node, memory=1 << 20) for node in self.given])

    # What happens

    def pod(self, name: str) -> Pod:
        found = self.pods.by_key(Key("ns", name))
        assert found is not None
        return found

    def make(self, name: str, *, gang: bool = False, owner: OwnerReference = OWNER, cpus: int = 0, **more: Any) -> None:
        """`cpus` 0: it asks for none. `more` goes into metadata."""
        self.born += dt.timedelta(seconds=1)
        meta = Meta(
            name=name,
            namespace="ns",
            uid=more.pop("uid", f"{name}-uid"),
            finalizers=(FINALIZER,),
            owner_references=(owner,) if gang else (),
            creation_timestamp=self.born,
            **more,
        )
        spec = PodSpec(containers=(Container(resources=ResourceNeeds(requests={"cpu": str(cpus)})),)) if cpus else PodSpec()
        self.pods.put(Pod(metadata=meta, spec=spec, status=PodStatus(phase="Pending")))

    def gang(self, *names: str, completions: int | None = None) -> None:
        """A Job that is one, and all its pods."""
        meta = Meta(name="train", namespace="ns", uid="train-uid", annotations={GANG: "true"})
        self.kube_jobs.put(KubeJob(metadata=meta, spec=JobSpec(parallelism=len(names), completions=completions)))
        for name in names:
            self.make(name, gang=True)

    def change(self, name: str, **changes: Any) -> None:
        pod = self.pod(name)
        self.pods.put(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **changes)))

    def ends(self, name: str, phase: str = "Failed") -> None:
        pod = self.pod(name)
        self.pods.put(msgspec.structs.replace(pod, status=PodStatus(phase=phase, conditions=pod.status.conditions)))

    def delete(self, name: str) -> None:
        self.change(name, deletion_timestamp=dt.datetime.now(dt.UTC))

    def set_job(self, job_id: int, state: str) -> None:
        self.held[job_id] = msgspec.structs.replace(self.held[job_id], job_states=[state])

    def is_empty(self) -> bool:
        """Nothing is remembered of anything."""
        loop = self.loop
        return not (loop.known or loop.knowledge.owners or self.poller.following or self.window.inside or self.window.waiting)


def told(story: Callable[[World], Any], storage: Callable[[World], VolumeBinder] | None = None) -> None:
    async def whole() -> None:
        world = World(storage)
        async with world.running():
            await story(world)

    run_in_virtual_time(whole())


async def runs(world: World, job_id: int, *names: str) -> None:
    await world.until(lambda: job_id in world.held and all(world.pod(name).metadata.labels.get(JOB_ID) == str(job_id) for name in names))
    world.set_job(job_id, "RUNNING")
    await world.until(lambda: all(world.pod(name).spec.node_name for name in names))
