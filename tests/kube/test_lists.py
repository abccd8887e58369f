"""A list of objects is read as far as it can be: one object that cannot be read hides no other."""

import logging
from collections import Counter
from typing import Any

import msgspec
import pytest

from slinky.bridge.jobsets import JobSet
from slinky.bridge.leaderworkersets import LeaderWorkerSet
from slinky.bridge.needs import needs_of
from slinky.kube import JOBS, PODS, Access, Client, Job, Key, KubeError, KubeObject, Pod, Reflector, Resource
from slinky.kube.client import MOST_LOGGED

YEAR_0 = "0000-06-01T00:00:00Z"  # Go writes it, Python knows no such year
CONFIG_MAPS = Resource("", "v1", "configmaps", KubeObject)


def a_map(name: str, born: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "creationTimestamp": born}}


def pages(monkeypatch: pytest.MonkeyPatch, client: Client, *answers: list[dict[str, Any]]) -> None:
    """What the API server says to one list after the other of its pages."""
    left = list(answers)

    async def raw(*_: Any, **__: Any) -> bytes:
        items = left.pop(0)
        return msgspec.json.encode({"metadata": {"resourceVersion": "7", "continue": "on" if left else ""}, "items": items})

    monkeypatch.setattr(client, "raw", raw)


async def test_an_object_that_cannot_be_read_is_left_out_of_a_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(Access("http://nowhere.invalid")) as client:
        pages(monkeypatch, client, [a_map("a"), a_map("bad", YEAR_0), a_map("b")], [a_map("c"), {"metadata": 5}])
        found = await client.list(CONFIG_MAPS)
    assert [each.metadata.name for each in found.items] == ["a", "b", "c"]
    assert found.resource_version == "7"
    assert found.unreadable == 2
    assert caplog.text.count("cannot be read is left out") == 2


async def test_a_tenant_who_makes_many_of_them_fills_no_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with Client(Access("http://nowhere.invalid")) as client:
        pages(monkeypatch, client, [a_map(f"bad{number}", YEAR_0) for number in range(500)])
        assert (await client.list(CONFIG_MAPS)).unreadable == 500
    assert Counter(record.levelno for record in caplog.records)[logging.ERROR] == MOST_LOGGED + 1


async def test_a_cache_that_is_read_in_pages_has_all_other_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client(Access("http://nowhere.invalid")) as client:
        pages(monkeypatch, client, [a_map("a"), a_map("bad", YEAR_0)])
        reflector = Reflector(client, CONFIG_MAPS, streamed_lists=False)
        async with reflector.running() as cache:
            await cache.wait_synced(10)
            assert [each.key for each in cache.list()] == [Key("ns", "a")]
    assert reflector.health.unreadable == 1


async def test_an_answer_that_is_no_list_is_an_error_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def raw(*_: Any, **__: Any) -> bytes:
        return b'{"items": 5}'

    async with Client(Access("http://nowhere.invalid")) as client:
        monkeypatch.setattr(client, "raw", raw)
        with pytest.raises(KubeError):
            await client.list(PODS)


def test_the_dates_of_a_template_are_not_read() -> None:
    """Anyone may write what they like there, and the API server keeps it."""
    template = {"metadata": {"creationTimestamp": YEAR_0, "labels": {"a": "b"}}, "spec": {}}
    job = msgspec.convert({"metadata": {"name": "j"}, "spec": {"template": template}}, Job)
    assert job.spec.template.metadata.labels == {"a": "b"}
    replicated = [{"name": "r", "template": {"metadata": {"creationTimestamp": YEAR_0}, "spec": {"template": template}}}]
    assert msgspec.convert({"metadata": {"name": "s"}, "spec": {"replicatedJobs": replicated}}, JobSet).spec.replicated_jobs
    assert JOBS.type is Job


def test_a_quantity_that_is_written_as_a_number_is_read() -> None:
    """The API server keeps it so in a JobSet or LeaderWorkerSet."""
    resources = {"requests": {"cpu": 4, "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}}
    spec = {"containers": [{"name": "c", "resources": resources}], "overhead": {"cpu": 1}}
    said = {"metadata": {"name": "l"}, "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": spec}}}}
    found = msgspec.json.decode(msgspec.json.encode(said), type=LeaderWorkerSet)
    needs = needs_of(Pod(spec=found.spec.leader_worker_template.worker_template.spec))
    assert needs.amounts == {"cpu": 5, "memory": 2**30, "nvidia.com/gpu": 1}
