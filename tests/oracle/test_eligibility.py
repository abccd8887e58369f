"""What we say of pods and nodes is what kube-scheduler says: the same nodes exactly, on clusters and pods made at random."""

import asyncio

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.conftest import Starter
from tests.oracle.cluster import compare, standing
from tests.oracle.scheduler import oracle
from tests.oracle.seeds import seed_for
from tests.oracle.worlds import Maker

pytestmark = pytest.mark.sandbox


def plain(name: str, namespace: str, **spec: object) -> dict[str, object]:
    containers = [{"name": "c", "image": "none"}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": containers, **spec}}


async def test_kube_scheduler_names_every_node_that_passed_its_filters_and_binds_nothing(sandbox: Sandbox, namespace: str) -> None:
    rack = {"sandbox.slinky.slurm.net/rack": "rack-1"}
    async with oracle(sandbox) as judge:
        documents = [plain("here", namespace, nodeSelector=rack), plain("nowhere", namespace, nodeSelector={"there": "is-none"})]
        verdicts = {key.name: verdict for key, verdict in (await judge.verdicts(documents)).items()}
    assert verdicts["here"].nodes == {f"kwok-{index:02}" for index in range(16, 32)}
    assert verdicts["nowhere"].nodes == frozenset()
    assert "didn't match Pod's node affinity/selector" in verdicts["nowhere"].message
    assert not any(verdict.pod.spec.node_name for verdict in verdicts.values())


async def compared(sandbox: Sandbox, rounds: int, pods: int, seed: int = 0) -> None:
    seed = seed_for(seed)
    maker = Maker(seed, f"or{seed % 10_000}", restarting=sandbox.record.shape.kubernetes != "1.35")
    async with oracle(sandbox) as judge, standing(sandbox, judge.kube, maker) as (cluster, surroundings):
        for turn in range(rounds):
            if turn:
                await cluster.change()
            found = await compare(judge, surroundings, [maker.pod() if number % 2 else maker.narrow_pod() for number in range(pods)])
            different = found.different
            assert not different, f"SLINKY_SEED={seed}, turn {turn}: {len(different)} of {pods} differ:\n" + "\n".join(different[:3])
            assert found.partly > pods // 5, f"SLINKY_SEED={seed}: few pods are accepted here and refused there, so little is compared"


async def test_we_accept_the_nodes_that_kube_scheduler_accepts(sandbox: Sandbox) -> None:
    await compared(sandbox, rounds=2, pods=100, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))
async def test_we_accept_the_nodes_that_kube_scheduler_accepts_over_thousands_of_pods(sandbox: Sandbox, part: int) -> None:
    assert part >= 0, "each with a seed of its own"
    await compared(sandbox, rounds=10, pods=200)


@pytest.mark.long
@pytest.mark.parametrize("release", ["1.35", "1.37"])
async def test_other_releases_of_kube_scheduler_accept_the_same_as_we_do(start_sandbox: Starter, release: str) -> None:
    found = await asyncio.to_thread(start_sandbox, "oracle" + release.replace(".", ""), Shape(nodes=6, kubernetes=release))
    await compared(found, rounds=4, pods=100)
