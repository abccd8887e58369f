"""What Kubernetes counts on each node: where a pod could go, and the check before binding.

Comes in: the caches of nodes and of all pods, and what we have bound ourselves a moment ago. Goes out: whether these pods fit on that node now, and if not, what is in the way; and which nodes a pod must not be sent to for want of
something that Slurm does not count. What must stay true: a pod counts from the moment we bind it, seen or not, until its containers are gone; a dying pod counts; pods of other schedulers count; one that is resized counts with the
larger of both sizes; and a device is its pod's as long as the pod counts. Slurm's word alone is not enough: it knows nothing of DaemonSets, and gives a node away before the containers of the last pod are gone.
"""

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from slinky.bridge.bit_places import BitPlaces, Named
from slinky.bridge.devices import NONE, Devices, Indices, devices_of
from slinky.bridge.needs import Needs, counted_of, needs_of
from slinky.bridge.room import ONE_POD, Reasons, counted_by_slurm, free_of, nano, room_refusal, written
from slinky.kube import Cache, Change, Key, Node, Pod
from slinky.kube.quantities import quantity

__all__ = ["Answers", "Ledger"]

NOTHING = Fraction(0)
MOST_SHAPES = 4096
MOST_ANSWERS = 16_384  # shapes of pods for which the nodes that refuse them are remembered
NONE_AT_ALL = (0, 0)
FEW_PLACES = 32  # nodes that are judged one by one
Amounts = dict[str, Fraction]
Free = dict[str, tuple[int, int]]  # what is left of each resource for one more pod, and what there is in all
Shape = tuple[tuple[str, Fraction], ...]


class Answers:
    """For pods of one shape: the nodes that refuse them, and which of these could hold them if they were empty, as masks; `seen` is the number of the last change that was looked at. `version` is another when nodes are, and no two shapes have the same. `nodes` stands for the nodes alone, and is equal for shapes that the same nodes refuse."""

    __slots__ = ("epoch", "refused", "seen", "short", "version")

    def __init__(self) -> None:
        self.refused = 0
        self.short = 0
        self.seen = 0
        self.version = 0
        self.epoch = 0

    @property
    def nodes(self) -> tuple[int, int]:
        return self.epoch, self.refused


class Ledger:
    """`pods` and `foreign` are the caches that together hold all pods; those in `foreign` are other schedulers'. `mapped` are the resources that stand for a GRES in Slurm. `freed(node)` is called when something on a node goes away,
    or there is more of it, `taken(node)` when something comes.
    """

    def __init__(
        self, pods: Iterable[Cache[Pod]], nodes: Cache[Node], foreign: Iterable[Cache[Pod]] = (), mapped: Iterable[str] = ()
    ) -> None:
        self._nodes = nodes
        self._by_slurm = counted_by_slurm(mapped)
        self.freed: Callable[[str], None] = lambda _: None
        self.taken: Callable[[str], None] = lambda _: None
        self._counted: dict[str, tuple[str, Amounts]] = {}  # pod's UID → its node, what it takes
        self._foreigners: set[str] = set()  # of those, other schedulers'
        self._used: dict[str, Amounts] = {}
        self._used_by_others: dict[str, Amounts] = {}
        self._on: dict[str, set[str]] = {}
        self._names: dict[str, Key] = {}
        self._dying: set[str] = set()
        self._unseen: set[str] = set()  # of those that we bound, whom the watch has not shown there yet
        self._devices = Devices()
        self._shapes: dict[Shape, Amounts] = {}
        self._asked: dict[int, tuple[Needs, Amounts]] = {}  # by the id of what a template asks for, which is held here
        self._answers: dict[Shape, Answers] = {}
        self._versions: dict[str, int] = {}  # by node
        self._changes = itertools.count(1)  # one count for all versions, so that no number comes again
        self._free: dict[str, Free] = {}  # by node, until something changes there
        self._alike: dict[object, tuple[int, Free | None]] = {}  # nodes that have the same left, as of the change `_grouped`
        self._left: dict[int, object] = {}  # under which of those keys the node with a place is
        self._grouped = 0
        self._slots = BitPlaces()
        self.judged = 0  # nodes times shapes, in all
        for caches, is_foreign in ((pods, False), (foreign, True)):
            for cache in caches:
                cache.subscribe(partial(self._changed, is_foreign=is_foreign))
        nodes.subscribe(self._node_changed)

    def refusals(self, pod: Pod) -> Mapping[str, str]:
        """The nodes that it must not be sent to now, and why: those that could never hold it, and those that are full of what Slurm does not count. What Slurm counts and has given to others is not among it: that is what its queue is for."""
        needs = needs_of(pod)
        return Reasons(Named(self._slots, self.answers(pod).refused), lambda name: self._words(name, needs))

    def answers(self, pod: Pod) -> Answers:
        """The same without words."""
        amounts = needs_of(pod).amounts
        shape = _shape(amounts)
        answers = self._answers.pop(shape, None)
        if answers is None:
            answers = Answers()
            while len(self._answers) >= MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
        self._answers[shape] = answers  # the last in order is the last used
        if not answers.version or answers.seen != self._slots.serial:
            before = answers.nodes, answers.short
            self._judge(answers, {name: -nano(-amount) for name, amount in (amounts | ONE_POD).items()})
            if not answers.version or before != (answers.nodes, answers.short):
                answers.version = next(self._changes)
        return answers

    def _judge(self, answers: Answers, wanted: dict[str, int]) -> None:
        """The nodes that have changed since; where these are many, nodes that have the same left are judged at once."""
        places = self._slots.since(answers.seen)
        groups = self._groups() if len(places) > FEW_PLACES else [(1 << place, self._free_on(self._slots.name(place))) for place in places]
        self.judged += len(groups)
        looked_at = refused = short = 0
        for mask, free in groups:
            looked_at |= mask
            if free is not None and any(amount > free.get(what, NONE_AT_ALL)[0] for what, amount in wanted.items()):
                refused |= mask
                if all(amount <= free.get(what, NONE_AT_ALL)[1] for what, amount in wanted.items()):
                    short |= mask
        answers.refused = (answers.refused & ~looked_at | refused) & self._slots.everyone
        answers.short = (answers.short & ~looked_at | short) & self._slots.everyone
        answers.seen, answers.epoch = self._slots.serial, self._slots.epoch

    def _groups(self) -> list[tuple[int, Free | None]]:
        """All nodes, those together that have the same left."""
        for place in self._slots.since(self._grouped):
            self.judged += 1
            bit = 1 << place
            if (left := self._left.pop(place, None)) is not None:
                mask, free = self._alike.pop(left)
                if mask := mask & ~bit:
                    self._alike[left] = mask, free
            if (now := self._free_on(self._slots.name(place))) is not None:
                left = tuple(sorted(now.items()))
                self._alike[left] = self._alike.get(left, (0, now))[0] | bit, now
                self._left[place] = left
        self._grouped = self._slots.serial
        return list(self._alike.values())

    def _free_on(self, name: str) -> Free | None:
        """None where there is no such node."""
        found = self._free.get(name)
        node = self._nodes.by_key(Key("", name)) if found is None else None
        if node is not None:
            found = self._free[name] = free_of(node, self._used.get(name, {}), self._used_by_others.get(name, {}), self._by_slurm)
        return found

    def _words(self, name: str, needs: Needs) -> str:
        node = self._nodes.by_key(Key("", name))
        return self._answer(node, needs) if node is not None else ""

    def refusal(self, pod: Pod, node: str) -> str:
        """The same for one node."""
        known = self._nodes.by_key(Key("", node))
        return self._answer(known, needs_of(pod)) if known is not None else f"Kubernetes has no node {node}"

    def is_short(self, pod: Pod) -> bool:
        """Whether one of those nodes could hold it, were it not for the pods that are there: when some of them go, it is to be asked again."""
        return bool(self.answers(pod).short)

    def _answer(self, node: Node, needs: Needs) -> str:
        name = node.metadata.name
        return room_refusal(needs, node, self._used.get(name, {}), self._used_by_others.get(name, {}), self._by_slurm)

    def version(self, node: str) -> int:
        """Another number whenever something on the node has changed, and 0 where there is no such node: what was found of it before holds as long as the number does."""
        return self._versions.get(node, 0)

    def _outdate(self, node: str) -> None:
        self._free.pop(node, None)
        if self._nodes.by_key(Key("", node)) is not None:
            self._versions[node] = next(self._changes)
            self._slots.touch(self._slots.enter(node))
        else:
            self._versions.pop(node, None)  # a pod may outlive its node
            self._slots.leave(node)

    def ours_on(self, node: str) -> list[str]:
        """Pods of the bridge's on a node, until their containers are gone."""
        return [str(self._names[uid]) for uid in self._on.get(node, ()) if uid not in self._foreigners]

    def others_on(self, node: str, own: Container[str]) -> tuple[list[str], list[str]]:
        """Pods of the bridge's there that are not among `own` (UIDs): those that are being deleted, and the rest."""
        found = [uid for uid in self._on.get(node, ()) if uid not in self._foreigners and uid not in own]
        going = sorted(str(self._names[uid]) for uid in found if uid in self._dying)
        return going, sorted(str(self._names[uid]) for uid in found if uid not in self._dying)

    def assume(self, pod: Pod, node: str, devices: Indices = NONE) -> None:
        """We are binding it: it counts from now on. Where an earlier Binding came to nothing, no longer there, nor with the devices that it was to have then."""
        uid = pod.metadata.uid
        if uid in self._unseen:
            self._uncount(uid)
        if uid not in self._counted:
            self._count(pod, node, is_foreign=False)
            self._devices.take(node, uid, devices)
            self._unseen.add(uid)

    def assume_all(self, node: str, pods: Sequence[Pod], devices: Sequence[Indices]) -> None:
        """The same for all of a workload's pods on a node at once."""
        new: list[Amounts] = []
        for pod, indices in zip(pods, devices, strict=True):
            uid = pod.metadata.uid
            if uid in self._unseen:
                self._uncount(uid)
            if uid not in self._counted:
                new.append(self._enter(pod, node))
                self._devices.take(node, uid, indices)
                self._unseen.add(uid)
        if not new:
            return
        used = self._used.setdefault(node, {})
        for amounts in {id(each): each for each in new}.values():
            _add(used, amounts, sum(each is amounts for each in new) if len(new) > 1 else 1)
        self._outdate(node)
        self.taken(node)

    def withdraw(self, pod: Pod) -> None:
        """The binding failed."""
        self._uncount(pod.metadata.uid)

    def obstacle(self, node: str, pods: Sequence[Pod], devices: Sequence[Indices] = ()) -> str:
        """Empty where all of them fit there now, and none of the `devices` that they are to have is another's still; pods that are counted there already do not count twice."""
        known = self._nodes.by_key(Key("", node))
        if known is None:
            return f"Kubernetes has no node {node}"
        coming = self._coming(node, pods)
        wanted = _total(needs_of(pod).amounts for pod in coming)
        wanted["pods"] = Fraction(len(coming))
        used = self._used.get(node, {})
        for name, amount in wanted.items():
            text = known.status.allocatable.get(name)
            room = (quantity(text) if text is not None else NOTHING) - used.get(name, NOTHING)
            if amount > room:
                return f"node {node} has {written(max(room, NOTHING))} of {written(amount)} {name} free{self._culprits(node, name)}"
        held = self._devices.holders(node, devices, (pod.metadata.uid for pod in pods))
        return next((f"{device} of node {node} is still that of pod {self._names[uid]}" for device, uid in held.items()), "")

    def _coming(self, node: str, pods: Sequence[Pod]) -> list[Pod]:
        """Those that are not counted there: one whose Binding to another node may have been done counts there, and takes its room here."""
        return [pod for pod in pods if pod.metadata.uid not in self._on.get(node, ())]

    def passes(self, node: str, pods: Sequence[Pod], devices: Sequence[Indices] = ()) -> bool:
        """Whether what is in their way goes away by itself: pods that are being deleted."""
        if not self._dying.issuperset(self._devices.holders(node, devices, (pod.metadata.uid for pod in pods)).values()):
            return False
        dying = _total(self._counted[uid][1] for uid in self._dying & self._on.get(node, set()))
        known = self._nodes.by_key(Key("", node))
        if known is None or not dying:
            return False
        coming = self._coming(node, pods)
        wanted = _total([*(needs_of(pod).amounts for pod in coming), {"pods": Fraction(len(coming))}])
        used = self._used.get(node, {})
        return all(
            amount <= quantity(known.status.allocatable.get(name, "0")) - used.get(name, NOTHING) + dying.get(name, NOTHING)
            for name, amount in wanted.items()
        )

    def _culprits(self, node: str, name: str) -> str:
        """Whom to look at: the pods that take most of it."""
        takers = sorted(((self._counted[uid][1].get(name, NOTHING), str(self._names[uid])) for uid in self._on.get(node, ())), reverse=True)
        named = [who for amount, who in takers[:3] if amount]
        return f": {', '.join(named)}{' and others' if len(takers) > 3 else ''} there" if named else ""

    def _changed(self, change: Change[Pod], *, is_foreign: bool) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None:
                self._uncount(old.metadata.uid)
            return
        if old is not None and old.metadata.uid != new.metadata.uid:
            self._uncount(old.metadata.uid)
            old = None
        self._note(new, is_foreign=is_foreign, resized=old is not None and _sizes(old) != _sizes(new))

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.status.allocatable != new.status.allocatable:
            self._outdate(change.key.name)
            if new is not None:
                self.freed(change.key.name)

    def _note(self, pod: Pod, *, is_foreign: bool, resized: bool = False) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.is_over:
            self._uncount(uid)
            return
        if node:
            self._unseen.discard(uid)
        if node and (resized or uid not in self._counted or self._counted[uid][0] != node):
            self._uncount(uid)
            self._count(pod, node, is_foreign=is_foreign)
        if node and pod.metadata.deletion_timestamp is not None:
            self._dying.add(uid)

    def _count(self, pod: Pod, node: str, *, is_foreign: bool) -> None:
        amounts = self._enter(pod, node)
        _add(self._used.setdefault(node, {}), amounts)
        if is_foreign:
            self._foreigners.add(pod.metadata.uid)
            _add(self._used_by_others.setdefault(node, {}), amounts)
        self._outdate(node)
        self.taken(node)

    def _enter(self, pod: Pod, node: str) -> Amounts:
        """Note the pod as one on the node; what it takes is the caller's to add."""
        uid = pod.metadata.uid
        amounts = self._takes(pod)
        self._counted[uid] = (node, amounts)
        self._names[uid] = pod.key
        self._devices.take(node, uid, devices_of(pod))
        self._on.setdefault(node, set()).add(uid)
        return amounts

    def _takes(self, pod: Pod) -> Amounts:
        """What it takes, a place for a pod included. Of a pod that the kubelet has said nothing about yet, it is what its template asks for: worked out once for all pods of the template."""
        status = pod.status
        if status.container_statuses or status.init_container_statuses or status.resources is not None:
            return self._shared({**counted_of(pod).amounts, **ONE_POD})
        needs = needs_of(pod)
        known = self._asked.get(id(needs))
        if known is None:
            if len(self._asked) >= MOST_SHAPES:
                self._asked.clear()
            known = self._asked[id(needs)] = (needs, self._shared({**needs.amounts, **ONE_POD}))
        return known[1]

    def _shared(self, amounts: Amounts) -> Amounts:
        """One for all pods of a shape: there are many pods and few shapes."""
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.clear()
        return self._shapes.setdefault(_shape(amounts), amounts)

    def _uncount(self, uid: str) -> None:
        found = self._counted.pop(uid, None)
        if found is None:
            return
        node, amounts = found
        del self._names[uid]
        self._unseen.discard(uid)
        self._devices.free(node, uid)
        self._dying.discard(uid)
        self._on[node].discard(uid)
        _add(self._used[node], amounts, -1)
        if uid in self._foreigners:
            self._foreigners.discard(uid)
            _add(self._used_by_others[node], amounts, -1)
        if not self._on[node]:
            del self._on[node], self._used[node]
            self._used_by_others.pop(node, None)
        self._outdate(node)
        self.freed(node)


def _shape(amounts: Amounts) -> Shape:
    return tuple(sorted(amounts.items()))


def _sizes(pod: Pod) -> tuple[Any, ...]:
    """What a pod's size depends on: what it asks for, what it was given, and whether the rest can be given."""
    spec, status = pod.spec, pod.status
    given = [
        (found.name, found.resources, found.allocated_resources) for found in (*status.init_container_statuses, *status.container_statuses)
    ]
    pending = [found.reason for found in status.conditions if found.type == "PodResizePending"]
    return (spec.containers, spec.init_containers, spec.resources, status.resources, status.allocated_resources, given, pending)


def _add(total: Amounts, amounts: Amounts, times: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, NOTHING) + amount * times


def _total(all_amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in all_amounts:
        _add(total, amounts)
    return total
