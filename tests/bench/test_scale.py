"""What of `python -m bench scale` needs no server: names, the relay, figures that are kept."""

import asyncio
import json
from pathlib import Path

import aiohttp
from aiohttp import web
from bench.__main__ import _kept
from bench.rows import Row
from bench.scale.still import cloud_nodes
from bench.scale.tap import tapped

from slinky.slurm import compress


def test_cloud_names_differ_and_hardly_compress() -> None:
    nodes = cloud_nodes(500, gpus=True, seed=1) + cloud_nodes(500, gpus=False, seed=2, first=500)
    names = [node.name for node in nodes]
    assert len(set(names)) == 1000
    assert names[:500] == [node.name for node in cloud_nodes(500, gpus=True, seed=1)]
    assert len(compress(names)) > 0.5 * len(",".join(names))


def test_a_still_node_is_ready_and_has_its_own_address() -> None:
    nodes = [*cloud_nodes(300, gpus=True, seed=1), *cloud_nodes(300, gpus=False, seed=2, first=300)]
    assert len({node.address for node in nodes}) == 600
    made = nodes[0].as_node()
    assert made["status"]["conditions"][0]["type"] == "Ready"
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu" not in nodes[-1].as_node()["status"]["allocatable"]


async def test_the_relay_notes_when_a_pod_is_first_named() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await request.text())}")

    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        server = f"http://127.0.0.1:{port}"
        async with tapped("team", server) as tap, aiohttp.ClientSession() as session:
            body = json.dumps({"comment": json.dumps({"pods": ["team/p-1", "team/p-12"]})})
            async with session.post(tap.address, data=body) as told:
                assert await told.text() == str(len(body))
            first = dict(tap.sent)
            assert set(first) == {"p-1", "p-12"}
            async with session.post(tap.address, data=body) as told:
                await told.read()
            assert tap.sent == first
            await asyncio.sleep(0)
    finally:
        await runner.cleanup()


def test_a_part_that_is_measured_again_takes_the_place_of_its_own_rows_only(tmp_path: Path) -> None:
    label = Row("label", 2.0, "ms", at_most=3.0, part="labels")
    rows = [Row("gang", 1.0, "ms", part="gangs"), label]
    before = tmp_path / "scale.json"
    assert _kept(before, ["gangs"]) == []
    before.write_text(json.dumps({"rows": [row.as_dict() for row in rows]}))
    assert _kept(before, ["gangs"]) == rows[1:]
    assert _kept(before, []) == []
