"""What Kubernetes says about each node: its rules (labels, taints, other pods, volumes) and its amounts, brought together.

Comes in: the surroundings and the ledger, both live. Goes out: for a pod the nodes that are not for it, and why. What must stay true: before a job is submitted, amounts count that Slurm does not know of; when its pods are to be bound, the ledger looks at all amounts
by itself, as what is merely in use now may be free in a moment. Pods of one shape share one opinion, which is another object only when it says something else.
"""

from collections.abc import Mapping

from slinky.bridge.eligibility import Surroundings
from slinky.bridge.ledger import Ledger
from slinky.kube import Pod

__all__ = ["KubernetesJudgement", "Opinion"]

MOST_OPINIONS = 1024


class Opinion:
    """Which nodes refuse a pod. `sources`: node → reason; where two have one, the later counts. `is_fleeting`: some refuse it only for what other pods there are or take.

    *Invariants:* what it says is read at once, as it is live. As a key it stands for itself: while a pod gets the same
    object, nothing has changed for it.
    """

    __slots__ = ("is_fleeting", "sources")

    def __init__(self, *sources: Mapping[str, str], is_fleeting: bool = False) -> None:
        self.sources = sources
        self.is_fleeting = is_fleeting


class KubernetesJudgement:
    def __init__(self, surroundings: Surroundings, ledger: Ledger) -> None:
        self._surroundings = surroundings
        self._ledger = ledger
        self._opinions: dict[tuple[int, int], Opinion] = {}
        self.refusal = surroundings.refusal
        self.assume = surroundings.assume
        self.withdraw = surroundings.withdraw
        self.place = surroundings.place
        self.refusal_since = surroundings.refusal_since
        self.in_flight = surroundings.in_flight
        self.interference = surroundings.interference

    def opinion(self, pod: Pod) -> Opinion:
        amounts, rules = self._ledger.answers(pod), self._surroundings.answer(pod)
        versions = amounts.version, rules.version
        found = self._opinions.get(versions)
        if found is None:
            fleeting = bool(amounts.short) or rules.by_pods
            found = Opinion(self._ledger.refusals(pod), rules.refused, is_fleeting=fleeting)
            if rules.version:
                if len(self._opinions) >= MOST_OPINIONS:
                    self._opinions.clear()
                self._opinions[versions] = found
        return found
