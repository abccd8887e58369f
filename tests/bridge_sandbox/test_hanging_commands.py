"""Checkpoint signals into containers that never answer, through the real API server: no binding and no end of another job waits for them.

A kubelet that accepts connections and says nothing is what an image whose `kill` sleeps looks like from the bridge.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slinky.bridge.keys import GANG, SETTINGS
from slinky.kube import NODES, PatchKind
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import own_bridge
from tests.conftest import Partition, Starter

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

GANGS, SIZE = 5, 16  # more commands than the bridge has connections for bindings


@pytest.fixture(scope="module")
def own(start_sandbox: Starter) -> Sandbox:
    return start_sandbox("hanging", Shape(nodes=3))


class SilentKubelet:
    """`hanging`: connections that wait for a word."""

    def __init__(self) -> None:
        self.hanging = 0

    @asynccontextmanager
    async def serving(self, address: str) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._accept, address, 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hanging += 1
        try:
            while await reader.read(4096):
                pass
        except ConnectionError:
            pass
        finally:
            self.hanging -= 1
            writer.close()


async def answer_for_all_nodes(team: Team, address: str, port: int) -> None:
    status = {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    for node in (await team.kube.list(NODES)).items:
        await team.kube.patch(NODES, node.metadata.name, {"status": status}, kind=PatchKind.MERGE, subresource="status")


async def test_commands_that_never_end_keep_no_pod_from_its_binding_nor_from_its_end(own: Sandbox, tmp_path: Path) -> None:
    kubelet, address = SilentKubelet(), str(own.record.addresses.host)
    async with kubelet.serving(address) as port, own_bridge(own, Partition("bridge", ()), tmp_path) as (_, team):
        await answer_for_all_nodes(team, address, port)
        for number in range(GANGS):
            template = team.pod("any", said={"timelimit": "9", "signal": "USR1@600"})
            spec = {"parallelism": SIZE, "completions": SIZE, "template": {"metadata": template["metadata"], "spec": template["spec"]}}
            template["metadata"].pop("name")
            said = {GANG: "true", f"{SETTINGS}timelimit": "9", f"{SETTINGS}signal": "USR1@600"}
            await team.create(
                {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"hostile-{number}", "annotations": said}, "spec": spec}
            )

        async def hang() -> bool:
            return kubelet.hanging >= SIZE

        await team.until("commands hung", hang, 90)
        victim = team.pod("victim", said={"timelimit": "1"})
        victim["spec"]["terminationGracePeriodSeconds"] = 5
        await team.create(victim, team.pod("next"))
        await team.until_running("victim", "next")
        [job_id, _] = await team.until_labelled("victim", "next")
        assert kubelet.hanging, "all the while"

        async def over() -> bool:
            return (await team.slurm.jobs.get(job_id)).is_finished

        await team.until("the victim's time was over", over, 150)
        ended = await team.slurm.jobs.get(job_id)
        assert ended.state is JobState.CANCELLED, "by the bridge, in time: it did not wait for Slurm's TIMEOUT"
        assert "has reached its time limit" in ended.comment
