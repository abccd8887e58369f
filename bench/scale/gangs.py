"""`gangs`: one gang of 10,000 pods on 1,250 nodes, and one of 4,000 on 4,000.

The longest block of the loop is that from the bridge's start until all pods are bound, and until
all are gone.
"""

import time
from functools import partial
from typing import NamedTuple

from bench.bridge.ground import GROUPS_PATH
from bench.bridge.pods import admitted, pod, pod_group
from bench.rows import Row
from bench.scale.site import Site, block_row, bridge_on, in_sandbox, longest_block
from slinky.sandbox.shape import Shape

__all__ = ["gangs"]

GANG_SECONDS = 900.0


class Gang(NamedTuple):
    """One CPU a pod; a node has as many CPUs as it is to get pods."""

    pods: int
    nodes: int


GANGS = (Gang(10_000, 1250), Gang(4000, 4000))
QUICK_GANGS = (Gang(160, 20), Gang(40, 40))


def gangs(quick: bool) -> list[Row]:
    rows: list[Row] = []
    for gang in QUICK_GANGS if quick else GANGS:
        cpus = gang.pods // gang.nodes
        shape = Shape(nodes=gang.nodes, node_cpus=cpus, node_gpus=0, addons=("podgroup",))
        work = partial(_gang, gang=gang)
        rows += in_sandbox(f"a gang of {gang.pods:,} pods", shape, work, quick=quick)
    return rows


async def _gang(site: Site, gang: Gang) -> list[Row]:
    ground, settings = site.ground, site.settings
    about = f"gang of {gang.pods:,} pods on {gang.nodes:,} nodes"
    async with bridge_on(site, settings) as bridge:
        await ground.kube.post(GROUPS_PATH, pod_group("gang", gang.pods))
        sent = (pod(f"gang-{index}", group="gang") for index in range(gang.pods))
        await ground.create(admitted(each, settings) for each in sent)
        created = time.time()
        site.say(f"{gang.pods:,} pods are created")
        bound = await ground.until_bound(gang.pods, GANG_SECONDS) - created
        site.say(f"all are bound, {bound:.1f} s after the last was created")
        await bridge.quiet()
        cpu = bridge.cpu_seconds()
        at_bound = await longest_block(bridge)
        await ground.delete_pods()
        await ground.until_no_pods(GANG_SECONDS)
        site.say("all are gone")
        at_end = await longest_block(bridge)
    return [
        block_row(about, [at_bound], ", until all pods are bound"),
        block_row(about, [at_end], ", until all pods are gone"),
        Row(f"{about}: last pod created to last pod bound", bound, "s"),
        Row(f"{about}: CPU of the bridge a pod", cpu / gang.pods * 1000, "ms"),
    ]
