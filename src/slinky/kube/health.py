"""`/livez`, `/readyz` and `/metrics`, for the kubelet and for Prometheus.

In: named checks, a metrics registry. Out: 200 where all checks pass, else 503 with the names of those that do not and why.
What must stay true: a check has a deadline, and one that raises has failed; it runs in the loop it judges, so a stuck loop answers nothing and the kubelet restarts us.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from slinky.kube.errors import ConfigurationError

__all__ = ["Check", "HealthServer"]

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
Freshen = Callable[[float | None], Awaitable[None]]  # seconds that the scraper waits, where it says so
Check = Callable[[], str | Awaitable[str | None] | None]  # a problem in words, or None


class HealthServer:
    """`async with HealthServer(registry, port=8081).running() as health: health.ready("pods", lambda: None if pods.is_synced else "not listed yet")`."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        host: str | None = None,
        port: int = 8081,
        metrics_port: int | None = None,
        freshen: Freshen | None = None,
    ) -> None:
        """`freshen` is called before metrics are told; how long it takes, the scraper waits.

        `metrics_port`: serve /metrics there and not on `port`; 0 serves no metrics.
        """
        self._registry = registry
        self._metrics_port = metrics_port
        self._freshen = freshen
        self._host, self._port = host, port
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}

    def live(self, name: str, check: Check) -> None:
        """Failing means: restart me."""
        self._live[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Failing means: send me nothing."""
        self._ready[name] = check

    @property
    def port(self) -> int:
        """Where it listens; of use where 0 was asked for."""
        return self._port

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HealthServer"]:
        application = web.Application()
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/healthz", self._livez)
        application.router.add_get("/readyz", self._readyz)
        together = self._metrics_port is None
        if together:
            application.router.add_get("/metrics", self._metrics)
        what = "health and metrics" if together else "health"
        async with AsyncExitStack() as stack:
            served = self._served(application, self._port, what)
            self._port = await stack.enter_async_context(served)
            if self._metrics_port:
                metrics = web.Application()
                metrics.router.add_get("/metrics", self._metrics)
                served = self._served(metrics, self._metrics_port, "metrics")
                await stack.enter_async_context(served)
            yield self

    @asynccontextmanager
    async def _served(
        self,
        application: web.Application,
        port: int,
        what: str,
    ) -> AsyncIterator[int]:
        """Yields the port that it listens on."""
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, self._host, port).start()
            except OSError as error:
                why = f"{what} cannot be served on port {port}: {error.strerror or error}"
                advice = "choose another, or 0 for any that is free"
                raise ConfigurationError(f"{why}; {advice}") from error
            found = int(runner.addresses[0][1])
            log.info("%s on port %d", what, found)
            yield found
        finally:
            await runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._live)

    async def _readyz(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._ready)

    async def _answer(self, request: web.Request, checks: dict[str, Check]) -> web.Response:
        now = dict(checks)  # others may come while these are asked
        problems = dict(zip(now, await asyncio.gather(*map(_problem, now.values())), strict=True))
        failed = any(problems.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok" for name, problem in problems.items()]
        return web.Response(text="\n".join([*lines, "failed" if failed else "ok", ""]), status=503 if failed else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._freshen:
            await self._freshen(_patience(request))
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": kind})


def _patience(request: web.Request) -> float | None:
    """Prometheus says how long it waits."""
    try:
        return float(request.headers["X-Prometheus-Scrape-Timeout-Seconds"])
    except (KeyError, ValueError):
        return None


async def _problem(check: Check) -> str | None:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            found = check()
            return await found if inspect.isawaitable(found) else found
    except TimeoutError:
        return f"no answer within {CHECK_SECONDS:g} s"
    except Exception as error:
        log.exception("a health check failed")
        return f"{type(error).__name__}: {error}"
