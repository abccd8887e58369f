"""What Kubernetes accepts now: every filter but resources, on live caches.

Comes in: the caches of nodes, of all pods and of namespaces, and what we have bound ourselves a moment ago. Goes out: for a pod and a node the reason why kube-scheduler would not place it there, or nothing. What must stay true: what
kube-scheduler refuses is refused here, what it accepts (resources aside) is accepted; a pod counts from the moment we bind it until it is over or gone; the pod in question never stands in its own way. What depends on nodes only is
judged once for all pods that say the same, and again only for nodes that changed; the rest goes by counts that follow every change, and is judged once for all pods that ask the same of other pods, until one comes or goes.
"""

import itertools
from collections import ChainMap
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol
from weakref import WeakSet

from slinky.bridge.eligibility.in_flight import InFlight, interference
from slinky.bridge.eligibility.neighbours import Judge, neighbour_judge, query_of
from slinky.bridge.eligibility.node_verdicts import NodeVerdicts, Shape, name_refusal, node_refusal, shape_of
from slinky.bridge.eligibility.ports import PortsInUse, host_ports, port_refusal
from slinky.bridge.eligibility.residents import Resident, Residents
from slinky.bridge.eligibility.selectors import SelectorError
from slinky.bridge.eligibility.spread import Constraint, constraints_of, numbers_of, spread_judge, spread_query
from slinky.bridge.eligibility.terms import Reach, Term, affinity_terms, anti_affinity_terms, forbidden_terms, reach_of
from slinky.bridge.pacing import Pace
from slinky.kube import Cache, Change, Key, Namespace, Node, Pod

__all__ = ["Answer", "Filter", "Placed", "Surroundings"]

OWN = 0  # the version of an answer that is not shared
MOST_ROUNDS = 16
MOST_REACHES = 1024
MOST_CELLS = 400_000  # of answers where other pods have a say: nodes that are refused for pods, and some for the answer itself
CELLS_EACH = 50
MOST_WITH_VOLUMES = 4096  # answers that bring two others together
Filter = Callable[[Pod], Judge | None]  # a pod → who judges nodes for it, or nobody


class Answer(NamedTuple):
    """The nodes that refuse a pod, with the reason: shared and live, to be read at once. `by_pods`: some only for the pods that are there. `version` is another when the answer is, words included, and 0 where the answer is this pod's own. `nodes` stands for the nodes alone: answers that are equal in it refuse the same ones; None where the answer is this pod's own."""

    refused: Mapping[str, str]
    by_pods: bool
    version: int
    nodes: Hashable


class VolumeAnswer(Protocol):
    """The nodes that refuse a pod for its volumes; `version` as in `Answer`."""

    refused: Mapping[str, str]
    version: int


class VolumeJudge(Protocol):
    """What volumes alone say of pods, shared by all whose volumes say the same; None where that cannot be."""

    def answer(self, pod: Pod) -> VolumeAnswer | None: ...


class _Company(NamedTuple):
    """What an answer rests on where other pods have a say, and the answer."""

    versions: tuple[int, ...]
    more: dict[str, str]
    answer: Answer

    @property
    def cells(self) -> int:
        return CELLS_EACH + len(self.more)


class Placed(NamedTuple):
    """Whether pods could be placed: `refusal` says which could not, and why; `assumed` are those that count as placed from now on and did not before; `version` is that of the nodes by which it was judged."""

    refusal: tuple[Pod, str] | None = None
    assumed: tuple[Pod, ...] = ()
    version: int = 0


class _Verdicts:
    """What nodes alone say of pods: worked out once for all pods of one template. To be used at once, while the pods are held."""

    def __init__(self, verdicts: NodeVerdicts) -> None:
        self._verdicts = verdicts
        self._known: dict[tuple[object, ...], Mapping[str, str]] = {}

    def of(self, pod: Pod) -> Mapping[str, str]:
        spec = pod.spec
        parts = (spec.node_selector, spec.affinity, spec.tolerations, spec.containers, spec.init_containers)
        template = (*map(id, parts), spec.host_network, spec.host_users)
        found = self._known.get(template)
        if found is None:
            found = self._known[template] = self._verdicts.of(pod)
        return found


class Surroundings:
    """`pods` are the caches that together hold all pods. `release` is Kubernetes'; `comparing` says that tolerations may use Lt and Gt.

    `filters` are asked after the built-in ones: volumes, for one. `answer` asks `volumes` for what
    volumes say.
    """

    def __init__(
        self,
        pods: Iterable[Cache[Pod]],
        nodes: Cache[Node],
        namespaces: Cache[Namespace],
        *,
        release: tuple[int, int] = (1, 36),
        comparing: bool = False,
    ) -> None:
        self._nodes = nodes
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._release = release
        self._reaches: dict[Term, Reach] = {}
        self._comparing = comparing
        self._verdicts = NodeVerdicts(nodes, comparing=comparing)
        self._residents = Residents(self._label_of)
        self._ports = PortsInUse()
        self._assumed: dict[str, str] = {}  # pod's UID → node, until the watch shows it there
        self._versions = itertools.count(-1, -1)  # never one of `NodeVerdicts`'
        self._companies: dict[tuple[Shape, object], _Company] = {}
        self._cells = 0  # of them
        self._namespace_version = 0
        self.filters: list[Filter] = []
        self.volumes: VolumeJudge | None = None
        self._with_volumes: dict[tuple[int, int], Answer] = {}
        self._in_flight: WeakSet[InFlight] = WeakSet()
        self._verdicts.relabelled = self._relabelled
        self._verdicts.regrouped = self._residents.forget_spreads
        namespaces.subscribe(self._namespace_changed)
        for cache in pods:
            cache.subscribe(self._pod_changed)

    # Asking

    @property
    def judged(self) -> int:
        """How often a node was judged for a shape of pods, by what the node says itself."""
        return self._verdicts.judged

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes that there are."""
        return [node.metadata.name for node in self._nodes.list()]

    def refusal(self, pod: Pod, node: str) -> str:
        """Empty where Kubernetes accepts the pod there now."""
        return self._refusal(pod, node, self.filters)

    def _refusal(self, pod: Pod, node: str, filters: Sequence[Filter] = ()) -> str:
        return self._node_refusal(pod, node, _Verdicts(self._verdicts)) or self._pods_refusal(pod, node, filters)

    async def prepare(self, pod: Pod, pace: Pace) -> None:
        """Count what `answer` will ask of other pods, in short turns: the first count of many pods takes long."""
        try:
            near, apart, spreads = affinity_terms(pod), anti_affinity_terms(pod), constraints_of(pod)
        except SelectorError:
            return
        for terms in (*((term,) for term in apart), *((near,) if near else ())):
            query = query_of(terms, self._reach)
            await self._residents.prepare(query, pace)
            for term in terms:
                self._residents.tally(query).domains(term.topology_key, self._label_of)
                await pace.step()
        keys = tuple(sorted({constraint.topology_key for constraint in spreads}))
        for constraint in spreads:
            await self._residents.prepare(spread_query(pod.metadata.namespace, constraint), pace)
            self._numbers(pod, constraint, keys)
            await pace.step()

    def answer(self, pod: Pod) -> Answer:
        """What `refusals` says of a pod that waits, kept for all pods that ask the same of nodes and of other pods."""
        if pod.spec.node_name or self._residents.get(pod.metadata.uid) is not None:
            return self._uncommon(pod)
        if not pod.spec.volumes:
            return self._without_volumes(pod)
        volumes = self.volumes.answer(pod) if self.volumes is not None else None
        if volumes is None:
            return self._uncommon(pod)
        rest = self._without_volumes(pod)
        if not volumes.refused or not rest.version:
            return rest
        versions = rest.version, volumes.version
        found = self._with_volumes.pop(versions, None)
        if found is None:
            slots, rules = self._verdicts.masks.slots, rest.refused
            mask = slots.mask(rules) | slots.mask(volumes.refused)
            both: Mapping[str, str] = ChainMap(rules, volumes.refused)  # type: ignore[arg-type]
            found = Answer(both, True, next(self._versions), (slots.epoch, mask))
            while len(self._with_volumes) >= MOST_WITH_VOLUMES:
                del self._with_volumes[next(iter(self._with_volumes))]
        self._with_volumes[versions] = found  # the last in order is the last used
        return found

    def _without_volumes(self, pod: Pod) -> Answer:
        """The part without its volumes. Where that cannot be shared: the pod's own answer, with its volumes."""
        shape = shape_of(pod)
        try:
            company = self._asked_of_pods(pod)
        except SelectorError:
            return self._uncommon(pod)
        nodes = self._verdicts.answer(shape)
        epoch = self._verdicts.masks.slots.epoch
        if company is None:
            return Answer(self._verdicts.refused(nodes), False, nodes.version, (epoch, nodes.mask))
        versions = (nodes.version, self._verdicts.changes, self._residents.version, self._namespace_version)
        found = self._companies.pop((shape, company), None)
        self._cells -= found.cells if found is not None else 0
        if found is None or found.versions != versions:
            rules = self._verdicts.refused(nodes)
            more = self._refused_by_pods(pod, rules, ())
            mask = nodes.mask | self._verdicts.masks.slots.mask(more)
            same = found is not None and (found.versions[0], found.more, found.answer.nodes) == (nodes.version, more, (epoch, mask))
            version = found.answer.version if found is not None and same else next(self._versions)
            found = _Company(versions, more, Answer(ChainMap(more, rules), bool(more), version, (epoch, mask)))  # type: ignore[arg-type]
            while self._companies and self._cells + found.cells > MOST_CELLS:
                self._cells -= self._companies.pop(next(iter(self._companies))).cells
        self._cells += found.cells
        self._companies[shape, company] = found  # the last in order is the last used
        return found.answer

    def _uncommon(self, pod: Pod) -> Answer:
        """Of a pod whose answer is its own: one that is on a node, say."""
        rules = self._rules(pod)
        more = self._refused_by_pods(pod, rules, self.filters)
        return Answer(ChainMap(more, rules), bool(more), OWN, None)  # type: ignore[arg-type]

    def _asked_of_pods(self, pod: Pod) -> object | None:
        """All that matters of it to what it and other pods ask of one another; None where that is nothing. Raises SelectorError."""
        meta = pod.metadata
        ports, near, apart, spread = host_ports(pod), affinity_terms(pod), anti_affinity_terms(pod), constraints_of(pod)
        against = self._residents.forbidding(meta.namespace, meta.labels, self._namespaces.get(meta.namespace, {}))
        if not (ports or near or apart or spread or against):
            return None
        selectors = [*(term.selector for term in near), *(constraint.selector for constraint in spread)]
        itself = tuple(selector.matches(meta.labels) for selector in selectors)
        return meta.namespace, ports, near, apart, spread, frozenset(term for term, _ in against), itself

    def refusals(self, pod: Pod) -> dict[str, str]:
        """All nodes that Kubernetes would refuse now, each with the reason."""
        refused = self.node_refusals(pod)
        return refused | self._refused_by_pods(pod, refused, self.filters)

    def _refused_by_pods(self, pod: Pod, refused: Mapping[str, str], filters: Sequence[Filter]) -> dict[str, str]:
        """Of the nodes that are not refused already, those that are for what other pods there are, and by `filters`."""
        more: dict[str, str] = {}
        with self._without(pod):
            if judges := self._judges(pod, filters):
                already = frozenset(refused)
                for node in self._nodes.list():
                    name = node.metadata.name
                    if name not in already and (said := next((said for judge in judges if (said := judge(node))), "")):
                        more[name] = said
        return more

    def node_refusal(self, pod: Pod, node: Node) -> str:
        """The part that no other pod has a say in: name, cordon, taints, labels, declared features."""
        return node_refusal(pod, node, comparing=self._comparing)

    def node_refusals(self, pod: Pod) -> dict[str, str]:
        """The same for all nodes."""
        return dict(self._rules(pod))

    def _rules(self, pod: Pod) -> Mapping[str, str]:
        """The same, put into words where they are read."""
        refused = self._verdicts.of(pod)
        if not pod.spec.node_name:
            return refused
        return {**refused, **{name: said for name in self.nodes if (said := name_refusal(pod, name))}}

    def first_refusal(self, placements: Sequence[tuple[Pod, str]]) -> tuple[Pod, str] | None:
        """Whether all of these can be placed, one after the other in some order, as kube-scheduler would: None, or one that cannot, and why. `filters` are not asked: the volume binder looks at volumes again before it binds."""
        assumed: list[Pod] = []
        steps = self._placing(placements, assumed)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            found: tuple[Pod, str] | None = end.value
            return found
        finally:
            for pod in assumed:
                self.withdraw(pod)

    async def place(self, placements: Sequence[tuple[Pod, str]], pace: Pace) -> Placed:
        """The same in short turns. Where all can be placed, they are assumed to be there from now on, so that nothing that is judged meanwhile gets in their way; where one cannot, none is."""
        assumed: list[Pod] = []
        version, steps, done = self._verdicts.changes, self._placing(placements, assumed), False
        try:
            while True:
                next(steps)
                await pace.step()
        except StopIteration as end:
            refusal: tuple[Pod, str] | None = end.value
            done = refusal is None
            return Placed(refusal, tuple(assumed) if done else (), version)
        finally:
            if not done:
                for pod in assumed:
                    self.withdraw(pod)

    def refusal_since(self, placed: Placed, placements: Sequence[tuple[Pod, str]]) -> tuple[Pod, str] | None:
        """Whether a node has changed since they were placed so that it refuses its pod now: cordoned, tainted, relabelled or gone."""
        if placed.version == self._verdicts.changes:
            return None
        verdicts = _Verdicts(self._verdicts)
        for pod, node in placements:
            if refusal := self._node_refusal(pod, node, verdicts):
                return pod, refusal
        return None

    def _placing(self, placements: Sequence[tuple[Pod, str]], assumed: list[Pod]) -> Generator[None, None, tuple[Pod, str] | None]:
        """Yields after each pod. `assumed` gets those that were not counted yet. What depends on the node alone is judged first. What is refused for want of other pods is tried again after those were placed, forwards and backwards in turn, so that chains are
        found either way; after `MOST_ROUNDS` it is refused: the work stays linear whatever the pods ask."""
        verdicts = _Verdicts(self._verdicts)
        for pod, node in placements:
            if refusal := self._node_refusal(pod, node, verdicts):
                return pod, refusal
            yield
        waiting = list(placements)
        refused: tuple[Pod, str] | None = None
        for _ in range(MOST_ROUNDS):
            left: list[tuple[Pod, str]] = []
            refused = None
            for pod, node in waiting:
                if said := self._pods_refusal(pod, node):
                    left.append((pod, node))
                    refused = refused or (pod, said)
                elif self._residents.get(pod.metadata.uid) is None:
                    self.assume(pod, node)
                    assumed.append(pod)
                yield
            if not left or len(left) == len(waiting):
                break
            waiting = left[::-1]
        return refused

    def _node_refusal(self, pod: Pod, node: str, verdicts: "_Verdicts") -> str:
        if self._nodes.by_key(Key("", node)) is None:
            return f"Kubernetes has no node {node}"
        return name_refusal(pod, node) or verdicts.of(pod).get(node, "")

    def _pods_refusal(self, pod: Pod, node: str, filters: Sequence[Filter] = ()) -> str:
        """What other pods, or `filters`, have against it there."""
        known = self._nodes.by_key(Key("", node))
        if known is None:
            return f"Kubernetes has no node {node}"
        with self._without(pod):
            return next((said for judge in self._judges(pod, filters) if (said := judge(known))), "")

    def in_flight(self) -> InFlight:
        """For pods whose job is in Slurm, and whose node is not known yet."""
        found = InFlight(self._label_of)
        self._in_flight.add(found)
        return found

    def interference(self, pod: Pod, node: str, others: InFlight) -> str:
        """Why the pod must wait for pods in flight; `node` is the only one that is left for it, if there is one."""
        return interference(pod, node, others, self._residents, self._namespaces, self._numbers, self._reach)

    # Being told

    def _relabelled(self) -> None:
        self._residents.nodes_changed()
        for others in self._in_flight:
            others.pods.nodes_changed()

    def assume(self, pod: Pod, node: str) -> None:
        """We are binding it: it counts from now on. Where an earlier Binding to another node came to nothing, no longer there."""
        uid = pod.metadata.uid
        if uid in self._assumed or self._residents.get(uid) is None:
            self._assumed[uid] = node
            self._settle(pod)

    def withdraw(self, pod: Pod) -> None:
        """The binding failed."""
        if self._assumed.pop(pod.metadata.uid, None) is not None:
            self._leave(pod.metadata.uid)

    def _judges(self, pod: Pod, filters: Sequence[Filter]) -> list[Judge]:
        found = [
            self._port_judge(pod),
            neighbour_judge(pod, self._residents, self._namespaces, self._label_of, self._reach),
            spread_judge(pod, self._residents, lambda constraint, keys: self._counting(pod, constraint, keys)),
            *(one(pod) for one in filters),
        ]
        return [judge for judge in found if judge is not None]

    def _port_judge(self, pod: Pod) -> Judge | None:
        wanted = host_ports(pod)
        if not wanted:
            return None

        def judge(node: Node) -> str:
            name = node.metadata.name
            taken = self._ports.taken(name, wanted)
            return port_refusal(name, *taken) if taken else ""

        return judge

    def _reach(self, term: Term) -> Reach:
        found = self._reaches.get(term, self._reaches)  # None is an answer
        if found is self._reaches:
            if len(self._reaches) >= MOST_REACHES:
                self._reaches.clear()
            found = self._reaches[term] = reach_of(term, self._namespaces.items(), self._release)
        return found  # type: ignore[return-value]

    def _counting(self, pod: Pod, constraint: Constraint, keys: tuple[str, ...]) -> Mapping[str, str]:
        return self._verdicts.domains(pod, constraint, keys)

    def _numbers(self, pod: Pod, constraint: Constraint, keys: tuple[str, ...]) -> Mapping[str, int]:
        return numbers_of(pod, constraint, self._residents, self._counting(pod, constraint, keys))

    @contextmanager
    def _without(self, pod: Pod) -> Iterator[None]:
        resident = self._residents.get(pod.metadata.uid)
        if resident is None:
            yield
            return
        self._leave(resident.uid)
        try:
            yield
        finally:
            self._enter(resident)

    def _label_of(self, node: str, key: str) -> str | None:
        known = self._verdicts.masks.seen(node)
        return known.metadata.labels.get(key) if known else None

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        if change.old is None or change.new is None or change.old.metadata.labels != change.new.metadata.labels:
            self._namespace_version += 1
            self._reaches.clear()
        if change.new is None:
            self._namespaces.pop(change.key.name, None)
        else:
            self._namespaces[change.key.name] = change.new.metadata.labels

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            if change.old is not None:
                self._assumed.pop(change.old.metadata.uid, None)
                self._leave(change.old.metadata.uid)
            return
        if pod.is_over:
            self._assumed.pop(pod.metadata.uid, None)
            self._leave(pod.metadata.uid)
            return
        if pod.spec.node_name:
            self._assumed.pop(pod.metadata.uid, None)
        self._settle(pod)

    def _settle(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        node = pod.spec.node_name or self._assumed.get(uid, "")
        if not node:
            return
        terminating = pod.metadata.deletion_timestamp is not None
        known = self._residents.get(uid)
        if known and (known.node, known.terminating, known.labels) == (node, terminating, pod.metadata.labels):
            return
        ports, forbids = (known.ports, known.forbids) if known else (host_ports(pod), forbidden_terms(pod))
        self._leave(uid)
        self._enter(Resident(uid, node, pod.metadata.namespace, pod.metadata.labels, terminating, ports, forbids, pod.metadata.name))

    def _enter(self, resident: Resident) -> None:
        self._residents.put(resident)
        self._ports.add(resident.node, resident.ports, f"{resident.namespace}/{resident.name}")

    def _leave(self, uid: str) -> None:
        resident = self._residents.remove(uid)
        if resident:
            self._ports.remove(resident.node, resident.ports, f"{resident.namespace}/{resident.name}")
