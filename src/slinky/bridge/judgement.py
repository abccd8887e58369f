"""What Kubernetes says about each node: its rules (labels, taints, other pods, volumes) and its amounts, brought together.

Comes in: the surroundings and the ledger, both live. Goes out: for a pod the nodes that are not for it, and why. What must stay true: before a job is submitted, amounts count that Slurm does not know of; when its pods are to be bound, the ledger looks at all amounts
by itself, as what is merely in use now may be free in a moment.
"""

from collections.abc import Mapping

from slinky.bridge.eligibility import Surroundings
from slinky.bridge.ledger import Ledger
from slinky.kube import Pod

__all__ = ["KubernetesJudgement"]


class KubernetesJudgement:
    def __init__(self, surroundings: Surroundings, ledger: Ledger) -> None:
        self._surroundings = surroundings
        self._ledger = ledger
        self.refusal = surroundings.refusal
        self.assume = surroundings.assume
        self.withdraw = surroundings.withdraw
        self.place = surroundings.place
        self.refusal_since = surroundings.refusal_since

    def refusals(self, pod: Pod) -> Mapping[str, str]:
        amounts, rules = self._ledger.refusals(pod), self._surroundings.refusals(pod)
        return {**amounts, **rules} if amounts else rules

    def is_fleeting(self, pod: Pod) -> bool:
        """Whether a node refuses it for what other pods there are or take: that may change when they do."""
        refused = self._surroundings.refusals(pod)
        return self._ledger.is_short(pod) or (bool(refused) and len(refused) > len(self._surroundings.node_refusals(pod)))
