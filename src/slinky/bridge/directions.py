"""Where a workload may go: Kubernetes' judgement on each node, brought together with Slurm's nodes.

Comes in: a job's description and the pods it is for. Goes out: its whereabouts as they are now. What must stay true: judged from memory, but for Slurm's nodes where they are not known; a node that did not work out is kept out for a while; jobs that ask the same, for pods of the same shape, are judged once, until the answer for that shape or Slurm's nodes change.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from slinky.bridge.capacity import NodeRoom
from slinky.bridge.eligibility import InFlight, within_gang
from slinky.bridge.eligibility.gang import HOSTNAME
from slinky.bridge.eligibility.surroundings import Placed
from slinky.bridge.gang_admission import UNMAPPED
from slinky.bridge.judgement import Opinion
from slinky.bridge.node_names import NodeNames
from slinky.bridge.pacing import Pace
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.strangers import asks_for_devices, strangers, with_devices_of_two
from slinky.bridge.task import per_task
from slinky.bridge.whereabouts import Whereabouts, where
from slinky.bridge.workload import Workload
from slinky.kube import Pod
from slinky.slurm import Infinite, JobDescription, compress, expand

__all__ = ["Asked", "Avoided", "Directed", "Directions", "Judgement", "one_of_each"]

AVOIDED_SECONDS = 600.0  # at most; as a rule the node changes before that
MOST_AVOIDED = 4096  # nodes, of all workloads
MOST_REMEMBERED = 512
MOST_PASSES = 3
MOST_EQUALS = 64  # answers of which one stands for all that are equal: each may have thousands of names


class Avoided(msgspec.Struct, frozen=True, gc=False):
    """A node that did not work out: why, until when at most, and how often it had changed by then."""

    why: str
    until: float
    version: int


class Judgement(Protocol):
    """What Kubernetes would say. `refusal`: why it would not take this pod on that node now ("" where it would); `opinion` that of all nodes that refuse it; `place` whether these can be placed one after the other, which are then assumed to be there, or which of them cannot and why; `refusal_since` whether a node that one of them was placed on has changed since, and refuses it now. A pod that is being bound is `assume`d to be there already, until it is withdrawn or seen. `interference`: why a pod must wait for pods `in_flight`."""

    def refusal(self, pod: Pod, node: str) -> str: ...

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


class Directed(NamedTuple):
    """`where` of each job; `asked` by which it can be judged again (`Directions.again`), None where it takes the whole workload."""

    where: list[Whereabouts]
    asked: Asked | None


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

    def _still_avoided(self, avoided: Mapping[str, Avoided]) -> dict[str, str]:
        now = asyncio.get_running_loop().time()
        return {node: said.why for node, said in avoided.items() if said.until > now and self._versions.get(node) == said.version}

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
        found = [await self._of(one, own, avoided) for one, own in zip(asked, pods, strict=True)]
        return Directed(found, asked[0] if len(asked) == 1 else None)

    async def again(self, asked: Asked, pods: Sequence[Pod]) -> Whereabouts:
        """Of a job that was directed before and avoids no node, for its pods as they are now. Raises SlurmError."""
        return await self._of(asked, pods, {})

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

    async def _of(self, asked: Asked, pods: Sequence[Pod], avoided: Mapping[str, Avoided]) -> Whereabouts:
        rooms = await self._slurm_nodes.rooms_of(asked.partition)
        kinds, opinions = await self._opinions(one_of_each(pods), rooms)
        recent = self._still_avoided(avoided) if avoided else {}
        versions = self._slurm_nodes.version, self._names.version if self._names is not None else 0
        if versions != self._node_versions:
            self._node_versions, self._remembered, self._equals = versions, {}, {}
        key = (asked, frozenset(opinions), frozenset(recent.items()))
        found = self._remembered.pop(key, None)
        if found is None:
            self.judged += 1
            found = self._judge(asked, kinds, opinions, recent, rooms)
            if len(self._equals) >= MOST_EQUALS:
                self._equals = {}
            found = self._equals.setdefault(found, found)
            if len(self._remembered) >= MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        self._remembered[key] = found  # the last in order is the last used
        return found

    async def _opinions(self, pods: Sequence[Pod], rooms: Mapping[str, NodeRoom]) -> tuple[Sequence[Pod], Sequence[Opinion]]:
        """One pod for each opinion and what it says of nodes, and the opinions.

        Members of a gang that have a claim each are thousands of kinds: they are asked about in short turns, and
        once more where something has changed meanwhile. Where no node is left the rest is not asked about.
        """
        if len(pods) == 1:
            return pods, (self._judgement.opinion(pods[0]),)
        found: dict[tuple[Opinion, int, int], Pod] = {}
        for _ in range(MOST_PASSES):
            found, pace, left = {}, Pace(), set(rooms)
            for pod in pods:
                opinion = self._judgement.opinion(pod)
                kind = opinion, id(pod.spec.affinity), id(pod.spec.node_selector)
                if kind not in found:
                    found[kind] = pod
                    for source in opinion.sources:
                        left.difference_update(self._names.all_in_slurm(source) if self._names is not None else source)
                    if rooms and not left:
                        break
                await pace.step()
            if not pace.turns or all(self._judgement.opinion(pod) is kind[0] for kind, pod in found.items()):
                break
        return list(found.values()), tuple(dict.fromkeys(opinion for opinion, *_ in found))

    def _judge(
        self, asked: Asked, pods: Sequence[Pod], opinions: Iterable[Opinion], avoided: Mapping[str, str], rooms: Mapping[str, NodeRoom]
    ) -> Whereabouts:
        refusals = [source for opinion in opinions for source in opinion.sources]
        job = asked.as_job()
        if self._names is not None:
            refusals = [*map(self._names.all_in_slurm, refusals), *self._left_out(self._names, job, rooms)]
        found = where(
            pods,
            refusals,
            rooms,
            partition=asked.partition,
            said=asked.constraints,
            mapped=self._labels,
            one_of=asked.one_of,
            task=per_task(job),
            avoided=avoided,
        )
        if found.nowhere or not (asked.apart or asked.together):
            return found
        return msgspec.structs.replace(found, apart=asked.apart, together=asked.together)

    def _left_out(self, names: NodeNames, job: JobDescription, rooms: Mapping[str, NodeRoom]) -> list[Mapping[str, str]]:
        """Slurm's nodes that are not for this job whatever Kubernetes says: reckoned anew only when nodes have changed on either side."""
        versions = self._slurm_nodes.version, names.version
        if self._strangers[0] != versions:
            doubled = {} if self._hybrid_devices else with_devices_of_two(rooms)
            self._strangers = (versions, strangers(rooms, names, self._cluster), doubled)
        _, unknown, shared = self._strangers
        return [unknown, shared] if shared and asks_for_devices(job) else [unknown]


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
