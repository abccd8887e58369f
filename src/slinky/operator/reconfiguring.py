"""A new configuration reaches every daemon while it runs: what is to be done next, and doing it.

Comes in: the digest of the configuration that is wanted, the one that slurmctld says it runs, and since when each slurmd runs. Goes out: a mark on slurmctld's pod that makes the kubelet bring the files, a request to reconfigure, and at the end the word that all
daemons run it. What must stay true: nothing is called done that was not seen: slurmctld shows the digest, and every slurmd that was there before has begun anew since; a Slurm that does not answer holds up its own cluster only, and is asked again for ever,
ever more rarely.
"""

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from slinky.kube import PODS, Backoff, Key, NotFoundError, WorkQueue
from slinky.operator import names
from slinky.operator.clusters import Cluster
from slinky.operator.configuration import mark_in
from slinky.operator.kinds import CONTROLLERS
from slinky.operator.site import Site
from slinky.slurm import Node, RefusedError, SlurmError, UnsupportedError

__all__ = ["ANNOTATION", "REFUSED", "REFUSED_SECONDS", "Progress", "Reconfiguring", "Step", "began", "behind", "next_step", "started"]

log = logging.getLogger(__name__)

ANNOTATION = "slinky.slurm.net/configuration"  # on slurmctld's pod: what the kubelet is to bring
FILES_SECONDS = 1.5  # what a kubelet takes, as a rule, to bring the files once it was told
AGAIN = Backoff(first=3.0, most=60.0, factor=1.6)
LOOK_SECONDS = 1.0
SURE = 4
SOON, SELDOM_SECONDS = 5, 5.0  # after so many times it will not be a matter of seconds
DAEMON_SECONDS = 20.0  # how long slurmds may take before slurmctld is asked once more
WORKERS = 16
REFUSED_SECONDS = 600.0  # then it is tried again: a name that did not resolve may do so now
NO_PARTICULAR_ERROR = -1  # Slurm's word for a file that it cannot read
REFUSED = "slurmctld cannot read the configuration as written, and goes on with the one before; its log says which line"


class Step(enum.Enum):
    DONE = "done"
    TOUCH = "touch"
    ASK = "ask"
    WAIT = "wait"


@dataclass
class Progress:
    """Of one cluster's configuration, on its way. Times are of the event loop."""

    wanted: str
    confirmed: str = ""  # the last that all daemons were seen to run
    running: str | None = None  # what slurmctld says; None where it does not
    touched: str = ""  # the pod that was told, by its UID, and of what
    touched_at: float = 0.0
    asked_at: float = 0.0
    asked: int = 0  # how often, for this configuration
    before: Mapping[str, int] = field(default_factory=dict)  # since when each slurmd ran when slurmctld was last asked
    late: frozenset[str] = frozenset()  # those that still do
    since: float = 0.0
    problem: str = ""
    refused: bool = False  # slurmctld could not read it when it was last asked
    tells: bool = True  # whether this Slurm says what it runs (26.05 and later)

    @property
    def is_done(self) -> bool:
        return self.confirmed == self.wanted

    def describe(self) -> str:
        if self.problem:
            return self.problem
        if self.running != self.wanted:
            return "slurmctld does not run the new configuration yet"
        names_ = ", ".join(sorted(self.late)[:5]) + (" …" if len(self.late) > 5 else "")
        return f"the new configuration has not reached {len(self.late)} nodes yet: {names_}" if self.late else "the daemons are being asked"


def started(nodes: Mapping[str, Node]) -> dict[str, int]:
    """Since when each slurmd runs, of nodes that have one and answer."""
    return {
        name: node.slurmd_start_time
        for name, node in nodes.items()
        if isinstance(node.slurmd_start_time, int)
        and node.slurmd_start_time
        and not node.is_external
        and not node.is_down
        and node.is_responding
    }


def began(nodes: Mapping[str, Node]) -> dict[str, int]:
    """The same of all that ever had one: who does not answer now may come back as it was."""
    return {
        name: node.slurmd_start_time for name, node in nodes.items() if isinstance(node.slurmd_start_time, int) and node.slurmd_start_time
    }


def behind(before: Mapping[str, int], nodes: Mapping[str, Node]) -> frozenset[str]:
    """Those that have not begun anew since: they run what they ran before."""
    now = started(nodes)
    return frozenset(name for name, moment in before.items() if now.get(name) == moment)


def next_step(progress: Progress, pod: str, now: float, told: str = "") -> tuple[Step, float]:
    """What is to be done, and after how many seconds to look again. `pod` is the UID of slurmctld's, `told` the configuration that its kubelet was last told of."""
    if progress.running == progress.wanted and (progress.is_done or (progress.asked and not progress.late and not progress.refused)):
        return Step.DONE, 0.0  # what is seen counts, also where the answer to a request was lost
    if not progress.tells and progress.asked >= 2 and not progress.late:
        return Step.DONE, 0.0
    has_files = progress.running == progress.wanted and told in ("", progress.wanted)
    if not has_files and pod and progress.touched != f"{pod} {progress.wanted}":
        return Step.TOUCH, FILES_SECONDS
    if progress.touched_at and now < progress.touched_at + FILES_SECONDS and not progress.asked:
        return Step.WAIT, progress.touched_at + FILES_SECONDS - now
    if not progress.asked:
        return Step.ASK, LOOK_SECONDS
    patience = AGAIN.seconds(progress.asked, lambda: 1.0)
    if progress.running == progress.wanted:
        patience = max(patience, DAEMON_SECONDS)
    if now >= progress.asked_at + patience:
        return Step.ASK, LOOK_SECONDS
    look = LOOK_SECONDS if progress.asked < SOON else SELDOM_SECONDS
    return Step.WAIT, min(look, progress.asked_at + patience - now)


class Reconfiguring:
    """`want` for each pass of a Controller; `told(key)` is called when there is something new to say."""

    def __init__(self, site: Site, told: Callable[[Key], None]) -> None:
        self._site = site
        self._told = told
        self._progress: dict[Key, Progress] = {}
        self._refused: dict[Key, dict[str, float]] = {}  # and when
        self.queue: WorkQueue[Key] = WorkQueue(expected=(SlurmError,), backoff=Backoff(first=1.0, most=30.0))

    def want(self, key: Key, wanted: str, confirmed: str) -> Progress:
        held = self._progress.get(key)
        if held is None or held.wanted != wanted:
            held = Progress(wanted, confirmed=held.confirmed if held else confirmed, since=self._now())
            held.running = None
            self._progress[key] = held
            self.queue.add(key)
        return held

    def forget(self, key: Key) -> None:
        self._progress.pop(key, None)
        self._refused.pop(key, None)

    def confirmed(self, key: Key) -> str | None:
        """What all daemons were last seen to run; None where nothing is known here."""
        progress = self._progress.get(key)
        return progress.confirmed if progress else None

    def is_refused(self, key: Key, configuration: str) -> bool:
        """Whether slurmctld could not read it, not long ago."""
        held = self._refused.get(key, {})
        for refused, moment in list(held.items()):
            if self._now() > moment + REFUSED_SECONDS:
                del held[refused]
        return configuration in held

    def look(self, key: Key) -> None:
        """Something changed: slurmctld's pod, or Slurm is there again."""
        progress = self._progress.get(key)
        if progress is not None and not progress.is_done:
            self.queue.add(key)

    def nodes_changed(self, key: Key) -> None:
        """A slurmd that was away when the others were asked has come back with what it ran before: all are asked once more."""
        progress, cluster = self._progress.get(key), self._site.clusters.get(*key)
        if progress is None or cluster is None or not progress.is_done:
            return
        late = behind(progress.before, cluster.nodes)
        if late:
            log.info("%d nodes of %s came back with an older configuration: %s", len(late), key, ", ".join(sorted(late)[:5]))
            self._progress[key] = Progress(progress.wanted, before=progress.before, late=late, since=self._now())
            self.queue.add(key)
            self._told(key)

    def wait_left(self, progress: Progress) -> float:
        """Until it is called late."""
        return progress.since + self._site.settings.slurm.reconfigure_seconds - self._now()

    async def run(self) -> None:
        await self.queue.serve(self._turn, workers=WORKERS)

    async def _turn(self, key: Key) -> None:
        progress = self._progress.get(key)
        cluster = self._site.clusters.get(*key)
        if progress is None or cluster is None or cluster.problem or not self._site.may_act():
            return  # when Slurm is there again, somebody says so
        before = progress.describe()
        try:
            wait = await self._advance(key, progress, cluster)
        except SlurmError as error:
            progress.problem = REFUSED if progress.refused else f"Slurm does not answer: {error}"
            raise
        finally:
            if progress.is_done or progress.describe() != before:
                self._told(key)
        if not progress.is_done and self._progress.get(key) is progress:
            self.queue.add_after(key, max(wait, 0.1))

    async def _advance(self, key: Key, progress: Progress, cluster: Cluster) -> float:
        pod = self._site.watches.pods.get(names.controller_host(key.name), key.namespace)
        told = pod.metadata.annotations.get(ANNOTATION, "") if pod else ""
        await self._see(progress, cluster, first=not told)
        step, wait = next_step(progress, pod.metadata.uid if pod else "", self._now(), told)
        match step:
            case Step.DONE:
                progress.confirmed, progress.problem, progress.refused = progress.wanted, "", False
            case Step.TOUCH if pod is not None:
                await self._touch(key, progress, pod.metadata.uid)
            case Step.ASK:
                await self._ask(key, progress, cluster)
            case _:
                pass
        return wait

    async def _see(self, progress: Progress, cluster: Cluster, *, first: bool) -> None:
        """`first`: slurmctld has read its files once, at its start."""
        try:
            progress.running = mark_in((await cluster.slurm.conf()).values.get("SlurmctldParameters"))
        except UnsupportedError:
            progress.tells, progress.running = False, None
        if progress.asked:
            await cluster.look()
            progress.late = behind(progress.before, cluster.nodes)
        elif progress.running == progress.wanted and not progress.is_done:
            await cluster.look()
            if first and all(node.is_external for node in cluster.nodes.values()):
                progress.asked = 1  # there is no slurmd that could run anything else
        progress.problem = REFUSED if progress.refused else ""

    async def _touch(self, key: Key, progress: Progress, uid: str) -> None:
        """The kubelet looks at a pod that was changed at once, and brings what its volumes should hold."""
        patch = {"metadata": {"uid": uid, "annotations": {ANNOTATION: progress.wanted}}}
        try:
            await self._site.kube.patch(PODS, names.controller_host(key.name), patch, key.namespace)
        except NotFoundError:
            return
        progress.touched, progress.touched_at = f"{uid} {progress.wanted}", self._now()

    async def _ask(self, key: Key, progress: Progress, cluster: Cluster) -> None:
        await cluster.look()
        progress.before = began(cluster.nodes)
        if not progress.asked:
            await self._not_confirmed(key, progress)
        progress.asked += 1
        progress.asked_at = self._now()
        log.info("Slurm of %s is asked to reconfigure, time %d for %s", key, progress.asked, progress.wanted)
        try:
            await cluster.slurm.reconfigure()
            progress.problem, progress.refused = "", False
        except SlurmError as error:
            if not isinstance(error, RefusedError) and error.number != NO_PARTICULAR_ERROR:
                raise
            progress.problem, progress.refused = REFUSED, True
            self._note_refusal(key, progress)
        progress.asked_at = self._now()
        progress.late = behind(progress.before, cluster.nodes)

    def _note_refusal(self, key: Key, progress: Progress) -> None:
        """Where another was refused just before, its files may be there still: then it takes several times to be sure."""
        held = self._refused.setdefault(key, {})
        if progress.asked >= SURE or all(each == progress.wanted for each in held):
            held[progress.wanted] = self._now()

    async def _not_confirmed(self, key: Key, progress: Progress) -> None:
        """From here on it is not known what the daemons run until it is seen, also for who comes after us: a slurmctld that refuses a configuration goes on, and hands it out to slurmds all the same."""
        progress.confirmed = ""
        with suppress(NotFoundError):
            await self._site.kube.patch(CONTROLLERS, key.name, {"status": {"configuration": ""}}, key.namespace, subresource="status")

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
