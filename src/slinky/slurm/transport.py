"""One request to slurmrestd, made safe: a turn, a token, a deadline, an answer that is understood, another try where that is harmless.

Comes in: a `Request` and the decoder of its answer. Goes out: the decoded answer, or one error of `slinky.slurm.errors`. This is the only place in the project
that sends anything to slurmrestd.

What must stay true: every request ends by its deadline; every repetition is counted, delayed with jitter and logged; a request that changes something
is repeated only when it was not carried out, or when doing it twice is the same as once.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

import aiohttp
import msgspec
from yarl import URL

from slinky.slurm.address import Address
from slinky.slurm.answers import Again, Fault, envelope_fault, failed_answer, unreadable
from slinky.slurm.circuit import Circuit
from slinky.slurm.credentials import Credentials
from slinky.slurm.errors import AuthenticationError, ConfigurationError, DeadlineError, OutcomeUnknownError, SlurmError, UnavailableError
from slinky.slurm.lanes import Lane, Lanes
from slinky.slurm.numbers import Envelope
from slinky.slurm.requests import Attempt, Limits, Observer, Request

__all__ = ["Decodes", "Transport"]

log = logging.getLogger(__name__)

E = TypeVar("E", bound=Envelope, covariant=True)
T = TypeVar("T")
Begun = tuple[aiohttp.ClientResponse, bytes]


class Decodes(Protocol[E]):
    """msgspec's decoders, and whatever else turns bytes into an answer."""

    def decode(self, text: bytes, /) -> E: ...


class Transport:
    """A pool of connections to one slurmrestd. To be closed."""

    def __init__(self, address: Address, credentials: Credentials, limits: Limits, observer: Observer | None = None) -> None:
        self.address = address
        self._observer = observer
        self.credentials = credentials
        self.limits = limits
        self.lanes = Lanes(limits.connections)
        self.circuit = Circuit(self._is_there, limits.circuit_threshold)
        self.ping_path = ""  # known when a version has been chosen
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ConfigurationError("the client has been closed")
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect)
            self._session = aiohttp.ClientSession(
                connector=self.address.connector(self.limits.connections),
                timeout=timeout,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            # aiohttp repeats a GET or DELETE by itself when a kept connection breaks; whether to repeat is decided here, and logged.
            self._session._retry_connection = False
        return self._session

    async def close(self) -> None:
        self._closed = True
        await self.circuit.stop()
        if self._session:
            await self._session.close()
            self._session = None

    async def call(self, request: Request, decoder: Decodes[E]) -> E:
        """Send it, and again where that is harmless and helps, until the deadline."""
        ends = asyncio.get_running_loop().time() + (request.deadline or self.limits.deadline)
        return await self._persist(request, ends, lambda seconds: self._attempt(request, decoder, seconds))

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        """The body as it arrives, in pieces; for answers too large to be held. Repeated like any call until the first piece is there, and not after it: the
        caller has seen the beginning.

        The deadline is looked at between pieces, and each piece has the time of one attempt; no timer runs while the caller has the floor.
        """
        loop = asyncio.get_running_loop()
        limit = request.deadline or self.limits.deadline
        ends = loop.time() + limit
        response, piece = await self._persist(request, ends, lambda seconds: self._begin(request, seconds))
        try:
            async with response:
                while piece:
                    yield piece
                    if loop.time() >= ends:
                        raise DeadlineError(f"not all of the answer came within {limit:g} s", request=request.label)
                    piece = await self._next_piece(request, response)
        finally:
            self.lanes.leave(request.lane)

    async def _next_piece(self, request: Request, response: aiohttp.ClientResponse) -> bytes:
        error: SlurmError
        try:
            async with asyncio.timeout(self.limits.attempt):
                return await response.content.readany()
        except TimeoutError:
            error = DeadlineError(f"the answer stopped in the middle for {self.limits.attempt:g} s", request=request.label)
        except (aiohttp.ClientError, OSError) as problem:
            error = UnavailableError(_connection_problem(problem), request=request.label)
        self.circuit.failed(str(error))
        raise error

    async def _persist(self, request: Request, ends: float, attempted: Callable[[float], Awaitable[T | Fault]]) -> T:
        """Try, and again where that is harmless and helps."""
        loop = asyncio.get_running_loop()
        rotated = False
        attempt = 0
        while True:
            attempt += 1
            answer = await attempted(ends - loop.time())
            if not isinstance(answer, Fault):
                return answer
            if answer.again is Again.RENEWED:
                if rotated:
                    raise answer.error
                rotated = True
                log.info("%s: Slurm did not believe the token; trying the renewed one", request.label)
                continue
            pause = self._pause(attempt)
            if not self._may_repeat(request, answer, attempt, ends - loop.time() - pause):
                raise answer.error
            log.info("%s: attempt %d failed (%s); again in %.2f s", request.label, attempt, answer.error, pause)
            await asyncio.sleep(pause)

    def _may_repeat(self, request: Request, fault: Fault, attempt: int, seconds_left: float) -> bool:
        if attempt >= self.limits.attempts or self.circuit.is_open or seconds_left <= 0:
            return False
        if not request.changes or request.repeatable:
            return fault.again in (Again.ALWAYS, Again.IF_HARMLESS)
        # A change cut short by the deadline would turn "not done" into "unknown".
        return fault.again is Again.ALWAYS and seconds_left >= self.limits.attempt

    def _pause(self, attempt: int) -> float:
        longest = min(self.limits.first_pause * 3.0 ** (attempt - 1), self.limits.longest_pause)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311

    async def _attempt(self, request: Request, decoder: Decodes[E], seconds: float) -> E | Fault:
        """One try; the circuit learns how it went."""
        circuit, lanes = self.circuit, self.lanes
        if circuit.is_open:
            circuit.check(request.label)
        harmless = not request.changes or request.repeatable
        limit = min(seconds, self.limits.attempt) if harmless else seconds
        sent, began = False, 0.0
        try:
            async with asyncio.timeout(limit):
                await lanes.enter(request.lane)
                try:
                    if circuit.is_open:
                        circuit.check(request.label)
                    sent, began = True, asyncio.get_running_loop().time()
                    result = await self._exchange(request, decoder)
                finally:
                    lanes.leave(request.lane)
        except TimeoutError:
            result = self._timed_out(request, sent, limit)
        if sent:
            self._observed(request, result, began)
        return self._learnt(result, sent)

    def _observed(self, request: Request, result: object, began: float) -> None:
        if self._observer:
            outcome = type(result.error).__name__ if isinstance(result, Fault) else "ok"
            self._observer(Attempt(request.call, outcome, asyncio.get_running_loop().time() - began))

    async def _begin(self, request: Request, seconds: float) -> Begun | Fault:
        """One try of a stream, up to its first piece. Where that came, the turn in the lane is kept, and the response open: both are the caller's to end.

        It is counted like any other, with the seconds to the first piece. A long list takes slurmrestd its time: the first piece may take as long as five attempts of something small.
        """
        self.circuit.check(request.label)
        limit = min(seconds, self.limits.attempt * 5)
        sent, began = False, 0.0
        result: Begun | Fault
        try:
            async with asyncio.timeout(limit):
                await self.lanes.enter(request.lane)
                try:
                    self.circuit.check(request.label)
                    sent, began = True, asyncio.get_running_loop().time()
                    result = await self._first_piece(request)
                except BaseException:
                    self.lanes.leave(request.lane)
                    raise
        except TimeoutError:
            result = self._timed_out(request, sent, limit)
        else:
            if isinstance(result, Fault):
                self.lanes.leave(request.lane)
        if sent:
            self._observed(request, result, began)
        return self._learnt(result, sent)

    async def _first_piece(self, request: Request) -> Begun | Fault:
        headers = self.credentials.headers()
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._send(request, headers)
            if response.status == 200:
                piece = await response.content.readany()
                found, response = response, None
                return found, piece
            fault = failed_answer(request.label, request.changes, response.status, await response.read())
        except (aiohttp.ClientError, OSError) as error:
            return _broken_connection(request, error)
        finally:
            if response:
                response.close()
        return self._renewable(fault, headers)

    def _learnt(self, result: T | Fault, sent: bool) -> T | Fault:
        """Tell the circuit how an attempt went."""
        if isinstance(result, Fault) and result.slurm_is_down:
            if sent:
                self.circuit.failed(str(result.error))
        else:
            self.circuit.succeeded()
        return result

    def _renewable(self, fault: Fault, headers: dict[str, str]) -> Fault:
        """A token that was not believed is worth another try only if there is another token."""
        if fault.again is Again.RENEWED and not self.credentials.stale(headers["X-SLURM-USER-TOKEN"]):
            return Fault(fault.error, Again.NEVER)
        return fault

    def _timed_out(self, request: Request, sent: bool, limit: float) -> Fault:
        if not sent:
            return Fault(
                DeadlineError(f"no turn within {limit:.1f} s: {self.lanes.in_flight} requests in flight", request=request.label),
                Again.NEVER,
            )
        kind: type[SlurmError] = OutcomeUnknownError if request.changes else DeadlineError
        return Fault(kind(f"no answer within {limit:.1f} s", request=request.label), Again.IF_HARMLESS)

    async def _exchange(self, request: Request, decoder: Decodes[E]) -> E | Fault:
        headers = self.credentials.headers()
        try:
            async with self._send(request, headers) as response:
                text = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            return _broken_connection(request, error)
        result = understood(request, decoder, response.status, text)
        return self._renewable(result, headers) if isinstance(result, Fault) else result

    def _send(self, request: Request, headers: dict[str, str] | None = None) -> "aiohttp.client._RequestContextManager":
        headers = headers or self.credentials.headers()
        headers["Accept"] = "application/json"
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        url = URL(self.address.base + request.path, encoded=True)  # names in it are escaped, and stay so
        return self.open().request(
            request.method, url, params=request.params or None, data=request.body, headers=headers, allow_redirects=False
        )

    async def _is_there(self) -> bool:
        """The circuit's ping: past the circuit itself, in the lane that goes first. Who is not believed was heard: Slurm is there."""
        path = self.ping_path or "/openapi/v3"
        request = Request(method="GET", path=path, lane=Lane.URGENT)
        try:
            async with asyncio.timeout(self.limits.attempt), self.lanes.turn(request.lane), self._send(request) as response:
                text = await response.read()
                if response.status != 200:
                    return isinstance(failed_answer(request.label, False, response.status, text).error, AuthenticationError)
                return not self.ping_path or any(_heard(ping) for ping in json.loads(text)["pings"])
        except (TimeoutError, OSError, aiohttp.ClientError, ValueError, LookupError, TypeError, SlurmError):
            return False


def _heard(ping: dict[str, object]) -> bool:
    """A controller that does not believe the token is told as one that does not respond; its status says why."""
    return bool(ping["responding"]) or "authentication" in str(ping.get("status", "")).lower()


def understood(request: Request, decoder: Decodes[E], status: int, text: bytes) -> E | Fault:
    """The answer, decoded; or the fault that it tells. 304 is an answer with nothing in it."""
    if status not in (200, 304):
        return failed_answer(request.label, request.changes, status, text)
    try:
        answer = decoder.decode(text if status == 200 else b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return unreadable(request.label, request.changes, f"{error} ({len(text)} bytes)")
    if fault := envelope_fault(request.label, request.changes, answer):
        return fault
    for warning in answer.warnings or ():
        log.debug("%s: Slurm warns: %s", request.label, warning.description)
    return answer


def _broken_connection(request: Request, error: aiohttp.ClientError | OSError) -> Fault:
    """Refused before anything was sent: not done. Anything later: who knows."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Fault(UnavailableError(_connection_problem(error), request=request.label), Again.ALWAYS)
    kind: type[SlurmError] = OutcomeUnknownError if request.changes else UnavailableError
    return Fault(kind(_connection_problem(error), request=request.label), Again.IF_HARMLESS)


def _connection_problem(error: Exception) -> str:
    """Without the headers that some of aiohttp's errors print."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer breaks HTTP ({str(error.message).splitlines()[0][:200] if error.message else error.status})"
    return f"{type(error).__name__}: {error}"[:300]
