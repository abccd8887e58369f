"""What Kubernetes says about each node: its rules (labels, taints, other pods, volumes) and its amounts, brought together.

Comes in: the surroundings and the ledger, both live. Goes out: for a pod the nodes that are not for it, and why. What must stay true: before a job is submitted, amounts count that Slurm does not know of; when its pods are to be bound, the ledger looks at all amounts
by itself, as what is merely in use now may be free in a moment. Opinions are compared by the nodes that they name.
"""

from collections.abc import Hashable, Mapping

from slinky.bridge.eligibility import Surroundings
from slinky.bridge.ledger import Ledger
from slinky.kube import Pod

__all__ = ["KubernetesJudgement", "Opinion"]


class Opinion:
    """Which nodes refuse a pod. `sources`: node → reason; where two have one, the later counts. `is_fleeting`: some refuse it only for what other pods there are or take.

    *Invariants:* what it says is read at once, as it is live. Opinions with equal `nodes` refuse the same nodes; those with
    equal `words` also for the same reasons. One without `nodes` is a pod's own, and like no other.
    """

    __slots__ = ("is_fleeting", "nodes", "sources", "words")

    def __init__(
        self,
        *sources: Mapping[str, str],
        is_fleeting: bool = False,
        nodes: Hashable = None,
        words: Hashable = None,
    ) -> None:
        self.sources = sources
        self.is_fleeting = is_fleeting
        self.nodes = nodes
        self.words = words


class KubernetesJudgement:
    def __init__(self, surroundings: Surroundings, ledger: Ledger) -> None:
        self._surroundings = surroundings
        self._ledger = ledger
        self.prepare = surroundings.prepare
        self.refusal = surroundings.refusal
        self.assume = surroundings.assume
        self.withdraw = surroundings.withdraw
        self.place = surroundings.place
        self.refusal_since = surroundings.refusal_since
        self.in_flight = surroundings.in_flight
        self.interference = surroundings.interference

    def opinion(self, pod: Pod) -> Opinion:
        amounts, rules = self._ledger.answers(pod), self._surroundings.answer(pod)
        fleeting = bool(amounts.short) or rules.by_pods
        return Opinion(
            self._ledger.refusals(pod),
            rules.refused,
            is_fleeting=fleeting,
            nodes=(amounts.nodes, rules.nodes) if rules.version else None,
            words=(amounts.version, rules.version),
        )
