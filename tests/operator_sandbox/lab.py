"""The operator on kwok nodes, and namespaces with objects of ours in them: what tests of the process do there."""

import asyncio
import base64
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from slinky.kube import NAMESPACES, ApiError, Client, NotFoundError, Resource, from_kubeconfig
from slinky.operator.children import CHILD_KINDS
from slinky.operator.kinds import GROUP, VERSION
from slinky.operator.watching import RESOURCES
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.operator import SandboxOperator, sandbox_operator

__all__ = ["CHILDREN", "IMAGE", "Background", "Lab", "background_operator", "open_lab", "operator_for_any"]

T = TypeVar("T")
_numbers = itertools.count()
PATIENCE = 60.0
IMAGE = {"image": "none"}
CHILDREN = (
    ("StatefulSet", "c-controller"),
    ("Service", "c-controller"),
    ("Service", "c-controller-internal"),
    ("Service", "slurm-workers-c"),
    ("PodDisruptionBudget", "slurm-workers-pdb-c"),
    ("ConfigMap", "c-config"),
    ("Secret", "c-auth-slurm"),
    ("Secret", "c-auth-jwt"),
)  # of a Controller `c`


class Background:
    """The operator in a loop of its own, as each test has one that ends with it."""

    def __init__(self, operator: SandboxOperator, loop: asyncio.AbstractEventLoop) -> None:
        self.operator, self._loop = operator, loop

    async def do(self, act: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(act, self._loop))


@contextmanager
def background_operator(sandbox: Sandbox, folder: Path, **settings: Any) -> Iterator[Background]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stack = AsyncExitStack()

    async def begin() -> SandboxOperator:
        return await stack.enter_async_context(sandbox_operator(sandbox, folder, ("run",), **settings))

    try:
        yield Background(asyncio.run_coroutine_threadsafe(begin(), loop).result(120), loop)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def operator_for_any(sandbox: Sandbox, folder: Path) -> Iterator[Background]:
    """Every cluster's slurmrestd is the sandbox's: who has its key can speak to it, and others cannot."""
    settings = {
        "slurm": {"address": sandbox.slurm_server},
        "allowedTokenUsers": {"*": ["alice", "bob"]},
        "leader": {"seconds": 4},  # it is killed several times, and who comes after it waits for so long
    }
    with background_operator(sandbox, folder, **settings) as found:
        yield found


class Lab:
    """A namespace, and what a test does there."""

    def __init__(self, sandbox: Sandbox, kube: Client, namespace: str) -> None:
        self.sandbox, self.kube, self.namespace = sandbox, kube, namespace

    async def create(self, kind: str, name: str, spec: dict[str, Any] | None = None, **more: Any) -> None:
        """One of our kinds, or a ConfigMap or Secret with `data`."""
        body: dict[str, Any] = {"kind": kind, "metadata": {"name": name}, **more}
        if kind in RESOURCES:
            body |= {"apiVersion": f"{GROUP}/{VERSION}", "spec": spec or {}}
        await self.kube.create(_resource(kind), body, self.namespace)

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        """Empty where there is none."""
        try:
            return await self.kube.get(_resource(kind), name, self.namespace)
        except NotFoundError:
            return {}

    async def patch(self, kind: str, name: str, patch: dict[str, Any]) -> None:
        await self.kube.patch(_resource(kind), name, patch, self.namespace)

    async def delete(self, kind: str, name: str) -> None:
        await self.kube.delete(_resource(kind), name, self.namespace)

    async def secret(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in ((await self.get("Secret", name)).get("data") or {}).items()}

    async def condition(self, kind: str, name: str, type_: str = "Ready") -> tuple[str, str, str]:
        """Status, reason, message."""
        for found in ((await self.get(kind, name)).get("status") or {}).get("conditions", []):
            if found["type"] == type_:
                return found["status"], found["reason"], found["message"]
        return "", "", ""

    async def events(self, name: str) -> dict[str, str]:
        """Of an object: reason → note."""
        found = await self.kube.list(Resource("events.k8s.io", "v1", "events", dict), self.namespace)
        return {event["reason"]: event.get("note", "") for event in found.items if event.get("regarding", {}).get("name") == name}

    async def until_event(self, name: str, reason: str) -> str:
        """Returns the note. Events come a moment after what they tell of."""

        async def told() -> bool:
            return reason in await self.events(name)

        await self.until(f"Event {reason} told of {name}", told)
        return (await self.events(name))[reason]

    async def until(self, what: str, probe: Callable[[], Awaitable[object]], seconds: float = PATIENCE) -> None:
        await self.sandbox.until("kube-apiserver", what, probe, seconds)

    async def until_said(self, kind: str, name: str, status: str, reason: str = "", type_: str = "Ready") -> str:
        """Returns the message."""

        async def said() -> bool:
            found = await self.condition(kind, name, type_)
            return found[0] == status and (not reason or found[1] == reason)

        await self.until(f"{kind} {name} said {type_} {status} {reason}", said)
        return (await self.condition(kind, name, type_))[2]

    async def until_there(self, *children: tuple[str, str]) -> None:
        for kind, name in children:
            await self.until(f"{kind} {name} was there", lambda kind=kind, name=name: self.get(kind, name))  # type: ignore[misc]

    async def until_gone(self, *children: tuple[str, str]) -> None:
        for kind, name in children:

            async def gone(kind: str = kind, name: str = name) -> bool:
                return not await self.get(kind, name)

            await self.until(f"{kind} {name} was gone", gone)


def _resource(kind: str) -> Resource[dict[str, Any]]:
    return (RESOURCES.get(kind) or CHILD_KINDS[kind]).untyped


@asynccontextmanager
async def open_lab(sandbox: Sandbox, name: str = "") -> AsyncIterator[Lab]:
    """With its namespace, which goes at the end."""
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
        name = name or f"lab{next(_numbers)}"
        with suppress(ApiError):  # one that a manifest has made
            await kube.create(NAMESPACES.untyped, {"metadata": {"name": name}})
        lab = Lab(sandbox, kube, name)
        try:
            yield lab
        finally:
            await _empty(lab)
            await kube.delete(NAMESPACES, name)


async def _empty(lab: Lab) -> None:
    """No operator may be there any more to let workers go."""
    for kind in RESOURCES:
        for found in (await lab.kube.list(_resource(kind), lab.namespace)).items:
            if found["metadata"].get("finalizers"):
                await lab.patch(kind, found["metadata"]["name"], {"metadata": {"finalizers": None}})
            with suppress(NotFoundError):
                await lab.delete(kind, found["metadata"]["name"])
