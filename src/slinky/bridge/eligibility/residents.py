"""Pods that have a node, counted by what other pods ask of them.

A `Tally` says how many pods a query matches, by node and by topology domain. `Residents` keeps the
tallies of what was asked, and the anti-affinity of the pods that are there.

*Invariants:* a first count is a few operations on masks, however many pods there are and whatever the
query says. A tally follows every change; it is brought up to date when it is asked for, so a pod that
comes or goes costs nothing for tallies that no pod asks for any more. Tallies and indexes have a limit:
the one that was not asked for for the longest time is dropped. Domains hold for the nodes' present labels.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from slinky.bridge.bit_places import BitPlaces, chosen
from slinky.bridge.eligibility.forbidders import Forbidders
from slinky.bridge.eligibility.label_index import LabelIndex
from slinky.bridge.eligibility.ports import HostPort
from slinky.bridge.eligibility.terms import Query, Term
from slinky.bridge.pacing import Pace

__all__ = ["LabelOf", "Resident", "Residents", "Spread", "Tally"]

MOST_TALLIES = 1024
MOST_SPREADS = 4  # of one tally
MOST_INDEXES = 256  # more than the labels that one pod may ask for
MOST_CHANGES = 256  # a tally that is further behind is counted again
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

    __slots__ = ("_by_label", "_spreads", "on_node", "seen")

    def __init__(self) -> None:
        self.on_node: dict[str, int] = {}
        self.seen = 0  # the number of the last change of a pod that is counted
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
        self._pods: dict[str, Resident] = {}
        self._places = BitPlaces()
        self._nodes: list[str] = []  # of the pods, in the order of their places
        self._living = 0
        self._indexes: dict[str, LabelIndex] = {}
        self._changes: list[tuple[Resident, int]] = []  # the last ones, with 1 or -1
        self._forgotten = 0  # changes before these
        self._tallies: dict[Query, Tally] = {}
        self._forbidding: dict[Term, Tally] = {}
        self._forbidders = Forbidders()
        self._unheeded: dict[str, frozenset[Term]] = {}  # by pod, of what it forbids
        self.none = Tally()  # of pods that no selector counts

    def get(self, uid: str) -> Resident | None:
        return self._pods.get(uid)

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._pods.values())

    def put(self, resident: Resident) -> None:
        self.remove(resident.uid)
        self._pods[resident.uid] = resident
        place = self._places.enter(resident.uid)
        self._nodes[place : place + 1] = [resident.node]
        if not resident.terminating:
            self._living |= 1 << place
        for index, value in self._indexes_of(resident):
            index.add(place, value)
        self._count(resident, 1)

    def remove(self, uid: str) -> Resident | None:
        resident = self._pods.pop(uid, None)
        if resident is None:
            return None
        place = self._places.places[uid]
        self._places.leave(uid)
        self._living &= ~(1 << place)
        for index, value in self._indexes_of(resident):
            index.remove(place, value)
        self._count(resident, -1)
        return resident

    def _indexes_of(self, resident: Resident) -> Iterator[tuple[LabelIndex, str]]:
        """Those that there are of its labels, each with its value."""
        indexes = self._indexes
        if not indexes:
            return
        if (by_namespace := indexes.get(NAMESPACE)) is not None:
            yield by_namespace, resident.namespace
        for key, value in resident.labels.items():
            if (index := indexes.get(key)) is not None:
                yield index, value

    def nodes_changed(self) -> None:
        self.version += 1
        for tally in (self.none, *self._tallies.values(), *self._forbidding.values()):
            tally.forget_domains()

    def forget_spreads(self) -> None:
        """Other nodes may count now: who owns the domains makes them anew, and these are not found again."""
        for tally in (self.none, *self._tallies.values()):
            tally.forget_spreads()

    def tally(self, query: Query) -> Tally:
        """As of now."""
        found, now = self._tallies.pop(query, None), self._forgotten + len(self._changes)
        if found is None:
            if len(self._tallies) >= MOST_TALLIES:
                del self._tallies[next(iter(self._tallies))]
            found = Tally()
            found.on_node = self._counted(query)
        elif now - found.seen > min(MOST_CHANGES, len(self._changes)):
            found.forget_domains()
            found.on_node = self._counted(query)
        else:
            for resident, step in self._changes[found.seen - self._forgotten :]:
                if _matches(query, resident):
                    found.count(resident.node, step, self._label_of)
        found.seen = now
        self._tallies[query] = found  # the last in order is the last used
        return found

    async def prepare(self, query: Query, pace: Pace) -> None:
        """Make what a first count needs, in short turns."""
        if query in self._tallies:
            return
        for clause in query.clauses:
            for requirement in clause.selector.requirements or ():
                self._index(requirement.key)
                await pace.step()
        self.tally(query)
        await pace.step()

    def _counted(self, query: Query) -> dict[str, int]:
        return dict(Counter(chosen(self._nodes, self._matching(query))))

    def _matching(self, query: Query) -> int:
        """The mask of the pods that the query matches."""
        everyone = self._places.everyone
        found = self._living if query.living else everyone
        for clause in query.clauses:
            if clause.selector.requirements is None:
                return 0
            if clause.reach is not None:
                found &= self._index(NAMESPACE).mask(clause.reach)
            for requirement in clause.selector.requirements:
                found &= self._index(requirement.key).meeting(requirement, everyone)
        return found

    def _index(self, key: str) -> LabelIndex:
        found = self._indexes.pop(key, None)
        if found is None:
            values = ((uid, _value_of(resident, key)) for uid, resident in self._pods.items())
            found = LabelIndex((self._places.places[uid], value) for uid, value in values if value is not None)
            if len(self._indexes) >= MOST_INDEXES:
                del self._indexes[next(iter(self._indexes))]
        self._indexes[key] = found  # the last in order is the last used
        return found

    def forbidding(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> list[tuple[Term, Tally]]:
        """The anti-affinity of pods that are there which means a pod like this, and where those pods are."""
        if not self._forbidding:
            return []
        return [(term, self._forbidding[term]) for term in self._forbidders.of(namespace, labels, namespace_labels)]

    def _count(self, resident: Resident, step: int) -> None:
        self.version += 1
        self._changes.append((resident, step))
        if len(self._changes) > 2 * MOST_CHANGES:
            del self._changes[:MOST_CHANGES]
            self._forgotten += MOST_CHANGES
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
