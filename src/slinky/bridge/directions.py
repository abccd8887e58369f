"""Where a workload may go: Kubernetes' judgement on each node, brought together with Slurm's nodes.

Comes in: a job's description and the pods it is for. Goes out: its whereabouts as they are now. What must stay true: judged from memory, but for Slurm's nodes where they are not known; a node that did not work out is kept out for a while; jobs that ask the same, for pods of the same shape, are judged once, until the answer for that shape or Slurm's nodes change; amounts count only by the sizes of nodes that they leave.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from slinky.bridge.capacity import NodeRoom, holds_one
from slinky.bridge.eligibility import InFlight, within_gang
from slinky.bridge.eligibility.gang import HOSTNAME, UNMAPPED
from slinky.bridge.eligibility.node_labels import required_nodes
from slinky.bridge.eligibility.surroundings import Placed
from slinky.bridge.judgement import Opinion
from slinky.bridge.node_names import NodeNames
from slinky.bridge.pacing import Pace
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.strangers import asks_for_devices, strangers, with_devices_of_two
from slinky.bridge.task import per_task
from slinky.bridge.whereabouts import Size, Usable, Whereabouts, finding, size_of, usable_of
from slinky.bridge.workload import Workload
from slinky.kube import Pod
from slinky.slurm import Infinite, JobDescription, compress, expand

__all__ = ["Asked", "Avoided", "Basis", "Directed", "Direction", "Directions", "Judgement", "one_of_each"]

AVOIDED_SECONDS = 600.0  # at most; as a rule the node changes before that
MOST_AVOIDED = 4096  # nodes, of all workloads
MOST_CELLS = 2_000_000  # of what is remembered: names of nodes, and some for each answer itself
CELLS_EACH = 50
MOST_AMOUNTS = 4096
MOST_PARTITIONS = 16
MOST_PASSES = 3
NOWHERE = Whereabouts(nowhere="why is remembered for pods of one shape")
MOST_EQUALS = 64  # answers of which one stands for all that are equal: each may have thousands of names


class Avoided(msgspec.Struct, frozen=True, gc=False):
    """A node that did not work out: why, until when at most, and how often it had changed by then."""

    why: str
    until: float
    version: int


class Judgement(Protocol):
    """What Kubernetes would say. `refusal`: why it would not take this pod on that node now ("" where it would); `opinion` that of all nodes that refuse it, for which `prepare` makes ready in short turns; `place` whether these can be placed one after the other, which are then assumed to be there, or which of them cannot and why; `refusal_since` whether a node that one of them was placed on has changed since, and refuses it now. A pod that is being bound is `assume`d to be there already, until it is withdrawn or seen. `interference`: why a pod must wait for pods `in_flight`."""

    def refusal(self, pod: Pod, node: str) -> str: ...

    async def prepare(self, pod: Pod, pace: Pace) -> None: ...

    def opinion(self, pod: Pod) -> Opinion: ...

    async def place(self, placements: Sequence[tuple[Pod, str]], pace: Pace) -> Placed: ...

    def refusal_since(self, placed: Placed, placements: Sequence[tuple[Pod, str]]) -> tuple[Pod, str] | None: ...

    def assume(self, pod: Pod, node: str) -> None: ...

    def withdraw(self, pod: Pod) -> None: ...

    def in_flight(self) -> InFlight: ...

    def interference(self, pod: Pod, node: str, others: InFlight) -> str: ...


def depends_on_pods(pod: Pod) -> bool:
    """Whether it asks something of the pods that are there, or of what they have."""
    spec = pod.spec
    affinity = spec.affinity
    return bool(
        (
            affinity
            and (
                (affinity.pod_affinity and affinity.pod_affinity.required)
                or (affinity.pod_anti_affinity and affinity.pod_anti_affinity.required)
            )
        )
        or any(constraint.when_unsatisfiable == "DoNotSchedule" for constraint in spec.topology_spread_constraints)
        or any(port.host_port for container in (*spec.containers, *spec.init_containers) for port in container.ports)
        or spec.volumes
    )


def asks_of_pods(pod: Pod) -> bool:
    """Whether it has rules about other pods, which have to be counted."""
    return pod.spec.affinity is not None or bool(pod.spec.topology_spread_constraints)


def one_of_each(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Of pods that ask for the same, one: the members of a gang, made from one template, are alike but for their names, and equal parts of them are one object. Labels by which each is told apart may make a difference to other pods' anti-affinity: that is
    seen when they are bound."""
    if len(pods) == 1:
        return pods
    found: dict[object, Pod] = {}
    for pod in pods:
        spec = pod.spec
        parts = (
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.containers,
            spec.init_containers,
        )
        found.setdefault((*map(id, parts), spec.volumes), pod)
    return list(found.values())


class Asked(NamedTuple):
    """What a job asks of Slurm, as far as it matters to where it may go. `one_of`: the label by which all its nodes must be of one kind. `apart`, `together`: as in `Whereabouts`."""

    partition: str = ""
    constraints: str = ""
    cpus_per_task: int | None = None
    memory_per_cpu: int | Infinite | None = None
    memory_per_node: int | Infinite | None = None
    tres_per_task: str | None = None
    tres_per_node: str | None = None
    tasks_per_node: int | None = None
    one_of: str = ""
    apart: bool = False
    together: bool = False

    @property
    def amounts(self) -> tuple[object, ...]:
        """Of these it matters only which nodes hold a task."""
        per_task = self.cpus_per_task, self.memory_per_cpu, self.tres_per_task
        return (*per_task, self.memory_per_node, self.tres_per_node, self.tasks_per_node)

    @property
    def rest(self) -> tuple[object, ...]:
        return self.partition, self.constraints, self.one_of, self.apart, self.together

    def as_job(self) -> JobDescription:
        return JobDescription(
            partition=self.partition,
            cpus_per_task=self.cpus_per_task,
            memory_per_cpu=self.memory_per_cpu,
            memory_per_node=self.memory_per_node,
            tres_per_task=self.tres_per_task,
            tres_per_node=self.tres_per_node,
            tasks_per_node=self.tasks_per_node,
        )


class Basis(NamedTuple):
    """All that a direction rests on. `words` are those of the reasons, where no node is left; None where one is."""

    versions: tuple[int, int]
    key: Hashable
    words: Hashable | None

    def holds_as(self, before: "Basis") -> bool:
        """Whether what rested on `before` holds by this one."""
        return (self.versions, self.key) == (before.versions, before.key) and before.words in (None, self.words)


class Direction(NamedTuple):
    """Where a job may go: while what it rests on holds, so does `where`. Without a basis that takes another look."""

    where: Whereabouts
    basis: Basis | None


class Directed(NamedTuple):
    """`where` of each job; `asked` by which it can be judged again (`Directions.again`), None where it takes the whole workload; `basis` as in `Direction`."""

    where: list[Whereabouts]
    asked: Asked | None
    basis: Basis | None = None


@lru_cache(16)
def _named(hostlist: str) -> tuple[str, ...]:
    """The nodes that a hostlist names, once each. It was counted when it was read (`annotation_values.nodes`)."""
    return tuple(dict.fromkeys(expand(hostlist)))


class Directions:
    """`names` tells which of Slurm's nodes are Kubernetes'; without it all are, by the same names. `cluster` is our own. `hybrid_devices`: who asks for devices may go to nodes with a slurmd too."""

    def __init__(
        self,
        judgement: Judgement,
        slurm_nodes: SlurmNodes,
        labels: Mapping[str, str],
        names: NodeNames | None = None,
        *,
        cluster: str = "",
        hybrid_devices: bool = True,
    ) -> None:
        self._judgement = judgement
        self._slurm_nodes = slurm_nodes
        self._labels = labels
        self._names = names
        self._cluster = cluster
        self._hybrid_devices = hybrid_devices
        self._versions: OrderedDict[str, int] = OrderedDict()  # of nodes that are avoided: how often each has changed
        self._strangers: tuple[tuple[int, int], Mapping[str, str], Mapping[str, str]] = ((-1, -1), {}, {})
        self._remembered: dict[Hashable, Whereabouts] = {}
        self._cells = 0  # of these
        self._usable: dict[str, Usable] = {}
        self._sizes: dict[Size, NodeRoom] = {}
        self._holding: dict[tuple[object, ...], frozenset[Size]] = {}
        self._equals: dict[Whereabouts, Whereabouts] = {}
        self._node_versions = (-1, -1)  # for what is remembered
        self.judged = 0  # how often all nodes were looked at

    def avoid(self, node: str, why: str) -> Avoided:
        """A node (by Slurm's name) that did not work out is avoided until it changes."""
        version = self._versions.pop(node, 0)
        self._versions[node] = version  # the last in order is the last used
        if len(self._versions) > MOST_AVOIDED:
            self._versions.popitem(last=False)
        return Avoided(why, asyncio.get_running_loop().time() + AVOIDED_SECONDS, version)

    def node_changed(self, node: str) -> None:
        """A pod is gone from this Kubernetes node, or the node says something else: what was wrong there may be over."""
        name = self._names.in_slurm(node) if self._names is not None else node
        if name in self._versions:
            self._versions[name] += 1

    def still_avoided(self, avoided: Mapping[str, Avoided]) -> dict[str, Avoided]:
        """Those of them that count: the time of the others is over, or they have changed since."""
        now = asyncio.get_running_loop().time()
        return {node: said for node, said in avoided.items() if said.until > now and self._versions.get(node) == said.version}

    @property
    def names_version(self) -> int:
        """Another when Slurm has other nodes, by name."""
        return self._slurm_nodes.names_version

    async def read_names(self) -> bool:
        """Ask Slurm whether it has other nodes; False where that is still to be asked. Raises SlurmError."""
        return await self._slurm_nodes.is_current()

    def _still_avoided(self, avoided: Mapping[str, Avoided]) -> dict[str, str]:
        return {node: said.why for node, said in self.still_avoided(avoided).items()}

    async def of(
        self, jobs: Sequence[JobDescription], pods: Sequence[Sequence[Pod]], avoided: Mapping[str, Avoided], same_domain: str = ""
    ) -> list[Whereabouts]:
        """Of the jobs (several for a hetjob) that are described by `jobs` and are for those pods. `same_domain` is the node label of which all must have one value, by their group. Raises SlurmError where Slurm's nodes are not known and cannot be asked for."""
        return (await self.directed(jobs, pods, avoided, same_domain)).where

    async def directed(
        self, jobs: Sequence[JobDescription], pods: Sequence[Sequence[Pod]], avoided: Mapping[str, Avoided], same_domain: str = ""
    ) -> Directed:
        """The same, and what it rests on."""
        rules = within_gang([pod for each in pods for pod in each]).also_in(same_domain)
        if rules.refusal:
            return Directed([Whereabouts(nowhere=rules.refusal)], None)
        label = "" if rules.same_domain == HOSTNAME else rules.same_domain or ""
        if label and label not in self._labels:
            return Directed([Whereabouts(nowhere=UNMAPPED.format(label=label))], None)
        asked = [_asked(job, label, apart=rules.one_per_node, together=rules.same_domain == HOSTNAME) for job in jobs]
        found = [one for each, own in zip(asked, pods, strict=True) if (one := await self._of(each, own, avoided))]
        where = [one.where for one in found]
        return Directed(where, asked[0], found[0].basis) if len(asked) == 1 else Directed(where, None)

    async def again(
        self, asked: Asked, pods: Sequence[Pod], avoided: Mapping[str, Avoided] | None = None, before: Basis | None = None
    ) -> Direction | None:
        """Of a job that was directed before, for its pods as they are now; None where nothing has changed that it rested on `before`. Raises SlurmError."""
        return await self._of(asked, pods, avoided or {}, before)

    async def known_only(self, workload: Workload) -> tuple[Workload, frozenset[str]]:
        """Without those of the nodes it is to leave out that Slurm does not know, and which these are: a job that names one would be refused, and each change to it."""
        said = workload.settings
        if not said.exclude:
            return workload, frozenset()
        named = _named(said.exclude)
        unknown = await self._slurm_nodes.unknown(named)
        if not unknown:
            return workload, unknown
        rest = compress([name for name in named if name not in unknown]) or None
        return msgspec.structs.replace(workload, settings=msgspec.structs.replace(said, exclude=rest)), unknown

    def depend_on_pods(self, pods: Iterable[Pod]) -> bool:
        """Whether where they may go depends on the pods that are there now."""
        return any(depends_on_pods(pod) or self._judgement.opinion(pod).is_fleeting for pod in one_of_each([*pods]))

    async def _of(self, asked: Asked, pods: Sequence[Pod], avoided: Mapping[str, Avoided], before: Basis | None = None) -> Direction | None:
        rooms = await self._slurm_nodes.rooms_of(asked.partition)
        kinds, opinions = await self._opinions(one_of_each(pods), rooms)
        recent = self._still_avoided(avoided) if avoided else {}
        versions = self._slurm_nodes.version, self._names.version if self._names is not None else 0
        if versions != self._node_versions:
            self._forget(versions, rooms)
        chosen = frozenset(map(_chosen, kinds)) if self._labels else None
        nodes = frozenset(opinion.nodes for opinion in opinions)
        if None in nodes:  # a pod's own opinion is like no other
            self.judged += 1
            return Direction(await self._judge(asked, kinds, opinions, recent, rooms), None)
        of_job = (asked.rest, self._holding_of(asked), asks_for_devices(asked))
        words = frozenset(opinion.words for opinion in opinions)
        basis = Basis(versions, (of_job, chosen, nodes, frozenset(recent.items())), words)
        if before is not None and basis.holds_as(before):
            return None
        found = self._recall(basis.key)
        if found is NOWHERE:  # why, is said of pods of one shape
            found = self._recall(basis)
        if found is None:
            self.judged += 1
            found = await self._judge(asked, kinds, opinions, recent, rooms)
            if versions != self._node_versions:  # Slurm's nodes have changed meanwhile
                return Direction(found, basis)
            if found.nowhere:
                self._remember(basis.key, NOWHERE)
        if found.nowhere:
            self._remember(basis, found)
            return Direction(found, basis)
        self._remember(basis.key, found)
        return Direction(found, basis._replace(words=None))

    async def _opinions(self, pods: Sequence[Pod], rooms: Mapping[str, NodeRoom]) -> tuple[Sequence[Pod], Sequence[Opinion]]:
        """One pod for each opinion and what it says of nodes, and the opinions.

        Members of a gang that have a claim each are thousands of kinds: they are asked about in short turns, and
        once more where something has changed meanwhile. Where no node is left the rest is not asked about.
        """
        pace = Pace()
        for pod in pods:
            if asks_of_pods(pod):
                await self._judgement.prepare(pod, pace)
        if len(pods) == 1:
            return pods, (self._judgement.opinion(pods[0]),)
        found: dict[Hashable, tuple[Pod, Opinion]] = {}
        for _ in range(MOST_PASSES):
            found, pace, left = {}, Pace(), set(rooms)
            for pod in pods:
                opinion = self._judgement.opinion(pod)
                kind = _said_by(opinion), id(pod.spec.affinity), id(pod.spec.node_selector)
                if kind not in found:
                    found[kind] = pod, opinion
                    for source in opinion.sources:
                        left.difference_update(self._names.all_in_slurm(source) if self._names is not None else source)
                    if rooms and not left:
                        break
                await pace.step()
            # What an opinion says is read at once, so it is taken again where others had their turn meanwhile.
            again = {kind: (pod, self._judgement.opinion(pod)) for kind, (pod, _) in found.items()} if pace.turns else found
            same = all(_said_by(opinion) == _said_by(found[kind][1]) for kind, (_, opinion) in again.items())
            found = again
            if same:
                break
        by_words = {_said_by(opinion): opinion for _, opinion in found.values()}
        return [pod for pod, _ in found.values()], tuple(by_words.values())

    def _forget(self, versions: tuple[int, int], rooms: Mapping[str, NodeRoom]) -> None:
        """What is remembered is of other nodes of Slurm's."""
        self._node_versions = versions
        self._remembered, self._cells, self._equals, self._usable, self._holding = {}, 0, {}, {}, {}
        self._sizes = {size_of(room): room for room in {id(room): room for room in rooms.values()}.values()}

    def _recall(self, key: Hashable) -> Whereabouts | None:
        found = self._remembered.get(key)
        if found is not None:
            self._remembered[key] = self._remembered.pop(key)  # the last in order is the last used
        return found

    def _remember(self, key: Hashable, found: Whereabouts) -> None:
        if key in self._remembered:
            return
        self._remembered[key] = found
        self._cells += len(found.excluded) + CELLS_EACH
        while self._cells > MOST_CELLS and len(self._remembered) > 1:
            self._cells -= len(self._remembered.pop(next(iter(self._remembered))).excluded) + CELLS_EACH

    def _shared(self, found: Whereabouts) -> Whereabouts:
        if len(self._equals) >= MOST_EQUALS:
            self._equals = {}
        return self._equals.setdefault(found, found)

    def _holding_of(self, asked: Asked) -> frozenset[Size]:
        """The sizes of nodes that hold a task of the job."""
        found = self._holding.get(asked.amounts)
        if found is None:
            if len(self._holding) >= MOST_AMOUNTS:
                self._holding = {}
            task = per_task(asked.as_job())
            found = self._holding[asked.amounts] = frozenset(size for size, room in self._sizes.items() if holds_one(room, task))
        return found

    def _usable_of(self, partition: str, rooms: Mapping[str, NodeRoom]) -> Usable:
        found = self._usable.get(partition)
        if found is None:
            if len(self._usable) >= MOST_PARTITIONS:
                self._usable = {}
            found = self._usable[partition] = usable_of(rooms, partition)
        return found

    async def _judge(
        self, asked: Asked, pods: Sequence[Pod], opinions: Iterable[Opinion], avoided: Mapping[str, str], rooms: Mapping[str, NodeRoom]
    ) -> Whereabouts:
        refusals = [source for opinion in opinions for source in opinion.sources]
        if self._names is not None:
            refusals = [*map(self._names.all_in_slurm, refusals), *self._left_out(self._names, asked, rooms)]
        steps = finding(
            pods,
            refusals,
            self._usable_of(asked.partition, rooms),
            said=asked.constraints,
            mapped=self._labels,
            one_of=asked.one_of,
            holding=self._holding_of(asked),
            avoided=avoided,
        )
        pace = Pace()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: Whereabouts = end.value
                break
            await pace.step()
        if not found.nowhere and (asked.apart or asked.together):
            found = msgspec.structs.replace(found, apart=asked.apart, together=asked.together)
        return self._shared(found)

    def _left_out(self, names: NodeNames, asked: Asked, rooms: Mapping[str, NodeRoom]) -> list[Mapping[str, str]]:
        """Slurm's nodes that are not for this job whatever Kubernetes says: reckoned anew only when nodes have changed on either side."""
        versions = self._slurm_nodes.version, names.version
        if self._strangers[0] != versions:
            doubled = {} if self._hybrid_devices else with_devices_of_two(rooms)
            self._strangers = (versions, strangers(rooms, names, self._cluster), doubled)
        _, unknown, shared = self._strangers
        return [unknown, shared] if shared and asks_for_devices(asked) else [unknown]


def _said_by(opinion: Opinion) -> Hashable:
    """Equal for opinions that say the same of all nodes; one that is a pod's own is like no other."""
    return (opinion.nodes, opinion.words) if opinion.nodes is not None else opinion


def _chosen(pod: Pod) -> Hashable:
    """What of it may become a constraint."""
    return tuple(sorted(pod.spec.node_selector.items())), required_nodes(pod)


def _asked(job: JobDescription, one_of: str, *, apart: bool, together: bool) -> Asked:
    return Asked(
        job.partition or "",
        job.constraints or "",
        job.cpus_per_task,
        job.memory_per_cpu,
        job.memory_per_node,
        job.tres_per_task,
        job.tres_per_node,
        job.tasks_per_node,
        one_of,
        apart,
        together,
    )
