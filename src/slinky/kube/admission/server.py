"""The admission server: webhooks over TLS, each a plain function of its request.

In: AdmissionReviews, and ConversionReviews, from the API server. Out: what the handler or the converter of that path says.
What must stay true: every review that can be read is answered within the deadline; a handler that raises or is late is answered for by the rule that was set
(refuse or allow), with a sentence that says so; no body beyond the limit is taken in.
"""

import asyncio
import enum
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from slinky.kube.admission.conversion import Converter, conversion_body, converted, read_conversion
from slinky.kube.admission.review import AdmissionRequest, AdmissionResponse, answer_body, read_review
from slinky.kube.admission.serving import CertificateSource

__all__ = ["AdmissionServer", "Handler", "OnFailure"]

log = logging.getLogger(__name__)

BODY_LIMIT = 16 * 1024 * 1024  # an object and its old self, each as large as etcd takes, as JSON
FINISH_SECONDS = 5.0
DEADLINE = 8.0  # the API server waits for 10 s unless the configuration says otherwise

Handler = Callable[[AdmissionRequest], AdmissionResponse | Awaitable[AdmissionResponse]]
AnswerObserver = Callable[[str, str, float], None]


class OnFailure(enum.Enum):
    REFUSE = "refuse"
    ALLOW = "allow"


class AdmissionServer:
    """`async with AdmissionServer({"/mutate-pods": mutate}, certificate).running(): …`. `observer` gets path, outcome, seconds.

    `leave_seconds`: for so long it goes on when it is to end, and ends a connection with each answer: until then a Service's other servers have been found, and nobody is using a connection at the moment at which it is closed.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        certificate: CertificateSource,
        *,
        converters: Mapping[str, Converter] | None = None,
        host: str | None = None,
        port: int = 9443,
        on_failure: OnFailure = OnFailure.REFUSE,
        deadline: float = DEADLINE,
        body_limit: int = BODY_LIMIT,
        observer: AnswerObserver | None = None,
        leave_seconds: float = 0.0,
    ) -> None:
        self._handlers = dict(handlers)
        self._converters = dict(converters or {})
        self._certificate = certificate
        self._host, self._port = host, port
        self._on_failure = on_failure
        self._deadline = deadline
        self._body_limit = body_limit
        self._observer = observer
        self._leave_seconds = leave_seconds
        self._leaving = False
        self._serving = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def port(self) -> int:
        return self._port

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AdmissionServer"]:
        async with self._certificate.running() as context:
            application = web.Application(client_max_size=self._body_limit)
            for path in (*self._handlers, *self._converters):
                application.router.add_post(path, self._serve)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=5.0)
            await runner.setup()
            site = web.TCPSite(runner, self._host, self._port, ssl_context=context)
            try:
                await site.start()
                self._port = runner.addresses[0][1]
                log.info("admission on port %d: %s", self._port, ", ".join((*self._handlers, *self._converters)))
                try:
                    yield self
                finally:
                    self._leaving = True
                    await asyncio.sleep(self._leave_seconds)
                    await site.stop()
                    await self._finish()
            finally:
                await runner.cleanup()

    async def _finish(self) -> None:
        """Answer what has begun to arrive: aiohttp's own end drops what comes of a body after it."""
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%d reviews are left unanswered after %g s", self._serving, FINISH_SECONDS)

    async def _serve(self, http: web.Request) -> web.Response:
        self._serving += 1
        self._idle.clear()
        try:
            answer = await self._answer(http)
            if self._leaving:
                answer.force_close()
            return answer
        finally:
            self._serving -= 1
            if not self._serving:
                self._idle.set()

    async def _answer(self, http: web.Request) -> web.Response:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._deadline):
                body = await http.read()
        except TimeoutError:
            return web.Response(status=408, text=f"the review did not arrive within {self._deadline:g} s")
        if converter := self._converters.get(http.path):
            return self._convert(converter, body)
        try:
            request = read_review(body)
        except msgspec.DecodeError as error:
            return web.Response(status=400, text=f"not an AdmissionReview: {error}")
        answer, outcome = await self._judged(self._handlers[http.path], request)
        if self._observer:
            self._observer(http.path, outcome, time.perf_counter() - started)
        return web.Response(body=answer_body(request.uid, answer), content_type="application/json")

    def _convert(self, converter: Converter, body: bytes) -> web.Response:
        try:
            request = read_conversion(body)
        except msgspec.DecodeError as error:
            return web.Response(status=400, text=f"not a ConversionReview: {error}")
        answer = converted(request, converter)
        if isinstance(answer, str):
            log.warning("conversion to %s: %s", request.desired_api_version, answer)
        return web.Response(body=conversion_body(request.uid, answer), content_type="application/json")

    async def _judged(self, handler: Handler, request: AdmissionRequest) -> tuple[AdmissionResponse, str]:
        try:
            async with asyncio.timeout(self._deadline):
                found = handler(request)
                answer = await found if inspect.isawaitable(found) else found
        except TimeoutError:
            return self._failed(request, f"no decision within {self._deadline:g} s"), "late"
        except Exception as error:
            log.exception("admission of %s failed", _named(request))
            return self._failed(request, f"{type(error).__name__}: {error}"), "failed"
        return answer, ("allowed" if answer.allowed else "refused")

    def _failed(self, request: AdmissionRequest, why: str) -> AdmissionResponse:
        sentence = f"slinky could not judge {_named(request)}: {why}"
        log.warning("%s; by setting it is %s", sentence, "let in unchanged" if self._on_failure is OnFailure.ALLOW else "refused")
        if self._on_failure is OnFailure.ALLOW:
            return AdmissionResponse.allow(warnings=[f"{sentence}; it was let in unchanged"])
        return AdmissionResponse.refuse(f"{sentence}; try again, and tell the administrators if it stays so", code=500)


def _named(request: AdmissionRequest) -> str:
    where = f"{request.namespace}/" if request.namespace else ""
    return f"{request.operation} of {request.kind.kind} {where}{request.name or '(no name yet)'}"
