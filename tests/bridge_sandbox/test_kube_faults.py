"""The API server refuses, conflicts, falls silent, is cut off and restarted; the webhook is down: retries are bounded, there is no storm, and every pod comes through."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from slinky.kube import AlreadyExistsError, ApiError, KubeError, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import jobs_of, own_bridge
from tests.conftest import Partition
from tests.kube_sandbox.faults import FaultyLine, faulty_line
from tests.kube_sandbox.front import front

pytestmark = pytest.mark.sandbox

PODS_AT_ONCE = 8
WRITES = ("POST", "PATCH", "PUT", "DELETE")


def answered(code: int, reason: str) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": f"{reason}, says the test",
    }
    return web.json_response(body, status=code, headers={"Retry-After": "1"} if code == 429 else {})


class Server:
    """Counts what the bridge asks, and answers the next so many writes on pods itself."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()
        self.left = 0
        self.answer = (429, "TooManyRequests")

    def __call__(self, request: web.Request) -> web.StreamResponse | None:
        what = "watch" if "watch" in request.query else "write" if request.method in WRITES else "read"
        about_pods = "/pods/" in request.path
        self.heard[what if what != "write" or about_pods else "other write"] += 1
        if what == "write" and about_pods and self.left:
            self.left -= 1
            return answered(*self.answer)
        return None


@asynccontextmanager
async def fronted(sandbox: Sandbox, partition: Partition, folder: Path) -> AsyncIterator[tuple[Server, FaultyLine, Team, Any]]:
    server = Server()
    async with faulty_line(from_kubeconfig(sandbox.kubeconfig)) as line, front(line.access, server) as access:
        known: dict[str, Any] = yaml.safe_load(sandbox.kubeconfig.read_text())
        known["clusters"][0]["cluster"] = {"server": access.server}
        known["users"][0]["user"] = {}
        folder.mkdir(exist_ok=True)
        config = folder / "fronted.kubeconfig"
        config.write_text(yaml.safe_dump(known))
        config.chmod(0o600)
        async with own_bridge(sandbox, partition, folder / "bridge", parts=("admission",)) as (bridge, team):
            bridge.kubeconfigs = {"run": config}
            await bridge.start("run")
            yield server, line, team, bridge


async def test_429s_conflicts_and_cut_watches_are_waited_out_with_bounded_retries_and_no_storm(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    async with fronted(sandbox, partition, tmp_path) as (server, line, team, bridge):
        faults = ((429, "TooManyRequests"), (409, "Conflict"), (503, "ServiceUnavailable"))
        for number, (code, reason) in enumerate(faults):
            server.heard.clear()
            server.answer, server.left = (code, reason), 2 * PODS_AT_ONCE
            names = [f"p{number}-{index}" for index in range(PODS_AT_ONCE)]
            await team.create_all([team.pod(name) for name in names])
            await team.until_running(*names)
            assert server.heard["write"] <= 8 * PODS_AT_ONCE, (reason, server.heard)
            assert server.heard["watch"] <= 20, "no watch begins anew for it"
        server.heard.clear()
        for _ in range(3):
            line.reset()
            before = server.heard["watch"]

            async def again(before: int = before) -> bool:
                return server.heard["watch"] > before

            await team.until("the watches began again", again)
        await team.create(team.pod("after"))
        await team.until_running("after")
        assert server.heard["watch"] <= 150, server.heard
        assert len(await jobs_of(team)) == len(faults) * PODS_AT_ONCE + 1, "nothing was submitted twice"
        assert "Traceback" not in bridge.log("run")


@pytest.mark.long
async def test_an_api_server_that_is_restarted_or_silent_and_a_webhook_that_is_down(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    """What runs runs on; what Slurm started meanwhile is bound afterwards; pods that the webhook cannot see are refused, and nothing else is."""
    async with fronted(sandbox, partition, tmp_path) as (server, line, team, bridge):
        await team.create(team.pod("runs"), team.pod("held", said={"priority": "0"}))
        await team.until_running("runs")
        [runs, held] = await team.until_labelled("runs", "held")
        await bridge.stop("admission")
        with pytest.raises(ApiError, match="webhook"):
            await team.create(team.pod("refused"))
        line.silence()
        server.heard.clear()
        await team.head("scontrol", "release", str(held))

        async def started() -> bool:
            return (await team.slurm.jobs.get(held)).is_running

        await team.until("Slurm had started it", started)

        async def gave_up() -> bool:
            return "leads no more" in bridge.log("run")

        await team.until("a leader that hears nothing stepped down", gave_up)
        assert sum(server.heard.values()) <= 120, server.heard
        line.heal()
        line.reset()
        await team.until_running("held")
        await bridge.start("admission")
        await sandbox.restart("kube-apiserver")

        async def created() -> bool:
            try:
                await team.create(team.pod("new"))
            except AlreadyExistsError:
                return True  # whose answer was lost
            except KubeError:
                return False
            return True

        await until_up(team)
        await team.until("a pod was taken in", created)
        await team.until_running("new")
        assert await team.until_labelled("runs", "held") == [runs, held]
        assert len(await jobs_of(team)) == 3
        assert "Traceback" not in bridge.log("run")


async def until_up(team: Team) -> None:
    async with team.sandbox.kube() as kube:
        await team.sandbox.until("kube-apiserver", "it was ready", lambda: kube.get("/readyz"))
