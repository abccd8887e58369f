"""What these tests share: access to the sandbox's API server, a client, a faulty line to it, and a wait for conditions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from slinky.kube import Access, Client, KubeError, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from tests.kube_sandbox.faults import FaultyLine, faulty_line

Eventually = Callable[..., Awaitable[None]]


@pytest.fixture
def access(sandbox: Sandbox) -> Access:
    return from_kubeconfig(sandbox.kubeconfig)


@pytest.fixture
async def client(access: Access) -> AsyncIterator[Client]:
    async with Client(access) as found:
        yield found


@pytest.fixture
async def line(access: Access) -> AsyncIterator[FaultyLine]:
    async with faulty_line(access) as found:
        yield found


async def eventually(what: str, probe: Callable[[], Any], seconds: float = 30.0) -> None:
    """Until `probe` is true; it may be a coroutine function, and a KubeError means not yet."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    found = probe()
                    if await found if asyncio.iscoroutine(found) else found:
                        return
                except KubeError:
                    pass
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}]
    return {"metadata": {"name": name, **metadata}, "spec": {"schedulerName": "nobody", "containers": containers}}
