"""The Slurm client against what it stands on, in one run: a bare aiohttp loop, msgspec alone, and a core.

- Submits through the client, over submits through aiohttp with nothing around them, in turns on the same connections.
- A list of 10,000 jobs decoded by the client, over msgspec decoding the same fields into bare structs.
- The states of 5,000 jobs looked at once a second: the share of a core that our process needs for it.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

from bench.rows import Row
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up
from slinky.slurm import Job, JobDescription, Limits, SlurmClient, TokenFile
from slinky.slurm.models.jobs import JobList
from slinky.slurm.requests import Request
from slinky.slurm.transport import understood
from slinky.slurm.watch import changes

__all__ = ["measure", "measure_on"]

NAME = "bench-slurm-client"
CONNECTIONS = 16
HELD = JobDescription(name="bench", partition="bridge", tasks=1, cpus_per_task=1, memory_per_node=100, hold=True)


def measure(quick: bool) -> list[Row]:
    with Progress() as progress:
        down(NAME)
        try:
            sandbox = asyncio.run(up(NAME, Shape(nodes=20), progress))
            with progress.step("measuring the Slurm client"):
                return asyncio.run(measure_on(sandbox, quick))
        finally:
            down(NAME)


async def measure_on(sandbox: Sandbox, quick: bool) -> list[Row]:
    limits = Limits(connections=CONNECTIONS + 3)  # what bulk may use of that is what the bare loop has
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file), limits=limits) as client:
        await client.server()
        # First, as Slurm remembers ended jobs for a while and would tell their states too.
        rows = await _polling(client, 500 if quick else 5000, polls=10 if quick else 30)
        await _clear(client)
        rows += await _decoding(client, 1000 if quick else 10_000)
        rows += await _submits(client, sandbox, rounds=6 if quick else 30, jobs=100)
    return rows


# Submits


async def _submits(client: SlurmClient, sandbox: Sandbox, rounds: int, jobs: int) -> list[Row]:
    token = sandbox.token_file.read_text().strip()
    url = f"{sandbox.slurm_server}/slurm/{(await client.server()).version}/job/submit"
    body = msgspec.json.encode({"job": msgspec.to_builtins(HELD.to_submit(external=True))})
    headers = {"X-SLURM-USER-TOKEN": token, "Content-Type": "application/json"}
    assert client._connection.transport.lanes.bulk_limit == CONNECTIONS
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:

        async def bare(_: int) -> None:
            async with session.post(url, data=body, headers=headers) as response:
                assert msgspec.json.decode(await response.read())["job_id"]

        async def ours(_: int) -> None:
            assert (await client.jobs.submit_external(HELD)).job_id

        rates: dict[str, list[float]] = {"bare": [], "ours": []}
        for number in range(rounds + 1):  # the first round warms up
            turns = [("bare", bare), ("ours", ours)]
            for name, action in turns if number % 2 else reversed(turns):
                seconds = await _timed(jobs, action)
                if number:
                    rates[name].append(jobs / seconds)
            await _clear(client)
    ours_rate, bare_rate = (statistics.median(rates[name]) for name in ("ours", "bare"))
    # Pair by pair: whatever else the machine does hits both of a pair.
    ratio = statistics.median(ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True))
    return [
        Row(f"submits through the client, {CONNECTIONS} connections", ours_rate, "jobs/s"),
        Row("the same through bare aiohttp", bare_rate, "jobs/s"),
        Row("submit rate: client / bare aiohttp", ratio, "ratio", at_least=0.9),
    ]


async def _timed(count: int, action: Callable[[int], Awaitable[None]]) -> float:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await action(number)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
    return time.perf_counter() - started


async def _clear(client: SlurmClient) -> None:
    await client.jobs.cancel_many([status.job_id for status in await client.jobs.states() if not status.is_finished])


# Decoding


async def _decoding(client: SlurmClient, count: int) -> list[Row]:
    submitted = await client.jobs.submit_external(HELD)
    answer = await client.call("GET", f"/slurm/{{version}}/job/{submitted.job_id}")
    text = msgspec.json.encode({**answer, "jobs": answer["jobs"] * count})
    request = Request(method="GET", path="/slurm/jobs/")
    decoder = msgspec.json.Decoder(JobList)

    def ours() -> None:
        found = understood(request, decoder, 200, text)
        assert isinstance(found, JobList)
        assert found.jobs
        assert len(found.jobs) == count

    fields = [(field.encode_name, field.type, None) for field in msgspec.structs.fields(Job)]
    bare_job = msgspec.defstruct("BareJob", fields, gc=False)
    bare_list = msgspec.defstruct("BareList", [("jobs", list[bare_job])])  # type: ignore[valid-type]
    bare_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(bare_list)

    def bare() -> None:
        assert len(bare_decoder.decode(text).jobs) == count

    ours_seconds, bare_seconds = _in_turns(ours, bare, rounds=7)
    return [
        Row(f"decoding a list of {count:,} jobs ({len(text) / 1e6:.0f} MB)", ours_seconds, "s"),
        Row("decoding: client / msgspec for the same fields", ours_seconds / bare_seconds, "ratio", at_most=1.5),
    ]


def _in_turns(first: Callable[[], None], second: Callable[[], None], rounds: int) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for action, seconds in zip((first, second), times, strict=True):
            gc.collect()
            started = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - started)
    return min(times[0]), min(times[1])


# Polling


async def _polling(client: SlurmClient, count: int, polls: int) -> list[Row]:
    await _timed(count, lambda _: _submit_one(client))
    before = {status.label: status for status in await client.jobs.states()}
    started = time.process_time()
    for _ in range(polls):
        after = {status.label: status for status in await client.jobs.states()}
        assert len(changes(before, after)) == 0
        before = after
    share = (time.process_time() - started) / polls
    assert len(before) >= count
    return [Row(f"states of {len(before):,} jobs, one look a second", share * 100, "% of a core", at_most=2.0)]


async def _submit_one(client: SlurmClient) -> None:
    await client.jobs.submit_external(HELD)
