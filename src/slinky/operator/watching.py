"""What the operator knows of Kubernetes: caches that follow it, in all namespaces or in those that it is limited to.

Comes in: a client, and the namespaces. Goes out: the six kinds, their children, pods and nodes; and a call for each owner of which something changed. What must stay true: nothing is decided before all first lists have arrived; of ConfigMaps and Secrets
only the metadata is kept, and they are followed only in namespaces in which there is an object of ours.
"""

import asyncio
import builtins
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Generic, TypeVar

from slinky.kube import (
    NODES,
    PODS,
    Backoff,
    Cache,
    Change,
    Client,
    HealthServer,
    Key,
    KubeError,
    KubeMetrics,
    KubeObject,
    Meta,
    NotFoundError,
    Pod,
    Reflector,
    Resource,
)
from slinky.operator.children import CHILD_KINDS, MANAGED_BY, MANAGER, Child, controller_uids, is_managed
from slinky.operator.files import NamespaceFiles
from slinky.operator.kinds import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS, TOKENS, Written
from slinky.operator.labels import APP, INSTANCE

__all__ = ["DAEMONS", "RESOURCES", "Followed", "Watches"]

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

RESOURCES: Mapping[str, Resource[Written]] = {
    "Controller": CONTROLLERS,
    "Accounting": ACCOUNTINGS,
    "RestApi": RESTAPIS,
    "NodeSet": NODESETS,
    "LoginSet": LOGINSETS,
    "Token": TOKENS,
}
DAEMONS = "app.kubernetes.io/name in (slurmctld,slurmdbd,slurmrestd,slurmd,login)"
OWNER, BY_DAEMON, BY_HEADS_NODE = "owner", "daemon", "node of a head"
WORKER = "slurmd"
BACKOFF = Backoff(first=0.5, most=15.0)
BY_FILES = ("ConfigMap", "Secret")
MONITORS = "/apis/monitoring.coreos.com/v1"
MONITORS_SECONDS = 15.0  # between two looks whether they are there


class Followed(Generic[T]):
    """One resource, in all namespaces that are looked at: one watch, or one for each of them."""

    def __init__(self, reflectors: Sequence[Reflector[T]]) -> None:
        self.reflectors = reflectors

    @property
    def _caches(self) -> builtins.list[Cache[T]]:
        return [reflector.cache for reflector in self.reflectors]

    def get(self, name: str, namespace: str = "") -> T | None:
        return self.by_key(Key(namespace, name))

    def by_key(self, key: Key) -> T | None:
        return next((found for cache in self._caches if (found := cache.by_key(key)) is not None), None)

    def list(self, namespace: str = "") -> builtins.list[T]:
        return [found for cache in self._caches for found in cache.list(namespace)]

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        return [found for cache in self._caches for found in cache.by_index(index, value)]

    def add_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        for cache in self._caches:
            cache.add_index(name, function)

    def subscribe(self, callback: Callable[[Change[T]], None], *, replay: bool = True) -> Callable[[], None]:
        ends = [cache.subscribe(callback, replay=replay) for cache in self._caches]

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    @property
    def is_synced(self) -> bool:
        return all(cache.is_synced for cache in self._caches)

    async def wait_synced(self) -> None:
        """However long the API server takes."""
        for reflector in self.reflectors:
            while not reflector.cache.is_synced:
                try:
                    await reflector.cache.wait_synced()
                except KubeError as error:
                    log.warning("waiting for Kubernetes: %s: %s (%s)", reflector.resource, error, reflector.health.last_error)


class Watches:
    """`kinds["NodeSet"]`, `pods`, `nodes`, `stateful_sets`, `deployments`; `of(uid)` and `meta(child)` are what an Applier asks."""

    def __init__(self, kube: Client, namespaces: Sequence[str], metrics: KubeMetrics | None = None) -> None:
        self._kube = kube
        self._namespaces = tuple(namespaces) or ("",)
        self._metrics = metrics
        ours = f"{MANAGED_BY}={MANAGER}"
        self.kinds: dict[str, Followed[Written]] = {kind: self._follow(resource) for kind, resource in RESOURCES.items()}
        self.pods = self._follow(PODS, labels=DAEMONS)
        self.pods.add_index(BY_DAEMON, _daemon)
        self.pods.add_index(BY_HEADS_NODE, _node_of_head)
        self.nodes = Followed([Reflector(kube, NODES)])
        self.children: dict[str, Followed[Any]] = {
            kind: self._follow(resource, labels=ours)
            for kind, resource in CHILD_KINDS.items()
            if kind not in BY_FILES and kind != "ServiceMonitor"
        }
        self.files = NamespaceFiles(kube)
        self.came: Callable[[Followed[Any]], None] = lambda _followed: None
        """Called when the API server has come to know a kind of child that it did not know before."""

    def _follow(self, resource: Resource[T], labels: str = "") -> Followed[T]:
        return Followed([Reflector(self._kube, resource, namespace=namespace, labels=labels) for namespace in self._namespaces])

    async def fill(self, stack: AsyncExitStack, health: HealthServer) -> None:
        """Until all is known; they are followed until `stack` ends."""
        if await self._has(MONITORS):
            self.children["ServiceMonitor"] = self._service_monitors()
        else:
            waiting = asyncio.create_task(self._await_monitors(), name="waiting for ServiceMonitors")
            stack.callback(waiting.cancel)
        for found in self.children.values():
            found.add_index(OWNER, controller_uids)
        for what, followed in self._all().items():
            health.ready(what, partial(_not_listed, followed))
            for number, reflector in enumerate(followed.reflectors):
                if self._metrics:
                    self._metrics.follow(f"{what} {number}" if number else what, reflector)
                await stack.enter_async_context(reflector.running())
        await stack.enter_async_context(self.files.running())
        for followed in self._all().values():
            await followed.wait_synced()
        for followed in self.kinds.values():
            followed.subscribe(self._came_or_went)

    def _all(self) -> dict[str, Followed[Any]]:
        kinds = {kind.lower(): followed for kind, followed in self.kinds.items()}
        return {**kinds, "pods": self.pods, "nodes": self.nodes, **{kind.lower(): found for kind, found in self.children.items()}}

    def _service_monitors(self) -> Followed[Any]:
        return self._follow(CHILD_KINDS["ServiceMonitor"], labels=f"{MANAGED_BY}={MANAGER}")

    async def _await_monitors(self) -> None:
        """They may be installed long after us."""
        while not await self._has(MONITORS):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(MONITORS_SECONDS)
        log.info("the API server knows ServiceMonitors now")
        followed = self._service_monitors()
        followed.add_index(OWNER, controller_uids)
        async with AsyncExitStack() as stack:
            for reflector in followed.reflectors:
                await stack.enter_async_context(reflector.running())
            await followed.wait_synced()
            self.children["ServiceMonitor"] = followed
            self.came(followed)
            await asyncio.Event().wait()

    async def _has(self, path: str) -> bool:
        """Whether the API server offers it. One that does not answer is waited for."""
        failures = 0
        while True:
            try:
                await self._kube.raw("GET", path)
            except NotFoundError:
                return False
            except KubeError as error:
                failures += 1
                log.warning("waiting for Kubernetes: %s", error)
                await asyncio.sleep(BACKOFF.seconds(failures))
            else:
                return True

    def _came_or_went(self, change: Change[Written]) -> None:
        namespace = change.key.namespace
        if change.new is not None:
            self.files.follow(namespace)
        elif not any(key.namespace == namespace for followed in self.kinds.values() for key in map(_key, followed.list())):
            self.files.unfollow(namespace)

    # Pods and Kubernetes nodes

    def pods_of(self, daemon: str, namespace: str, name: str) -> list[Pod]:
        """Of a Controller, an Accounting, a RestApi or a LoginSet."""
        return self.pods.by_index(BY_DAEMON, f"{daemon} {namespace}/{name}")

    def heads_on(self, node: str) -> list[Pod]:
        """Pods there that are no workers."""
        return self.pods.by_index(BY_HEADS_NODE, node)

    # As an Applier asks

    def of(self, owner_uid: str) -> Iterator[tuple[Child, Meta]]:
        for kind, followed in self.children.items():
            for found in followed.by_index(OWNER, owner_uid):
                yield Child(kind, found.key), found.metadata
        for kind in BY_FILES:
            for found in self.files.owned(kind, owner_uid):
                yield Child(kind, found.key), found.metadata

    def meta(self, child: Child) -> Meta | None:
        if child.kind in BY_FILES:
            found = self.files.get(child.kind, child.key)
            return found.metadata if found is not None and is_managed(found.metadata) else None
        followed = self.children.get(child.kind)
        child_found = followed.by_key(child.key) if followed else None
        return child_found.metadata if child_found is not None else None

    @property
    def stateful_sets(self) -> Followed[Any]:
        return self.children["StatefulSet"]

    @property
    def deployments(self) -> Followed[Any]:
        return self.children["Deployment"]


def _daemon(pod: Pod) -> list[str]:
    found = pod.metadata.labels
    if found.get(APP, "") == WORKER:
        return []
    return [f"{found.get(APP, '')} {pod.metadata.namespace}/{found.get(INSTANCE, '')}"]


def _node_of_head(pod: Pod) -> list[str]:
    is_head = pod.metadata.labels.get(APP, "") != WORKER
    return [pod.spec.node_name] if is_head and pod.spec.node_name else []


def _key(found: KubeObject) -> Key:
    return found.key


def _not_listed(followed: Followed[Any]) -> str | None:
    return None if followed.is_synced else "not listed yet"
