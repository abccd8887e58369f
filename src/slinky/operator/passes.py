"""Each object's turn: who is looked at when something changes, and what becomes of what goes wrong.

Comes in: changes of objects, of their children, of what they name, and of Slurm. Goes out: turns, several at once but never two of one object. What must stay true: a change is never missed; what is wrong with an object stands in its status, and
is tried again where that can help.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from slinky.kube import Backoff, Change, Key, KubeError, KubeMetrics, KubeObject, Node, WorkQueue
from slinky.operator import labels
from slinky.operator.applying import ApplyError
from slinky.operator.assembling import Assembler
from slinky.operator.conditions import (
    DEGRADED,
    broken,
    is_available,
    under_way,
    was_available,
)
from slinky.operator.conf.text import UnwritableValueError
from slinky.operator.departing import Departing
from slinky.operator.files import UnreadableError
from slinky.operator.heads import Heads
from slinky.operator.kinds import GROUP, KINDS, Token, Written
from slinky.operator.left_alone import Originals
from slinky.operator.reconfiguring import Reconfiguring
from slinky.operator.relations import Place, accounting_of, affected, controller_of, refers_to
from slinky.operator.site import Site
from slinky.operator.standings import bears_on_heads
from slinky.operator.statuses import conditions_of
from slinky.operator.tokens import TokenKeeper
from slinky.operator.trouble import Trouble
from slinky.operator.watching import Followed

__all__ = ["Passes", "is_only_status"]

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.5, most=120.0)
FAILURES = 4  # in a row, before an object is told that it is not the API server's passing mood
DAEMON_OF = {"slurmctld": "Controller", "slurmdbd": "Accounting", "slurmrestd": "RestApi", "login": "LoginSet"}


class Passes:
    """A leader's time: `await passes.run()`."""

    def __init__(self, site: Site, assembler: Assembler, metrics: KubeMetrics | None = None) -> None:
        self._site = site
        self._assembler = assembler
        self.queue: WorkQueue[Place] = WorkQueue(backoff=BACKOFF, expected=(Trouble, ApplyError))
        site.look_at, site.look_later = self._look, self._look_later
        self.reconfiguring = Reconfiguring(site, lambda key: self._look(Place(key.namespace, "Controller", key.name)))
        self._heads = Heads(site, assembler, self.reconfiguring)
        self._departing = Departing(site, self._heads.asking.unasked)
        self._tokens = TokenKeeper(site)
        self._originals = Originals(site.kube, site.watches)
        self._ends: list[Callable[[], None]] = []
        if metrics:
            metrics.follow("objects", self.queue)
            metrics.follow("reconfiguring", self.reconfiguring.queue)

    def _look(self, place: Place) -> None:
        if place.kind in self._heads.makes or place.kind == "Token":
            self.queue.add(place)
        elif place.kind == "NodeSet":
            self._site.look_at_nodeset(place.key)

    def _look_later(self, place: Place, seconds: float) -> None:
        self.queue.add_after(place, seconds)

    async def run(self) -> None:
        """Until cancelled."""
        watches = self._site.watches
        self._ends = [
            *(followed.subscribe(partial(self._written, kind)) for kind, followed in watches.kinds.items()),
            *(followed.subscribe(self._child_changed, replay=False) for followed in watches.children.values()),
            watches.pods.subscribe(self._pod_changed, replay=False),
            watches.nodes.subscribe(self._node_changed, replay=False),
            self._site.clusters.on_standing(self._slurm_changed),
            self._site.clusters.on_change(lambda key, _names, _before: self.reconfiguring.nodes_changed(key)),
        ]
        watches.files.changed, watches.came = self._file_changed, self._kind_came
        try:
            await self.queue.serve(self._turn, workers=self._site.settings.concurrency)
        finally:
            watches.files.changed, watches.came = (lambda _kind, _key, _change: None), (lambda _followed: None)
            for end in self._ends:
                end()

    # Who is to be looked at

    def _written(self, kind: str, change: Change[Written]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _says_the_same(old, new):
            return
        if new is None and old is not None:
            self._site.applier.forget(old.metadata.uid)
            self._assembler.forget(kind, old.key)
        for found in (old, new):
            if found is not None:
                for place in affected(kind, found, self._others):
                    self._look(place)

    def _others(self, kind: str, namespace: str) -> Iterable[Written]:
        return self._site.watches.kinds[kind].list(namespace)

    def _child_changed(self, change: Change[Any]) -> None:
        if is_only_status(change.old, change.new):
            return
        found: KubeObject | None = change.new or change.old
        owner = found.metadata.controller if found is not None else None
        if found is not None and owner is not None and owner.api_version.startswith(GROUP):
            self._look(Place(found.metadata.namespace, owner.kind, owner.name))
            if owner.kind == "RestApi" and change.new is not None:
                self._member_of(owner.kind, Key(found.metadata.namespace, owner.name))

    def _kind_came(self, followed: Followed[Any]) -> None:
        """A Controller may have waited for it."""
        self._ends.append(followed.subscribe(self._child_changed, replay=False))
        for found in self._site.watches.kinds["Controller"].list():
            self._look(Place(found.metadata.namespace, "Controller", found.metadata.name))

    def _member_of(self, kind: str, key: Key) -> None:
        """Its Controller waits for it."""
        found = self._site.watches.kinds[kind].by_key(key)
        if found is not None:
            for place in affected(kind, found, self._others):
                self._look(place)

    def _pod_changed(self, change: Change[Any]) -> None:
        found: KubeObject | None = change.new or change.old
        kind = DAEMON_OF.get(found.metadata.labels.get(labels.APP, "")) if found is not None else None
        if found is not None and kind is not None:
            place = Place(found.metadata.namespace, kind, found.metadata.labels.get(labels.INSTANCE, ""))
            self._look(place)
            if kind == "Controller":
                self.reconfiguring.look(place.key)

    def _node_changed(self, change: Change[Node]) -> None:
        """A Kubernetes node that is lost, or back: only of those with a head's pod is it news."""
        old, new = change.old, change.new
        if old is not None and new is not None and bears_on_heads(old) == bears_on_heads(new):
            return
        for pod in self._site.watches.heads_on(change.key.name):
            found = pod.metadata.labels
            if kind := DAEMON_OF.get(found.get(labels.APP, "")):
                self._look(Place(pod.metadata.namespace, kind, found.get(labels.INSTANCE, "")))

    def _file_changed(self, kind: str, key: Key, change: Change[KubeObject]) -> None:
        if kind in ("ConfigMap", "Secret"):
            self._child_changed(change)
        for each, followed in self._site.watches.kinds.items():
            for found in followed.list(key.namespace):
                if refers_to(found, key.name) or self._made_for(each, found, change):
                    for place in affected(each, found, self._others):
                        self._look(place)

    @staticmethod
    def _made_for(kind: str, found: Written, change: Change[KubeObject]) -> bool:
        """A key that was made for it: others read it too."""
        changed = change.new or change.old
        owner = changed.metadata.controller if changed is not None else None
        return kind == "Controller" and owner is not None and owner.uid == found.metadata.uid

    def _slurm_changed(self, key: Key) -> None:
        self._look(Place(key.namespace, "Controller", key.name))
        head = self._site.watches.kinds["Controller"].by_key(key)
        if head is not None and (records := accounting_of(head)):
            self._look(Place(key.namespace, "Accounting", records))
        for found in self._others("RestApi", key.namespace):
            if controller_of(found) == key.name:
                self._look(Place(key.namespace, "RestApi", found.metadata.name))
        self.reconfiguring.look(key)

    # A turn

    async def _turn(self, place: Place) -> None:
        found = self._site.watches.kinds[place.kind].by_key(place.key)
        if found is None:
            await self._heads.gone(place.kind, place.key)
            return
        if not self._site.may_act():
            return
        if found.metadata.deletion_timestamp is not None:
            if await self._departing.leave(place, found) and place.kind == "Controller":
                await self._heads.asking.go_on(found)
            return
        try:
            await self._originals.check(place.kind, found, partial(self._look_later, place))
            await self._site.watches.files.known(place.namespace)
            unheld = await self._departing.hold(place, found)
            await self._make(place, found)
            if unheld is not None:
                raise unheld
        except Trouble as trouble:
            if trouble.waiting:
                said = under_way(trouble.reason, trouble.message, available=self._is_usable(place, found))
                await self._site.statuses.say(place.kind, found, said)
            else:
                await self._say_broken(place, found, trouble.reason, trouble.message)
            if not trouble.lasting:
                raise
        except ApplyError as error:
            await self._say_broken(place, found, "Refused", f"Kubernetes refuses {error}")
            raise
        except UnwritableValueError as error:
            await self._say_broken(place, found, "InvalidSpec", str(error))
        except UnreadableError as error:
            await self._say_broken(place, found, "NamespaceUnreadable", str(error))
            raise
        except KubeError as error:
            if self.queue.agenda.failures(place) + 1 >= FAILURES:
                with suppress(KubeError):
                    await self._say_broken(place, found, "KubernetesFails", str(error))
            raise

    async def _make(self, place: Place, found: Written) -> None:
        if place.kind in KINDS:
            self._site.tell_what_has_no_effect(place.kind, found, self._assembler.read(KINDS[place.kind], found))  # type: ignore[type-var]
        if place.kind != "Token":
            await self._heads.makes[place.kind](found)
            return
        wait = await self._tokens.keep(found, self._assembler.read(Token, found))
        if wait is not None:
            self.queue.add_after(place, wait)

    async def _say_broken(self, place: Place, found: Written, reason: str, message: str) -> None:
        """What was made before runs on, and can be used as far as its pods can."""
        stands, available = self._heads.stands(place.kind, found), self._is_usable(place, found)
        if stands is not None and stands[DEGRADED].status and not available:
            worse = stands[DEGRADED]
            reason, message = worse.reason, f"{worse.message}. Besides: {reason}: {message}"
        said = broken(reason, message, available=available)
        await self._site.statuses.say(place.kind, found, said)

    def _is_usable(self, place: Place, found: Written) -> bool:
        stands = self._heads.stands(place.kind, found)
        return was_available(conditions_of(found.status)) if stands is None else is_available(stands)


def is_only_status(old: KubeObject | None, new: KubeObject | None) -> bool:
    """Of a child whose status nobody here reads: Kubernetes writes the workers' budget anew with each worker that comes or goes."""
    if type(new) is not KubeObject or old is None or not new.metadata.generation:
        return False
    return _says_the_same(old, new) and old.metadata.owner_references == new.metadata.owner_references


def _says_the_same(old: KubeObject, new: KubeObject) -> bool:
    """A status of our own that was written is no news."""
    return (
        old.metadata.generation == new.metadata.generation
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.metadata.uid == new.metadata.uid
    )
