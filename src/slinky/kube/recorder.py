"""Tells users what happens to their objects, as Events of `events.k8s.io/v1`.

In: `record(...)`, from anywhere in the event loop; it never waits and never raises. Out: Events at the server, written one after the other at a limited rate.
What must stay true: what cannot be written is dropped and counted, and holds up nothing; what an `EventLog` decides is all that is remembered.
"""

import asyncio
import datetime as dt
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from slinky.kube.client import Client, micro_time
from slinky.kube.errors import KubeError, NotFoundError
from slinky.kube.eventlog import EventLog, Noted, Write
from slinky.kube.objects import KubeObject, ObjectReference
from slinky.kube.resources import EVENTS

__all__ = ["EventRecorder", "reference"]

log = logging.getLogger(__name__)

PER_SECOND = 20.0
NOTE_LIMIT = 1024
FLUSH_SECONDS = 5.0


def reference(found: KubeObject, api_version: str, kind: str) -> ObjectReference:
    meta = found.metadata
    return ObjectReference(api_version=api_version, kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)


class EventRecorder:
    """`async with EventRecorder(client, "slinky-bridge", host).running() as events: events.record(reference(pod, "v1", "Pod"), "Submitted", "…")`."""

    def __init__(
        self,
        client: Client,
        controller: str,
        instance: str,
        *,
        per_second: float = PER_SECOND,
        memory: EventLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._controller, self._instance = controller, instance
        self._pause = 1 / per_second
        self._memory = EventLog() if memory is None else memory  # an empty one is false
        self._clock = clock
        self._some = asyncio.Event()

    @property
    def dropped(self) -> int:
        """Held back for their number, pushed out of memory, or refused by the server."""
        return self._memory.dropped

    def record(self, regarding: ObjectReference, reason: str, note: str, *, action: str = "", warning: bool = False) -> None:
        """`reason` is one CamelCase word, `action` what was done or tried (default: the reason), `note` a sentence for people."""
        noted = Noted(regarding, "Warning" if warning else "Normal", reason, note[:NOTE_LIMIT], action or reason)
        if self._memory.note(noted, self._clock()):
            self._some.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["EventRecorder"]:
        """Writes while it lasts; at the end what is new gets a few seconds more."""
        task = asyncio.create_task(self._write_all(), name="events")
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._flush()

    async def _write_all(self) -> None:
        while True:
            write = self._memory.take(self._clock())
            if write is None:
                await self._wait()
                continue
            await self._write(write)
            await asyncio.sleep(self._pause)

    async def _wait(self) -> None:
        """Until something new, or until a count is due."""
        due = self._memory.next_due()
        self._some.clear()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                await self._some.wait()
        except TimeoutError:
            pass

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while (write := self._memory.take(self._clock())) is not None:
                    await self._write(write)
        except TimeoutError:
            log.warning("%d Events were not written before the end", self._memory.waiting)

    async def _write(self, write: Write) -> None:
        try:
            if not write.name:
                await self._create(write)
            else:
                await self._count(write)
        except NotFoundError as error:
            if write.name:  # Events live for an hour; it begins anew
                self._memory.written(write.noted, "")
                self._memory.note(write.noted, self._clock())
            else:
                self._lose(write, error)
        except KubeError as error:
            self._lose(write, error)

    def _lose(self, write: Write, error: KubeError) -> None:
        self._memory.lost(write)
        log.warning("Event %s of %s %s dropped: %s", write.noted.reason, write.noted.regarding.kind, write.noted.regarding.name, error)

    async def _create(self, write: Write) -> None:
        noted = write.noted
        namespace = noted.regarding.namespace or "default"
        name = f"{noted.regarding.name[:200]}.{secrets.token_hex(8)}"
        body = self._body(write) | {"metadata": {"name": name, "namespace": namespace}}
        await self._client.create(EVENTS, body, namespace)
        self._memory.written(noted, name)

    async def _count(self, write: Write) -> None:
        series = {"count": write.count, "lastObservedTime": _moment(write.last)}
        await self._client.patch(EVENTS, write.name, {"series": series}, write.noted.regarding.namespace or "default")

    def _body(self, write: Write) -> dict[str, Any]:
        noted, what = write.noted, write.noted.regarding
        regarding = {"apiVersion": what.api_version, "kind": what.kind, "namespace": what.namespace, "name": what.name, "uid": what.uid}
        body = {
            "regarding": {name: value for name, value in regarding.items() if value},
            "type": noted.type,
            "reason": noted.reason,
            "note": noted.note,
            "action": noted.action,
            "eventTime": _moment(write.last),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
        }
        if write.count > 1:
            body["series"] = {"count": write.count, "lastObservedTime": _moment(write.last)}
        return body


def _moment(seconds: float) -> str:
    return micro_time(dt.datetime.fromtimestamp(seconds, dt.UTC))
