"""Where the admission server's certificate comes from, and how it is kept fresh while connections stay open.

In: files that somebody else renews, or nothing at all. Out: a TLS context whose later handshakes show the latest certificate.
What must stay true: a pair that cannot be used (half written, mismatched) never replaces one that can; connections that are open are not touched.
"""

import asyncio
import base64
import binascii
import datetime as dt
import logging
import random
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from slinky.kube.access import present
from slinky.kube.admission.cabundle import BundleKeeper
from slinky.kube.admission.certificates import Issued, issue, must_renew, still_valid
from slinky.kube.admission.installing import patiently
from slinky.kube.client import Client
from slinky.kube.errors import AlreadyExistsError, ConfigurationError, ConflictError, KubeError, NotFoundError
from slinky.kube.resources import Resource

__all__ = ["CertificateFiles", "CertificateSource", "SelfMadeCertificate"]

log = logging.getLogger(__name__)

FILES_SECONDS = 10.0
SECRET_SECONDS = 300.0
TRIES = 5
SECRETS: Resource[dict[str, Any]] = Resource("", "v1", "secrets", dict)


class CertificateSource(Protocol):
    """Gives a context that is ready, and keeps it fresh while it runs."""

    def running(self) -> AbstractAsyncContextManager[ssl.SSLContext]: ...


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """From the next handshake on. Tried on another context first: a failed load would leave this one half changed."""
    present(server_context(), certificate, key)
    present(context, certificate, key)


class CertificateFiles:
    """A mounted Secret, as cert-manager renews it. Looked at every few seconds.

    `authority`: the file of who signed it, which `bundle` has the API server trust. One that changes is trusted one look before its certificate is shown.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        authority: Path | None = None,
        bundle: BundleKeeper | None = None,
        every: float = FILES_SECONDS,
    ) -> None:
        self._certificate, self._key = certificate, key
        self._authority, self._bundle = authority, bundle
        self._every = every
        self._shown: tuple[bytes, bytes] = (b"", b"")
        self._trusted = b""
        self.loads = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ssl.SSLContext]:
        context = server_context()
        self._trust()
        self._load(context)
        async with self._bundle.running() if self._bundle else nullcontext():
            task = asyncio.create_task(self._keep(context), name="certificate files")
            try:
                yield context
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _trust(self) -> bool:
        """Whether there was another authority."""
        if not (self._authority and self._bundle):
            return False
        found = _read(self._authority)
        if found == self._trusted:
            return False
        if not still_valid(found, dt.datetime.now(dt.UTC)):
            raise ConfigurationError(f"webhook authority: {self._authority} holds no valid certificate")
        self._bundle.trust(found)
        self._trusted = found
        log.info("webhook authority loaded from %s", self._authority)
        return True

    def _load(self, context: ssl.SSLContext) -> None:
        pair = _read(self._certificate), _read(self._key)
        if pair != self._shown:
            show(context, *pair)
            self._shown = pair
            self.loads += 1
            log.info("webhook certificate loaded from %s", self._certificate)

    async def _keep(self, context: ssl.SSLContext) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                if not self._trust():
                    self._load(context)
            except ConfigurationError as error:
                log.warning("%s; the one before stays, looking again in %g s", error, self._every)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"webhook certificate: {error.filename}: {error.strerror}") from None


class SelfMadeCertificate:
    """A certificate of our own, kept in a Secret that all replicas share, and trusted by the named webhook configurations."""

    def __init__(
        self,
        client: Client,
        secret: str,
        namespace: str,
        names: Sequence[str],
        *,
        mutating: Sequence[str] = (),
        validating: Sequence[str] = (),
        every: float = SECRET_SECONDS,
    ) -> None:
        self._client = client
        self._secret, self._namespace = secret, namespace
        self._names = list(names)
        self._every = every
        self._bundle = BundleKeeper(client, mutating=mutating, validating=validating)
        self.issued: Issued | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ssl.SSLContext]:
        context = server_context()
        async with self._bundle.running():
            await patiently(lambda: self.refresh(context))
            task = asyncio.create_task(self._keep(context), name="self-made certificate")
            try:
                yield context
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def refresh(self, context: ssl.SSLContext) -> None:
        """Take what the Secret holds, or renew it; have it trusted, then show it."""
        issued = await self._current()
        if issued == self.issued:
            return
        self._bundle.trust(issued.authorities)
        show(context, issued.certificate, issued.key)
        self.issued = issued

    async def _keep(self, context: ssl.SSLContext) -> None:
        while True:
            await asyncio.sleep(self._every * (0.5 + random.random()))  # noqa: S311 spreads the load, guards nothing
            try:
                await self.refresh(context)
            except KubeError as error:
                log.warning("webhook certificate: %s; the one before stays, looking again in about %g s", error, self._every)

    async def _current(self) -> Issued:
        """Several replicas may do this at once: the first write wins, the others read it."""
        problem: KubeError | None = None
        for _ in range(TRIES):
            now = dt.datetime.now(dt.UTC)
            try:
                secret = await self._client.get(SECRETS, self._secret, self._namespace)
            except NotFoundError:
                secret = None
            held = _issued(secret) if secret else None
            if held and not must_renew(held, self._names, now):
                return held
            fresh = issue(self._names, now, held)
            try:
                await self._store(fresh, secret)
            except (AlreadyExistsError, ConflictError, NotFoundError) as error:
                problem = error
                continue
            log.info("webhook certificate for %s made, in Secret %s/%s", ", ".join(self._names), self._namespace, self._secret)
            return fresh
        raise KubeError(f"Secret {self._namespace}/{self._secret} could not be written, {TRIES} times in a row: {problem}")

    async def _store(self, fresh: Issued, secret: dict[str, Any] | None) -> None:
        parts = {"ca.crt": fresh.authorities, "ca.key": fresh.authority_key, "tls.crt": fresh.certificate, "tls.key": fresh.key}
        data = {name: base64.b64encode(value).decode() for name, value in parts.items()}
        if secret is None:
            await self._client.create(SECRETS, {"metadata": {"name": self._secret}, "type": "Opaque", "data": data}, self._namespace)
        else:
            await self._client.replace(SECRETS, self._secret, secret | {"data": data}, self._namespace)


def _issued(secret: dict[str, Any]) -> Issued | None:
    data = secret.get("data") or {}
    try:
        return Issued(*(base64.b64decode(data[name], validate=True) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")))
    except (KeyError, binascii.Error):
        return None
