"""Which anti-affinity of pods that have a node concerns a newcomer, found without asking all of it.

Anyone who may create a pod anywhere can put anti-affinity against every namespace into it, and each
such term is asked about each pod that waits. So a namespace's pods have a budget for them.

*Invariants:* a term without a namespace selector costs only pods of the namespaces that it names. A
term that asks for a label costs only pods with that label. What one namespace says costs the pods of
all others a bounded amount; what is above the budget is not heeded, and the log says so once. A term
that was not added is never removed.
"""

import logging
from collections.abc import Iterator, Mapping

from slinky.bridge.eligibility.indexes import Askers, narrowest
from slinky.bridge.eligibility.terms import Term

__all__ = ["BUDGET", "Forbidders"]

log = logging.getLogger(__name__)

BUDGET = 8192  # conditions on labels, of one namespace's different terms
ALIKE = 1024  # so many terms within a namespace may name the same value of a label and cost nothing


class Forbidders:
    """Each term once, whichever pods say it."""

    def __init__(self) -> None:
        self._within: dict[str, Askers[Term]] = {}  # by namespace that a term names
        self._wide: Askers[Term] = Askers()
        self._paid: dict[Term, tuple[str, int]] = {}  # whose pod was the first to say it, and the price
        self._spent: dict[str, int] = {}
        self._warned: set[str] = set()

    def add(self, term: Term, owner: str) -> bool:
        """Whether it is heeded. `owner` is the namespace of the pod that says it."""
        price = self._price(term, owner)
        spent = self._spent.get(owner, 0) + price
        if spent > BUDGET:
            if owner not in self._warned:
                self._warned.add(owner)
                log.warning(
                    "the anti-affinity of pods of namespace %s has more than %d conditions on labels; the rest is ignored",
                    owner,
                    BUDGET,
                )
            return False
        if price:
            self._paid[term], self._spent[owner] = (owner, price), spent
        for askers in self._places(term):
            askers.add(term, term.selector.requirements or ())
        return True

    def remove(self, term: Term) -> None:
        for askers in self._places(term):
            askers.remove(term, term.selector.requirements or ())
        for namespace in term.namespaces:
            if namespace in self._within and not self._within[namespace]:
                del self._within[namespace]
        owner, price = self._paid.pop(term, ("", 0))
        if price:
            self._spent[owner] -= price
            if not self._spent[owner]:
                del self._spent[owner]

    def of(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> Iterator[Term]:
        """Those that mean a pod with these labels."""
        for askers in (self._wide, self._within.get(namespace)):
            if askers:
                for term in askers.of(labels):
                    if term.means(namespace, labels, namespace_labels):
                        yield term

    def _places(self, term: Term) -> Iterator[Askers[Term]]:
        if term.namespace_selector.requirements is not None:
            yield self._wide
            return
        for namespace in term.namespaces:
            yield self._within.setdefault(namespace, Askers())

    def _price(self, term: Term, owner: str) -> int:
        """Nothing for what people write as a rule: a term within its namespace that names a label's value."""
        requirements = term.selector.requirements or ()
        own = term.namespace_selector.requirements is None and term.namespaces <= {owner}
        if own and (narrow := narrowest(requirements)):
            askers = self._within.get(owner)
            if askers is None or askers.crowd(narrow) < ALIKE:
                return 0
        return 1 + len(requirements) + len(term.namespace_selector.requirements or ()) + len(term.namespaces)
