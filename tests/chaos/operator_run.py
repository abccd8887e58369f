"""One run with the operator: a sandbox, two operators on it, a cluster whose slurmd are played, its people, the faults, and then the verdict.

Comes in: an `OperatorPlan`, all of which follows from a seed. Goes out: a `Report`, and in its folder the journal of faults, the history and the processes' logs. What must stay true: nothing of it outlives the run, however it ends; after the
last fault the run waits until all is as it should be, two minutes at most, and only then takes the last look.
"""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from slinky.kube import NAMESPACES as NAMESPACE_OBJECTS
from slinky.kube import PODS, Client, KubeError, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.operator import install_crds
from slinky.sandbox.played_cluster import NODESETS as NODESET_RESOURCE
from slinky.sandbox.played_cluster import PlayedCluster, played_workers
from slinky.slurm import SlurmClient, SlurmError
from tests.chaos.history import write_history
from tests.chaos.journal import Journal
from tests.chaos.lines import Lines, kube_context
from tests.chaos.observer import Observer
from tests.chaos.old_state import OldState
from tests.chaos.operator_history import OperatorHistory, WorkerLeft
from tests.chaos.operator_invariants import SETTLE_SECONDS, check_operator, nothing_left_over
from tests.chaos.operator_people import People
from tests.chaos.operator_plan import OperatorPlan
from tests.chaos.operator_world import NAMESPACE, Operators, sample_of, watched_nodes
from tests.chaos.processes import RUNNERS
from tests.chaos.report import Report
from tests.chaos.schedule import REQUEST_KINDS
from tests.chaos.servers import Servers
from tests.chaos.slurm_side import completed, has_all_ends, live_jobs, records
from tests.chaos.storm import Planned, storm

__all__ = ["operator_chaos"]

LOOK_SECONDS = 0.5
ACCOUNTING_SECONDS = 30.0


async def operator_chaos(sandbox: Sandbox, plan: OperatorPlan, folder: Path, say: Callable[[str], None] = lambda _: None) -> Report:
    """On a sandbox of the plan's shape that nobody else uses."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    history = OperatorHistory(began=time.time())
    await install_crds(sandbox)
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(Journal(folder / "faults.jsonl"))
        lines = await stack.enter_async_context(Lines(sandbox, journal, RUNNERS))
        kube = await stack.enter_async_context(Client(from_kubeconfig(sandbox.kubeconfig)))
        slurm = await stack.enter_async_context(sandbox.slurm_client())
        observer = await stack.enter_async_context(Observer(sandbox.kube_server, kube_context(sandbox), (NAMESPACE,)))
        samples = await stack.enter_async_context(watched_nodes(slurm))
        operators = Operators(folder, lines, kube)
        nobody: Any = SimpleNamespace(deeds={})  # what happens to nodes here, people do
        servers = Servers(sandbox, kube, lines, operators, nobody, journal, OldState(sandbox, folder))  # type: ignore[arg-type]
        await kube.create(NAMESPACE_OBJECTS.untyped, {"metadata": {"name": NAMESPACE}})
        cluster = PlayedCluster(sandbox, kube, NAMESPACE)
        await cluster.create_head()
        people = People(cluster, kube, slurm, journal)
        await stack.enter_async_context(played_workers(kube, slurm, NAMESPACE))
        async with operators:
            await people.begin()
            await _until(lambda: _is_in_order(history, people, kube, slurm))
            say("the workers are there; people and faults begin")
            await storm(_planned(plan, people, lines, servers), say)
            lines.disarm()
            say(f"{sum(journal.counts.values())} faults; jobs end, and all is waited for")
            await people.end()
            history.last_fault = max(journal.last, time.time())
            await _until(lambda: _is_in_order(history, people, kube, slurm))
        history.pods, history.samples, history.acts = list(observer.pods), list(samples), list(people.acts)
        await _accounted(sandbox, history)
    write_history(history, folder / "history.json")
    return Report(
        seed=plan.seed,
        seconds=plan.seconds,
        faults=dict(journal.counts),
        invariants=check_operator(history),
        lives=_lives(history),
        jobs=sum(bool(job.start) for job in history.jobs),
        took=time.time() - history.began,
        settled_after=history.settled_at - history.last_fault,
        gaps=observer.gaps,
        troubles=(*operators.crashes, *operators.troubles()),
    )


def _planned(plan: OperatorPlan, people: People, lines: Lines, servers: Servers) -> Iterator[Planned]:
    yield from ((deed.at, partial(people.do, deed)) for deed in plan.deeds)
    yield from ((job.at, partial(people.run, job)) for job in plan.jobs)
    for fault in plan.faults:
        yield fault.at, partial(lines.strike if fault.kind in REQUEST_KINDS else servers.strike, fault)


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Twice in a row, or as long as it may take: the last look decides, be it so or not."""
    deadline, quiet = time.monotonic() + SETTLE_SECONDS, 0
    while quiet < 2 and time.monotonic() < deadline:
        quiet = quiet + 1 if await is_so() else 0
        await asyncio.sleep(LOOK_SECONDS)


async def _is_in_order(history: OperatorHistory, people: People, kube: Client, slurm: SlurmClient) -> bool:
    """One look, kept in the history."""
    try:
        pods = await kube.list(PODS, NAMESPACE, labels="app.kubernetes.io/name=slurmd")
        nodesets = await kube.list(NODESET_RESOURCE, NAMESPACE)
        nodes = await slurm.nodes.all()
    except (KubeError, SlurmError):
        return False
    now = time.time()
    history.left = [
        WorkerLeft(
            name=pod.metadata.name,
            nodeset=pod.metadata.labels.get("app.kubernetes.io/instance", ""),
            ready=(ready := pod.condition("Ready")) is not None and ready.status == "True",
            release=pod.metadata.labels.get("release", ""),
            leaving=pod.metadata.deletion_timestamp is not None,
        )
        for pod in pods.items
    ]
    history.nodesets_left = [each["metadata"]["name"] for each in nodesets.items]
    history.nodes_left = [sample_of(node, now, now) for node in nodes]
    history.wanted, history.settled_at = dict(people.wanted), now
    history.last_fault = history.last_fault or now
    return not any(text for _, text in nothing_left_over(history))


async def _accounted(sandbox: Sandbox, history: OperatorHistory) -> None:
    """With accounting, as soon as it knows of every end."""
    deadline = time.monotonic() + ACCOUNTING_SECONDS
    live = await live_jobs(sandbox) or []
    while not has_all_ends(jobs := await records(sandbox, history.began), live) and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
    history.jobs = completed(jobs, live)


def _lives(history: OperatorHistory) -> dict[str, int]:
    """What became of the workers."""
    made = {pod.uid for pod in history.pods}
    gone = {pod.uid for pod in history.pods if pod.gone}
    acts = Counter(act.kind for act in history.acts)
    return {
        "workers made": len(made),
        "workers gone": len(gone),
        **{kind: acts[kind] for kind in ("nodeset-deleted", "drained") if acts[kind]},
    }
