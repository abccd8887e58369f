"""Which nodes refuse a pod for its volumes: judged once for all pods whose volumes say the same.

*Invariants:* an answer refuses the nodes that a `Judgement` made now would refuse, in words that fit all pods
that share it. After a change only those nodes are judged again that it can concern, and only for the answers
that it can concern. The number of answers is limited; the one that was not used for longest is dropped. An
answer has another version when other nodes are refused, and no two answers have the same.
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping

from slinky.bridge.volumes.claims import Judgement
from slinky.bridge.volumes.live import Volumes
from slinky.bridge.volumes.stock import Listener
from slinky.kube import Cache, Change, Key, Node, Pod

__all__ = ["VolumeAnswer", "VolumeVerdicts"]

LEAST_ANSWERS = 64
MOST_CELLS = 400_000  # nodes that are refused, of all answers


class VolumeAnswer:
    """The nodes that refuse, with the reason. `refused` is replaced, never changed."""

    __slots__ = ("by_users", "is_outdated", "refused", "sizes", "stale", "version")

    def __init__(self, sizes: Mapping[str, set[int]], *, by_users: bool) -> None:
        self.refused: Mapping[str, str] = {}
        self.version = 0
        self.sizes = sizes  # of the volumes to be chosen or made, by class
        self.by_users = by_users  # what other pods have on a node matters
        self.is_outdated = True  # for all nodes
        self.stale: set[str] = set()  # nodes


class VolumeVerdicts(Listener):
    """Over the storage that `volumes` knows."""

    def __init__(self, volumes: Volumes, nodes: Cache[Node]) -> None:
        self._volumes = volumes
        self._nodes = nodes
        self._answers: dict[Hashable, VolumeAnswer] = {}
        self._versions = itertools.count(1)
        self._nothing = VolumeAnswer({}, by_users=False)
        self.judged = 0  # nodes, for all answers
        volumes.stock.listeners.append(self)
        nodes.subscribe(self._node_changed)

    def answer(self, pod: Pod) -> VolumeAnswer | None:
        """None where there is no answer to share: storage is not known yet."""
        if not self._volumes.is_known:
            return None
        judgement = Judgement(pod, self._volumes.stock, named=False)
        facts = judgement.facts()
        if facts is None:
            return self._nothing
        found = self._answers.pop(facts, None)
        if found is None:
            found = VolumeAnswer(judgement.sizes, by_users=not judgement.waits and judgement.minds_users)
            while len(self._answers) >= max(LEAST_ANSWERS, MOST_CELLS // (len(self._nodes) or 1)):
                del self._answers[next(iter(self._answers))]
        self._answers[facts] = found  # the last in order is the last used
        if found.is_outdated:
            self._replace(found, {node.metadata.name: judgement.refusal(node) for node in self._nodes.list()})
        elif found.stale:
            nodes = ((name, self._nodes.by_key(Key("", name))) for name in found.stale)
            again = {name: judgement.refusal(node) if node else "" for name, node in nodes}
            self._replace(found, {**found.refused, **again})
        return found

    def _replace(self, found: VolumeAnswer, said: Mapping[str, str]) -> None:
        self.judged += len(self._nodes) if found.is_outdated else len(found.stale)
        refused = {name: why for name, why in said.items() if why}
        if not found.version or refused.keys() != found.refused.keys():
            found.version = next(self._versions)
        found.refused, found.is_outdated, found.stale = refused, False, set()

    # Being told

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            for found in self._answers.values():
                found.stale.add(change.key.name)

    def on_node(self, node: str, /) -> None:
        for found in self._answers.values():
            if found.by_users:
                found.stale.add(node)

    def on_shelf(self, class_name: str, /) -> None:
        _outdate(self._of_class(class_name))

    def on_room(self, class_name: str, low: int, high: int, /) -> None:
        for found in self._of_class(class_name):
            found.is_outdated |= any(low < size <= high for size in found.sizes[class_name])

    def on_class(self, _: str, /) -> None:
        _outdate(self._answers.values())  # volumes of old plugins count by their class for other drivers

    def on_driver(self) -> None:
        _outdate(self._answers.values())

    def _of_class(self, class_name: str) -> Iterator[VolumeAnswer]:
        return (found for found in self._answers.values() if class_name in found.sizes)


def _outdate(answers: Iterable[VolumeAnswer]) -> None:
    for found in answers:
        found.is_outdated = True
