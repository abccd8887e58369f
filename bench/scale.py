"""The bridge on a large cluster: `python -m bench scale [--part PART] [--quick]`.

Real slurmctld and API server; the nodes are kwok's. Parts so far: `gangs` binds one gang of 10,000 pods on 1,250 nodes and one of 4,000 on 4,000, each in a sandbox of its own, and reports the longest time for which the
bridge's event loop was blocked, from its start until all pods were bound and gone, and how long the gang took.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.bridge.ground import GROUPS_PATH, Ground, standing_on
from bench.bridge.pods import NAMESPACE, admitted, pod, pod_group
from bench.bridge.process import running, settings_for
from bench.rows import Row
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["PARTS", "measure"]

NAME = "bench-scale"
BLOCK_MS = 250.0
GANG_SECONDS = 400.0

Say = Callable[[str], None]


class Gang(NamedTuple):
    """One CPU a pod; a node has as many CPUs as it is to get pods."""

    pods: int
    nodes: int


GANGS = (Gang(10_000, 1250), Gang(4000, 4000))
QUICK_GANGS = (Gang(160, 20), Gang(40, 40))


def _gangs(quick: bool) -> list[Row]:
    rows: list[Row] = []
    for gang in QUICK_GANGS if quick else GANGS:
        with Progress() as progress:
            down(NAME)
            try:
                shape = Shape(nodes=gang.nodes, node_cpus=gang.pods // gang.nodes, node_gpus=0, addons=("podgroup",))
                sandbox = asyncio.run(up(NAME, shape, progress))
                with progress.step(f"a gang of {gang.pods:,} pods on {gang.nodes:,} nodes") as step:
                    rows += asyncio.run(_gang(sandbox, gang, step.say))
            finally:
                down(NAME)
    return rows


async def _gang(sandbox: Sandbox, gang: Gang, say: Say) -> list[Row]:
    async with standing_on(sandbox) as ground:
        settings = settings_for(sandbox, NAMESPACE)
        folder = sandbox.folder / "bench"
        folder.mkdir(exist_ok=True)
        name = f"gang of {gang.pods:,} on {gang.nodes:,} nodes"
        async with running(sandbox, settings, folder) as bridge:
            try:
                await ground.kube.post(GROUPS_PATH, pod_group("gang", gang.pods))
                members = [admitted(pod(f"gang-{index}", group="gang"), settings) for index in range(gang.pods)]
                await ground.create(members)
                created = time.time()
                say(f"{gang.pods:,} pods are created")
                bound = await ground.until_bound(gang.pods, GANG_SECONDS) - created
                say(f"all are bound, {bound:.1f} s after the last was created")
                await bridge.quiet()
                cpu = bridge.cpu_seconds()
                block = await bridge.largest("slinky_loop_longest_block_seconds")
                await _gone(ground, say)
                at_end = await bridge.largest("slinky_loop_longest_block_seconds")
            finally:
                await ground.clear(finalizers=False)
        return [
            Row(f"longest block of the bridge's loop, {name}, until bound", block * 1000, "ms", at_most=BLOCK_MS),
            Row(f"longest block of the bridge's loop, {name}, until gone", at_end * 1000, "ms", at_most=BLOCK_MS),
            Row(f"last pod created to last pod bound, {name}", bound, "s"),
            Row(f"CPU of the bridge a pod, {name}", cpu / gang.pods * 1000, "ms"),
        ]


async def _gone(ground: Ground, say: Say) -> None:
    await ground.delete_pods()
    await ground.until_no_pods()
    say("all are gone")


PARTS: dict[str, Callable[[bool], list[Row]]] = {"gangs": _gangs}


def measure(quick: bool, parts: Sequence[str] = ()) -> list[Row]:
    """The rows of these parts; of all by default."""
    return [row for name in parts or PARTS for row in PARTS[name](quick)]
