"""Servers that are older, overloaded or behind a proxy: the real one with something of ours in front."""

import logging
from collections import Counter
from dataclasses import replace

import pytest
from aiohttp import web

from slinky.kube import NODES, Access, Backoff, Client, KubeObject, Reflector, Resource, TooManyRequestsError, UnavailableError
from tests.kube_sandbox.conftest import eventually
from tests.kube_sandbox.front import connect_proxy, front

pytestmark = pytest.mark.sandbox

CONFIG_MAPS = Resource("", "v1", "configmaps", KubeObject)


def status(code: int, reason: str, message: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code}
    return web.json_response(body, status=code, headers=headers)


async def test_a_server_that_does_not_stream_lists_is_read_in_pages(access: Access, client: Client, namespace: str) -> None:
    asked: Counter[str] = Counter()

    def old(request: web.Request) -> web.Response | None:
        kind = "streamed" if "sendInitialEvents" in request.query else "watch" if "watch" in request.query else "list"
        asked[kind] += request.method == "GET"
        if kind != "streamed":
            return None
        return status(
            422, "Invalid", 'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: the WatchList feature gate is off'
        )

    await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace)
    async with (
        front(access, old) as before,
        Client(before) as through,
        Reflector(through, CONFIG_MAPS, namespace=namespace).running() as cache,
    ):
        await cache.wait_synced(10)
        await client.create(CONFIG_MAPS, {"metadata": {"name": "b"}}, namespace)
        await eventually("the change arrived", lambda: cache.get("b", namespace) is not None)
        assert cache.get("a", namespace) is not None
    assert (asked["streamed"], asked["list"]) == (1, 1)


async def test_an_expired_version_within_the_stream_is_heeded(access: Access, client: Client, namespace: str) -> None:
    """The server may say it as an ERROR event under a 200."""
    said: list[str] = []

    def forgetful(request: web.Request) -> web.Response | None:
        if request.query.get("resourceVersion") and "watch" in request.query and not said:
            said.append(request.query["resourceVersion"])
            event = b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}}\n'
            return web.Response(body=event, content_type="application/json")
        return None

    async with front(access, forgetful) as before, Client(before) as through:
        reflector = Reflector(through, CONFIG_MAPS, namespace=namespace, watch_seconds=1, backoff=Backoff(first=0.05))
        async with reflector.running() as cache:
            await cache.wait_synced(10)
            await eventually("it listed anew", lambda: reflector.health.relists >= 2)
            await client.create(CONFIG_MAPS, {"metadata": {"name": "b"}}, namespace)
            await eventually("the change arrived", lambda: cache.get("b", namespace) is not None)
    assert said


async def test_an_overloaded_server_is_asked_again_when_it_says(access: Access, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    refusals = iter([status(429, "TooManyRequests", "too many requests", **{"Retry-After": "1"})])

    async with front(access, lambda _: next(refusals, None)) as before, Client(before) as through:
        with caplog.at_level(logging.WARNING):
            await through.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace)
    assert "429 TooManyRequests: too many requests; try 2 of 5 in 1.0 s" in caplog.text


async def test_what_may_have_been_done_or_was_not_asked_for_again_is_not_repeated(access: Access, namespace: str) -> None:
    asked: Counter[str] = Counter()

    def refusing(request: web.Request) -> web.Response:
        asked[request.method] += 1
        if request.method == "GET":
            return status(503, "ServiceUnavailable", "not now")
        return status(429, "TooManyRequests", "no time given")

    async with front(access, refusing) as before, Client(before) as through:
        with pytest.raises(TooManyRequestsError):
            await through.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace)
        with pytest.raises(UnavailableError):
            await through.get(NODES, "kwok-00")
    assert asked == {"POST": 1, "GET": 5}


async def test_through_a_proxy(access: Access) -> None:
    seen: list[str] = []
    async with connect_proxy(seen) as proxy, Client(replace(access, proxy=proxy)) as through:
        assert (await through.get(NODES, "kwok-00")).metadata.name == "kwok-00"
        assert (await through.get(NODES, "kwok-01")).metadata.name == "kwok-01"
    assert seen == [access.server.removeprefix("https://")]
