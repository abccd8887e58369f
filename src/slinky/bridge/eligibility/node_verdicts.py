"""What depends on the node alone, judged once for all pods that say the same.

Comes in: nodes as they change, and what pods say of them. Goes out: for each such `Shape` the nodes that are refused, and for a spread constraint the nodes that count. What must stay true: an answer holds for the nodes as they are; a
node's heartbeat changes nothing, another label, taint, cordon or declared feature is judged anew for that node only; the answers kept have a limit, the longest unused is dropped; an answer's version is another when it says something else, and no two answers have the same.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from slinky.bridge.eligibility.node_features import feature_refusal, features_needed
from slinky.bridge.eligibility.node_labels import Rules, follows, label_refusal, required_nodes, rules_of
from slinky.bridge.eligibility.spread import Constraint, domains_of
from slinky.bridge.eligibility.taints import is_cordoned_for_slurm, taint_refusal, taints_of, untolerated
from slinky.kube import Cache, Change, Node, Pod
from slinky.kube.objects import NodeSelector, Toleration

__all__ = ["NodeAnswer", "NodeVerdicts", "Shape", "name_refusal", "node_refusal", "shape_of"]

MOST_CELLS = 400_000  # shapes times nodes
LEAST_SHAPES = 16
MOST_DOMAINS = 64


class Shape(NamedTuple):
    """All that a pod says of nodes, but for the name of one that it is bound to."""

    selector: tuple[tuple[str, str], ...]
    required: NodeSelector | None
    tolerations: tuple[Toleration, ...]
    features: tuple[str, ...] = ()


def shape_of(pod: Pod) -> Shape:
    return Shape(tuple(sorted(pod.spec.node_selector.items())), required_nodes(pod), pod.spec.tolerations, features_needed(pod))


def node_refusal(pod: Pod, node: Node, *, comparing: bool = False) -> str:
    """The part that no other pod has a say in: name, cordon, taints, labels, declared features. Pure; empty where the node will do."""
    return name_refusal(pod, node.metadata.name) or NodeAnswer(shape_of(pod), comparing).judge(node)


def name_refusal(pod: Pod, node: str) -> str:
    named = pod.spec.node_name
    return f"node {node} is not {named}, which the pod names" if named and named != node else ""


class NodeVerdicts:
    """`relabelled()` is called when a node came, went or got another label."""

    def __init__(self, nodes: Cache[Node], *, comparing: bool = False) -> None:
        self._nodes = nodes
        self._comparing = comparing
        self._answers: dict[Shape, NodeAnswer] = {}
        self._domains: dict[tuple[Shape, str, bool, bool, tuple[str, ...]], dict[str, str]] = {}
        self._versions = itertools.count(1)
        self.changes = 0  # of nodes, as far as they are judged here
        self.judged = 0  # nodes times shapes, in all
        self.relabelled: Callable[[], None] = lambda: None
        nodes.subscribe(self._changed)

    def of(self, pod: Pod) -> Mapping[str, str]:
        """The nodes that are refused, with the reason. Shared and live: to be read at once, and not to be changed."""
        return self.answer(shape_of(pod)).refused

    def answer(self, shape: Shape) -> "NodeAnswer":
        answer = self._answers.pop(shape, None)
        if answer is None:
            answer = NodeAnswer(shape, self._comparing)
            answer.version = next(self._versions)
            for node in self._nodes.list():
                answer.note(node)
            self.judged += len(self._nodes)
            while len(self._answers) >= max(LEAST_SHAPES, MOST_CELLS // (len(self._nodes) or 1)):
                del self._answers[next(iter(self._answers))]
        self._answers[shape] = answer  # the last in order is the last used
        return answer

    def domains(self, pod: Pod, constraint: Constraint, keys: tuple[str, ...]) -> Mapping[str, str]:
        """The nodes that count for a pod's spread constraint, with their domains."""
        shape = shape_of(pod)
        kind = (shape, constraint.topology_key, constraint.by_affinity, constraint.by_taints, keys)
        found = self._domains.pop(kind, None)
        if found is None:
            answer = self._answers.get(shape) or NodeAnswer(shape, self._comparing)
            found = domains_of(constraint, keys, self._nodes.list(), lambda node: answer.counts(node, constraint))
            if len(self._domains) >= MOST_DOMAINS:
                del self._domains[next(iter(self._domains))]
        self._domains[kind] = found
        return found

    def _changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        same_labels = old is not None and new is not None and old.metadata.labels == new.metadata.labels
        if same_labels and old and new and _said(old) == _said(new):
            return
        self._domains.clear()
        self.changes += 1
        self.judged += len(self._answers)
        for answer in self._answers.values():
            before = answer.refused.get(change.key.name)
            answer.forget(change.key.name)
            if new is not None:
                answer.note(new)
            if answer.refused.get(change.key.name) != before:
                answer.version = next(self._versions)
        if not same_labels:
            self.relabelled()


def _said(node: Node) -> object:
    return node.spec.taints, node.spec.unschedulable, is_cordoned_for_slurm(node), node.status.declared_features


class NodeAnswer:
    """One shape's nodes.

    *Invariants:* `nodeSelector` is not repeated in each term of the node affinity, so that a node costs
    their sum and not their product. Whether a node follows both is worked out once, however many spread
    constraints ask.
    """

    __slots__ = ("_affinity", "_comparing", "_features", "_follows", "_selector", "_tolerations", "refused", "version")

    def __init__(self, shape: Shape, comparing: bool) -> None:
        self._selector: Rules | None = rules_of(dict(shape.selector), None)
        self._affinity: Rules | None = rules_of({}, shape.required)
        self._follows: dict[str, bool] = {}  # of nodes that a spread constraint asked about
        self._tolerations = shape.tolerations
        self._features = shape.features
        self._comparing = comparing
        self.version = 0
        self.refused: dict[str, str] = {}

    def judge(self, node: Node) -> str:
        return (
            taint_refusal(self._tolerations, node, comparing=self._comparing)
            or label_refusal(node, self._selector)
            or label_refusal(node, self._affinity)
            or feature_refusal(self._features, node)
        )

    def note(self, node: Node) -> None:
        if refusal := self.judge(node):
            self.refused[node.metadata.name] = refusal

    def forget(self, name: str) -> None:
        """The node has changed, or is gone."""
        self.refused.pop(name, None)
        self._follows.pop(name, None)

    def _is_followed_by(self, node: Node) -> bool:
        name = node.metadata.name
        found = self._follows.get(name)
        if found is None:
            found = self._follows[name] = follows(node, self._selector) and follows(node, self._affinity)
        return found

    def counts(self, node: Node, constraint: Constraint) -> bool:
        if constraint.by_affinity and not self._is_followed_by(node):
            return False
        return not constraint.by_taints or untolerated(taints_of(node), self._tolerations, comparing=self._comparing) is None
