"""Health and metrics, asked over HTTP as the kubelet and Prometheus do."""

import asyncio
import time

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from slinky.kube import PODS, Access, Attempt, Client, Key, Reflector, WorkQueue
from slinky.kube import health as module
from slinky.kube.health import HealthServer
from slinky.kube.metrics import KubeMetrics
from slinky.sandbox.processes import free_port


async def asked(server: HealthServer, path: str, accept: str = "") -> tuple[int, str]:
    url = f"http://127.0.0.1:{server.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers={"Accept": accept}) as answer:
        return answer.status, await answer.text()


async def test_checks_by_name_and_with_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.05)
    problem: str | None = "not listed yet"

    async def never() -> str | None:
        await asyncio.Event().wait()
        return None

    def broken() -> str | None:
        raise RuntimeError("no such thing")

    async with HealthServer(CollectorRegistry(), host="127.0.0.1", port=0).running() as server:
        assert await asked(server, "/readyz") == (200, "ok")
        server.ready("pods", lambda: problem)
        assert await asked(server, "/readyz") == (503, "[-]pods failed: not listed yet\nfailed\n")
        assert (await asked(server, "/livez"))[0] == 200
        problem = None
        assert await asked(server, "/readyz?verbose") == (200, "[+]pods ok\nok\n")
        server.live("stuck", never)
        server.live("broken", broken)
        status, text = await asked(server, "/livez")
        assert status == 503
        assert "[-]stuck failed: no answer within" in text
        assert "[-]broken failed: RuntimeError: no such thing" in text


async def test_a_check_that_comes_while_others_are_asked_waits_for_the_next_question() -> None:
    async with HealthServer(CollectorRegistry(), host="127.0.0.1", port=0).running() as server:

        async def brings_another() -> str | None:
            server.ready("later", lambda: "not yet")
            return None

        server.ready("first", brings_another)
        assert await asked(server, "/readyz") == (200, "ok")
        assert (await asked(server, "/readyz"))[0] == 503


async def test_metrics_on_a_port_of_their_own() -> None:
    port = free_port()
    server = HealthServer(CollectorRegistry(), host="127.0.0.1", port=0, metrics_port=port)
    async with server.running(), aiohttp.ClientSession() as session:
        assert (await asked(server, "/metrics"))[0] == 404
        assert (await asked(server, "/livez"))[0] == 200
        for path, status in (("/metrics", 200), ("/livez", 404)):
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                assert answer.status == status
    async with HealthServer(
        CollectorRegistry(),
        host="127.0.0.1",
        port=0,
        metrics_port=0,
    ).running() as silent:
        assert (await asked(silent, "/metrics"))[0] == 404
        assert (await asked(silent, "/livez"))[0] == 200


async def test_metrics_in_both_formats() -> None:
    registry = CollectorRegistry()
    metrics = KubeMetrics(registry)
    metrics.observe(Attempt("GET", "pods", "ok", 0.01))
    metrics.observe(Attempt("POST", "pods/binding", "ConflictError", 0.02))
    queue: WorkQueue[Key] = WorkQueue()
    queue.add(Key("n", "a"))
    queue.add_after(Key("n", "b"), 60)
    metrics.follow("workloads", queue)
    async with Client(Access("http://127.0.0.1:1")) as client, HealthServer(registry, host="127.0.0.1", port=0).running() as server:
        metrics.follow("pods", Reflector(client, PODS))
        plain = {
            sample.name: sample
            for family in text_string_to_metric_families((await asked(server, "/metrics"))[1])
            for sample in family.samples
        }
        modern = list(open_metrics((await asked(server, "/metrics", "application/openmetrics-text; version=1.0.0"))[1]))  # type: ignore[no-untyped-call]
    assert plain["slinky_kube_requests_total"].value == 1
    assert plain["slinky_kube_cache_synced"].value == 0
    assert {"slinky_kube_requests", "slinky_loop_lag_seconds", "slinky_workqueue_keys"} <= {family.name for family in modern}
    keys = {
        sample.labels["state"]: sample.value for family in modern for sample in family.samples if sample.name == "slinky_workqueue_keys"
    }
    assert keys == {"ready": 1, "later": 1, "working": 0}


async def test_a_late_loop_shows() -> None:
    registry = CollectorRegistry()
    task = asyncio.create_task(KubeMetrics(registry).measure_loop_lag())
    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251 this is what a stuck loop is
    while not registry.get_sample_value("slinky_loop_lag_seconds_count"):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (registry.get_sample_value("slinky_loop_lag_seconds_sum") or 0) > 0.15
    assert (registry.get_sample_value("slinky_loop_longest_block_seconds") or 0) > 0.15
