"""Kubernetes nodes in Slurm: whoever carries the label is registered as an external node, kept as Kubernetes describes it, and removed again; and the states of nodes that both sides have are kept in step.

Comes in: the cache of Kubernetes' nodes, Slurm's nodes at a slow pace, and leave to act. Goes out: acts, through the registry and the writer; Events; a count for Prometheus. What must stay true: one node is
with one worker at a time; a heartbeat costs a comparison and no request; what is remembered here is only a shortcut, and its loss (a restart) changes nothing; a Slurm that does not answer is
waited for; nothing is done without leave.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from slinky.bridge.node_acts import NodeActs
from slinky.bridge.node_look import NodeLook, Now, needs_a_fresh_look, noticed
from slinky.bridge.node_mirror import Mirror
from slinky.bridge.node_names import NodeNames, label_of
from slinky.bridge.node_plan import Create, Delete, Drain, NodeAction, Refuse, Regroup, Resume, Undrain, Update, Wait
from slinky.bridge.node_reasons import RENEWING
from slinky.bridge.node_registry import NodeRegistry
from slinky.bridge.node_renewals import Renewals
from slinky.bridge.node_standing import NodeStandings
from slinky.bridge.node_states import Overruled
from slinky.bridge.node_troubles import Troubles
from slinky.bridge.node_writer import NodeWriter
from slinky.bridge.settings import Settings
from slinky.kube import Backoff, Cache, Change, Client, ConflictError, EventRecorder, KubeError, Node, WorkQueue
from slinky.slurm import Pace, SlurmClient, SlurmError, UnavailableError

__all__ = ["NodeController"]

log = logging.getLogger(__name__)

WORKERS = 128  # each waits most of the time, for a request that it shares with others
MOST_STEPS = 12  # of one look; what needs more comes again
RESYNC_SECONDS = 300.0
LEAVE_SECONDS = 0.5  # how often leave to act is asked for while there is none
QUIET_SECONDS = 10.0  # between two lines about a Slurm that does not answer
PACE = Pace(fastest=2.0, slowest=5.0, share=0.02)


class NodeController:
    """`asyncio.create_task(controller.run())`; `await controller.synced.wait()` returns when each node has been looked at once.

    `kube` writes on Nodes; without it (shadow mode) nothing is. `names` are those of nodes on either side. `occupants(name)` are the pods of ours on a node whose containers are not gone; `node_freed(name)` is to be called when one goes. `changed()` is called when nodes of ours came, went or are in use again,
    and when one cannot go as jobs name it: they are to be told anew where they may go.
    """

    def __init__(
        self,
        nodes: Cache[Node],
        slurm: SlurmClient,
        settings: Settings,
        cluster: str,
        *,
        kube: Client | None = None,
        names: NodeNames | None = None,
        occupants: Callable[[str], Sequence[str]] = lambda _: (),
        may_act: Callable[[], bool] = lambda: True,
        changed: Callable[[], None] = lambda: None,
        events: EventRecorder | None = None,
        metrics: CollectorRegistry | None = None,
        pace: Pace = PACE,
    ) -> None:
        self.synced = asyncio.Event()
        self._nodes, self._pace, self._may_act, self._changed = nodes, pace, may_act, changed
        self._settings = settings
        self._registry = NodeRegistry(slurm, cluster)
        self._queue: WorkQueue[str] = WorkQueue(backoff=Backoff(first=0.5, most=60.0))
        self._first: set[str] | None = None  # names of the first pass that were not looked at yet
        self._standings = NodeStandings(nodes, events, metrics)
        self._acts = NodeActs(self._registry, self._standings)
        self._renewals = Renewals(settings.nodes, self._queue.add_after)
        self._troubles = Troubles(settings.nodes, occupants, self._queue.add_after)
        self._writer = NodeWriter(kube, self._standings, settings.scheduler_name, settings.nodes.taint) if kube else None
        self._names = names or NodeNames(nodes)
        self._view = NodeLook(settings, cluster, self._registry, self._standings, self._renewals, self._troubles, self._names)
        self._said_down = float("-inf")
        self._resync_at = 0.0

    async def run(self) -> None:
        """For ever."""
        await self._kubernetes_is_known()
        unsubscribe = self._nodes.subscribe(self._node_changed)
        try:
            with self._standings.exported():
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._resync())
                    group.create_task(self._follow())
                    for _ in range(WORKERS):
                        group.create_task(self._work())
        finally:
            unsubscribe()
            self._registry.stop()

    # What makes a look necessary

    def node_freed(self, name: str) -> None:
        """A pod of ours on it is gone."""
        if self._view.waits_for_pods(name):
            self._queue.add(name)

    def _node_changed(self, change: Change[Node]) -> None:
        name = change.key.name
        self._troubles.node_seen(name, change.new)
        if change.new is None and self._writer:
            self._writer.forget(name)
        if noticed(change.old, self._settings) != noticed(change.new, self._settings) and self._first is not None:
            self._queue.add(name)
        said = label_of(change.old), label_of(change.new)
        if self._first is not None and (said[0] != said[1] or change.old is None or change.new is None):
            for called in filter(None, (name, *said)):  # whose name is disputed now, or is not any more
                self._queue.add(self._view.name_of(called))

    async def _kubernetes_is_known(self) -> None:
        """A node that is missing from half a list is not gone."""
        while not self._nodes.is_synced:
            try:
                await self._nodes.wait_synced()
            except KubeError as error:
                log.warning("Kubernetes' nodes are not known yet, and nothing is registered: %s", error)

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                async for called, gap in self._registry.follow(self._pace):
                    if gap:
                        self._troubles.slurm_was_away()
                    self._queue.add(self._view.name_of(called))
                    failures = 0
            except SlurmError as error:
                failures += 1
                await self._pause("followed", error, failures)

    async def _resync(self) -> None:
        """All of it, at the start, when leave to act came (back), and every few minutes."""
        failures = 0
        while True:
            if not self._may_act():
                self._resync_at = 0.0
            elif time.monotonic() >= self._resync_at:
                try:
                    if await self._registry.was_restarted():
                        self._troubles.slurm_was_away()
                    await self._registry.load()
                except SlurmError as error:
                    failures += 1
                    await self._pause("read", error, failures)
                    continue
                failures, self._resync_at = 0, time.monotonic() + RESYNC_SECONDS
                self._look_at_all()
            await asyncio.sleep(LEAVE_SECONDS)

    async def _pause(self, what: str, error: SlurmError, failures: int) -> None:
        self._troubles.slurm_was_away()
        wait = Backoff(first=0.5, most=30.0).seconds(failures)
        log.warning("Slurm's nodes cannot be %s (%s); failure %d, again in %.1f s", what, error, failures, wait)
        await asyncio.sleep(wait)

    def _look_at_all(self) -> None:
        held = self._registry.held
        self._renewals.adopt(name for name, node in held.items() if node.reason.startswith(RENEWING))
        names = {node.metadata.name for node in self._nodes.list()} | {self._view.name_of(called) for called in held}
        if self._first is None:
            self._first = set(names)
            self._pass_on("")
        for name in names:
            self._queue.add(name)

    def _pass_on(self, name: str) -> None:
        """The first pass is over when each of its nodes was looked at."""
        if self._first is not None and not self.synced.is_set():
            self._first.discard(name)
            if not self._first:
                self.synced.set()

    # A look at one node

    async def _work(self) -> None:
        while True:
            async with self._queue.work() as name:
                try:
                    settled = await self._look(name)
                except (SlurmError, KubeError) as error:
                    self._failed(name, error)
                except Exception:
                    log.exception("node %s; again in %.1f s", name, self._queue.add_after_failure(name))
                else:
                    if settled:
                        self._queue.forget(name)
                    else:
                        self._queue.add_after_failure(name)
                    self._pass_on(name)

    def _failed(self, name: str, error: SlurmError | KubeError) -> None:
        wait = self._queue.add_after_failure(name)
        if isinstance(error, UnavailableError):
            self._troubles.slurm_was_away()
            if time.monotonic() - self._said_down < QUIET_SECONDS:
                return
            self._said_down = time.monotonic()
        level = logging.INFO if isinstance(error, ConflictError) else logging.WARNING  # it has changed since it was judged
        log.log(level, "node %s: %s; failure %d, again in %.1f s", name, error, self._queue.agenda.failures(name), wait)

    async def _look(self, name: str) -> bool:
        """Plan and act until there is nothing more to do. False where it should be looked at again later."""
        if self._first is None:  # Slurm's nodes were never read: all are looked at when they are
            return True
        fresh: str | None = None  # which of its names in Slurm was read anew
        await self._confirm(name)
        for _ in range(MOST_STEPS):
            now = self._view.of(name, self._nodes.get(name))
            if isinstance(now.due, Overruled) and fresh == now.called:
                if await self._registry.was_restarted():
                    self._troubles.slurm_was_away()
                else:
                    self._troubles.overrule(name)
                continue
            mirror = await self._mirror(now)
            if fresh != now.called and needs_a_fresh_look(now, mirror):
                await self._registry.refresh(now.called)
                fresh = now.called
                continue
            if isinstance(now.due, Delete) and await self._registry.is_named(now.called):
                now = self._view.of(name, self._nodes.get(name), named=True)
                self._changed()
            if not isinstance(now.due, NodeAction) and mirror is None:
                return self._rest(now, now.registration)
            if not self._may_act():
                self._resync_at = 0.0  # who may act again, looks at everything again
                return True
            if not isinstance(now.due, NodeAction):
                await self._write(now, mirror)
                return self._rest(now, now.registration)
            if isinstance(now.due, Delete):
                await self._write(now, self._view.parting(now))
            problem = await self._act(name, now.called, now.due)
            await self._registry.refresh(now.called)
            fresh = now.called
            if problem and (not isinstance(now.due, Create) or now.called not in self._registry.held):
                return self._rest(now, Refuse(problem), again=True)
        return False

    async def _confirm(self, name: str) -> None:
        """What was seen to change and changes back before it is followed, following would never tell of."""
        called = self._view.called(name)
        since = self._registry.ahead.get(called)
        if since is not None and time.monotonic() - since >= self._pace.slowest:
            await self._registry.refresh(called)
        if since is not None and called in self._registry.ahead:
            self._queue.add_after(name, self._pace.slowest)

    async def _act(self, name: str, called: str, action: NodeAction) -> str:
        self._queue.add_after(name, self._pace.slowest)
        if isinstance(action, Drain) and action.reason.startswith(RENEWING):
            self._renewals.begun(name)
        elif isinstance(action, Undrain | Resume | Delete):
            self._troubles.taken_back(name)
        problem = await self._acts.attempt(name, called, action)
        if isinstance(action, Create | Update | Regroup | Delete | Undrain | Resume):
            self._changed()
        return problem

    async def _mirror(self, now: Now) -> Mirror | None:
        """Only when Slurm needs nothing more."""
        if self._writer is None or now.due is not None or now.node is None:
            return None
        return self._view.mirror(now, await self._writer.effect_for(now.node) if now.side == "ours" else "none")

    async def _write(self, now: Now, mirror: Mirror | None) -> None:
        if self._writer and now.node and mirror:
            await self._writer.write(now.node, mirror)

    def _rest(self, now: Now, action: NodeAction | None, *, again: bool = False) -> bool:
        """Nothing more to do now: note how it stands. Returns whether nothing will change by itself."""
        self._renewals.rested(now.name, action)
        self._standings.note(now.name, now.wish, action, held=now.called in self._registry.held)
        return not again and not isinstance(action, Wait)
