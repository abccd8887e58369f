"""Whatever users write, Slurm sets aside at least what the pods on each node request: generated workloads and annotations on the real Slurm."""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from slinky.bridge.annotations import AnnotationError, JobSettings, read_settings
from slinky.bridge.binding import _slots
from slinky.bridge.capacity import even_share, room_of, shortfall
from slinky.bridge.gres_needs import gres_of
from slinky.bridge.keys import SETTINGS
from slinky.bridge.marker import read_comment
from slinky.bridge.needs import needs_of
from slinky.bridge.placement import Slot
from slinky.bridge.policy import Policy, PolicyError
from slinky.bridge.settings import Settings
from slinky.bridge.submission import hetjob_of, submission_from, submission_of
from slinky.bridge.succession import fits
from slinky.bridge.task import exceeds, per_task
from slinky.bridge.translate import Site, components, translate
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Pod
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import Job, NodeDescription, NodeGres, RefusedError, SlurmClient, expand
from slinky.slurm.tres import MIB, read_gres, read_tres
from tests.conftest import Starter

pytestmark = pytest.mark.sandbox

PLAIN, TYPED = "bridge", "typed"  # partitions: nodes with 8 GPUs without a type; nodes with two types, and cores of two threads
GRES = {
    PLAIN: {"nvidia.com/gpu": "gpu"},
    TYPED: {"nvidia.com/gpu": "gpu:h100", "example.com/old": "gpu:a100", "rdma/hca": "hca"},
}
COUNTED = (HealthCheck.too_slow, HealthCheck.filter_too_much)
MOST_EXAMPLES = 70


@pytest.fixture(scope="module")
def place(start_sandbox: Starter) -> Sandbox:
    found = start_sandbox("cover", Shape(nodes=4, node_cpus=16, node_memory_mib=65536, node_gpus=8))
    asyncio.run(_make_typed_nodes(found))
    return found


async def _make_typed_nodes(sandbox: Sandbox) -> None:
    gres = [NodeGres(name="gpu", type="h100", count=4), NodeGres(name="gpu", type="a100", count=4), NodeGres(name="hca", count=4)]
    shape: dict[str, Any] = {"cpus": 16, "boards": 1, "sockets_per_board": 2, "cores_per_socket": 4, "threads_per_core": 2}
    async with sandbox.slurm_client() as slurm:
        await slurm.nodes.create(NodeDescription(name="t-[0-2]", address="127.0.0.1", real_memory=65536, gres=gres, **shape))
    await sandbox.link.run("head", "scontrol", "create", f"PartitionName={TYPED}", "Nodes=t-[0-2]")


def a_pod(rank: int, requests: Mapping[str, str]) -> Pod:
    container = {"name": "c", "resources": {"requests": requests}}
    document = {"metadata": {"name": f"g-{rank}", "namespace": "lab", "uid": f"u{rank}"}, "spec": {"containers": [container]}}
    return msgspec.convert(document, Pod)


@st.composite
def requests(draw: st.DrawFn, partition: str) -> dict[str, str]:
    found = {"cpu": draw(st.sampled_from(["500m", "1", "2", "3"]))}
    if memory := draw(st.sampled_from(["", "300Mi", "5Gi", "30Gi"])):
        found["memory"] = memory
    for resource in GRES[partition]:
        if count := draw(st.sampled_from([0, 0, 1, 2, 3] if partition == TYPED else [0, 1, 1, 2, 4, 8])):
            found[resource] = str(count)
    return found


GRES_SAID = st.sampled_from(
    [
        *("gpu:1", "gpu:2", "gpu:3", "gpu:8", "gres/gpu=4", "gpu", "gpu:0", "gpu:1K", "gpu:1,gpu:1,gpu:1,gpu:1", "gpu:1,gres/gpu:1"),
        *("gpu:h100:4", "gpu:h100:2,gpu:a100:2", "gpu:2,gpu:h100:1", "hca:2", "gpu:h100:4,hca:4", "gres:gpu:4,hca:1", "none"),
    ]
)
SAID = st.fixed_dictionaries(
    {},
    optional={
        "gres": GRES_SAID,
        "mem-per-node": st.sampled_from(["100Mi", "8Gi", "31Gi", "60Gi", "64Gi"]),
        "cpu-per-task": st.sampled_from(["1", "2", "5"]),
        "ntasks-per-node": st.integers(1, 6).map(str),
        "min-nodes": st.integers(1, 3).map(str),
        "max-nodes": st.integers(1, 4).map(str),
        "exclusive": st.just("true"),
    },
)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[str, Workload, Pod]:
    """The partition; the workload, whose pods are mostly alike; and a pod that comes later in another's stead."""
    partition = draw(st.sampled_from([PLAIN, TYPED]))
    count = draw(st.integers(0, 6))
    first = draw(requests(partition))
    others = draw(st.one_of(st.just(first), requests(partition)))
    pods = tuple(a_pod(rank, others if rank else first) for rank in range(max(count, 1)))
    later = a_pod(99, draw(st.one_of(st.just(first), requests(partition))))
    said = {SETTINGS + key: value for key, value in draw(SAID).items()}
    try:
        settings = read_settings(said)
    except AnnotationError:
        settings = JobSettings()  # refused, at admission and before each submit: the workload has no job
        assume(False)
    key = WorkloadKey("CoschedulingPodGroup", "lab", "train") if count else WorkloadKey("Pod", "lab", "u0")
    return partition, Workload(key=key, name="train", pods=pods, size=len(pods), settings=settings), later


def test_slurm_sets_aside_what_the_pods_on_each_node_request(place: Sandbox) -> None:
    compared: list[int] = []

    @settings(max_examples=MOST_EXAMPLES, suppress_health_check=COUNTED)
    @given(workloads())
    def holds(drawn: tuple[str, Workload, Pod]) -> None:
        partition, workload, later = drawn
        grant = Policy(Settings(partition=partition, gres=GRES[partition])).grant("lab", {})
        try:
            workload = grant.settled(workload)
        except PolicyError:
            return  # as Slurm would count less than the pods request
        compared.extend(asyncio.run(_submit_and_compare(place, partition, workload, later)))

    holds()
    assert len(compared) >= MOST_EXAMPLES // 3, "most of them were refused, or did not start: nothing was compared"


async def _submit_and_compare(sandbox: Sandbox, partition: str, workload: Workload, later: Pod) -> list[int]:
    """The job, where it ran and was compared."""
    async with sandbox.slurm_client() as slurm:
        rooms = [room for node in await slurm.nodes.all() if partition in (room := room_of(node)).partitions]
        site = Site(
            cluster="cover",
            partition=partition,
            gres=GRES[partition],
            no_hetjobs="" if len(rooms) > 3 else "too few nodes",
            even_share=lambda *asked: even_share(rooms, *asked),
        )
        jobs = components(workload, site)
        said = workload.settings
        fit = not any(shortfall(job, rooms) for job in jobs) and (said.min_nodes or 1) <= min(len(workload.pods), len(rooms))
        fit = fit and not said.exclusive  # memory by CPU is then multiplied by all CPUs of the node
        try:
            if len(jobs) > 1:
                first = (await slurm.jobs.submit_hetjob(jobs, external=True)).job_id
            else:
                first = (await slurm.jobs.submit_external(jobs[0])).job_id
        except RefusedError as error:
            assert not fit or len(jobs) > 1, f"the nodes are free and hold it, and Slurm refuses {jobs}: {error}"
            return []
        try:
            return await _compare(sandbox, slurm, first, site, workload, later, fit=fit and len(jobs) == 1)
        finally:
            await slurm.jobs.cancel(first)


async def _compare(sandbox: Sandbox, slurm: SlurmClient, first: int, site: Site, workload: Workload, later: Pod, *, fit: bool) -> list[int]:
    parts: list[Job] = []

    async def runs() -> bool:
        parts[:] = await slurm.jobs.parts(first)
        return all(part.states == ["RUNNING"] for part in parts)

    if fit:
        await sandbox.until("slurmctld", f"job {first} ran ({translate(workload, site)})", runs, 20)
    elif not await runs():
        return []
    parts.sort(key=lambda part: part.job_id)
    # As after a restart of the bridge: by what Slurm has.
    job = (
        submission_from(parts, "cover") if len(parts) == 1 else hetjob_of([submission_of(p.job_id, p) for p in parts], _ranks(parts, site))
    )
    slots = _slots(job, [await slurm.jobs.allocation(part.job_id) for part in parts])
    pods = list(workload.pods)
    given: dict[str, tuple[int, int, Counter[str]]] = {}
    for part in parts:
        given |= _given(await sandbox.link.run("head", "scontrol", "show", "job", "-d", str(part.job_id)))
    _covers(given, pods, slots, site)
    assert not any(exceeds(pod, job.task_in(slot), site.gres, whole_node=slot.alone) for pod, slot in zip(pods, slots, strict=True))
    if len(parts) == 1 and site.partition == PLAIN:
        _covers_in_all(parts[0], pods, site)
    asked = per_task(translate(msgspec.structs.replace(workload, pods=(later,)), site))
    for rank, slot in enumerate(slots):
        if fits(asked, job.task_in(slot)):
            _covers(given, [*pods[:rank], later, *pods[rank + 1 :]], slots, site)
    return [first]


def _ranks(parts: Sequence[Job], site: Site) -> list[tuple[Sequence[int], str]]:
    found = [read_comment(part.admin_comment, site.cluster) for part in parts]
    return [(marking.ranks, marking.where) if marking else ((), "") for marking in found]


def _given(text: str) -> dict[str, tuple[int, int, Counter[str]]]:
    """CPUs, MiB and GRES (by name, and by name:type) of a job on each node, as scontrol has them."""
    found: dict[str, tuple[int, int, Counter[str]]] = {}
    for nodes, cpus, memory, gres in re.findall(r"^ +Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)", text, re.MULTILINE):
        counts: Counter[str] = Counter()
        for kind, count in read_gres(gres).items():
            counts[kind.name] += int(count)
            if kind.type:
                counts[f"{kind.name}:{kind.type}"] += int(count)
        for node in expand(nodes):
            found[node] = (len(expand(f"[{cpus}]")), int(memory), counts)
    return found


def _covers(given: Mapping[str, tuple[int, int, Counter[str]]], pods: Sequence[Pod], slots: Sequence[Slot], site: Site) -> None:
    for node in {slot.node for slot in slots}:
        here = [needs_of(pod) for pod, slot in zip(pods, slots, strict=True) if slot.node == node]
        cpus, memory, counts = given[node]
        assert cpus >= sum((needs.cpu for needs in here), Fraction(0)), (node, given, slots)
        assert memory * MIB >= sum((needs.memory for needs in here), Fraction(0)), (node, given, slots)
        asked: Counter[str] = Counter()
        for needs in here:
            asked.update(gres_of(needs, site.gres))
        assert all(counts[kind] >= count for kind, count in asked.items()), (node, asked, given, slots)


def _covers_in_all(job: Job, pods: Sequence[Pod], site: Site) -> None:
    """The job's own TRES, which are what is billed and limited."""
    told = read_tres(job.tres_alloc_str)
    all_needs = [needs_of(pod) for pod in pods]
    assert told.cpus >= sum(needs.cpu for needs in all_needs)
    assert told.memory >= sum(needs.memory for needs in all_needs)
    assert told.gres.get("gpu", 0) >= sum(gres_of(needs, site.gres).get("gpu", 0) for needs in all_needs)
