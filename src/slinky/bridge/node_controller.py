"""Kubernetes nodes in Slurm: whoever carries the label is registered as an external node, kept as Kubernetes describes it, and removed again.

Comes in: the cache of Kubernetes' nodes, Slurm's nodes at a slow pace, and leave to act. Goes out: acts, through the registry; Events; a count for Prometheus. What must stay true: one node is
with one worker at a time; a heartbeat costs a comparison and no request; what is remembered here is only a shortcut, and its loss (a restart) changes nothing; a Slurm that does not answer is
waited for; nothing is done without leave.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from slinky.bridge.node_description import Wanted, Wish, wish_of
from slinky.bridge.node_plan import (
    RENEWING,
    Create,
    Delete,
    Drain,
    Mark,
    NodeAction,
    NodeSnapshot,
    Refuse,
    Undrain,
    Update,
    Wait,
    has_same_shape,
    plan_node,
)
from slinky.bridge.node_registry import NodeRegistry
from slinky.bridge.node_standing import NodeStandings
from slinky.bridge.settings import Settings
from slinky.kube import Backoff, Cache, Change, EventRecorder, KubeError, Node, WorkQueue
from slinky.slurm import (
    AlreadyDoneError,
    ConfigurationError,
    NotFoundError,
    OutcomeUnknownError,
    Pace,
    RefusedError,
    SlurmClient,
    SlurmError,
    UnavailableError,
    UnsupportedError,
)

__all__ = ["NodeController"]

log = logging.getLogger(__name__)

WORKERS = 8
MOST_STEPS = 12  # of one look; what needs more comes again
RESYNC_SECONDS = 300.0
LEAVE_SECONDS = 0.5  # how often leave to act is asked for while there is none
QUIET_SECONDS = 10.0  # between two lines about a Slurm that does not answer
SHARE_RENEWED = 20  # one in this many of our nodes, and at least one, may be drained at once to be registered anew
BUSY = 2016


class NodeController:
    """`asyncio.create_task(controller.run())`; `await controller.synced.wait()` returns when each node has been looked at once."""

    def __init__(
        self,
        nodes: Cache[Node],
        slurm: SlurmClient,
        settings: Settings,
        cluster: str,
        *,
        may_act: Callable[[], bool] = lambda: True,
        events: EventRecorder | None = None,
        metrics: CollectorRegistry | None = None,
        pace: Pace = Pace(fastest=10.0, slowest=30.0),  # noqa: B008
    ) -> None:
        self.synced = asyncio.Event()
        self._nodes, self._settings, self._cluster, self._pace = nodes, settings, cluster, pace
        self._may_act = may_act
        self._registry = NodeRegistry(slurm, cluster)
        self._queue: WorkQueue[str] = WorkQueue(backoff=Backoff(first=0.5, most=60.0))
        self._first: set[str] | None = None  # names of the first pass that were not looked at yet
        self._standings = NodeStandings(nodes, events, metrics)
        self._unseen: set[str] = set()  # made by us, and not followed yet
        self._differs_since: dict[str, float] = {}
        self._renewing: set[str] = set()
        self._want_room: dict[str, None] = {}
        self._said_down = float("-inf")
        self._resync_at = 0.0

    async def run(self) -> None:
        """For ever."""
        await self._kubernetes_is_known()
        unsubscribe = self._nodes.subscribe(self._node_changed, replay=False)
        try:
            with self._standings.exported():
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._resync())
                    group.create_task(self._follow())
                    for _ in range(WORKERS):
                        group.create_task(self._work())
        finally:
            unsubscribe()

    # What makes a look necessary

    def _node_changed(self, change: Change[Node]) -> None:
        if self._wish(change.old) != self._wish(change.new):
            self._queue.add(change.key.name)

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
                async for name in self._registry.follow(self._pace):
                    self._queue.add(name)
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
                    await self._registry.load()
                except SlurmError as error:
                    failures += 1
                    await self._pause("read", error, failures)
                    continue
                failures, self._resync_at = 0, time.monotonic() + RESYNC_SECONDS
                self._look_at_all()
            await asyncio.sleep(LEAVE_SECONDS)

    async def _pause(self, what: str, error: SlurmError, failures: int) -> None:
        wait = Backoff(first=0.5, most=30.0).seconds(failures)
        log.warning("Slurm's nodes cannot be %s (%s); failure %d, again in %.1f s", what, error, failures, wait)
        await asyncio.sleep(wait)

    def _look_at_all(self) -> None:
        held = self._registry.held
        self._renewing |= {name for name, node in held.items() if node.reason.startswith(RENEWING)}
        names = {node.metadata.name for node in self._nodes.list()} | set(held)
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
                except SlurmError as error:
                    self._failed(name, error)
                except Exception:
                    log.exception("node %s; again in %.1f s", name, self._queue.add_after_failure(name))
                else:
                    if settled:
                        self._queue.forget(name)
                    else:
                        self._queue.add_after_failure(name)
                    self._pass_on(name)

    def _failed(self, name: str, error: SlurmError) -> None:
        wait = self._queue.add_after_failure(name)
        if isinstance(error, UnavailableError):
            if time.monotonic() - self._said_down < QUIET_SECONDS:
                return
            self._said_down = time.monotonic()
        log.warning("node %s: %s; failure %d, again in %.1f s", name, error, self._queue.agenda.failures(name), wait)

    async def _look(self, name: str) -> bool:
        """Plan and act until there is nothing more to do. False where it should be looked at again later."""
        fresh = False
        await self._confirm(name)
        for _ in range(MOST_STEPS):
            action = plan_node(self._snapshot(name))
            if not fresh and _needs_a_fresh_look(action):
                await self._registry.refresh(name)
                fresh = True
                continue
            if isinstance(action, Delete) and await self._registry.is_named(name):
                action = plan_node(self._snapshot(name, named=True))
            if action is None or isinstance(action, Refuse | Wait):
                return self._rest(name, action)
            if not self._may_act():
                self._resync_at = 0.0  # who may act again, looks at everything again
                return True
            problem = await self._try(name, action)
            await self._registry.refresh(name)
            fresh = True
            if problem and (not isinstance(action, Create) or name not in self._registry.held):
                return self._rest(name, Refuse(problem), again=True)
        return False

    async def _confirm(self, name: str) -> None:
        """What was made and vanishes again before it is followed, following would never tell of."""
        if name in self._registry.followed or name not in self._registry.held:
            self._unseen.discard(name)
        elif name in self._unseen:
            await self._registry.refresh(name)
            self._queue.add_after(name, 2 * self._pace.slowest)

    async def _try(self, name: str, action: NodeAction) -> str:
        """What Slurm has against it, if that will not be other after the next look; "" where it was done, or another look will tell."""
        try:
            await self._act(name, action)
        except OutcomeUnknownError as error:
            log.info("node %s is looked at again: %s", name, error)
            return f"Slurm did not register node {name}: {error.description}" if isinstance(action, Create) else ""
        except (RefusedError, ConfigurationError, UnsupportedError) as error:
            log.info("node %s is looked at again: %s", name, error)
            overtaken = isinstance(error, AlreadyDoneError) or (isinstance(error, NotFoundError) and not isinstance(action, Create))
            busy = isinstance(action, Delete) and error.number == BUSY
            return "" if overtaken or busy else f"Slurm refuses node {name}: {error.description}"
        return ""

    async def _act(self, name: str, action: NodeAction) -> None:
        match action:
            case Create(description):
                self._unseen.add(name)
                self._queue.add_after(name, 2 * self._pace.slowest)
                await self._registry.create(description)
                gres = ", ".join(f"{found.count} {found.name}" for found in description.gres) or "no GRES"
                note = f"in Slurm with {description.cpus} CPUs, {description.real_memory} MiB, {gres}, features {','.join(description.features)}"
                self._standings.say(name, "Registered", note)
            case Mark(mark):
                await self._registry.mark(name, mark)
                self._standings.say(name, "Registered", "Slurm's external node of this name is looked after from now on")
            case Update(change):
                await self._registry.update(name, change)
                log.info("node %s: changed in Slurm", name)
            case Drain(reason):
                if reason.startswith(RENEWING):
                    self._renewing.add(name)
                await self._registry.drain(name, reason)
                log.info("node %s is drained in Slurm: %s", name, reason)
            case Undrain():
                await self._registry.undrain(name)
                log.info("node %s is in use again in Slurm", name)
            case Delete(again):
                await self._registry.delete(name)
                self._standings.say(name, "Removed", "from Slurm, to be registered anew" if again else "from Slurm")
            case _:
                raise AssertionError(action)

    # What is remembered of it

    def _wish(self, node: Node | None) -> Wish:
        return wish_of(node, self._settings)

    def _snapshot(self, name: str, *, named: bool = False) -> NodeSnapshot:
        wish, found = self._wish(self._nodes.get(name)), self._registry.held.get(name)
        may_renew = False
        if isinstance(wish, Wanted) and found is not None and not has_same_shape(found, wish.description):
            may_renew = self._may_renew(name)
        else:
            self._differs_since.pop(name, None)
        return NodeSnapshot(name=name, wish=wish, found=found, cluster=self._cluster, may_renew=may_renew, named=named)

    def _may_renew(self, name: str) -> bool:
        """Its shape has been another for a while, and there is room among those that are being renewed."""
        age = time.monotonic() - self._differs_since.setdefault(name, time.monotonic())
        settle = self._settings.nodes.settle_seconds
        if age < settle:
            self._queue.add_after(name, settle - age)
            return False
        return name in self._renewing or len(self._renewing) < max(1, self._standings.count("registered") // SHARE_RENEWED)

    def _rest(self, name: str, action: NodeAction | None, *, again: bool = False) -> bool:
        """Nothing more to do now: note how it stands. Returns whether nothing will change by itself."""
        if not isinstance(action, Wait) or action.until != "free":
            self._renewing.discard(name)
        if isinstance(action, Wait) and action.until == "room":
            self._want_room[name] = None
        else:
            self._want_room.pop(name, None)
        if self._want_room and isinstance(action, None | Refuse):
            self._queue.add(self._want_room.popitem()[0])
        self._standings.note(name, self._wish(self._nodes.get(name)), action, held=name in self._registry.held)
        return not again and not isinstance(action, Wait)


def _needs_a_fresh_look(action: NodeAction | None) -> bool:
    """What is held may be old. A node that should be made is told apart by Slurm itself, and for one that waits for room nothing depends on it."""
    return not (action is None or isinstance(action, Create | Refuse) or (isinstance(action, Wait) and action.until == "room"))
