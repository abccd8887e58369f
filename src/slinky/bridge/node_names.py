"""A node's name on either side: Kubernetes' Node and Slurm's node are one machine where the Node's label `slinky.slurm.net/slurm-nodename` says so, or where both have one name.

Comes in: the cache of Kubernetes' nodes. Goes out: Slurm's name for a Node, the Node for Slurm's name, and what is wrong where two Nodes claim one name. What must stay true: no answer is a guess: a name that two claim is nobody's, so that nothing is bound by it; asked for each
pod, and so from memory, and without labels at the cost of nothing.
"""

from collections.abc import Iterable, Mapping

from slinky.bridge.keys import SLURM_NODE_NAME
from slinky.bridge.room import Reasons
from slinky.kube import Cache, Change, Node

__all__ = ["NodeNames", "label_of"]


def label_of(node: Node | None) -> str | None:
    """What its label says; None where it has none. An empty one says that it goes by its own name."""
    said = node.metadata.labels.get(SLURM_NODE_NAME) if node is not None else None
    return said if said or said is None or node is None else node.metadata.name


class NodeNames:
    """Without a cache both sides have the same names. `version` is another when some answer may be."""

    def __init__(self, nodes: Cache[Node] | None = None) -> None:
        self.version = 0
        self._same = nodes is None
        self._nodes: set[str] = set()
        self._said: dict[str, str] = {}  # by Node, of those that have the label
        self._sayers: dict[str, set[str]] = {}  # by Slurm's name, who say it
        if nodes is not None:
            nodes.subscribe(self._changed)

    # Asking

    def in_kubernetes(self, name: str) -> str:
        """The Node that is Slurm's node of this name; "" where there is none, or several say that they are."""
        if self._same:
            return name
        claims = self._claims(name)
        return next(iter(claims)) if len(claims) == 1 else ""

    def in_slurm(self, node: str) -> str:
        """Slurm's name for a Node; "" where another claims it too."""
        if not self._said:
            return node
        name = self._said.get(node, node)
        return name if self._claims(name) <= {node} else ""

    def all_in_slurm(self, nodes: Mapping[str, str]) -> Mapping[str, str]:
        """What is said of Nodes, said of Slurm's."""
        if not self._said:
            return nodes
        found = {name: node for node in nodes if (name := self.in_slurm(node))}
        return Reasons(found, lambda name: nodes[found[name]])

    def why_unknown(self, name: str) -> str:
        """Why no Node is Slurm's node of this name."""
        claims = sorted(self._claims(name))
        if claims:
            return f"Slurm's node {name} is claimed by several Nodes of Kubernetes ({', '.join(claims)}), and so by none"
        return f"Slurm's node {name} is no node of Kubernetes"

    @property
    def said(self) -> Mapping[str, str]:
        """What labels say: Slurm's name by Node."""
        return self._said

    def problems(self, unknown: Iterable[str] = ()) -> dict[str, str]:
        """By Node, what is wrong with its name. `unknown` are names that Slurm does not have."""
        found: dict[str, str] = {}
        missing = set(unknown)
        for node, name in self._said.items():
            claims = self._claims(name)
            if len(claims) > 1:
                for claimant in claims:
                    others = " and ".join(sorted(claims - {claimant}))
                    found[claimant] = (
                        f"Node {claimant} {self._words(claimant, name)}, and so is {others}: no pod is bound to either of them until only one does"
                    )
            elif name in missing:
                found[node] = f"Node {node} {self._words(node, name)}, which Slurm does not have: no pod is sent here until it does"
        return found

    def _words(self, node: str, name: str) -> str:
        return f"is Slurm's node {name} by {f'its label {SLURM_NODE_NAME}' if node in self._said else 'its name'}"

    def _claims(self, name: str) -> set[str]:
        sayers = self._sayers.get(name, set())
        return sayers | {name} if name in self._nodes and name not in self._said else sayers

    # Being told

    def _changed(self, change: Change[Node]) -> None:
        node, said = change.key.name, label_of(change.new)
        is_there = change.new is not None
        if said == self._said.get(node) and is_there == (node in self._nodes):
            return
        self.version += 1
        if is_there:
            self._nodes.add(node)
        else:
            self._nodes.discard(node)
        if (before := self._said.pop(node, None)) is not None:
            self._sayers[before].discard(node)
            if not self._sayers[before]:
                del self._sayers[before]
        if said is not None:
            self._said[node] = said
            self._sayers.setdefault(said, set()).add(node)
