"""Checkpoint signals into containers that never answer, through the real API server: no binding and no end of another job waits for them.

A kubelet that accepts connections and says nothing is what an image whose `kill` sleeps looks like from the bridge.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from slinky.bridge.keys import GANG, SETTINGS
from slinky.kube import EVENTS, NODES, PatchKind
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import own_bridge
from tests.conftest import Partition, Starter

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

GANGS, SIZE = 5, 16  # more commands than the bridge has connections for bindings
CONTAINERS = 8


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


def a_gang(team: Team, name: str, containers: int) -> dict[str, Any]:
    """Its pods run until they are deleted, and are to have their signals at once."""
    said = {"timelimit": "9", "signal": "USR1@600"}
    template = team.pod("any", run_for="30m", said=said)  # else kwok lets a Job's pods succeed after a second
    del template["metadata"]["name"]
    template["spec"]["containers"] += [{"name": f"c{number}", "image": "none"} for number in range(1, containers)]
    spec = {"parallelism": SIZE, "completions": SIZE, "template": {"metadata": template["metadata"], "spec": template["spec"]}}
    annotations = {GANG: "true"} | {SETTINGS + word: value for word, value in said.items()}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


async def test_commands_that_never_end_keep_no_pod_from_its_binding_nor_from_its_end(own: Sandbox, tmp_path: Path) -> None:
    kubelet, address = SilentKubelet(), str(own.record.addresses.host)
    async with kubelet.serving(address) as port, own_bridge(own, Partition("bridge", ()), tmp_path) as (_, team):
        await answer_for_all_nodes(team, address, port)
        for number in range(GANGS):
            # One command after another in each pod: together they take longer than the victim's time limit.
            await team.create(a_gang(team, f"hostile-{number}", CONTAINERS if number else 1))

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
        assert isinstance(ended.end_time, int)
        assert isinstance(ended.start_time, int)
        assert ended.end_time < ended.start_time + 60, "within its time limit"

        gangs = {f"hostile-{number}" for number in range(GANGS)}

        async def all_gangs_were_told() -> bool:
            failed = [event for event in (await team.kube.list(EVENTS, team.namespace)).items if event.reason == "CheckpointSignalFailed"]
            return gangs == {event.regarding.name.rpartition("-")[0] for event in failed}

        await team.until("Events told of a pod of each gang that its signal was not delivered", all_gangs_were_told, 300)
        running = [pod for pod in await team.pods() if pod.metadata.name.startswith("hostile") and pod.status.phase == "Running"]
        assert len(running) == GANGS * SIZE, "while their jobs ran: what is over is not tried again"
