"""Pods that have a node, counted by what other pods ask of them.

Comes in: pods as they get a node, change and go. Goes out: `Tally`s: how many of them a query matches, by node and by topology domain; and the anti-affinity of those that are there. What must stay true: a tally that was asked for once follows
every change and is not counted anew; a first count looks only at pods that an index offers, where the query gives one; tallies have a limit, the longest unused is dropped. Domains hold for the nodes' present labels.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from slinky.bridge.eligibility.forbidders import Forbidders
from slinky.bridge.eligibility.indexes import Askers, ByLabel, narrowest
from slinky.bridge.eligibility.ports import HostPort
from slinky.bridge.eligibility.selectors import Requirement
from slinky.bridge.eligibility.terms import Query, Term

__all__ = ["LabelOf", "Resident", "Residents", "Spread", "Tally"]

MOST_TALLIES = 1024
MOST_SPREADS = 4  # of one tally
NO_TERMS: frozenset[Term] = frozenset()
NAMESPACE = ""  # no label has this key: the index by namespace
LabelOf = Callable[[str, str], str | None]  # node, key → the node's label


@dataclass(frozen=True, slots=True)
class Resident:
    """What counts of a pod that has a node."""

    uid: str
    node: str
    namespace: str
    labels: Mapping[str, str]
    terminating: bool = False
    ports: tuple[HostPort, ...] = ()
    forbids: tuple[Term, ...] = ()
    name: str = ""


class Spread:
    """How a tally's pods are spread over some domains, and how many the emptiest has: both follow each pod that comes or goes, so that no pod of a gang costs a count of all nodes."""

    __slots__ = ("_having", "_of_node", "least", "numbers")

    def __init__(self, of_node: Mapping[str, str], on_node: Mapping[str, int]) -> None:
        """`of_node` gives the domain of each node that counts."""
        self._of_node = of_node
        self.numbers: dict[str, int] = dict.fromkeys(of_node.values(), 0)  # domain → pods, zero included
        for node, number in on_node.items():
            if (domain := of_node.get(node)) is not None:
                self.numbers[domain] += number
        self._having = Counter(self.numbers.values())  # number of pods → domains that have so many
        self.least = min(self._having, default=0)

    def count(self, node: str, step: int) -> None:
        """`step` is 1 or -1."""
        domain = self._of_node.get(node)
        if domain is None:
            return
        before = self.numbers[domain]
        after = self.numbers[domain] = before + step
        self._having[before] -= 1
        self._having[after] += 1
        if not self._having[before]:
            del self._having[before]
        if after < self.least or (before == self.least and before not in self._having):
            self.least = after


class Tally:
    """A number of pods by node, and by the value of any label that is asked for."""

    __slots__ = ("_by_label", "_spreads", "on_node")

    def __init__(self) -> None:
        self.on_node: dict[str, int] = {}
        self._by_label: dict[str, dict[str, int]] = {}
        self._spreads: dict[int, tuple[Mapping[str, str], Spread]] = {}

    def spread(self, of_node: Mapping[str, str]) -> Spread:
        """Over the domains of nodes. Found again by the mapping itself, which its owner keeps as long as nodes stay as they are."""
        found = self._spreads.get(id(of_node))
        if found is None:
            if len(self._spreads) >= MOST_SPREADS:
                del self._spreads[next(iter(self._spreads))]
            found = self._spreads[id(of_node)] = (of_node, Spread(of_node, self.on_node))
        return found[1]

    def count(self, node: str, step: int, label_of: LabelOf) -> None:
        _step(self.on_node, node, step)
        for _, spread in self._spreads.values():
            spread.count(node, step)
        for key, domains in self._by_label.items():
            value = label_of(node, key)
            if value is not None:
                _step(domains, value, step)

    def domains(self, key: str, label_of: LabelOf) -> Mapping[str, int]:
        """Value of the label → how many; only where there are some. Nodes without the label, or that are not there, are left out."""
        found = self._by_label.get(key)
        if found is None:
            found = self._by_label[key] = {}
            for node, number in self.on_node.items():
                value = label_of(node, key)
                if value is not None:
                    _step(found, value, number)
        return found

    def forget_domains(self) -> None:
        self._by_label.clear()
        self._spreads.clear()

    def forget_spreads(self) -> None:
        self._spreads.clear()


class Residents:
    """`label_of` gives a node's label; `nodes_changed` is to be called when one of them is another."""

    def __init__(self, label_of: LabelOf) -> None:
        self._label_of = label_of
        self.version = 0  # another when a pod came or went, or nodes have other labels
        self._pods: ByLabel[Resident] = ByLabel(_value_of)
        self._tallies: dict[Query, Tally] = {}
        self._tallied: Askers[Query] = Askers()
        self._forbidding: dict[Term, Tally] = {}
        self._forbidders = Forbidders()
        self._unheeded: dict[str, frozenset[Term]] = {}  # by pod, of what it forbids
        self.none = Tally()  # of pods that no selector counts

    def get(self, uid: str) -> Resident | None:
        return self._pods.get(uid)

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._pods)

    def put(self, resident: Resident) -> None:
        self.remove(resident.uid)
        self._pods.add(resident.uid, resident)
        self._count(resident, 1)

    def remove(self, uid: str) -> Resident | None:
        resident = self._pods.pop(uid)
        if resident is not None:
            self._count(resident, -1)
        return resident

    def nodes_changed(self) -> None:
        self.version += 1
        for tally in (self.none, *self._tallies.values(), *self._forbidding.values()):
            tally.forget_domains()

    def forget_spreads(self) -> None:
        """Other nodes may count now: who owns the domains makes them anew, and these are not found again."""
        for tally in (self.none, *self._tallies.values()):
            tally.forget_spreads()

    def tally(self, query: Query) -> Tally:
        found = self._tallies.pop(query, None)
        if found is None:
            found = Tally()
            for resident in self._candidates(query):
                if _matches(query, resident):
                    _step(found.on_node, resident.node, 1)
            if len(self._tallies) >= MOST_TALLIES:
                oldest = next(iter(self._tallies))
                del self._tallies[oldest]
                self._tallied.remove(oldest, _requirements(oldest))
            self._tallied.add(query, _requirements(query))
        self._tallies[query] = found  # the last in order is the last used
        return found

    def forbidding(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> list[tuple[Term, Tally]]:
        """The anti-affinity of pods that are there which means a pod like this, and where those pods are."""
        if not self._forbidding:
            return []
        return [(term, self._forbidding[term]) for term in self._forbidders.of(namespace, labels, namespace_labels)]

    def _count(self, resident: Resident, step: int) -> None:
        self.version += 1
        for query in self._tallied.of(resident.labels):
            if _matches(query, resident):
                self._tallies[query].count(resident.node, step, self._label_of)
        if resident.forbids:
            self._count_forbidden(resident, step)

    def _count_forbidden(self, resident: Resident, step: int) -> None:
        unheeded = self._unheeded.pop(resident.uid, NO_TERMS)
        for term in resident.forbids:
            tally = self._forbidding.get(term)
            if step > 0 and tally is None and self._forbidders.add(term, resident.namespace):
                tally = self._forbidding[term] = Tally()
            if tally is None or term in unheeded:
                unheeded |= {term}
                continue
            tally.count(resident.node, step, self._label_of)
            if not tally.on_node:
                del self._forbidding[term]
                self._forbidders.remove(term)
        if step > 0 and unheeded:
            self._unheeded[resident.uid] = unheeded

    def _candidates(self, query: Query) -> Iterable[Resident]:
        """The smallest offer of an index that has all that the query may match."""
        if any(clause.selector.requirements is None for clause in query.clauses):
            return ()
        narrow = narrowest(_requirements(query))
        if narrow:
            parts = self._pods.having(narrow.key, narrow.values)
        elif reaches := [clause.reach for clause in query.clauses if clause.reach is not None]:
            fewest = min(reaches, key=len)
            parts = self._pods.having(NAMESPACE, fewest)
        else:
            return self._pods
        return (resident for part in parts for resident in part.values())


def _requirements(query: Query) -> Iterable[Requirement]:
    return (requirement for clause in query.clauses for requirement in clause.selector.requirements or ())


def _matches(query: Query, resident: Resident) -> bool:
    if query.living and resident.terminating:
        return False
    for clause in query.clauses:  # noqa: SIM110 asked of each pod: faster than `all`
        if not clause.matches(resident.namespace, resident.labels):
            return False
    return True


def _value_of(resident: Resident, key: str) -> str | None:
    return resident.namespace if key == NAMESPACE else resident.labels.get(key)


def _step(numbers: dict[str, int], key: str, step: int) -> None:
    number = numbers.get(key, 0) + step
    if number:
        numbers[key] = number
    else:
        numbers.pop(key, None)
