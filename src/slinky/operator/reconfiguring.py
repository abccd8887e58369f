"""A new configuration reaches every daemon while it runs: the steps, taken.

Comes in: the configuration that a Controller wants. Goes out: a mark on slurmctld's pod that makes the kubelet bring the files, a request to reconfigure, and at the end the word that slurmctld and all slurmds run it. What must stay true: from the first request on nothing counts as confirmed
until it is seen, also for who comes after us; a Slurm that does not answer holds up its own cluster only, and is asked again for ever, ever more rarely.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from slinky.kube import PODS, Backoff, Key, NotFoundError, WorkQueue
from slinky.operator import names
from slinky.operator.clusters import Cluster
from slinky.operator.configuration import mark_in
from slinky.operator.kinds import CONTROLLERS
from slinky.operator.reconfiguration import REFUSED, Progress, Step, began, behind, next_step, older, started
from slinky.operator.site import Site
from slinky.slurm import RefusedError, SlurmError, UnsupportedError

__all__ = ["ANNOTATION", "REFUSED_SECONDS", "UNSEEN_SECONDS", "Reconfiguring"]

log = logging.getLogger(__name__)

ANNOTATION = "slinky.slurm.net/configuration"  # on slurmctld's pod: what the kubelet is to bring
SURE = 4
UNSEEN_SECONDS = 15.0
WORKERS = 16
REFUSED_SECONDS = 600.0  # then it is tried again: a name that did not resolve may do so now
NO_PARTICULAR_ERROR = -1  # Slurm's word for a file that it cannot read


class Reconfiguring:
    """`want` for each pass of a Controller; `told(key)` is called when there is something new to say."""

    def __init__(self, site: Site, told: Callable[[Key], None]) -> None:
        self._site = site
        self._told = told
        self._progress: dict[Key, Progress] = {}
        self._refused: dict[Key, dict[str, float]] = {}  # and when
        self.queue: WorkQueue[Key] = WorkQueue(expected=(SlurmError,), backoff=Backoff(first=1.0, most=30.0))

    def want(self, key: Key, wanted: str, confirmed: str, oldest: int) -> Progress:
        """`confirmed` and `oldest` are what the Controller's status says, for who has just begun to look."""
        held = self._progress.get(key)
        if held is None or held.wanted != wanted:
            if held is not None:
                confirmed, oldest = held.confirmed, held.oldest
            held = self._progress[key] = Progress(wanted, confirmed=confirmed, oldest=oldest, since=self._now())
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
        if key in self._progress:
            self.queue.add(key)

    def nodes_changed(self, key: Key) -> None:
        """A slurmd that was away when the others were asked may have come back with what it ran before."""
        progress, cluster = self._progress.get(key), self._site.clusters.get(*key)
        if progress is not None and cluster is not None and progress.done and older(progress.oldest, cluster.nodes):
            self.queue.add(key)

    def is_unseen(self, progress: Progress) -> bool:
        """It was confirmed, by who was here before us, and nothing has been seen of it yet."""
        known = not progress.done and progress.confirmed == progress.wanted and progress.running is None
        return known and self._now() < progress.since + UNSEEN_SECONDS

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
        before = (progress.done, progress.describe())
        try:
            wait = await self._advance(key, progress, cluster)
        except SlurmError as error:
            progress.problem = REFUSED if progress.refused else f"Slurm does not answer: {error}"
            raise
        finally:
            if (progress.done, progress.describe()) != before:
                self._told(key)
        if not progress.done and self._progress.get(key) is progress:
            self.queue.add_after(key, max(wait, 0.1))

    async def _advance(self, key: Key, progress: Progress, cluster: Cluster) -> float:
        pod = self._site.watches.pods.get(names.controller_host(key.name), key.namespace)
        told = pod.metadata.annotations.get(ANNOTATION, "") if pod else ""
        await self._see(progress, cluster, first=not told)
        step, wait = next_step(progress, pod.metadata.uid if pod else "", self._now(), told)
        match step:
            case Step.DONE:
                self._finish(progress, cluster)
            case Step.TOUCH if pod is not None:
                await self._touch(key, progress, pod.metadata.uid)
            case Step.ASK:
                await self._ask(key, progress, cluster)
            case _:
                pass
        return wait

    @staticmethod
    def _finish(progress: Progress, cluster: Cluster) -> None:
        if progress.asked:
            progress.oldest = min(started(cluster.nodes).values(), default=progress.oldest)
        progress.confirmed, progress.done, progress.asked = progress.wanted, True, 0
        progress.problem, progress.refused = "", False

    async def _see(self, progress: Progress, cluster: Cluster, *, first: bool) -> None:
        """`first`: slurmctld has read its files once, at its start."""
        try:
            progress.running = mark_in((await cluster.slurm.conf()).values.get("SlurmctldParameters"))
        except UnsupportedError:
            progress.tells, progress.running = False, None
        await cluster.look()
        progress.late = behind(progress.before, cluster.nodes) if progress.asked else older(progress.oldest, cluster.nodes)
        if progress.tells and (progress.running != progress.wanted or progress.late) and progress.confirmed == progress.wanted:
            log.info("Slurm of %s no longer runs configuration %s everywhere", cluster.key, progress.wanted)
            progress.confirmed, progress.done, progress.since = "", False, self._now()
        untold = first and progress.running == progress.wanted and not progress.asked and not progress.confirmed
        if untold and all(node.is_external for node in cluster.nodes.values()):
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
            progress.oldest = int(time.time())  # until it is seen when they began
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
