"""What we say of pods and nodes is what kube-scheduler says: the same nodes exactly, on clusters and pods made at random."""

import os
import random

import pytest

from slinky.sandbox.handle import Sandbox
from tests.oracle.cluster import differences, standing
from tests.oracle.scheduler import oracle
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


async def compared(sandbox: Sandbox, rounds: int, pods: int) -> None:
    seed = int(os.environ.get("SLINKY_SEED", "0")) or random.randrange(1, 2**32)
    maker = Maker(seed, f"or{seed % 10_000}")
    async with oracle(sandbox) as judge, standing(sandbox, judge.kube, maker) as (cluster, surroundings):
        for turn in range(rounds):
            if turn:
                await cluster.change()
            different = await differences(judge, surroundings, [maker.pod() for _ in range(pods)])
            assert not different, f"SLINKY_SEED={seed}, turn {turn}: {len(different)} of {pods} differ:\n" + "\n".join(different[:3])


async def test_we_accept_the_nodes_that_kube_scheduler_accepts(sandbox: Sandbox) -> None:
    await compared(sandbox, rounds=4, pods=100)


@pytest.mark.long
async def test_we_accept_the_nodes_that_kube_scheduler_accepts_over_thousands_of_pods(sandbox: Sandbox) -> None:
    for _ in range(5):
        await compared(sandbox, rounds=10, pods=200)
