"""Gangs of many pods on many nodes, in memory, with Kubernetes' real judgement on nodes; and a count of what they cost, so that no test depends on how fast the machine is."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from slinky.bridge.eligibility import Surroundings
from slinky.bridge.eligibility.surroundings import Placed
from slinky.bridge.judgement import KubernetesJudgement, Opinion
from slinky.bridge.keys import FINALIZER, GANG
from slinky.bridge.pacing import Pace
from slinky.kube import Cache, Meta, Namespace, Node, Pod
from slinky.kube import Job as KubeJob
from slinky.kube.objects import Affinity, Container, JobSpec, NodeStatus, PodSpec, PodStatus, ResourceNeeds
from tests.bridge.both_sides import OWNER, World
from tests.bridge.counting import calls
from tests.kube.virtual_time import run_in_virtual_time

__all__ = ["HOSTNAME", "Counted", "LargeWorld", "growth", "operations", "told_of_many"]

HOSTNAME = "kubernetes.io/hostname"
T = TypeVar("T")


class Counted(str):
    """A name that counts how often it is looked up or compared: what sets and dicts do inside one operation shows nowhere else."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Counted.lookups += 1
        return super().__eq__(other)


def operations(work: Callable[[], T]) -> int:
    """How many calls `work` makes, of Python and of C, and how often a `Counted` name is looked up."""
    before = Counted.lookups
    made = calls(work)
    return made + Counted.lookups - before


def growth(cost: Callable[[int], int], few: int = 150, many: int = 600) -> float:
    """How much more a thing of many costs than one of few, relative to their numbers: about 1 where it grows with the number, 4 where with its square."""
    cost(few)  # what is done once for all, and remembered
    return cost(many) / cost(few) / (many / few)


class LargeWorld(World):
    """`nodes` of them, and one Job that is a gang of `pods`."""

    def __init__(self, pods: int, nodes: int, affinity: Affinity | None = None) -> None:
        super().__init__()
        self.number = pods
        self.affinity = affinity
        self.slurm_nodes = self.given = [Counted(f"n{index:05}") for index in range(nodes)]
        for name in self.given:
            self.put_node(name)
        namespaces: Cache[Namespace] = Cache()
        namespaces.put(Namespace(metadata=Meta(name="ns")))
        self.judge = KubernetesJudgement(Surroundings([self.pods], self.nodes, namespaces), self.ledger)
        self.looked_at = 0  # pods, each as often as it was
        look = self.loop.reconcile

        async def counted(key: Any) -> None:
            self.looked_at += len(self.membership.pods(key))
            await look(key)

        self.loop.reconcile = counted  # type: ignore[method-assign]

    def put_node(self, name: str, **spec: Any) -> None:
        status = NodeStatus(allocatable={"cpu": "64", "memory": "64Gi", "pods": "110"})
        node = Node(metadata=Meta(name=name, labels={HOSTNAME: name}), status=status)
        self.nodes.put(node if not spec else Node(metadata=node.metadata, status=status, spec=type(node.spec)(**spec)))

    async def place(self, placements: Sequence[tuple[Pod, str]], pace: Pace) -> Placed:
        return await self.judge.place(placements, pace)

    def refusal_since(self, *judged: Any) -> Any:
        return self.judge.refusal_since(*judged)

    async def prepare(self, pod: Pod, pace: Pace) -> None:
        await self.judge.prepare(pod, pace)

    def opinion(self, pod: Pod) -> Opinion:
        return self.judge.opinion(pod)

    def assume(self, pod: Pod, node: str) -> None:
        self.judge.assume(pod, node)

    def withdraw(self, pod: Pod) -> None:
        self.judge.withdraw(pod)

    def create(self) -> None:
        """The Job and all its pods, at once."""
        self.create_job()
        for index in range(self.number):
            self.create_one(index)

    def create_job(self) -> None:
        meta = Meta(name="train", namespace="ns", uid="train-uid", annotations={GANG: "true"})
        self.kube_jobs.put(KubeJob(metadata=meta, spec=JobSpec(parallelism=self.number)))
        needs = ResourceNeeds(requests={"cpu": "1", "memory": "1Gi"})
        self.spec = PodSpec(containers=(Container(resources=needs),), affinity=self.affinity)

    def create_one(self, index: int) -> None:
        meta = Meta(
            name=Counted(f"train-{index}"),
            namespace="ns",
            uid=Counted(f"train-{index}-uid"),
            finalizers=(FINALIZER,),
            owner_references=(OWNER,),
            creation_timestamp=self.born,
            labels={"app": "train"},
            annotations={"batch.kubernetes.io/job-completion-index": str(index)},
        )
        self.pods.put(Pod(metadata=meta, spec=self.spec, status=PodStatus(phase="Pending")))

    @property
    def bound(self) -> int:
        return sum(bool(pod.spec.node_name) for pod in self.pods.list())

    @property
    def is_idle(self) -> bool:
        agenda = self.loop.queue.agenda
        return not agenda.working and not agenda.ready

    async def starts(self) -> None:
        """Its job is submitted, and runs."""
        await self.until(lambda: 1 in self.held)
        self.set_job(1, "RUNNING")


def told_of_many(story: Callable[[LargeWorld], Any], pods: int, nodes: int, affinity: Affinity | None = None) -> None:
    async def whole() -> None:
        world = LargeWorld(pods, nodes, affinity)
        async with world.running():
            await story(world)

    run_in_virtual_time(whole())
