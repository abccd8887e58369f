"""The facts about exporters: those that the chart installed are found by their Service's label and read through the API server; another by its address.

Comes in: how Kubernetes is asked, and an address where one is named. Goes out: an `ExporterSide` each. What must stay true: to read /metrics may cause one look at Slurm, as any scrape does, and changes nothing; of the token only user and times leave here.
"""

import asyncio
import base64
import binascii
import datetime as dt
from collections.abc import Mapping
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from slinky.explain.asking import SECONDS, AskKube
from slinky.explain.examining_webhooks import ready_behind
from slinky.explain.installation import ExporterSide
from slinky.explain.troubles import Token, read_token
from slinky.kube import ApiError, Client, ForbiddenError, KubeError, NotFoundError, Resource

__all__ = ["examine_exporters", "told"]

LABELS = "app.kubernetes.io/name=slurm-exporter"
TELLING = ("slurm_up", "slurm_exporter_")
PORT = "metrics"
SERVICES: Resource[dict[str, Any]] = Resource("", "v1", "services", dict)
PODS: Resource[dict[str, Any]] = Resource("", "v1", "pods", dict)
SECRETS: Resource[dict[str, Any]] = Resource("", "v1", "secrets", dict)


async def examine_exporters(kube: AskKube, url: str, *, sure: bool) -> tuple[ExporterSide, ...] | None:
    """None where there is none, and nobody said that there should be one."""
    if url:
        return (await _at(url),)
    services = await kube.ask("exporters", lambda client: _services(client, sure=sure), ())
    if not services:
        return () if sure else None
    return tuple(await asyncio.gather(*(_of(kube, service) for service in services)))


async def _services(client: Client, *, sure: bool) -> list[dict[str, Any]]:
    try:
        return list((await client.list(SERVICES, labels=LABELS)).items)
    except KubeError:
        if sure:
            raise
        return []  # who may not ask is told nothing: the question was ours


async def _of(kube: AskKube, service: dict[str, Any]) -> ExporterSide:
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    facts: dict[str, Any] = {"place": f"Service {namespace}/{name}", "namespace": namespace}
    selector = ",".join(f"{key}={value}" for key, value in (service.get("spec", {}).get("selector") or {}).items())
    facts["endpoints"], pods = await asyncio.gather(
        kube.ask("exporters", lambda client: ready_behind(client, name, namespace), None),
        kube.ask("exporters", lambda client: client.list(PODS, namespace, labels=selector), None),
    )
    if facts["endpoints"]:
        facts |= await kube.ask("exporters", lambda client: _scraped(client, name, namespace), {})
    if pods and pods.items:
        facts["since"] = _since(pods.items)
        if secret := _secret_name(pods.items[0]):
            facts["secret"] = f"{namespace}/{secret}"
            facts |= await kube.ask("exporter-tokens", lambda client: _token(client, secret, namespace), {})
    return ExporterSide(**facts)


async def _scraped(client: Client, name: str, namespace: str) -> Mapping[str, Any]:
    try:
        text = await client.raw("GET", f"/api/v1/namespaces/{namespace}/services/{name}:{PORT}/proxy/metrics")
    except ForbiddenError:
        raise
    except ApiError as error:
        return {"unanswered": f"through the API server: {error}"}
    return told(text.decode(errors="replace"))


async def _at(url: str) -> ExporterSide:
    address = url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session,
            session.get(address, raise_for_status=True) as answer,
        ):
            return ExporterSide(place=url, **told(await answer.text(errors="replace")))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return ExporterSide(place=url, unanswered=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def told(text: str) -> dict[str, Any]:
    """What an exporter tells of itself; of the rest, which may be long, nothing is read."""
    lines = [line for line in text.splitlines() if line.startswith(TELLING)]
    samples = [sample for family in text_string_to_metric_families("\n".join(lines) + "\n") for sample in family.samples]
    values = {sample.name: sample.value for sample in samples}
    if "slurm_up" not in values:
        return {"unanswered": "what is told there is no exporter of Slurm's: slurm_up is missing"}
    return {
        "up": values["slurm_up"] == 1,
        "age": values.get("slurm_exporter_snapshot_age_seconds"),
        "looks": int(sum(sample.value for sample in samples if sample.name == "slurm_exporter_looks_total")),
        "missing": tuple(s.labels.get("part", "") for s in samples if s.name == "slurm_exporter_part_up" and s.value == 0),
    }


def _since(pods: list[dict[str, Any]]) -> dt.datetime | None:
    said = [pod.get("status", {}).get("startTime") for pod in pods]
    return min((dt.datetime.fromisoformat(each) for each in said if each), default=None)


def _secret_name(pod: dict[str, Any]) -> str:
    """Of the chart's volume."""
    volumes = pod.get("spec", {}).get("volumes") or ()
    return next((str(each["secret"].get("secretName", "")) for each in volumes if each.get("name") == "token" and "secret" in each), "")


async def _token(client: Client, name: str, namespace: str) -> Mapping[str, Any]:
    try:
        secret = await client.get(SECRETS, name, namespace)
    except NotFoundError:
        return {"without_token": "it does not exist"}
    found = [token for token in map(_read, (secret.get("data") or {}).values()) if token != Token()]
    return {"token": found[0]} if found else {"without_token": "none of its keys holds a token"}


def _read(data: str) -> Token:
    try:
        return read_token(base64.b64decode(data).decode())
    except (ValueError, binascii.Error):
        return Token()
