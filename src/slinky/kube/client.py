"""The verbs of the Kubernetes API, typed by `Resource`.

In: a resource, names, and plain mappings to write. Out: objects of the resource's type. Every call has a deadline (`seconds`) and raises errors of
`slinky.kube.errors`.
What must stay true: a client belongs to one event loop. Objects read as Structs know only part of themselves, so only mappings can be written.
"""

import datetime as dt
import enum
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from slinky.kube.access import Access
from slinky.kube.errors import BadAnswerError, ExpiredError
from slinky.kube.exec import MOST_OUTPUT, ExecResult, run_command
from slinky.kube.objects import KubeObject
from slinky.kube.resources import PODS, Resource
from slinky.kube.retries import NEVER, Retries
from slinky.kube.transport import Observer, Request, Transport

__all__ = ["Client", "Listing", "PatchKind", "Propagation"]

T = TypeVar("T")
Body = Mapping[str, Any]
PAGE = 500
MANAGER = "slinky"
MOST_LOGGED = 10  # objects of a page that cannot be read

log = logging.getLogger(__name__)


class PatchKind(enum.StrEnum):
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(enum.StrEnum):
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True)
class Listing(Generic[T]):
    """What there was at one moment, and the version to watch on from.

    `unreadable` counts the objects that were left out.
    """

    items: list[T]
    resource_version: str
    unreadable: int = 0


class Client:
    """`async with Client(load_access()) as client: pod = await client.get(PODS, "web-0", "shop")`."""

    def __init__(
        self,
        access: Access,
        *,
        connections: int = 64,
        observer: Observer | None = None,
        seconds: float = 30.0,
        retries: Retries = Retries(),
        field_manager: str = MANAGER,
    ) -> None:
        self.access = access
        self.transport = Transport(access, connections=connections, observer=observer, user_agent=field_manager)
        self.field_manager = field_manager
        self._seconds = seconds
        self._retries = retries

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self.transport.close()

    # Reading

    async def get(self, resource: Resource[T], name: str, namespace: str = "", *, subresource: str = "", seconds: float | None = None) -> T:
        path = resource.path(namespace, name, subresource)
        return self._decoded("GET", path, await self.raw("GET", path, resource=_label(resource, subresource), seconds=seconds), resource)

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
        seconds: float | None = None,
    ) -> Listing[T]:
        """All of them, page by page at one version; `seconds` is for each page. Where the version expires on the way, once more in one piece.

        An object that cannot be read is left out and logged, so that it hides no other.
        """
        wanted = {"labelSelector": labels, "fieldSelector": fields}
        items: list[T] = []
        token, unreadable = "", 0
        while True:
            try:
                part, left_out = await self._page(resource, namespace, wanted | {"limit": str(page or ""), "continue": token}, seconds)
            except ExpiredError:
                if not token:
                    raise
                items, page, token, unreadable = [], 0, "", 0
                continue
            items += part.items or []
            unreadable += left_out
            token = part.metadata.go_on
            if not token:
                return Listing(items, part.metadata.resource_version, unreadable)

    async def server_time(self, *, seconds: float | None = None) -> dt.datetime | None:
        """The API server's clock, to the second; None where it does not tell."""
        said = await self.transport.date(Request("GET", "/version", "version", seconds=seconds or self._seconds, retries=NEVER))
        try:
            return parsedate_to_datetime(said)
        except ValueError:
            return None

    async def _page(
        self, resource: Resource[T], namespace: str, wanted: Mapping[str, str], seconds: float | None
    ) -> "tuple[_List[T], int]":
        """With the number of objects that were left out."""
        path = resource.path(namespace)
        parameters = {name: value for name, value in wanted.items() if value}
        body = await self.raw("GET", path, parameters=parameters, resource=_label(resource), seconds=seconds)
        try:
            part: _List[T] = _list_decoder(resource.type).decode(body)  # type: ignore[arg-type]
        except msgspec.DecodeError:
            return _read_one_by_one(body, resource, path)
        return part, 0

    # Writing

    async def create(self, resource: Resource[T], body: Body, namespace: str = "", *, subresource: str = "", name: str = "") -> T:
        return await self._write("POST", resource, body, namespace, name, subresource)

    async def replace(
        self, resource: Resource[T], name: str, body: Body, namespace: str = "", *, subresource: str = "", seconds: float | None = None
    ) -> T:
        """`body` is the whole object; with `metadata.resourceVersion`, it is refused (ConflictError) where the object has changed since."""
        return await self._write("PUT", resource, body, namespace, name, subresource, seconds=seconds)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Body | Sequence[Body],
        namespace: str = "",
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        seconds: float | None = None,
    ) -> T:
        return await self._write("PATCH", resource, patch, namespace, name, subresource, content_type=kind.value, seconds=seconds)

    async def apply(
        self, resource: Resource[T], name: str, body: Body, namespace: str = "", *, subresource: str = "", force: bool = True
    ) -> T:
        """Server-side apply: what `body` names becomes ours (as `field_manager`), what it named earlier and does not now is given up."""
        parameters = {"fieldManager": self.field_manager, "force": "true" if force else "false"}
        kind = PatchKind.APPLY.value
        return await self._write("PATCH", resource, body, namespace, name, subresource, content_type=kind, parameters=parameters)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """With `uid`, only that very object: another one of the same name gives a ConflictError."""
        options = _delete_options(uid, resource_version, grace_seconds, propagation)
        await self.raw("DELETE", resource.path(namespace, name), body=options, resource=_label(resource))

    async def evict(self, name: str, namespace: str, *, uid: str = "", grace_seconds: int | None = None) -> None:
        """Ask for a pod to be deleted within its disruption budget, which answers TooManyRequestsError where it may not go now: not retried here."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, "", grace_seconds, None),
        }
        await self.raw("POST", PODS.path(namespace, name, "eviction"), body=body, resource="pods/eviction", retries=NEVER)

    async def bind(
        self,
        name: str,
        namespace: str,
        node: str,
        *,
        uid: str = "",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Put a pod on a node, for good. `annotations` are set on the pod in the same write, and so are `labels` by Kubernetes 1.35 and later; with `uid`, only on that very pod."""
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if uid:
            metadata["uid"] = uid
        if annotations:
            metadata["annotations"] = dict(annotations)
        if labels:
            metadata["labels"] = dict(labels)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self.raw("POST", PODS.path(namespace, name, "binding"), body=body, resource="pods/binding")

    async def exec(
        self,
        name: str,
        namespace: str,
        command: Sequence[str],
        *,
        container: str = "",
        seconds: float | None = None,
        most_output: int = MOST_OUTPUT,
        most_read: int | None = None,
    ) -> ExecResult:
        """Run a command in a container that runs (the pod's first where none is named), without input, and wait for its end. A command that fails is a result, not an error. One that says more than `most_read` bytes is given up."""
        path, seconds = PODS.path(namespace, name, "exec"), seconds or self._seconds
        return await run_command(self.transport, path, command, container, seconds=seconds, most_output=most_output, most_read=most_read)

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: Body | Sequence[Body] | None = None,
        parameters: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        resource: str = "raw",
        seconds: float | None = None,
        retries: Retries | None = None,
    ) -> bytes:
        """Any call; the answer's bytes."""
        encoded = None if body is None else msgspec.json.encode(body, enc_hook=_encode)
        request = Request(
            method,
            path,
            resource,
            parameters,
            encoded,
            content_type,
            seconds or self._seconds,
            self._retries if retries is None else retries,
        )
        return await self.transport.send(request)

    async def _write(
        self,
        method: str,
        resource: Resource[T],
        body: Body | Sequence[Body],
        namespace: str,
        name: str,
        subresource: str,
        *,
        content_type: str = "application/json",
        parameters: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> T:
        path = resource.path(namespace, name, subresource)
        answer = await self.raw(
            method,
            path,
            body=body,
            parameters=parameters or {"fieldManager": self.field_manager},
            content_type=content_type,
            resource=_label(resource, subresource),
            seconds=seconds,
        )
        return self._decoded(method, path, answer, resource)

    def _decoded(self, method: str, path: str, body: bytes, resource: Resource[T]) -> T:
        try:
            found: T = _decoder(resource.type).decode(body)  # type: ignore[arg-type]
        except msgspec.DecodeError as error:
            raise BadAnswerError(method, path, str(error)) from None
        return found


class _ListMeta(msgspec.Struct, kw_only=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    go_on: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T], kw_only=True):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[T] | None = None


def _read_one_by_one(body: bytes, resource: Resource[T], path: str) -> tuple[_List[T], int]:
    """A page of which not everything can be read."""
    try:
        page = msgspec.json.decode(body, type=_List[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise BadAnswerError("GET", path, str(error)) from None
    items: list[T] = []
    problems: list[str] = []
    decode = _decoder(resource.type).decode  # type: ignore[arg-type]
    for raw in page.items or ():
        try:
            items.append(decode(raw))
        except msgspec.DecodeError as error:
            problems.append(f"{_name_of(raw)}: {error}")
    for problem in problems[:MOST_LOGGED]:
        log.error("%s: an object that cannot be read is left out: %s", path, problem)
    if len(problems) > MOST_LOGGED:
        log.error("%s: and %d more", path, len(problems) - MOST_LOGGED)
    return _List(metadata=page.metadata, items=items), len(problems)


def _name_of(raw: msgspec.Raw) -> str:
    try:
        return str(msgspec.json.decode(raw, type=KubeObject).key)
    except msgspec.DecodeError:
        return "one without a name"


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@cache
def _list_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_List[kind])


def _encode(value: object) -> object:
    raise TypeError(f"{type(value).__name__} cannot be written to Kubernetes")


def _label(resource: Resource[Any], subresource: str = "") -> str:
    return f"{resource}/{subresource}" if subresource else str(resource)


def _delete_options(uid: str, resource_version: str, grace_seconds: int | None, propagation: Propagation | None) -> dict[str, Any]:
    preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if propagation:
        options["propagationPolicy"] = propagation.value
    return options


def micro_time(moment: dt.datetime) -> str:
    """As Leases and Events want it: six digits, always."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
