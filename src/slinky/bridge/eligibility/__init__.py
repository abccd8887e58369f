"""Which nodes Kubernetes accepts for a pod, resources aside: the same answer as kube-scheduler's own filters give.

`Surroundings` is the live judge on caches; `node_refusal`, `label_rules` and `within_gang` are pure. `docs/bridge.md` says what is judged.
"""

from slinky.bridge.eligibility.gang import GangRules, within_gang
from slinky.bridge.eligibility.in_flight import InFlight, interacts, pinned_to
from slinky.bridge.eligibility.neighbours import Judge
from slinky.bridge.eligibility.node_labels import Alternative, Rules, label_rules
from slinky.bridge.eligibility.node_verdicts import node_refusal
from slinky.bridge.eligibility.selectors import Requirement
from slinky.bridge.eligibility.surroundings import Filter, Surroundings

__all__ = [
    "Alternative",
    "Filter",
    "GangRules",
    "InFlight",
    "Judge",
    "Requirement",
    "Rules",
    "Surroundings",
    "interacts",
    "label_rules",
    "node_refusal",
    "pinned_to",
    "within_gang",
]
