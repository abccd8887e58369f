"""Requests on their way: connections, deadlines, retries, fresh credentials, and errors that say what happened.

In: method, path, body. Out: the answer's bytes, or an open stream; or an error of `slinky.kube.errors`.
What must stay true: every call ends within its deadline, retries included; a write whose answer did not come is an OutcomeUnknownError, whatever the reason;
each attempt is shown to the observer once.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from slinky.kube.access import Access, present
from slinky.kube.credentials import Credentials
from slinky.kube.errors import (
    ConnectionFailedError,
    DeadlineError,
    InterruptedReadError,
    KubeError,
    OutcomeUnknownError,
    RequestError,
    UnauthorizedError,
    refusal,
)
from slinky.kube.proxies import proxy_for
from slinky.kube.retries import Retries, pause_before_retry

__all__ = ["Attempt", "Observer", "Request", "Transport"]

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_SECONDS = 10.0
ROUNDS_TO_CLOSE = 5  # of the loop, in which sockets are really closed
CLOSE_SECONDS = 2.0  # of a WebSocket: how long the other side's good-bye is waited for
READ_BUFFER = 256 * 1024
MOST_MESSAGE = 1024 * 1024  # of a WebSocket: kubelets send 32 KiB


@dataclass(frozen=True)
class Request:
    """`resource` names the kind of thing asked for, for metrics: `pods`, `pods/binding`."""

    method: str
    path: str
    resource: str
    parameters: Mapping[str, str] | Sequence[tuple[str, str]] | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    seconds: float = 30.0
    retries: Retries = Retries()


@dataclass(frozen=True)
class Attempt:
    """One try of one request, as an observer sees it. `outcome` is `ok` or the error's class name."""

    method: str
    resource: str
    outcome: str
    seconds: float


Observer = Callable[[Attempt], None]


class _Connector(aiohttp.TCPConnector):
    """A connection that is not to be used again goes without TLS's good-bye, for whose answer nobody would wait: a loop that ends now would leave the socket open."""

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        if should_close and key.is_ssl and protocol.transport is not None:
            protocol.transport.abort()
        super()._release(key, protocol, should_close=should_close)


class Transport:
    """Belongs to the event loop in which it is first used; `close` it there."""

    def __init__(self, access: Access, *, connections: int = 64, observer: Observer | None = None, user_agent: str = "slinky") -> None:
        self.access = access
        self._tls = access.tls()
        self._credentials = Credentials(access, self._use_certificate)
        self._connections = connections
        self._observer = observer
        self._session: aiohttp.ClientSession | None = None
        self._retired: aiohttp.ClientSession | None = None
        # Compression costs more CPU, theirs and ours, than a cluster's network is worth.
        self._headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
        proxy = proxy_for(access.server, os.environ) if access.proxy is None else access.proxy
        self._options: dict[str, Any] = {"proxy": proxy or None, "allow_redirects": False}
        if self._tls:
            self._options["ssl"] = self._tls
        if access.server_name:
            self._options["server_hostname"] = access.server_name

    async def close(self) -> None:
        for session in (self._session, self._retired):
            if session:
                await session.close()
        self._session = self._retired = None
        for _ in range(ROUNDS_TO_CLOSE):
            await asyncio.sleep(0)

    async def send(self, request: Request) -> bytes:
        """The body of a successful answer."""
        try:
            async with asyncio.timeout(request.seconds) as deadline:
                return await self._send_until(request, deadline.when() or 0.0)
        except TimeoutError:
            raise _late(request) from None

    async def date(self, request: Request) -> str:
        """The server's clock: the header `Date` of its answer to that request; empty where it sends none."""
        try:
            async with asyncio.timeout(request.seconds), await self._begin(request) as response:
                return response.headers.get("Date", "")
        except TimeoutError:
            raise _late(request) from None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[aiohttp.StreamReader]:
        """An answer without end. `seconds` is the deadline for its beginning; how long it may be silent is the reader's to say."""
        response = await self._opened(request)
        try:
            yield response.content
        except (aiohttp.ClientError, OSError) as error:
            raise InterruptedReadError(request.method, request.path, _said(error)) from None
        finally:
            # Without TLS's good-bye, for whose answer nobody would wait: a loop that ends now would leave the socket open.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    @asynccontextmanager
    async def websocket(self, request: Request, protocols: Sequence[str]) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Both ways, until either side ends it; the deadline is the caller's. A connection that breaks ends it too."""
        try:
            socket = await self._observed(request, lambda request: self._upgraded(request, protocols))
        except UnauthorizedError:
            if not await self._credentials.renew():
                raise
            socket = await self._observed(request, lambda request: self._upgraded(request, protocols))
        try:
            yield socket
        except BaseException:
            # Given up: without a good-bye, as what the other side goes on sending would be read until its answer.
            connection = socket._response.connection  # aiohttp has no public way
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
            raise
        finally:
            await socket.close()

    async def _upgraded(self, request: Request, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        headers = {**await self._credentials.headers(), "User-Agent": self._headers["User-Agent"]}
        options = {name: value for name, value in self._options.items() if name != "allow_redirects"}
        try:
            socket: aiohttp.ClientWebSocketResponse = await self._open_session().ws_connect(
                self.access.server + request.path,
                protocols=protocols,
                params=request.parameters,
                headers=headers,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                max_msg_size=MOST_MESSAGE,
                **options,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise refusal(request.method, request.path, error.status, b"the server did not open a WebSocket") from None
        except (aiohttp.ClientConnectorError, aiohttp.ClientSSLError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionFailedError(request.method, request.path, f"{self.access.server}: {_said(error)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(request, error) from None
        return socket

    async def _send_until(self, request: Request, deadline: float) -> bytes:
        failures, renewed = 0, False
        while True:
            try:
                return await self._attempt(request)
            except UnauthorizedError:
                if renewed or not await self._credentials.renew():
                    raise
                renewed = True
                log.info("%s %s: unauthorized; trying once with renewed credentials", request.method, request.path)
            except RequestError as error:
                failures += 1
                pause = pause_before_retry(error, failures, request.retries)
                if pause is None or asyncio.get_running_loop().time() + pause >= deadline:
                    raise
                log.warning("%s; try %d of %d in %.1f s", error, failures + 1, request.retries.most + 1, pause)
                await asyncio.sleep(pause)

    async def _opened(self, request: Request) -> aiohttp.ClientResponse:
        """Headers received and good; one renewal of credentials, no other retry."""
        try:
            async with asyncio.timeout(request.seconds):
                try:
                    return await self._observed(request, self._begin)
                except UnauthorizedError:
                    if not await self._credentials.renew():
                        raise
                    return await self._observed(request, self._begin)
        except TimeoutError:
            raise _late(request) from None

    async def _attempt(self, request: Request) -> bytes:
        return await self._observed(request, self._whole)

    async def _observed(self, request: Request, act: Callable[[Request], Awaitable[T]]) -> T:
        started, outcome = time.perf_counter(), "ok"
        try:
            return await act(request)
        except KubeError as error:
            outcome = type(error).__name__
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            if self._observer:
                self._observer(Attempt(request.method, request.resource, outcome, time.perf_counter() - started))

    async def _whole(self, request: Request) -> bytes:
        response = await self._begin(request)
        try:
            return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(request, error) from None
        finally:
            response.release()

    async def _begin(self, request: Request) -> aiohttp.ClientResponse:
        """Send, and receive the head of a good answer; anything else becomes an error."""
        headers = await self._credentials.headers()
        headers.update(self._headers)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        timeout = aiohttp.ClientTimeout(total=None, connect=request.seconds * 0.9, sock_connect=CONNECT_SECONDS)
        try:
            response = await self._open_session().request(
                request.method,
                self.access.server + request.path,
                params=request.parameters,
                data=request.body,
                headers=headers,
                timeout=timeout,
                **self._options,
            )
            if response.status < 300:
                return response
            async with response:
                body, after = await response.read(), response.headers.get("Retry-After", "")
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError, aiohttp.ClientSSLError, ssl.SSLError) as error:
            raise ConnectionFailedError(request.method, request.path, f"TLS: {_said(error)}", hopeless=True) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError, aiohttp.InvalidURL) as error:
            raise ConnectionFailedError(request.method, request.path, f"{self.access.server}: {_said(error)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(request, error) from None
        raise refusal(request.method, request.path, response.status, body, float(after) if after.isdigit() else None)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = _Connector(limit=self._connections, ttl_dns_cache=30)
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=True, read_bufsize=READ_BUFFER, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _use_certificate(self, certificate: bytes, key: bytes) -> None:
        """From a plugin. Connections that are open go on with the old one until they end, or until the next change at the latest."""
        if self._tls:
            present(self._tls, certificate, key)
        if self._retired:
            self._closing = asyncio.ensure_future(self._retired.close())
        self._session, self._retired = None, self._session


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _late(request: Request) -> RequestError:
    message = f"no answer within {request.seconds:g} s"
    return DeadlineError(request.method, request.path, message) if request.method == "GET" else _unknown(request, message)


def _broken(request: Request, error: BaseException) -> RequestError:
    message = f"the connection broke: {_said(error)}"
    return InterruptedReadError(request.method, request.path, message) if request.method == "GET" else _unknown(request, message)


def _unknown(request: Request, message: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(request.method, request.path, f"{message}; it may have been done")
