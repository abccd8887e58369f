"""A workload's claims bound to volumes, before its pods are bound to nodes.

*Invariants:* all claims of a gang are bound before any of its pods is. One claim is in one pod's hands
at a time; all others that need it wait for the outcome. A decision for a pod counts from the moment it is
made, with no await in between. The pods of a gang are decided on in short turns; what has changed since a
pod's turn is looked at again in the tick in which the gang is bound (`still_fits`). What was begun for a
pod that no longer gets its node is undone.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from slinky.bridge.pacing import Pace, all_of
from slinky.bridge.volumes.live import Volumes
from slinky.bridge.volumes.matching import is_for
from slinky.bridge.volumes.outcomes import NodeRefused, Underway
from slinky.bridge.volumes.reservation import Failed, Reservation, Step, Waits, progress
from slinky.bridge.volumes.stock import SELECTED_NODE, Listener, Stock, claim_names
from slinky.bridge.workload import WorkloadKey
from slinky.kube import (
    BadRequestError,
    Cache,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Key,
    Node,
    NotFoundError,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
)

__all__ = ["Acts", "VolumeBinder"]

log = logging.getLogger(__name__)

Place = tuple[Pod, str]


class Acts(Protocol):
    async def select(self, claim: PersistentVolumeClaim, node: str) -> str: ...

    async def give(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> str: ...

    async def unselect(self, claim: Key, uid: str, node: str) -> None: ...

    async def take_back(self, volume: str, claim: Key, uid: str, *, by_name: bool) -> None: ...


class _Changes(Listener):
    """What has changed since the turns of a workload's pods, but for what was decided in these turns."""

    def __init__(self) -> None:
        self.labels: dict[str, Mapping[str, str]] = {}  # of the nodes, as they were
        self._nodes: set[str] = set()
        self._claims: set[Key] = set()
        self._kinds = False
        self._muted = False

    @contextmanager
    def muted(self) -> Iterator[None]:
        self._muted = True
        try:
            yield
        finally:
            self._muted = False

    def concern(self, pod: Pod, node: Node) -> bool:
        if self._kinds or node.metadata.name in self._nodes or self.labels.get(node.metadata.name) != node.metadata.labels:
            return True
        return bool(self._claims) and any(Key(pod.metadata.namespace, name) in self._claims for name in claim_names(pod))

    def on_node(self, node: str, /) -> None:
        if not self._muted:
            self._nodes.add(node)

    def on_claim(self, claim: Key, /) -> None:
        if not self._muted:
            self._claims.add(claim)

    def on_class(self, _: str, /) -> None:
        self._kinds = True

    def on_driver(self) -> None:
        self._kinds = True


class VolumeBinder:
    """Of one time of leading. `seconds` is how long a workload's claims may take to be bound."""

    def __init__(self, volumes: Volumes, nodes: Cache[Node], acts: Acts, seconds: float) -> None:
        self._volumes = volumes
        self._stock: Stock = volumes.stock
        self._nodes = nodes
        self._acts = acts
        self._seconds = seconds
        self._held: dict[WorkloadKey, dict[str, Reservation]] = {}  # by the pod's UID
        self._hands: dict[Key, str] = {}  # claim → UID of the pod for which it is being bound
        self._since: dict[WorkloadKey, float] = {}
        self._changes: dict[WorkloadKey, _Changes] = {}
        self._stock.listeners[:] = [other for other in self._stock.listeners if not isinstance(other, _Changes)]
        self._stock.forget_decisions()

    def hold(self, key: WorkloadKey, pods: Sequence[Pod]) -> str:
        """Why the workload cannot be submitted yet. It is looked at again when something about its claims changes."""
        why = self._volumes.waits(pods)
        if why:
            self._volumes.await_changes(key, pods)
        elif any(pod.spec.volumes for pod in pods):
            self._volumes.await_nothing(key)
        return why

    def holds(self, key: WorkloadKey) -> bool:
        """Whether something was begun for it."""
        return key in self._since

    async def bind(self, key: WorkloadKey, places: Sequence[Place]) -> Underway | NodeRefused | None:
        """To be called again until there is nothing to wait for (None), which each change of the claims leads to."""
        mine = [(pod, node) for pod, node in places if pod.spec.volumes]
        if not mine and not self.holds(key):
            return None
        since = self._since.setdefault(key, asyncio.get_running_loop().time())
        self._volumes.await_changes(key, [pod for pod, _ in mine])
        if not self._volumes.is_known:
            return self._underway(since, [self._volumes.waits(pod for pod, _ in mine)])
        await self.give_back(key, {pod.metadata.uid: node for pod, node in mine})
        outcome = await self._go_on(key, mine, since)
        if outcome is not None:
            self._follow(key, None)
        if isinstance(outcome, NodeRefused):
            log.warning("%s: node %s did not work out: %s", key, outcome.node, outcome.why)
            self._volumes.await_nothing(key)  # what is undone now is no reason to look again
            await self.give_back(key)
        return outcome

    def still_fits(self, key: WorkloadKey, places: Sequence[Place]) -> bool:
        """Whether what `bind` found for these pods still holds; if not, the workload is looked at again."""
        changes = self._changes.get(key)
        if changes is None:
            return True
        self._follow(key, None)
        held = self._held.get(key, {})
        for pod, name in places:
            if not pod.spec.volumes:
                continue
            node, reservation = self._nodes.by_key(Key("", name)), held.get(pod.metadata.uid)
            fits = node is not None and reservation is not None
            if fits and node and reservation and changes.concern(pod, node):
                fits = self._look(reservation, node) is None
            if not fits:
                self._volumes.wake(key)
                return False
        return True

    def bound(self, key: WorkloadKey) -> None:
        """Its pods are bound: they count as soon as the watch shows them, and until then as we expect them."""
        for reservation in self._held.pop(key, {}).values():
            self._drop(reservation)
        self._since.pop(key, None)
        self._follow(key, None)
        self._volumes.await_nothing(key)

    def forget(self, key: WorkloadKey) -> None:
        """Nothing is left of it: whatever becomes of the claims that it waited for is no reason to look at it. What was begun is given back before."""
        self._follow(key, None)
        self._volumes.await_nothing(key)

    def unbound(self, pod: Pod) -> None:
        """Its binding failed."""
        if pod.spec.volumes:
            self._stock.expect_no_more(pod)

    async def give_back(self, key: WorkloadKey, keep: Mapping[str, str] | None = None) -> None:
        """All that was begun for pods that no longer get the node they had is undone; `keep` are those that do, by UID."""
        keep = keep or {}
        held = self._held.get(key, {})
        for uid, reservation in list(held.items()):
            if keep.get(uid) != reservation.node:
                await self._undo(reservation)
                held.pop(uid, None)
        if not held:
            self._held.pop(key, None)
        if not keep:
            self._follow(key, None)
            self._since.pop(key, None)
            self._volumes.await_nothing(key)

    async def _go_on(self, key: WorkloadKey, places: Sequence[Place], since: float) -> Underway | NodeRefused | None:
        held = self._held.setdefault(key, {})
        waits: list[tuple[str, str]] = []
        pace, changes = Pace(), _Changes()
        self._follow(key, changes)
        for pod, node in places:
            known = self._nodes.by_key(Key("", node))
            if known is None:
                return NodeRefused(node, f"Kubernetes has no node {node}")
            changes.labels.setdefault(node, known.metadata.labels)
            if reservation := held.get(pod.metadata.uid):
                outcome = self._look(reservation, known)
            elif busy := self._busy(pod):
                outcome = Waits(f"claim {busy} is being bound for another pod")
            else:
                with changes.muted():
                    outcome = self._reserve(held, pod, known)
            await pace.step()
            if isinstance(outcome, Failed):
                return NodeRefused(node, outcome.why)
            if outcome:
                waits.append((node, outcome.why))
        if waits and asyncio.get_running_loop().time() >= since + self._seconds:
            node, why = waits[0]
            return NodeRefused(node, f"{why}, for {self._seconds:g} s now")
        if refused := await self._write(key, held):
            return refused
        return self._underway(since, [why for _, why in waits]) if waits else None

    def _follow(self, key: WorkloadKey, changes: _Changes | None) -> None:
        """Changes of storage are noted there from now on; nowhere any more where it is None."""
        before = self._changes.pop(key, None)
        if before is not None:
            self._stock.listeners.remove(before)
        if changes is not None:
            self._changes[key] = changes
            self._stock.listeners.append(changes)

    def _look(self, reservation: Reservation, node: Node) -> Failed | Waits | None:
        """At what was begun for a pod; at the end also at what may have changed otherwise."""
        first: Waits | None = None
        for step in reservation.steps:
            found = progress(step, node, self._stock)
            if isinstance(found, Failed):
                return found
            if isinstance(found, Waits):
                first = first or found
        if first is None and (why := self._volumes.judgement(reservation.pod).refusal(node)):
            return Failed(why)
        return first

    def _busy(self, pod: Pod) -> Key | None:
        """A claim of this pod that is in the hands of another pod of ours, and not bound yet."""
        for name in claim_names(pod):
            key = Key(pod.metadata.namespace, name)
            claim = self._stock.claim(key)
            if self._hands.get(key, pod.metadata.uid) != pod.metadata.uid and claim is not None and not claim.is_bound:
                return key
        return None

    def _reserve(self, held: dict[str, Reservation], pod: Pod, node: Node) -> Failed | Waits | None:
        found = self._volumes.judgement(pod).find(node)
        if isinstance(found, str):
            return Failed(found)
        reservation = Reservation(pod=pod, node=node.metadata.name)
        for name, key in found.static:
            volume, claim = self._stock.volume(name), self._stock.claim(key)
            assert volume and claim
            by_name = volume.spec.claim_ref is not None
            reservation.steps.append(Step(claim=key, uid=claim.metadata.uid, volume=name, by_name=by_name))
            self._stock.give(name, claim)
        for key in found.provision:
            claim = self._stock.claim(key)
            assert claim
            reservation.steps.append(Step(claim=key, uid=claim.metadata.uid))
            self._stock.select(key, node.metadata.name)
        for step in reservation.steps:
            self._hands[step.claim] = pod.metadata.uid
        self._stock.expect(pod, node.metadata.name)
        held[pod.metadata.uid] = reservation
        if not reservation.steps:
            return None
        return Waits(
            f"{_listed(step.claim for step in reservation.steps)} {'waits' if len(reservation.steps) == 1 else 'wait'} to be bound"
        )

    async def _write(self, key: WorkloadKey, held: dict[str, Reservation]) -> NodeRefused | None:
        """What is not written yet, a limited number side by side."""
        outcomes: list[NodeRefused | BaseException | None] = []

        async def write(found: Reservation) -> None:
            try:
                outcomes.append(await self._write_steps(found))
            except Exception as error:
                outcomes.append(error)

        await all_of([write(found) for found in held.values() if any(not step.written for step in found.steps)])
        for outcome in outcomes:
            if isinstance(outcome, ConflictError):
                log.info("%s: decided anew, for something has changed meanwhile: %s", key, outcome)
                await self.give_back(key, {uid: found.node for uid, found in held.items() if all(step.tried for step in found.steps)})
            if isinstance(outcome, BaseException):
                raise outcome
        return next((outcome for outcome in outcomes if isinstance(outcome, NodeRefused)), None)

    async def _write_steps(self, reservation: Reservation) -> NodeRefused | None:
        for step in reservation.steps:
            if not step.written:
                try:
                    await self._write_step(step, reservation.node)
                except NotFoundError as error:
                    return NodeRefused(reservation.node, f"{_thing(step)} is gone ({error.message})")
                except ConflictError:
                    step.tried = False
                    raise
        return None

    async def _write_step(self, step: Step, node: str) -> None:
        claim = self._stock.claim(step.claim)
        if claim is None or claim.is_bound:
            return  # the next look finds it gone, or done
        step.tried = True
        if not step.volume:
            done = claim.metadata.annotations.get(SELECTED_NODE) == node
            step.written = claim.metadata.resource_version if done else await self._acts.select(claim, node)
        elif volume := self._stock.seen_volume(step.volume):
            done = is_for(volume, claim) and volume.spec.claim_ref is not None and bool(volume.spec.claim_ref.uid)
            step.written = volume.metadata.resource_version if done else await self._acts.give(volume, claim)

    async def _undo(self, reservation: Reservation) -> None:
        """Where the server says no, that is logged, and it stays as it is: no pod's way ends here. Where it cannot be reached, it is tried again."""
        self._stock.expect_no_more(reservation.pod)
        for step in reservation.steps:
            try:
                if step.tried and step.volume:
                    await self._acts.take_back(step.volume, step.claim, step.uid, by_name=step.by_name)
                elif step.tried:
                    await self._acts.unselect(step.claim, step.uid, reservation.node)
            except (ForbiddenError, InvalidError, BadRequestError) as error:
                log.warning("%s of pod %s stays as it is: %s", _thing(step), reservation.pod.key, error)
            step.tried = False
        self._drop(reservation)

    def _drop(self, reservation: Reservation) -> None:
        for step in reservation.steps:
            if self._hands.get(step.claim) == reservation.pod.metadata.uid:
                del self._hands[step.claim]
            if step.volume:
                self._stock.take_back(step.volume)
            else:
                self._stock.unselect(step.claim)

    def _underway(self, since: float, waits: Sequence[str]) -> Underway:
        more = f", and {len(waits) - 1} more" if len(waits) > 1 else ""
        return Underway(f"{waits[0]}{more}; after {self._seconds:g} s the workload goes back", since, since + self._seconds)


def _listed(claims: Iterable[Key]) -> str:
    names = [str(claim) for claim in claims]
    return f"claim {names[0]}" if len(names) == 1 else f"claims {', '.join(names)}"


def _thing(step: Step) -> str:
    return f"volume {step.volume}" if step.volume else f"claim {step.claim}"
