"""What Kubernetes counts on each node: the check before binding.

Comes in: the caches of nodes and of all pods, and what we have bound ourselves a moment ago. Goes out: whether these pods fit on that node now, and if not, what is in the way. What must stay true: a pod counts
from the moment we bind it, seen or not, until its containers are gone; a dying pod counts; pods of other schedulers count. Slurm's word alone is not enough: it knows nothing of DaemonSets, and gives a node away
before the containers of the last pod are gone.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from slinky.bridge.needs import needs_of
from slinky.bridge.quantities import quantity
from slinky.kube import Cache, Change, Key, Node, Pod

__all__ = ["Ledger"]

NOTHING = Fraction(0)
MOST_SHAPES = 4096
Amounts = dict[str, Fraction]


class Ledger:
    """`pods` are the caches that together hold all pods. `freed(node)` is called when something on a node goes away, `taken(node)` when something comes."""

    def __init__(self, pods: Iterable[Cache[Pod]], nodes: Cache[Node]) -> None:
        self._nodes = nodes
        self.freed: Callable[[str], None] = lambda _: None
        self.taken: Callable[[str], None] = lambda _: None
        self._counted: dict[str, tuple[str, Amounts]] = {}  # pod's UID → its node, what it takes
        self._used: dict[str, Amounts] = {}
        self._on: dict[str, set[str]] = {}
        self._names: dict[str, Key] = {}
        self._dying: set[str] = set()
        self._shapes: dict[tuple[tuple[str, Fraction], ...], Amounts] = {}
        for cache in pods:
            for pod in cache.list():
                self._note(pod)
            cache.subscribe(self._changed)

    def assume(self, pod: Pod, node: str) -> None:
        """We are binding it: it counts from now on."""
        if pod.metadata.uid not in self._counted:
            self._count(pod, node)

    def withdraw(self, pod: Pod) -> None:
        """The binding failed."""
        self._uncount(pod.metadata.uid)

    def obstacle(self, node: str, pods: Sequence[Pod]) -> str:
        """Empty where all of them fit there now; pods that are counted there already do not count twice."""
        known = self._nodes.by_key(Key("", node))
        if known is None:
            return f"Kubernetes has no node {node}"
        coming = [pod for pod in pods if pod.metadata.uid not in self._counted]
        wanted = _total(needs_of(pod).amounts for pod in coming)
        wanted["pods"] = Fraction(len(coming))
        used = self._used.get(node, {})
        for name, amount in wanted.items():
            text = known.status.allocatable.get(name)
            room = (quantity(text) if text is not None else NOTHING) - used.get(name, NOTHING)
            if amount > room:
                return f"node {node} has {_written(max(room, NOTHING))} of {_written(amount)} {name} free{self._culprits(node, name)}"
        return ""

    def passes(self, node: str, pods: Sequence[Pod]) -> bool:
        """Whether what is in their way goes away by itself: pods that are being deleted."""
        dying = _total(self._counted[uid][1] for uid in self._dying & self._on.get(node, set()))
        known = self._nodes.by_key(Key("", node))
        if known is None or not dying:
            return False
        coming = [pod for pod in pods if pod.metadata.uid not in self._counted]
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

    def _changed(self, change: Change[Pod]) -> None:
        if change.new is None:
            if change.old is not None:
                self._uncount(change.old.metadata.uid)
        else:
            self._note(change.new)

    def _note(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.is_over:
            self._uncount(uid)
            return
        if pod.metadata.deletion_timestamp is not None:
            self._dying.add(uid)
        if node and (uid not in self._counted or self._counted[uid][0] != node):
            self._uncount(uid)
            self._count(pod, node)

    def _count(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        amounts = self._shared({**needs_of(pod).amounts, "pods": Fraction(1)})
        self._counted[uid] = (node, amounts)
        self._names[uid] = pod.key
        self._on.setdefault(node, set()).add(uid)
        used = self._used.setdefault(node, {})
        for name, amount in amounts.items():
            used[name] = used.get(name, NOTHING) + amount
        self.taken(node)

    def _shared(self, amounts: Amounts) -> Amounts:
        """One for all pods of a shape: there are many pods and few shapes."""
        if len(self._shapes) > MOST_SHAPES:
            self._shapes.clear()
        return self._shapes.setdefault(tuple(sorted(amounts.items())), amounts)

    def _uncount(self, uid: str) -> None:
        found = self._counted.pop(uid, None)
        if found is None:
            return
        node, amounts = found
        del self._names[uid]
        self._dying.discard(uid)
        self._on[node].discard(uid)
        used = self._used[node]
        for name, amount in amounts.items():
            used[name] -= amount
        if not self._on[node]:
            del self._on[node], self._used[node]
        self.freed(node)


def _total(all_amounts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in all_amounts:
        for name, amount in amounts.items():
            total[name] = total.get(name, NOTHING) + amount
    return total


def _written(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{float(amount):g}"
