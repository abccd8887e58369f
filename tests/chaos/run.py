"""One run: a sandbox, the bridge on it, its users, the faults, and then the verdict.

Comes in: a `Plan`, all of which follows from a seed. Goes out: a `Report`, and in its folder the journal of faults, the history of both sides and the processes' logs. What must stay true: nothing of it outlives the run, however it ends;
after the last fault the run waits until everything is over, a minute at most for what the bridge owes, and only then takes the last look.
"""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec

from slinky.kube import NAMESPACES as NAMESPACE_OBJECTS
from slinky.kube import Client, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.prolog import install_prolog
from slinky.sandbox.shape import Shape
from tests.chaos.history import History, write_history
from tests.chaos.hybrid import FAKE_NODES, BatchJob, SlurmUsers, batch_jobs, real_pods
from tests.chaos.invariants import SETTLE_SECONDS, check, jobs_and_pods_agree
from tests.chaos.journal import Journal
from tests.chaos.lines import Lines, kube_context
from tests.chaos.lives import OVER, lives
from tests.chaos.nodes import Nodes
from tests.chaos.observer import Observer
from tests.chaos.old_state import OldState, confirm_alarms, with_forgotten
from tests.chaos.orphans import orphans
from tests.chaos.processes import ADMISSION, CLUSTER, RUNNERS, Processes
from tests.chaos.report import Report, fates
from tests.chaos.schedule import REQUEST_KINDS, Fault, schedule
from tests.chaos.servers import Servers
from tests.chaos.slurm_side import completed, has_all_ends, live_jobs, records
from tests.chaos.storm import Planned, storm
from tests.chaos.users import Users
from tests.chaos.workload import NAMESPACES, NODE_CPUS, NODE_GPUS, Arrival, arrivals

__all__ = ["HYBRID", "SHAPE", "Plan", "chaos"]

SHAPE = Shape(nodes=8, node_cpus=NODE_CPUS, node_memory_mib=64 * 1024, node_gpus=NODE_GPUS, addons=("jobset", "podgroup"), register=False)
HYBRID = msgspec.structs.replace(SHAPE, real_nodes=2, slurmd=True)
LOOK_SECONDS = 0.5
ACCOUNTING_SECONDS = 30.0
STANDSTILL_SECONDS = 90.0
REAL_PER_SECOND = 0.4  # pods and batch jobs on the real nodes, each: they have four CPUs
READY_SECONDS = 60.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`faults_per_second` of single requests; `arrivals_per_second` of what users make; `hybrid`: two real nodes more, which pods share with Slurm's own jobs."""

    seed: int
    seconds: float = 60.0
    faults_per_second: float = 8.0
    arrivals_per_second: float = 1.0
    old_state: bool = False
    hybrid: bool = False

    @property
    def shape(self) -> Shape:
        return HYBRID if self.hybrid else SHAPE

    @property
    def faults(self) -> list[Fault]:
        return schedule(self.seed, self.seconds, self.faults_per_second, old_state=self.old_state)

    @property
    def arrivals(self) -> list[Arrival]:
        if not self.hybrid:
            return arrivals(self.seed, self.seconds, self.arrivals_per_second)
        fake = arrivals(self.seed, self.seconds, self.arrivals_per_second, tolerations=(FAKE_NODES,))
        return sorted([*fake, *real_pods(self.seed, self.seconds, REAL_PER_SECOND)], key=lambda arrival: arrival.at)

    @property
    def batch_jobs(self) -> list[BatchJob]:
        return list(batch_jobs(self.seed, self.seconds, REAL_PER_SECOND)) if self.hybrid else []


async def chaos(sandbox: Sandbox, plan: Plan, folder: Path, say: Callable[[str], None] = lambda _: None) -> Report:
    """On a sandbox of the plan's shape that nobody else uses."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.time()
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(Journal(folder / "faults.jsonl"))
        lines = await stack.enter_async_context(Lines(sandbox, journal, (*RUNNERS, ADMISSION)))
        kube = await stack.enter_async_context(Client(from_kubeconfig(sandbox.kubeconfig)))
        observer = await stack.enter_async_context(Observer(sandbox.kube_server, kube_context(sandbox), NAMESPACES))
        processes = await asyncio.to_thread(Processes, sandbox, folder, lines, kube)
        nodes = Nodes(sandbox, kube, observer, journal)
        old = OldState(sandbox, folder)
        servers = Servers(sandbox, kube, lines, processes, nodes, journal, old)
        for name in NAMESPACES:
            await kube.create(NAMESPACE_OBJECTS.untyped, {"metadata": {"name": name}})
        await nodes.label_all()
        if plan.hybrid:
            await install_prolog(sandbox)
        async with processes:
            if plan.old_state:
                stack.push_async_callback(_ended, asyncio.create_task(confirm_alarms(kube, processes), name="administrator"))
            await _nodes_registered(sandbox)
            say("the bridge runs; users and faults begin")
            await storm(_planned(plan, Users(kube, journal), SlurmUsers(sandbox), lines, servers), say)
            lines.disarm()
            say(f"{sum(journal.counts.values())} faults; waiting until all is over")
            history = await _settled(sandbox, kube, observer, journal, began)
        await _accounted(sandbox, history)
        if old.before:
            history.jobs = with_forgotten(old.before, history.jobs, old.set_back)
    write_history(history, folder / "history.json")
    return Report(
        seed=plan.seed,
        seconds=plan.seconds,
        faults=dict(journal.counts),
        invariants=check(history),
        lives=fates(history),
        jobs=sum(job.cluster == CLUSTER for job in history.jobs),
        took=time.time() - began,
        settled_after=history.settled_at - history.last_fault,
        gaps=observer.gaps,
        troubles=(*processes.crashes, *processes.troubles()),
    )


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _nodes_registered(sandbox: Sandbox) -> None:
    async def there() -> bool:
        told = await sandbox.link.run("head", "sinfo", "-h", "-N", "-p", "bridge", "-t", "idle", "-o", "%N")
        return len(told.split()) == sandbox.record.shape.nodes

    await sandbox.until("slurmctld", "all nodes were registered", there, READY_SECONDS)


def _planned(plan: Plan, users: Users, people: SlurmUsers, lines: Lines, servers: Servers) -> Iterator[Planned]:
    yield from ((arrival.at, partial(users.live, arrival)) for arrival in plan.arrivals)
    yield from ((job.at, partial(people.live, job)) for job in plan.batch_jobs)
    for fault in plan.faults:
        yield fault.at, partial(lines.strike if fault.kind in REQUEST_KINDS else servers.strike, fault)


async def _settled(sandbox: Sandbox, kube: Client, observer: Observer, journal: Journal, since: float) -> History:
    """Both sides as soon as they agree and all is over but for those who stay, twice in a row; or after a minute, be it so or not. Then the rest is waited for: a machine may be slow, but nobody waits for ever."""
    deadline, quiet = (journal.last or time.time()) + SETTLE_SECONDS, 0
    history = History(cluster=CLUSTER, acts=journal.acts, began=since, last_fault=journal.last or since)
    while True:
        history.settled_at, live = time.time(), await live_jobs(sandbox)
        if live is not None:
            history.live, history.pods = live, list(observer.pods)
            quiet = quiet + 1 if _all_over(observer) and not _disagree(history) else 0
            if quiet == 2 or time.time() > deadline:
                break
        await asyncio.sleep(LOOK_SECONDS)
    history.orphans = await orphans(kube, list(observer.current.values()))
    await _drained(observer)
    history.pods, history.nodes = list(observer.pods), list(observer.nodes)
    return history


async def _drained(observer: Observer) -> None:
    """As long as something moves."""
    seen, moved = len(observer.pods), time.monotonic()
    while not _all_over(observer) and time.monotonic() < moved + STANDSTILL_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        if len(observer.pods) > seen:
            seen, moved = len(observer.pods), time.monotonic()


def _all_over(observer: Observer) -> bool:
    return all(pod.phase in OVER or "stays-" in pod.name for pod in observer.current.values())


def _disagree(history: History) -> bool:
    return any(text for _, text in jobs_and_pods_agree(history, lives(history.pods)))


async def _accounted(sandbox: Sandbox, history: History) -> None:
    """With accounting, as soon as it knows of every end."""
    deadline = time.monotonic() + ACCOUNTING_SECONDS
    while not has_all_ends(jobs := await records(sandbox, history.began), history.live) and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
    history.jobs = completed(jobs, history.live)
