"""A real Prometheus beside a sandbox: Debian's package, unpacked and cached, and a server that scrapes what it is told to.

Comes in: targets and rules. Goes out: a server on a port of the loopback, ready, and what it knows. What must stay true: the host's own packages are left as they are; the server ends with the one who started it, also if that one is killed.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from slinky.sandbox.cache import cache_root, entry
from slinky.sandbox.debian import unpack_package
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.processes import end_with_parent, free_port
from slinky.sandbox.progress import Progress

__all__ = ["Prometheus", "build_prometheus", "promtool", "running_prometheus"]

READY_SECONDS = 120.0
END_SECONDS = 20.0
QUERY_SECONDS = 30.0


def build_prometheus(progress: Progress) -> Path:
    """Where `prometheus` and `promtool` lie; fetched now where the cache has them not."""

    def build(folder: Path) -> None:
        log = cache_root() / "logs" / "prometheus.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        with progress.step("fetching Debian's Prometheus"):
            unpack_package("prometheus", folder, log)

    return entry("toolchain/prometheus", build) / "usr/bin"


def promtool(programs: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """`promtool check metrics` and the like; both streams in `stdout`."""
    done = subprocess.run(
        [programs / "promtool", *words], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode())


class Prometheus:
    """One that runs."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self._session = url, session

    async def query(self, expr: str) -> list[dict[str, Any]]:
        """The result now. Raises SandboxError where Prometheus does not understand it."""
        answer = await self._get("/api/v1/query", {"query": expr})
        if answer["status"] != "success":
            raise SandboxError(f"Prometheus refuses {expr}: {answer.get('error')}")
        result = answer["data"]["result"]
        return result if answer["data"]["resultType"] == "vector" else [{"metric": {}, "value": result}]

    async def alerts(self) -> dict[str, str]:
        """Name → state (pending or firing), of those that are."""
        answer = await self._get("/api/v1/alerts", {})
        found: dict[str, str] = {}
        for alert in answer["data"]["alerts"]:
            name = alert["labels"]["alertname"]
            found[name] = "firing" if "firing" in (alert["state"], found.get(name)) else alert["state"]
        return found

    async def targets(self) -> dict[str, str]:
        """Job → health (up, down, unknown)."""
        answer = await self._get("/api/v1/targets", {"state": "active"})
        return {target["labels"]["job"]: target["health"] for target in answer["data"]["activeTargets"]}

    async def _get(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        async with self._session.get(self.url + path, params=params) as answer:
            found: dict[str, Any] = await answer.json()
            return found


@asynccontextmanager
async def running_prometheus(
    programs: Path, folder: Path, targets: Mapping[str, Sequence[str]], rules: Sequence[Path] = (), seconds: int = 2
) -> AsyncIterator[Prometheus]:
    """`targets`: a job's name → HOST:PORT; all are scraped, and rules judged, every `seconds`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "prometheus.yml"
    pace = {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s", "scrape_timeout": f"{seconds}s"}
    jobs = [{"job_name": name, "static_configs": [{"targets": list(places)}]} for name, places in targets.items()]
    config.write_text(yaml.safe_dump({"global": pace, "rule_files": list(map(str, rules)), "scrape_configs": jobs}))
    address = f"127.0.0.1:{free_port()}"
    words = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            programs / "prometheus",
            *words,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
            start_new_session=True,
            env=os.environ | {"GOMAXPROCS": "1"},
        )
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(QUERY_SECONDS)) as session:
            await _ready(session, f"http://{address}", process, folder / "prometheus.log")
            yield Prometheus(f"http://{address}", session)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _ready(session: aiohttp.ClientSession, url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            while process.returncode is None:
                try:
                    async with session.get(f"{url}/-/ready") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise SandboxError(f"Prometheus was not ready within {READY_SECONDS:g} s: {log.read_text()[-2000:]}") from None
    raise SandboxError(f"Prometheus ended with {process.returncode}: {log.read_text()[-2000:]}")
