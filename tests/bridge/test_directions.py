"""Where jobs are sent in a cluster with nodes of several kinds: only what Slurm cannot know is named, and judged once for all jobs that ask the same."""

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.bridge.directions import Directions
from slinky.bridge.eligibility import Surroundings
from slinky.bridge.judgement import KubernetesJudgement
from slinky.bridge.keeping import concerns_slurm
from slinky.bridge.ledger import Ledger
from slinky.bridge.node_names import NodeNames
from slinky.bridge.translate import components, members
from slinky.kube import Cache, Key, Namespace, Node
from slinky.slurm import compress
from tests.bridge.mixed_cluster import GPU, SITE, Cluster, a_pod, kept
from tests.kube.virtual_time import run_in_virtual_time

# What is left to Slurm


async def test_a_job_names_no_node_that_slurm_itself_would_not_use() -> None:
    cluster = Cluster(300)
    assert (await cluster.where(a_pod("p", gpus=1))).excluded == ()
    chosen = (await cluster.where(a_pod("p", gpus=1, nodeSelector={"zone": "z1"}))).excluded
    assert chosen
    assert all(cluster.in_slurm[name].gres for name in chosen), "of nodes with GPUs only"
    for_cpus = (await cluster.where(a_pod("p", nodeSelector={"zone": "z1"}))).excluded
    assert set(for_cpus) == {name for number, name in enumerate(cluster.names) if number % 5 != 1}


@pytest.mark.parametrize("cause", ["Kubernetes has fewer", "others have them"])
async def test_a_node_that_has_gpus_for_slurm_only_is_named(cause: str) -> None:
    """As while its device plugin is away, or where other schedulers' pods have them: Slurm would choose it."""
    cluster = Cluster(20)
    name = cluster.names[3]
    if cause == "Kubernetes has fewer":
        cluster.put(name, gpus=1, zone="z3")
    else:
        cluster.foreign.put(a_pod("foreign", gpus=7, nodeName=name))
    assert (await cluster.where(a_pod("p", gpus=2))).excluded == (name,)
    assert (await cluster.where(a_pod("p", gpus=1))).excluded == ()


async def test_a_node_that_did_not_work_out_is_named_whatever_slurm_is_thought_to_count() -> None:
    cluster = Cluster(20)
    without = cluster.names[0]
    avoided = cluster.directions.avoid(without, "it was refused")
    assert (await cluster.where(a_pod("p", gpus=1), {without: avoided})).excluded == (without,)
    cluster.directions.node_changed(without)
    assert (await cluster.where(a_pod("p", gpus=1), {without: avoided})).excluded == (), "judged again once it changed"


async def test_where_no_node_is_left_all_are_counted_with_their_reasons() -> None:
    cluster = Cluster(10)
    nowhere = (await cluster.where(a_pod("p", gpus=1, nodeSelector={"zone": "none"}))).nowhere
    assert "none of the 10 nodes" in nowhere
    assert "zone=none" in nowhere


# Once for all that ask the same


SHAPES: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 2, "nodeSelector": {"zone": "z1"}},
    {"nodeSelector": {"zone": "z1"}},
    {"nodeSelector": {"zone": "z2"}, "tolerations": [{"operator": "Exists"}]},
]


@pytest.mark.parametrize("size", [50, 500])
async def test_nodes_are_judged_once_for_each_shape_of_pods_however_many_jobs_there_are(size: int) -> None:
    cluster = Cluster(size)
    for number in range(80):
        await cluster.submit(a_pod(f"p{number}", **SHAPES[number % 4]))
    assert cluster.directions.judged == 4
    before, amounts = cluster.surroundings.judged, cluster.ledger.judged
    assert before <= size + 10, "each node once for the label that is asked for, however many shapes ask"
    assert amounts == size + 3 * 2, "each node once for what it has left, and then each kind for each shape"
    cluster.relabel(cluster.names[7], color="red")
    for number in range(80):
        await cluster.where(a_pod(f"q{number}", **SHAPES[number % 4]))
    assert cluster.surroundings.judged == before, "no shape asks for that label"
    assert cluster.ledger.judged == amounts
    assert cluster.directions.judged == 4, "no node is refused that was not, and none accepted"


async def test_pods_that_keep_apart_are_judged_once_until_a_pod_comes_or_goes() -> None:
    cluster = Cluster(30)
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "job", "operator": "Exists"}]}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    opinions = {cluster.surroundings.answer(a_pod(f"p{number}", affinity=affinity)).version for number in range(20)}
    assert len(opinions) == 1
    cluster.own.put(a_pod("there", nodeName=cluster.names[0]))
    after = {cluster.surroundings.answer(a_pod(f"p{number}", affinity=affinity)).version for number in range(20)}
    assert len(after) == 1
    assert opinions.isdisjoint(after)
    assert set((await cluster.where(a_pod("p", affinity=affinity))).excluded) == set(cluster.names[::5])


def test_only_jobs_whose_own_nodes_change_are_read_and_updated() -> None:
    cluster = Cluster(40)
    before: list[int] = []

    async def start() -> None:
        for number in range(60):
            await cluster.submit(a_pod(f"p{number}", **SHAPES[number % 4]))

    def relabel() -> None:
        assert cluster.updated == [], "nothing has changed"
        assert cluster.records_read == 0
        before.append(cluster.directions.judged)
        cluster.relabel(cluster.names[0], zone="z1")  # no GPUs there: z0 before

    def no_matter() -> None:
        assert sorted(cluster.updated) == [number + 1 for number in range(60) if number % 4 == 2]
        assert cluster.records_read == 15
        assert cluster.directions.judged == before[0] + 2, "once for each shape for which that is another node now"
        before.append(cluster.directions.judged)
        cluster.relabel(cluster.names[0], color="red")

    kept(cluster, relabel, no_matter, start=start)
    assert len(cluster.updated) == 15
    assert cluster.directions.judged == before[1]
    assert all(cluster.names[0] not in cluster.excluded(job_id) for job_id in cluster.updated)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_jobs_that_wait_are_told_what_a_job_that_is_submitted_now_would_be(chance: random.Random) -> None:
    cluster = Cluster(12)

    async def start() -> None:
        for number in range(8):
            await cluster.submit(a_pod(f"p{number}", **SHAPES[number % 4]))

    def change() -> None:
        name = chance.choice(cluster.names)
        match chance.randrange(4):
            case 0:
                cluster.relabel(name, zone=f"z{chance.randrange(4)}")
            case 1:
                cluster.put(name, gpus=chance.choice([0, 1, 8]), zone="z1")
            case 2:
                cluster.foreign.put(a_pod(f"f{name}", gpus=chance.choice([1, 8]), nodeName=name))
            case _:
                cluster.foreign.remove(Key("team", f"f{name}"))

    def changes() -> None:
        for _ in range(3):
            change()

    kept(cluster, changes, changes, changes, start=start)

    async def compare() -> None:
        for key, pod in cluster.pods.items():
            fresh = Directions(
                KubernetesJudgement(
                    Surroundings([cluster.own, cluster.foreign], cluster.kube_nodes, Cache[Namespace]()),
                    Ledger([cluster.own], cluster.kube_nodes, [cluster.foreign], [GPU]),
                ),
                cluster.slurm_nodes,
                {},
                NodeNames(cluster.kube_nodes),
                cluster="c1",
            )
            workload = cluster.workload(pod)
            [wanted] = await fresh.of(components(workload, SITE), members(workload, SITE), {})
            if not wanted.nowhere and not cluster.known[key].rejected:
                assert cluster.excluded(cluster.known[key].job_id) == set(wanted.excluded), pod

    run_in_virtual_time(compare())


# Exclusions that are too many for a comment


@pytest.mark.parametrize("theirs", [(), (0,), (0, 1, 2, 3)])
def test_three_thousand_exclusions_go_with_their_cause_after_a_restart_and_an_administrators_stay(theirs: Iterable[int]) -> None:
    cluster = Cluster(3100)
    added = {cluster.names[number] for number in theirs}

    async def start() -> None:
        for name in cluster.names[:100]:
            cluster.relabel(name, pool="a")
        await cluster.submit(a_pod("p", nodeSelector={"pool": "a"}))
        assert cluster.excluded(1) == set(cluster.names[100:])
        job = cluster.jobs[1]
        assert len(job.admin_comment) < 4096
        cluster.jobs[1] = msgspec.structs.replace(job, excluded_nodes=compress(sorted(cluster.excluded(1) | added)))
        cluster.restart()

    def half() -> None:
        assert cluster.updated == [], "what it was told before holds"
        for name in cluster.names[100:1600]:
            cluster.relabel(name, pool="a")

    def all_of_them() -> None:
        assert cluster.excluded(1) == set(cluster.names[1600:]) | added
        cluster.restart()
        for name in cluster.names[1600:]:
            cluster.relabel(name, pool="a")

    kept(cluster, half, all_of_them, start=start)
    assert cluster.excluded(1) == added
    assert len(cluster.updated) == 2


# What is read of Slurm again


def test_a_label_that_slurm_is_not_told_of_is_no_reason_to_read_its_nodes() -> None:
    def node(allocatable: str = "1", **labels: str) -> Node:
        return msgspec.convert({"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"cpu": allocatable}}}, Node)

    assert not concerns_slurm(node(), node(color="red"), ["zone"])
    assert concerns_slurm(node(), node(zone="a"), ["zone"])
    assert concerns_slurm(node(), node(allocatable="2"), [])
    assert concerns_slurm(None, node(), [])
    assert concerns_slurm(node(), None, [])
    assert concerns_slurm(node(), node(**{"slinky.slurm.net/slurm-nodename": "x"}), [])
