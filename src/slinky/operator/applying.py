"""Objects become what they are to be: by server-side apply, and what is no longer made goes.

Comes in: the objects that a CR's children are to be. Goes out: writes to the API server, as few as needed, and what was refused, in Kubernetes' own words. What must stay true: an object is sent as we want it whenever it is not known to be so already;
what one object is refused for holds up no other; children are deleted only where all others could be applied, and only those that are ours.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from slinky.kube import (
    ApiError,
    Client,
    ConflictError,
    InvalidError,
    Key,
    KubeError,
    KubeObject,
    Meta,
    NotFoundError,
    PatchKind,
    Propagation,
)
from slinky.operator.children import CHILD_KINDS, MANAGED_BY, MANAGER, Child, Owner, digest, fingerprint, is_managed
from slinky.operator.kept_template import WITH_TEMPLATE, keeping, marked
from slinky.operator.takeover import as_ours, held, is_for

__all__ = ["Applied", "Applier", "ApplyError", "Children", "decorated", "is_as_applied", "surplus"]

log = logging.getLogger(__name__)

AT_ONCE = 8
WRITE_SECONDS = 20.0
GONE_SECONDS = 0.1
IMMUTABLE = {"StatefulSet": "updates to statefulset spec", "Secret": "field is immutable"}  # Kubernetes' own words

Body = Mapping[str, Any]


class ApplyError(Exception):
    """Some objects were refused; the others were applied."""

    def __init__(self, refused: Mapping[Child, str]) -> None:
        self.refused = refused
        super().__init__("; ".join(f"{child.kind} {child.key.name}: {message}" for child, message in refused.items()))


class TakenError(KubeError):
    """The name is somebody else's."""


class Applied(NamedTuple):
    created: list[Child]
    changed: list[Child]
    deleted: list[Child]


class Children(Protocol):
    """What is in the API server, as far as caches know."""

    def of(self, owner_uid: str) -> Iterable[tuple[Child, Meta]]: ...

    def meta(self, child: Child) -> Meta | None: ...


class _Remembered(NamedTuple):
    body: str  # a digest of what was sent
    fingerprint: str  # of what came back
    uid: str
    generation: int


def decorated(body: Body, owner: Owner) -> dict[str, Any]:
    """With the namespace, our label and the reference to its owner."""
    metadata = dict(body.get("metadata") or {})
    labels = {**(metadata.get("labels") or {}), MANAGED_BY: MANAGER}
    others = [found for found in metadata.get("ownerReferences") or [] if found.get("uid") != owner.uid]
    metadata |= {"namespace": owner.namespace, "labels": labels, "ownerReferences": [*others, owner.reference()]}
    return {**body, "metadata": metadata}


def is_as_applied(remembered: _Remembered | None, body: str, seen: Meta | None) -> bool:
    """Whether the same was sent before, and nothing has happened to it since."""
    return remembered is not None and seen is not None and remembered.body == body and remembered.fingerprint == fingerprint(seen)


def surplus(there: Iterable[tuple[Child, Meta]], wanted: Iterable[Child]) -> list[tuple[Child, Meta]]:
    """Children that are no longer made, but for those that go already."""
    kept = set(wanted)
    return [(child, meta) for child, meta in there if child not in kept and meta.deletion_timestamp is None]


class Applier:
    """`await applier.apply(objects, owner)`."""

    def __init__(self, kube: Client, children: Children, may_act: Callable[[], bool] = lambda: True) -> None:
        self._kube = kube
        self._children = children
        self._may_act = may_act
        self._memory: dict[str, dict[Child, _Remembered]] = {}  # by the owner's UID
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def apply(self, objects: Sequence[Body], owner: Owner, *, prune: bool = True, kept: Iterable[Child] = ()) -> Applied:
        """Raises ApplyError where objects were refused, KubeError where Kubernetes could not be asked. `kept` are not made now and stay all the same."""
        bodies = {_child_of(body, owner): marked(decorated(body, owner)) for body in objects}
        outcomes = await asyncio.gather(*(self._one(child, body, owner) for child, body in bodies.items()), return_exceptions=True)
        refused: dict[Child, str] = {}
        created: list[Child] = []
        changed: list[Child] = []
        for child, outcome in zip(bodies, outcomes, strict=True):
            if isinstance(outcome, ApiError | TakenError):
                refused[child] = outcome.message if isinstance(outcome, ApiError) else str(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            elif outcome:
                (created if outcome == "created" else changed).append(child)
        if refused:
            raise ApplyError(refused)
        deleted = await self._prune(owner, [*bodies, *kept]) if prune else []
        return Applied(created, changed, deleted)

    def is_seen(self, owner_uid: str, child: Child) -> bool:
        """Whether the caches show a child as it was last written here."""
        wrote = self._memory.get(owner_uid, {}).get(child)
        seen = self._children.meta(child)
        if wrote is None or seen is None:
            return wrote is None
        return seen.uid == wrote.uid and seen.generation >= wrote.generation

    def forget(self, owner_uid: str) -> None:
        """It is gone."""
        self._memory.pop(owner_uid, None)

    async def _one(self, child: Child, body: Body, owner: Owner) -> str:
        sent, memory = digest(body), self._memory.setdefault(owner.uid, {})
        seen = self._children.meta(child)
        if is_as_applied(memory.get(child), sent, seen):
            return ""
        if not self._may_act():
            raise KubeError(f"{child} was not written: another process leads")
        async with self._turns:
            if seen is None and child not in memory:
                seen = await self._taken_over(child, str(body.get("apiVersion", "")), owner)
            if child.kind in WITH_TEMPLATE:
                body = await self._without_a_restart(child, body)
            try:
                answer = await self._send(child, body)
            except InvalidError as error:
                if seen is None or IMMUTABLE.get(child.kind, "\0") not in error.message:
                    raise
                answer = await self._anew(child, body, seen)
        known = memory.get(child)
        memory[child] = _Remembered(sent, fingerprint(answer), answer.uid, answer.generation)
        if seen is None and known is None:
            return "created"
        same = known is not None and known.fingerprint == memory[child].fingerprint
        return "" if same or (seen is not None and fingerprint(seen) == fingerprint(answer)) else "changed"

    async def _taken_over(self, child: Child, api_version: str, owner: Owner) -> Meta | None:
        """What is there already, without our label. What somebody else made is left alone: it would be changed, and deleted with its new owner. Raises TakenError."""
        resource = held(CHILD_KINDS[child.kind])
        try:
            found = (await self._kube.get(resource, child.key.name, child.key.namespace)).metadata
        except NotFoundError:
            return None
        if not is_for(found, owner):
            whose = f"{found.controller.kind} {found.controller.name}" if found.controller else "whoever made it"
            raise TakenError(f"there is one of that name already, and it belongs to {whose}: rename or delete one of the two")
        if not is_managed(found):
            log.info("%s was made by another operator for %s %s: it is taken over", child, owner.kind, owner.key)
            ours = {"metadata": {"resourceVersion": found.resource_version, "managedFields": as_ours(found.managed_fields, api_version)}}
            await self._kube.patch(resource, child.key.name, ours, child.key.namespace)
        return found

    async def _without_a_restart(self, child: Child, body: Body) -> Body:
        """The body with what the live pod template keeps."""
        try:
            resource = held(CHILD_KINDS[child.kind])
            live = await self._kube.get(resource, child.key.name, child.key.namespace)
        except NotFoundError:
            return body
        return keeping(body, live)

    async def _send(self, child: Child, body: Body) -> Meta:
        resource = CHILD_KINDS[child.kind]
        answer = await self._kube.raw(
            "PATCH",
            resource.path(child.key.namespace, child.key.name),
            body=body,
            parameters={"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"},
            content_type=PatchKind.APPLY.value,
            resource=str(resource),
            seconds=WRITE_SECONDS,
        )
        return msgspec.json.decode(answer, type=KubeObject).metadata

    async def _anew(self, child: Child, body: Body, seen: Meta) -> Meta:
        """What cannot be changed in one is changed by another of that name; a StatefulSet's pods and claims live on, and are taken over."""
        log.info("%s has fields that cannot be changed: it is made anew, and its pods live on", child)
        resource = CHILD_KINDS[child.kind]
        await self._kube.delete(resource, child.key.name, child.key.namespace, uid=seen.uid, propagation=Propagation.ORPHAN)
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                while True:
                    try:
                        await self._kube.get(resource, child.key.name, child.key.namespace)
                    except NotFoundError:
                        return await self._send(child, body)
                    await asyncio.sleep(GONE_SECONDS)
        except TimeoutError:
            raise KubeError(f"{child} was deleted to be made anew, and is there still after {WRITE_SECONDS:g} s") from None

    async def _prune(self, owner: Owner, wanted: Iterable[Child]) -> list[Child]:
        deleted = []
        for child, meta in surplus(self._children.of(owner.uid), wanted):
            if not self._may_act():
                break
            try:
                await self._kube.delete(
                    CHILD_KINDS[child.kind], child.key.name, child.key.namespace, uid=meta.uid, propagation=Propagation.BACKGROUND
                )
            except (NotFoundError, ConflictError):
                continue  # gone, or another of that name: what is seen next decides
            log.info("%s %s no longer needs %s: deleted", owner.kind, owner.key, child)
            self._memory.get(owner.uid, {}).pop(child, None)
            deleted.append(child)
        return deleted


def _child_of(body: Body, owner: Owner) -> Child:
    kind = str(body.get("kind", ""))
    if kind not in CHILD_KINDS:
        raise ValueError(f"{kind} is no kind that is made for objects of ours")
    return Child(kind, Key(owner.namespace, str(body["metadata"]["name"])))
