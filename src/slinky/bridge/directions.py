"""Where a workload may go: Kubernetes' judgement on each node, brought together with Slurm's nodes.

Comes in: a job's description and the pods it is for. Goes out: its whereabouts as they are now. What must stay true: judged from memory, but for Slurm's nodes where they are not known; a node that did not work out is kept out for a while.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from slinky.bridge.eligibility import within_gang
from slinky.bridge.eligibility.gang import HOSTNAME
from slinky.bridge.eligibility.surroundings import Placed
from slinky.bridge.gang_admission import UNMAPPED
from slinky.bridge.node_names import NodeNames
from slinky.bridge.pacing import Pace
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.strangers import asks_for_devices, strangers, with_devices_of_two
from slinky.bridge.whereabouts import EVERYWHERE, Whereabouts, where
from slinky.bridge.workload import Workload
from slinky.kube import Pod
from slinky.slurm import JobDescription

__all__ = ["Directions", "Judgement"]


class Judgement(Protocol):
    """What Kubernetes would say. `refusal`: why it would not take this pod on that node now ("" where it would); `refusals` that of all nodes that refuse it; `place` whether these can be placed one after the other, which are then assumed to be there, or which of them cannot and why; `refusal_since` whether a node that one of them was placed on has changed since, and refuses it now. `is_fleeting`: whether a node refuses it only for what other pods there are or take. A pod that is being bound is `assume`d to be there already, until it is withdrawn or seen."""

    def refusal(self, pod: Pod, node: str) -> str: ...

    def refusals(self, pod: Pod) -> Mapping[str, str]: ...

    def is_fleeting(self, pod: Pod) -> bool: ...

    async def place(self, placements: Sequence[tuple[Pod, str]], pace: Pace) -> Placed: ...

    def refusal_since(self, placed: Placed, placements: Sequence[tuple[Pod, str]]) -> tuple[Pod, str] | None: ...

    def assume(self, pod: Pod, node: str) -> None: ...

    def withdraw(self, pod: Pod) -> None: ...


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
        self._strangers: tuple[tuple[int, int], Mapping[str, str], Mapping[str, str]] = ((-1, -1), {}, {})

    async def of(self, jobs: Sequence[JobDescription], pods: Sequence[Sequence[Pod]], avoided: Mapping[str, float]) -> list[Whereabouts]:
        """Of the jobs (several for a hetjob) that are described by `jobs` and are for those pods. Raises SlurmError where Slurm's nodes are not known and cannot be asked for."""
        rules = within_gang([pod for each in pods for pod in each])
        if rules.refusal:
            return [Whereabouts(nowhere=rules.refusal)]
        label = "" if rules.same_domain == HOSTNAME else rules.same_domain or ""
        if label and label not in self._labels:
            return [Whereabouts(nowhere=UNMAPPED.format(label=label))]
        found = [await self._of(job, own, avoided, label) for job, own in zip(jobs, pods, strict=True)]
        if not rules.one_per_node and rules.same_domain != HOSTNAME:
            return found
        together = rules.same_domain == HOSTNAME
        return [where if where.nowhere else msgspec.structs.replace(where, apart=rules.one_per_node, together=together) for where in found]

    async def known_only(self, workload: Workload) -> tuple[Workload, frozenset[str]]:
        """Without those of the nodes it is to leave out that Slurm does not know, and which these are: a job that names one would be refused, and each change to it."""
        said = workload.settings
        unknown = await self._slurm_nodes.unknown(said.exclude) if said.exclude else frozenset()
        if not unknown:
            return workload, unknown
        rest = tuple(name for name in said.exclude if name not in unknown)
        return msgspec.structs.replace(workload, settings=msgspec.structs.replace(said, exclude=rest)), unknown

    def depend_on_pods(self, pods: Sequence[Pod]) -> bool:
        """Whether where they may go depends on the pods that are there now."""
        return any(depends_on_pods(pod) or self._judgement.is_fleeting(pod) for pod in one_of_each(pods))

    async def _of(self, job: JobDescription, pods: Sequence[Pod], avoided: Mapping[str, float], one_of: str) -> Whereabouts:
        now = asyncio.get_running_loop().time()
        refusals = [*map(self._judgement.refusals, one_of_each(pods))]
        if self._names is not None:
            refusals = [*map(self._names.all_in_slurm, refusals), *await self._left_out(self._names, job)]
        refusals.append({node: f"node {node} did not work out a while ago" for node, until in avoided.items() if until > now})
        if not any(refusals) and not self._labels and not one_of:
            return EVERYWHERE
        partition = job.partition or ""
        rooms = await self._slurm_nodes.rooms_of(partition)
        return where(pods, refusals, rooms, partition=partition, said=job.constraints or "", mapped=self._labels, one_of=one_of)

    async def _left_out(self, names: NodeNames, job: JobDescription) -> list[Mapping[str, str]]:
        """Slurm's nodes that are not for this job whatever Kubernetes says: reckoned anew only when nodes have changed on either side."""
        rooms = await self._slurm_nodes.rooms_of(job.partition or "")
        versions = self._slurm_nodes.version, names.version
        if self._strangers[0] != versions:
            doubled = {} if self._hybrid_devices else with_devices_of_two(rooms)
            self._strangers = (versions, strangers(rooms, names, self._cluster), doubled)
        _, unknown, shared = self._strangers
        return [unknown, shared] if shared and asks_for_devices(job) else [unknown]
