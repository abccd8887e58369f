"""The loop, with both sides in memory: what a watch, an API server and Slurm do to it in an awkward order. The real servers are in tests/bridge_sandbox."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from slinky.bridge.binding import Binder
from slinky.bridge.jobs import Jobs
from slinky.bridge.keys import FINALIZER, GANG, JOB_ID
from slinky.bridge.ledger import Ledger
from slinky.bridge.membership import Membership
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.poller import JobPoller
from slinky.bridge.reconciler import Reconciler
from slinky.bridge.slurm_nodes import FITS
from slinky.bridge.submission import Submission, submission_of
from slinky.bridge.submitting import Submitter
from slinky.bridge.translate import Site, translate
from slinky.bridge.windows import Window
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Cache, Key, Meta, Node, Pod
from slinky.kube import Job as KubeJob
from slinky.kube.objects import JobSpec, NodeStatus, OwnerReference, PodStatus
from slinky.slurm import Allocation, Job, JobDescription, JobStatus, NodeAllocation, NotFoundError, OutcomeUnknownError, UnavailableError
from tests.kube.virtual_time import run_in_virtual_time

SITE = Site(cluster="c1", partition="bridge")
OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="train-uid", controller=True)


class Silent:
    """In place of the teller, and of what Slurm's nodes could hold."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None

    async def shortfall(self, _: JobDescription) -> Any:
        return FITS


class World:
    """Pods as Kubernetes has them, jobs as Slurm has them. `acts` is what was done, in order. Both change at once, and the watch shows it at once."""

    def __init__(self) -> None:
        self.pods: Cache[Pod] = Cache()
        self.kube_jobs: Cache[KubeJob] = Cache()
        self.nodes: Cache[Node] = Cache()
        self.nodes.put(Node(metadata=Meta(name="n"), status=NodeStatus(allocatable={"cpu": "64", "memory": "64Gi", "pods": "110"})))
        self.held: dict[int, Job] = {}
        self.down = False
        self.acts: list[str] = []
        self.tries = 0
        self.refuse_binding: set[str] = set()
        self.lose_answers = 0
        self.jobs = self.accounting = self
        self.site = SITE
        metrics, teller = BridgeMetrics(CollectorRegistry()), Silent()
        self.ledger = Ledger([self.pods], self.nodes)
        self.membership = Membership(self.pods, self.kube_jobs, lambda key: self.loop.queue.add(key) if hasattr(self, "loop") else None)
        me: Any = self
        self.window = Window(10, 10)
        poller = JobPoller(me, lambda job_id: self.loop.job_changed(job_id))
        self.loop = Reconciler(
            me,
            self.membership,
            lambda _: None,
            Jobs(me, poller, "c1"),
            poller,
            Submitter(me, teller, poller, teller, metrics),  # type: ignore[arg-type]
            lambda wake: Binder(me, me, self.ledger, teller, metrics, wake),  # type: ignore[arg-type]
            self.window,
            teller,  # type: ignore[arg-type]
            metrics,
        )
        self.poller = poller

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

    def describe(self, workload: Workload) -> JobDescription:
        return translate(workload, SITE)

    async def submit(self, workload: Workload) -> Submission:
        self.tries += 1
        await asyncio.sleep(0.01)
        self.check()
        description = translate(workload, SITE)
        job_id = len(self.held) + 1
        tasks = {"set": True, "infinite": False, "number": description.tasks}
        record = {
            "job_id": job_id,
            "job_state": ["PENDING"],
            "flags": ["EXTERNAL_JOB"],
            "admin_comment": description.admin_comment,
            "tasks": tasks,
        }
        self.held[job_id] = msgspec.convert(record, Job)
        self.acts.append(f"submit {job_id} x{description.tasks}")
        if self.lose_answers:
            self.lose_answers -= 1
            self.down = True
            raise OutcomeUnknownError("the connection broke")
        return submission_of(job_id, description)

    async def find(self, workload: Workload) -> Submission | None:
        self.check()
        sent = translate(workload, SITE)
        mine = [job_id for job_id, job in self.held.items() if job.admin_comment == sent.admin_comment and not job.is_finished]
        return submission_of(mine[0], sent) if mine else None

    async def label(self, pod: Pod, job_id: int) -> None:
        if self.pods.by_key(pod.key):
            self.change(pod.metadata.name, labels={JOB_ID: str(job_id)} if job_id else {})

    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str]) -> bool:
        await asyncio.sleep(0.01)
        if pod.metadata.name in self.refuse_binding:
            self.delete(pod.metadata.name)
            return False
        self.acts.append(f"bind {pod.metadata.name}")
        self.change(pod.metadata.name, annotations=annotations)
        now = self.pod(pod.metadata.name)
        self.pods.put(msgspec.structs.replace(now, spec=msgspec.structs.replace(now.spec, node_name=node)))
        return True

    async def evict(self, pod: Pod, _: str) -> None:
        self.acts.append(f"evict {pod.metadata.name}")
        self.delete(pod.metadata.name)

    async def release(self, pod: Pod) -> bool:
        now = self.pods.by_key(pod.key)
        if now is not None and now.metadata.deletion_timestamp:
            self.pods.remove(pod.key)
        elif now is not None:
            self.change(pod.metadata.name, finalizers=())
        return True

    async def end_job(self, job_id: int, exit_code: int | None, _: str, *, running: bool) -> None:  # noqa: ARG002
        self.acts.append(f"end {job_id} {exit_code}")
        self.set_job(job_id, "CANCELLED")

    # As Slurm

    def check(self) -> None:
        if self.down:
            raise UnavailableError("slurmctld is not there")

    async def get(self, job_id: int) -> Job:
        self.check()
        if job_id not in self.held:
            raise NotFoundError(f"there is no job {job_id}")
        return self.held[job_id]

    async def job(self, job_id: int) -> Any:
        raise NotFoundError(f"accounting has no job {job_id}")

    async def states(self, job_ids: Iterable[int]) -> list[JobStatus]:
        self.check()
        return [JobStatus(str(job_id), self.held[job_id].job_states) for job_id in job_ids if job_id in self.held]

    async def allocation(self, job_id: int) -> Allocation:
        return Allocation(job_id, [NodeAllocation(node="n", memory=1 << 20)])

    # What happens

    def pod(self, name: str) -> Pod:
        found = self.pods.by_key(Key("ns", name))
        assert found is not None
        return found

    def make(self, name: str, *, gang: bool = False) -> None:
        meta = Meta(name=name, namespace="ns", uid=f"{name}-uid", finalizers=(FINALIZER,), owner_references=(OWNER,) if gang else ())
        self.pods.put(Pod(metadata=meta, status=PodStatus(phase="Pending")))

    def change(self, name: str, **changes: Any) -> None:
        pod = self.pod(name)
        self.pods.put(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **changes)))

    def ends(self, name: str, phase: str = "Failed") -> None:
        self.pods.put(msgspec.structs.replace(self.pod(name), status=PodStatus(phase=phase)))

    def delete(self, name: str) -> None:
        self.change(name, deletion_timestamp=dt.datetime.now(dt.UTC))

    def set_job(self, job_id: int, state: str) -> None:
        self.held[job_id] = msgspec.structs.replace(self.held[job_id], job_states=[state])

    def is_empty(self) -> bool:
        """Nothing is remembered of anything."""
        loop = self.loop
        return not (loop.known or loop._workload_of_job or self.poller.following or self.window.inside or self.window.waiting)


def told(story: Callable[[World], Any]) -> None:
    async def whole() -> None:
        world = World()
        async with world.running():
            await story(world)

    run_in_virtual_time(whole())


async def runs(world: World, job_id: int, *names: str) -> None:
    await world.until(lambda: job_id in world.held and all(world.pod(name).metadata.labels.get(JOB_ID) == str(job_id) for name in names))
    world.set_job(job_id, "RUNNING")
    await world.until(lambda: all(world.pod(name).spec.node_name for name in names))


def test_a_pods_whole_way_leaves_nothing_behind() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        world.ends("a", "Succeeded")
        await world.until(lambda: not world.pod("a").metadata.finalizers)
        assert world.acts == ["submit 1 x1", "bind a", "end 1 0"]
        world.pods.remove(Key("ns", "a"))
        await world.until(world.is_empty)
        assert not world.ledger._counted

    told(story)


def test_a_gangs_second_wave_gets_a_job_of_its_own() -> None:
    """A Job whose pods all failed makes new ones; the old ones stay as objects, with the label of a job that is over."""

    async def story(world: World) -> None:
        meta = Meta(name="train", namespace="ns", uid="train-uid", annotations={GANG: "true"})
        world.kube_jobs.put(KubeJob(metadata=meta, spec=JobSpec(parallelism=2)))
        for name in ("a", "b"):
            world.make(name, gang=True)
        await runs(world, 1, "a", "b")
        for name in ("a", "b"):
            world.ends(name)
        await world.until(lambda: not world.pod("a").metadata.finalizers and not world.pod("b").metadata.finalizers)
        for name in ("c", "d"):
            world.make(name, gang=True)
        await runs(world, 2, "c", "d")
        assert world.acts[:1] + world.acts[3:5] == ["submit 1 x2", "end 1 1", "submit 2 x2"]
        for name in ("c", "d"):
            world.ends(name, "Succeeded")
        await world.until(lambda: not world.pod("c").metadata.finalizers)
        for name in "abcd":
            world.pods.remove(Key("ns", name))
        await world.until(world.is_empty)

    told(story)


def test_a_pod_that_is_deleted_while_it_is_bound_is_let_go_and_its_job_ended() -> None:
    """The API server refuses to bind a pod that is being deleted."""

    async def story(world: World) -> None:
        world.refuse_binding.add("a")
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: Key("ns", "a") not in world.pods)
        await world.until(world.is_empty)
        assert world.acts == ["submit 1 x1", "end 1 None"]
        assert not world.ledger._counted

    told(story)


def test_a_pod_that_vanishes_while_it_is_submitted_leaves_no_job() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await world.until(lambda: world.tries)
        world.pods.remove(Key("ns", "a"))
        await world.until(lambda: world.acts == ["submit 1 x1", "end 1 None"])
        await world.until(world.is_empty)

    told(story)


def test_while_slurm_is_down_submits_come_later_and_later_and_go_on_soon_after() -> None:
    async def story(world: World) -> None:
        world.down = True
        world.make("a")
        await asyncio.sleep(600)
        assert 10 < world.tries < 60
        world.down = False
        await world.until(lambda: world.held, seconds=45)
        assert world.acts == ["submit 1 x1"]

    told(story)


def test_a_job_whose_submit_was_never_answered_is_ended_where_its_pod_is_gone_by_then() -> None:
    async def story(world: World) -> None:
        world.lose_answers = 1
        world.make("a")
        await world.until(lambda: world.down)
        world.pods.remove(Key("ns", "a"))
        await asyncio.sleep(60)
        world.down = False
        await world.until(lambda: world.acts == ["submit 1 x1", "end 1 None"])
        await world.until(world.is_empty)

    told(story)


def test_a_job_whose_submit_was_never_answered_is_found_before_another_is_made() -> None:
    """Also where another pod has come in the stead of one of those it was for."""

    async def story(world: World) -> None:
        meta = Meta(name="train", namespace="ns", uid="train-uid", annotations={GANG: "true"})
        world.kube_jobs.put(KubeJob(metadata=meta, spec=JobSpec(parallelism=2)))
        world.lose_answers = 1
        for name in ("a", "b"):
            world.make(name, gang=True)
        await world.until(lambda: world.down)
        world.pods.remove(Key("ns", "b"))
        world.make("c", gang=True)
        world.down = False
        await runs(world, 1, "a", "c")
        assert world.acts == ["submit 1 x2", "bind a", "bind c"]

    told(story)


def test_a_submit_that_was_lost_on_the_way_is_made_again() -> None:
    async def story(world: World) -> None:
        world.lose_answers = 1
        world.make("a")
        await world.until(lambda: world.down)
        world.held.clear()
        world.down = False
        await runs(world, 1, "a")
        assert world.acts == ["submit 1 x1", "submit 1 x1", "bind a"]

    told(story)


def test_a_gang_that_loses_a_member_gives_its_job_back_and_gets_another_when_it_is_whole() -> None:
    async def story(world: World) -> None:
        meta = Meta(name="train", namespace="ns", uid="train-uid", annotations={GANG: "true"})
        world.kube_jobs.put(KubeJob(metadata=meta, spec=JobSpec(parallelism=2)))
        for name in ("a", "b"):
            world.make(name, gang=True)
        await world.until(lambda: 1 in world.held)
        world.delete("b")
        await world.until(lambda: "end 1 None" in world.acts)
        await world.until(lambda: not world.pod("a").metadata.labels)
        world.make("c", gang=True)
        await runs(world, 2, "a", "c")
        assert "evict a" not in world.acts

    told(story)


def test_a_job_that_slurm_ends_takes_its_pods_with_it() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        world.set_job(1, "PREEMPTED")
        await world.until(lambda: "evict a" in world.acts)
        world.ends("a")
        await world.until(world.is_empty)
        assert "end 1" not in " ".join(world.acts)

    told(story)


def test_a_job_that_another_leader_left_waiting_counts_in_the_window() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await world.until(lambda: world.held)
        key = WorkloadKey("Pod", "ns", "a-uid")
        world.window.leave(key)
        world.loop.queue.add(key)
        await world.until(lambda: world.window.inside == 1)

    told(story)
