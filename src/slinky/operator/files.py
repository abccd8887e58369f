"""ConfigMaps and Secrets that objects of ours name, and those that we made.

Comes in: the namespaces in which there are objects of ours. Goes out: the metadata of what stands there, a call for each that changes, and the content of those that are asked for by name. What must stay true: content is read by name only, and kept only as long as somebody
asks for it; a namespace whose Secrets may not be read holds up no other.
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from slinky.kube import Change, Client, Key, KubeError, KubeObject, NotFoundError, Reflector, Resource
from slinky.operator.absent import unreadable
from slinky.operator.children import CONFIG_MAPS, SECRETS, controller_uids

__all__ = ["Content", "NamespaceFiles", "UnreadableError"]

log = logging.getLogger(__name__)

OWNER = "owner"
SYNC_SECONDS = 10.0
FOLLOWED: Mapping[str, Resource[KubeObject]] = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}


class UnreadableError(KubeError):
    """What stands in a namespace is not known: the message says why."""


class Content(KubeObject, frozen=True):
    """Of a ConfigMap or Secret, whole. `data` of a Secret is base64, as Kubernetes has it."""

    data: Mapping[str, str] = {}
    binary_data: Mapping[str, str] = {}

    def bytes_of(self, key: str) -> bytes | None:
        """Of a Secret."""
        text = self.data.get(key)
        return None if text is None else base64.b64decode(text)


_CONTENT = msgspec.json.Decoder(Content)


class NamespaceFiles:
    """`changed(kind, key, owner_uid)` is called for each that came, changed or went."""

    def __init__(self, kube: Client) -> None:
        self._kube = kube
        self._followed: dict[str, dict[str, Reflector[KubeObject]]] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._contents: dict[tuple[str, Key], Content] = {}
        self._running = False
        self._news = asyncio.Event()
        self.changed: Callable[[str, Key, Change[KubeObject]], None] = lambda _kind, _key, _change: None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["NamespaceFiles"]:
        self._running = True
        try:
            yield self
        finally:
            self._running = False
            tasks = [task for namespace in list(self._tasks) for task in self._cancelled(namespace)]
            await asyncio.gather(*tasks, return_exceptions=True)

    def follow(self, namespace: str) -> None:
        if namespace in self._followed or not self._running:
            return
        self._followed[namespace] = {kind: self._reflector(kind, resource, namespace) for kind, resource in FOLLOWED.items()}
        self._tasks[namespace] = [
            asyncio.create_task(reflector.run(), name=f"{kind}s of {namespace}") for kind, reflector in self._followed[namespace].items()
        ]

    def unfollow(self, namespace: str) -> None:
        self._cancelled(namespace)

    def _cancelled(self, namespace: str) -> "list[asyncio.Task[None]]":
        self._followed.pop(namespace, None)
        self._contents = {place: found for place, found in self._contents.items() if place[1].namespace != namespace}
        tasks = self._tasks.pop(namespace, [])
        for task in tasks:
            task.cancel()
        return tasks

    def _reflector(self, kind: str, resource: Resource[KubeObject], namespace: str) -> Reflector[KubeObject]:
        reflector = Reflector(self._kube, resource, namespace=namespace)
        reflector.cache.add_index(OWNER, controller_uids)
        reflector.cache.subscribe(lambda change: self._changed(kind, change))
        return reflector

    def _changed(self, kind: str, change: Change[KubeObject]) -> None:
        if change.new is None:
            self._contents.pop((kind, change.key), None)
        self._news.set()
        self.changed(kind, change.key, change)

    # Reading

    async def known(self, namespace: str) -> None:
        """Until what stands there is known. Raises UnreadableError where it cannot be read, or not so far."""
        for kind, reflector in self._followed.get(namespace, {}).items():
            try:
                await reflector.cache.wait_synced(SYNC_SECONDS)
            except KubeError:
                why = reflector.health.last_error or "the API server has not answered yet"
                raise UnreadableError(f"the {kind}s of namespace {namespace} cannot be read: {why}") from None

    def get(self, kind: str, key: Key) -> KubeObject | None:
        reflector = self._followed.get(key.namespace, {}).get(kind)
        return reflector.cache.by_key(key) if reflector else None

    async def seen(self, kind: str, key: Key) -> None:
        """Until what was just made is here too. Raises UnreadableError."""
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                while self.get(kind, key) is None:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise UnreadableError(f"{kind} {key} was made, and does not show within {SYNC_SECONDS:g} s") from None

    def owned(self, kind: str, owner_uid: str) -> Iterator[KubeObject]:
        for followed in list(self._followed.values()):
            yield from followed[kind].cache.by_index(OWNER, owner_uid)

    async def content(self, kind: str, name: str, namespace: str) -> Content | None:
        """As it is now; read again only where it is another version. None where there is none. Raises Trouble where it cannot be read."""
        key = Key(namespace, name)
        meta = self.get(kind, key)
        held = self._contents.get((kind, key))
        if meta is None:
            return None
        if held is not None and held.metadata.resource_version == meta.metadata.resource_version:
            return held
        resource = FOLLOWED[kind]
        try:
            found = _CONTENT.decode(await self._kube.raw("GET", resource.path(namespace, name), resource=str(resource)))
        except NotFoundError:
            return None
        except KubeError as error:
            raise unreadable(kind, name, namespace, error) from error
        self._contents[kind, key] = found
        return found
