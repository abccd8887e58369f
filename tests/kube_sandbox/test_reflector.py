"""Cached watches on the real API server: lists, changes, and every way a watch can break."""

import asyncio
from typing import Any

import pytest

from slinky.kube import JOBS, PODS, Backoff, ChangeType, Client, Key, KubeObject, Pod, Reflector, Resource
from tests.kube_sandbox.conftest import eventually, pod
from tests.kube_sandbox.faults import FaultyLine

pytestmark = pytest.mark.sandbox

CONFIG_MAPS = Resource("", "v1", "configmaps", KubeObject)
QUICK = Backoff(first=0.05, most=0.5)


def config(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"ours": "yes"}}, "data": data}


async def make(client: Client, namespace: str, *names: str) -> None:
    for name in names:
        await client.create(CONFIG_MAPS, config(name), namespace)


def follow(client: Client, namespace: str, **options: Any) -> Reflector[KubeObject]:
    return Reflector(client, CONFIG_MAPS, namespace=namespace, labels="ours=yes", backoff=QUICK, **options)


def names(found: "list[KubeObject]") -> set[str]:
    return {each.metadata.name for each in found}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "paged"])
async def test_a_list_and_then_changes_in_order(client: Client, namespace: str, streamed: bool) -> None:
    await make(client, namespace, "a", "b")
    reflector = follow(client, namespace, streamed_lists=streamed)
    seen: list[tuple[str, str]] = []
    async with reflector.running() as cache:
        cache.subscribe(lambda change: seen.append((change.type.value, change.key.name)))
        await cache.wait_synced(10)
        assert sorted(seen) == [("ADDED", "a"), ("ADDED", "b")]
        await make(client, namespace, "c")
        await client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, namespace)
        await client.delete(CONFIG_MAPS, "b", namespace)
        await eventually("all changes were seen", lambda: len(seen) == 5)
        assert seen[2:] == [("ADDED", "c"), ("MODIFIED", "a"), ("DELETED", "b")]
        assert names(cache.list()) == {"a", "c"}
        assert names(cache.list(namespace)) == {"a", "c"}
        assert cache.get("c", namespace) is not None
    assert reflector.health.relists == 1
    assert reflector.health.events == 3 + (2 if streamed else 0)


async def test_pods_are_found_by_their_node(client: Client, namespace: str) -> None:
    reflector = Reflector(client, PODS, namespace=namespace, fields="spec.schedulerName=nobody")
    reflector.cache.add_index("node", lambda found: [found.spec.node_name])
    async with reflector.running() as pods:
        await pods.wait_synced(10)
        for name in ("a", "b"):
            await client.create(PODS, pod(name), namespace)
        await client.bind("a", namespace, "kwok-02")
        await eventually("the pod was found by its node", lambda: [p.key.name for p in pods.by_index("node", "kwok-02")] == ["a"])
        assert [p.key.name for p in pods.by_index("node", "")] == ["b"]
        by_condition = pods.get("a", namespace)
        assert by_condition is not None
        await eventually("kwok ran it", lambda: (pods.get("a", namespace) or Pod()).status.phase == "Running")


async def test_a_transform_drops_what_is_not_wanted(client: Client, namespace: str) -> None:
    await make(client, namespace, "keep", "drop")
    async with follow(client, namespace, transform=lambda found: found if found.metadata.name == "keep" else None).running() as cache:
        await cache.wait_synced(10)
        await make(client, namespace, "drop-too", "last")
        await client.patch(CONFIG_MAPS, "keep", {"data": {"k": "v"}}, namespace)
        await eventually("the change arrived", lambda: cache.list()[0].metadata.resource_version != "")
        assert names(cache.list()) == {"keep"}


async def test_faults_of_ours_are_logged_and_the_cache_stays_true(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: KubeObject) -> KubeObject:
        raise RuntimeError("in the transform")

    reflector = follow(client, namespace, transform=broken)
    async with reflector.running() as cache:
        await cache.wait_synced(10)
        await make(client, namespace, "a")
        await eventually("it is held whole", lambda: names(cache.list()) == {"a"})

        def raising(_: KubeObject) -> None:
            monkeypatch.undo()
            raise RuntimeError("in the cache")

        monkeypatch.setattr(cache, "put", raising)
        await make(client, namespace, "b")
        await eventually("the relist made it good", lambda: names(cache.list()) == {"a", "b"})
    assert reflector.health.relists == 2
    assert "in the transform" in caplog.text
    assert "in the cache" in caplog.text


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "paged"])
async def test_a_job_whose_template_was_made_in_the_year_0_hides_no_other(client: Client, namespace: str, streamed: bool) -> None:
    """The API server takes it. A bridge that reads lists in pages did not start any more."""
    for name, born in (("odd", "0000-06-01T00:00:00Z"), ("usual", "2026-06-01T00:00:00Z")):
        template = {
            "metadata": {"creationTimestamp": born},
            "spec": {"containers": [{"name": "c", "image": "none"}], "restartPolicy": "Never"},
        }
        await client.create(JOBS.untyped, {"metadata": {"name": name}, "spec": {"suspend": True, "template": template}}, namespace)
    async with Reflector(client, JOBS, namespace=namespace, streamed_lists=streamed, backoff=QUICK).running() as jobs:
        await jobs.wait_synced(10)
        assert {each.metadata.name for each in jobs.list()} == {"odd", "usual"}


async def test_objects_of_a_megabyte(client: Client, namespace: str) -> None:
    """Far beyond what line-reading helpers take (512 KiB)."""
    whole = Resource("", "v1", "configmaps", KubeObject)
    await client.create(whole, config("first", text="x" * 1_000_000), namespace)
    reflector = follow(client, namespace)
    async with reflector.running() as cache:
        await cache.wait_synced(10)
        await client.create(whole, config("second", text="y" * 1_000_000), namespace)
        await eventually("both were held", lambda: names(cache.list()) == {"first", "second"})
    assert reflector.health.connections == 1


async def test_a_silent_connection_is_cut_and_what_was_missed_arrives(line: FaultyLine, client: Client, namespace: str) -> None:
    await make(client, namespace, "a")
    async with Client(line.access) as lossy:
        reflector = follow(lossy, namespace, silence_seconds=1)
        async with reflector.running() as cache:
            await cache.wait_synced(10)
            line.silence()
            await make(client, namespace, "b")
            await eventually("the silent connection was cut", lambda: reflector.health.cut >= 1)
            assert names(cache.list()) == {"a"}
            line.heal()
            await eventually("what was missed arrived", lambda: names(cache.list()) == {"a", "b"})
            assert reflector.health.relists == 1


async def test_broken_and_refused_connections_are_made_again_without_a_relist(line: FaultyLine, client: Client, namespace: str) -> None:
    await make(client, namespace, "a")
    async with Client(line.access) as lossy:
        reflector = follow(lossy, namespace)
        async with reflector.running() as cache:
            await cache.wait_synced(10)
            line.reset()
            await make(client, namespace, "b")
            await eventually("the first loss was made good", lambda: names(cache.list()) == {"a", "b"})
            await line.refuse()
            await client.delete(CONFIG_MAPS, "a", namespace)
            await eventually("it failed twice", lambda: reflector.health.failures >= 2)
            assert reflector.health.last_error
            await line.listen()
            await eventually("the second loss was made good", lambda: names(cache.list()) == {"b"})
            assert reflector.health.relists == 1


async def test_a_watch_that_the_server_ends_goes_on(client: Client, namespace: str) -> None:
    reflector = follow(client, namespace, watch_seconds=1)
    async with reflector.running() as cache:
        await cache.wait_synced(10)
        await eventually("it watched for the third time", lambda: reflector.health.connections >= 3)
        await make(client, namespace, "a")
        await eventually("the change arrived", lambda: names(cache.list()) == {"a"})
        assert (reflector.health.relists, reflector.health.failures) == (1, 0)


async def test_a_reader_who_waits_gets_changes_too(client: Client, namespace: str) -> None:
    reflector = follow(client, namespace)
    async with reflector.running() as cache, cache.changes() as changes:
        await make(client, namespace, "a")
        async with asyncio.timeout(10):
            async for change in changes:
                assert (change.type, change.key) == (ChangeType.ADDED, Key(namespace, "a"))
                break
