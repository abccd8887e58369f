"""A NodeSet of 1,000 workers: created beside the API server's own rate, updated, and scaled away; what it costs in calls is printed."""

import asyncio
import contextlib
import json
import re
import time
import urllib.request
from pathlib import Path

import pytest

from slinky.kube import PODS
from slinky.sandbox.shape import Shape
from tests.conftest import Starter
from tests.operator_sandbox.kwok_site import Site, a_site

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

WORKERS = 1000


async def raw_rate(site: Site, count: int, at_once: int = 32) -> float:
    """Pods per second that the API server takes of these pods, without an operator."""
    [model] = (await site.kube.list(PODS.untyped, site.namespace, labels="app.kubernetes.io/instance=model")).items
    meta = {"labels": {**model["metadata"]["labels"], "app.kubernetes.io/instance": "raw", "app.kubernetes.io/name": "raw"}}
    meta["annotations"] = model["metadata"].get("annotations", {})
    spec = {**model["spec"], "schedulerName": "nobody"}
    spec.pop("nodeName", None)
    turns = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with turns:
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": f"raw-{number}"}, "spec": spec}
            await site.kube.create(PODS, body, site.namespace)

    began = time.monotonic()
    await asyncio.gather(*map(one, range(count)))
    rate = count / (time.monotonic() - began)
    await site.kube.raw(
        "DELETE",
        f"/api/v1/namespaces/{site.namespace}/pods",
        parameters={"labelSelector": "app.kubernetes.io/name=raw", "gracePeriodSeconds": "0"},
    )
    return rate


def calls(site: Site) -> dict[str, float]:
    """Requests so far, by what they were for."""
    text = urllib.request.urlopen(f"{site.operator.health()}/metrics", timeout=5).read().decode()
    found: dict[str, float] = {}
    for name, labels, value in re.findall(r"^(slinky_(?:kube|slurm)_requests_total)\{(.*)\} (\S+)$", text, re.MULTILINE):
        found[f"{name} {labels}"] = float(value)
    return found


async def created(site: Site, name: str, count: int) -> float:
    """Seconds until that many pods are there."""
    began = time.monotonic()
    while True:
        text = await site.kube.raw(
            "GET",
            f"/api/v1/namespaces/{site.namespace}/pods",
            parameters={"labelSelector": f"app.kubernetes.io/instance={name}", "limit": "1"},
        )
        listed = json.loads(text)
        if len(listed["items"]) + (listed["metadata"].get("remainingItemCount") or 0) == count:
            return time.monotonic() - began
        await asyncio.sleep(0.05)


async def test_a_thousand_workers(start_sandbox: Starter, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sandbox = await asyncio.to_thread(start_sandbox, "operator-many", Shape(nodes=100))
    async with sandbox.kube() as kube:
        await kube.post("/api/v1/namespaces", {"metadata": {"name": "many"}})
    async with a_site(sandbox, "many", tmp_path) as site:
        await site.nodeset("model", replicas=1, oversubscribeNode=True)
        await site.until_ready("model")
        raw = await raw_rate(site, WORKERS)
        before = calls(site)
        await site.nodeset("many", replicas=WORKERS, oversubscribeNode=True, updateStrategy={"rollingUpdate": {"maxUnavailable": "100%"}})
        seconds = await created(site, "many", WORKERS)
        began = time.monotonic()
        await site.until("all were ready", lambda: ready(site, "many"), 300)
        settled = time.monotonic() - began
        spent = {
            name: (value - before.get(name, 0)) / WORKERS
            for name, value in calls(site).items()
            if value - before.get(name, 0) >= WORKERS / 50
        }
        began = time.monotonic()
        await site.change("many", template={"metadata": {"labels": {"release": "2"}}})
        await site.until("all were updated", lambda: updated(site, "many"), 300)
        update = time.monotonic() - began
        began = time.monotonic()
        await site.change("many", replicas=0)
        await site.until("all were gone", lambda: gone(site, "many"), 300)
        scaled = time.monotonic() - began
        with capsys.disabled():
            print(
                f"\nraw {raw:.0f}/s, by the operator {WORKERS / seconds:.0f}/s ({WORKERS / seconds / raw:.2f}); ready {settled:.1f} s later; updated in {update:.1f} s; gone in {scaled:.1f} s"
            )
            print("calls per worker until ready:", {name: round(value, 2) for name, value in spent.items()})
        with contextlib.suppress(OSError):
            (Path("artefacts") / "nodesets-many.json").write_text(json.dumps({"raw": raw, "operator": WORKERS / seconds, "calls": spent}))


async def ready(site: Site, name: str) -> bool:
    return (await site.condition(name, "Ready"))[0] == "True"


async def updated(site: Site, name: str) -> bool:
    pods = await site.pods(name)
    return len(pods) == WORKERS and all(pod.metadata.labels.get("release") == "2" for pod in pods.values()) and await ready(site, name)


async def gone(site: Site, name: str) -> bool:
    return not await site.pods(name)
