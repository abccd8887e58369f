"""A webhook as the API server would meet it: its configurations, the certificate that it has, and who is ready behind its Service.

Comes in: what a service's settings say of its webhook, and the configurations that it would write. Goes out: `Webhooks`. What must stay true: of the webhook's Secret only certificates are read, never keys.
"""

import asyncio
import base64
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from slinky.explain.asking import SECONDS
from slinky.explain.doctor_webhooks import Admission
from slinky.explain.installation import Webhooks
from slinky.kube import MUTATING_CONFIGURATIONS, Client, NotFoundError, Resource
from slinky.kube.objects import Record

__all__ = ["ready_behind", "webhooks_of"]


class _Certificates(Record, frozen=True):
    certificate: str = msgspec.field(default="", name="tls.crt")


class _Secret(Record, frozen=True):
    data: _Certificates = _Certificates()


class _Ready(Record, frozen=True):
    ready: bool | None = None


class _Endpoint(Record, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: _Ready = _Ready()


class _Slice(Record, frozen=True):
    endpoints: tuple[_Endpoint, ...] | None = None


SECRETS: Resource[_Secret] = Resource("", "v1", "secrets", _Secret)
SLICES: Resource[_Slice] = Resource("discovery.k8s.io", "v1", "endpointslices", _Slice)


async def webhooks_of(
    client: Client, admission: Admission, namespace: str, wanted: Sequence[tuple[Resource[Any], dict[str, Any]]]
) -> Webhooks:
    found: dict[str, Any] = {}
    should: dict[str, Any] = {}
    for resource, document in wanted:
        kind = "mutating" if resource.plural == MUTATING_CONFIGURATIONS.plural else "validating"
        should[kind] = document
        try:
            found[kind] = await client.get(resource.untyped, admission.configuration)
        except NotFoundError:
            found[kind] = None
    if admission.url:
        certificate, unanswered = await _served(admission.url)
        return Webhooks(found=found, wanted=should, certificate=certificate, unanswered=unanswered)
    certificate = await _kept(client, admission.secret, namespace)
    return Webhooks(found=found, wanted=should, certificate=certificate, endpoints=await ready_behind(client, admission.service, namespace))


async def ready_behind(client: Client, service: str, namespace: str) -> int:
    """Addresses behind a Service."""
    found = await client.list(SLICES, namespace, labels=f"kubernetes.io/service-name={service}")
    return sum(len(point.addresses) for each in found.items for point in each.endpoints or () if point.conditions.ready is not False)


async def _served(url: str) -> tuple[bytes, str]:
    """The certificate that is shown there, and what went wrong."""
    place = urlsplit(url)
    try:
        pem = await asyncio.to_thread(ssl.get_server_certificate, (place.hostname or "", place.port or 443), timeout=SECONDS / 2)
    except (OSError, ValueError) as error:
        return b"", f"a connection to it fails: {error}"
    return pem.encode(), ""


async def _kept(client: Client, secret: str, namespace: str) -> bytes:
    try:
        found = await client.get(SECRETS, secret, namespace)
    except NotFoundError:
        return b""
    return base64.b64decode(found.data.certificate or "")
