"""What depends on the node alone, judged once for all pods that say the same.

Comes in: nodes as they change, and what pods say of them. Goes out: for each such `Shape` the nodes that are refused, and for a spread constraint the nodes that count. What must stay true: an answer holds for the nodes as they are; a
node's heartbeat changes nothing; another label, taint, cordon or declared feature costs a shape that does not ask for it nothing, and one that does a few operations on masks, however many nodes there are; the answers kept have a limit, the longest unused is
dropped; an answer's version is another when it says something else, and no two answers have the same.
"""

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from slinky.bridge.bit_places import Named
from slinky.bridge.eligibility.node_features import feature_refusal, features_needed
from slinky.bridge.eligibility.node_labels import Rules, follows, label_refusal, required_nodes, rules_of
from slinky.bridge.eligibility.node_masks import NodeMasks, said_by
from slinky.bridge.eligibility.spread import Constraint, domains_of
from slinky.bridge.eligibility.taints import taint_refusal, taints_of, untolerated
from slinky.bridge.room import Reasons
from slinky.kube import Cache, Change, Key, Node, Pod
from slinky.kube.objects import NodeSelector, Toleration

__all__ = ["NodeAnswer", "NodeVerdicts", "Shape", "name_refusal", "node_refusal", "shape_of"]

MOST_SHAPES = 16_384
MOST_EVENTS = 256  # changes of nodes that are remembered: an answer that is older is worked out from all nodes' masks
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


class _Event(NamedTuple):
    """A change of a node: `keys` are the labels that differ, `said` whether something else does."""

    old: Node
    new: Node
    keys: frozenset[str]
    said: bool


class NodeVerdicts:
    """`relabelled()` is called when a node came, went or got another label, `regrouped()` when that or another change may make other nodes count for a spread."""

    def __init__(self, nodes: Cache[Node], *, comparing: bool = False) -> None:
        self._nodes = nodes
        self._comparing = comparing
        self._answers: dict[Shape, NodeAnswer] = {}
        self._domains: dict[tuple[Shape, str, bool, bool, tuple[str, ...]], dict[str, str]] = {}
        self._versions = itertools.count(1)
        self._events: deque[_Event | None] = deque(maxlen=MOST_EVENTS)  # None: a node came or went
        self.masks = NodeMasks()
        self.changes = 0  # of nodes, as far as they are judged here
        self.relabelled: Callable[[], None] = lambda: None
        self.regrouped: Callable[[], None] = lambda: None
        nodes.subscribe(self._changed)

    @property
    def judged(self) -> int:
        """What was looked at, in all: nodes, or kinds of nodes, for one shape of pods each."""
        return self.masks.steps

    def of(self, pod: Pod) -> Mapping[str, str]:
        """The nodes that are refused, with the reason. To be read at once."""
        return self.refused(self.answer(shape_of(pod)))

    def refused(self, answer: "NodeAnswer") -> Mapping[str, str]:
        """The same, of an answer; reasons are put into words where they are read."""
        return Reasons(Named(self.masks.slots, answer.mask), lambda name: self._words(answer, name))

    def answer(self, shape: Shape) -> "NodeAnswer":
        """As of now."""
        answer = self._answers.pop(shape, None)
        if answer is None:
            answer = NodeAnswer(shape, self._comparing)
            while len(self._answers) >= MOST_SHAPES:
                del self._answers[next(iter(self._answers))]
        self._answers[shape] = answer  # the last in order is the last used
        if not answer.version or answer.seen != self.changes:
            self._update(answer)
        return answer

    def _update(self, answer: "NodeAnswer") -> None:
        """Nodes have changed: those changes that do not concern the shape cost it no more than a look."""
        number = self.changes - answer.seen
        known = bool(answer.version) and number <= len(self._events)
        events = list(itertools.islice(reversed(self._events), number)) if known else [None]
        answer.seen = self.changes
        told = [event for event in events if event is None or event.said or not event.keys.isdisjoint(answer.keys)]
        if not told:
            return
        answer.forget()
        before, answer.mask = answer.mask, self._refused(answer)
        if not answer.version or before != answer.mask or any(event is None or self._says_other(answer, event) for event in told):
            answer.version = next(self._versions)

    @staticmethod
    def _says_other(answer: "NodeAnswer", event: _Event) -> bool:
        return answer.judge(event.old) != answer.judge(event.new)

    def _refused(self, answer: "NodeAnswer") -> int:
        taken = self.masks.following(answer.selector) & self.masks.following(answer.affinity)
        for mask, example in self.masks.alike():
            if mask & taken and answer.says_no(example):
                taken &= ~mask
        return self.masks.slots.everyone & ~taken

    def _words(self, answer: "NodeAnswer", name: str) -> str:
        node = self._nodes.by_key(Key("", name))
        return answer.judge(node) if node is not None else ""

    def domains(self, pod: Pod, constraint: Constraint, keys: tuple[str, ...]) -> Mapping[str, str]:
        """The nodes that count for a pod's spread constraint, with their domains."""
        shape = shape_of(pod)
        kind = (shape, constraint.topology_key, constraint.by_affinity, constraint.by_taints, keys)
        found = self._domains.pop(kind, None)
        if found is None:
            answer = self.answer(shape)
            found = domains_of(constraint, keys, self._nodes.list(), lambda node: answer.counts(node, constraint))
            if len(self._domains) >= MOST_DOMAINS:
                del self._domains[next(iter(self._domains))]
        self._domains[kind] = found
        return found

    def _changed(self, change: Change[Node]) -> None:
        name, new = change.key.name, change.new
        old = self.masks.seen(name)
        same_labels = old is not None and new is not None and old.metadata.labels == new.metadata.labels
        said = old is None or new is None or said_by(old) != said_by(new)
        if same_labels and not said:
            return
        if new is not None:
            self.masks.note(new)
        else:
            self.masks.drop(name)
        self._domains.clear()
        self.changes += 1
        if old is None or new is None:
            self._events.append(None)
        else:
            keys = {key for key, _ in old.metadata.labels.items() ^ new.metadata.labels.items()}
            self._events.append(_Event(old, new, frozenset(keys), said))
        self.regrouped()
        if not same_labels:
            self.relabelled()


class NodeAnswer:
    """One shape's nodes. `mask` has those that are refused, `keys` the labels that it asks for; `seen` is the number of the last change that it knows.

    *Invariants:* `nodeSelector` is not repeated in each term of the node affinity, so that a node costs
    their sum and not their product. Whether a node follows both is worked out once, however many spread
    constraints ask.
    """

    __slots__ = ("_comparing", "_features", "_follows", "_tolerations", "affinity", "keys", "mask", "seen", "selector", "version")

    def __init__(self, shape: Shape, comparing: bool) -> None:
        self.selector: Rules | None = rules_of(dict(shape.selector), None)
        self.affinity: Rules | None = rules_of({}, shape.required)
        self.keys = frozenset(one.key for rule in (*(self.selector or ()), *(self.affinity or ())) for one in rule.labels)
        self._follows: dict[str, bool] = {}  # of nodes that a spread constraint asked about
        self._tolerations = shape.tolerations
        self._features = shape.features
        self._comparing = comparing
        self.version = 0
        self.seen = 0
        self.mask = 0

    def judge(self, node: Node) -> str:
        return (
            taint_refusal(self._tolerations, node, comparing=self._comparing)
            or label_refusal(node, self.selector)
            or label_refusal(node, self.affinity)
            or feature_refusal(self._features, node)
        )

    def says_no(self, node: Node) -> bool:
        """To what the node says besides its labels."""
        return bool(taint_refusal(self._tolerations, node, comparing=self._comparing) or feature_refusal(self._features, node))

    def forget(self) -> None:
        """Nodes have changed in what the shape asks for."""
        self._follows.clear()

    def _is_followed_by(self, node: Node) -> bool:
        name = node.metadata.name
        found = self._follows.get(name)
        if found is None:
            found = self._follows[name] = follows(node, self.selector) and follows(node, self.affinity)
        return found

    def counts(self, node: Node, constraint: Constraint) -> bool:
        if constraint.by_affinity and not self._is_followed_by(node):
            return False
        return not constraint.by_taints or untolerated(taints_of(node), self._tolerations, comparing=self._comparing) is None
