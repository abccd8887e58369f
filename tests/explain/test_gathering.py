"""What is read of a long queue, and without the right to list DeviceClasses."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from slinky.bridge.keys import JOB_ID
from slinky.explain.asking import AskKube
from slinky.explain.facts import MOST_COUNTED
from slinky.explain.gathering import MOST_QUEUED, _device_resources, _overview, _without_job
from slinky.kube import Client, ForbiddenError, Pod
from slinky.kube.errors import Status as KubeStatus
from slinky.slurm import Job, JobState, SlurmClient
from tests.explain.worlds import SETTINGS, job, pod

LONG = MOST_QUEUED * 2


class Status(msgspec.Struct):
    job_id: int
    is_pending: bool
    is_finished: bool = False

    @property
    def state(self) -> JobState:
        return JobState.PENDING if self.is_pending else JobState.RUNNING


class LongQueue:
    """A client of Slurm with as many waiting jobs as running ones, which gives no list of all."""

    def __init__(self) -> None:
        self.jobs = self
        self.read = 0

    async def states(self) -> list[Status]:
        return [Status(number, is_pending=number > LONG) for number in range(1, 2 * LONG + 1)]

    async def parts(self, number: int) -> list[Job]:
        self.read += 1
        return [job(number) if number > LONG else job(number, "RUNNING", "None", nodes="w1")]


async def test_of_a_long_queue_the_jobs_from_the_offset_on_are_read() -> None:
    for offset, oldest, latest in ((0, LONG + 1, LONG), (500, LONG + 501, LONG - 500), (10**6, 2 * LONG - 19, 20)):
        client = LongQueue()
        counts, found = await _overview(cast(SlurmClient, client), offset)
        assert counts == {"PENDING": LONG, "RUNNING": LONG}
        assert client.read == len(found) == 40
        assert min(each.job_id for each in found if each.is_pending) == oldest
        assert max(each.job_id for each in found if not each.is_pending) == latest


class Classes:
    """Kubernetes with these DeviceClasses, or one that does not let them be listed."""

    def __init__(self, *found: tuple[str, str], forbids: bool = False) -> None:
        self.unread: set[str] = set()
        self.asked = 0
        self._found, self._forbids = found, forbids

    async def ask(self, _: str, question: Callable[[Any], Awaitable[Any]], __: object) -> Any:
        return await question(self)

    async def list(self, kind: Any) -> Any:
        self.asked += 1
        if self._forbids:
            raise ForbiddenError("GET", "/apis/resource.k8s.io/v1/deviceclasses", KubeStatus(code=403))
        items = [{"metadata": {"name": name}, "spec": {"extendedResourceName": serves} if serves else {}} for name, serves in self._found]
        return msgspec.defstruct("Listing", [("items", tuple)])(tuple(msgspec.convert(item, kind.type) for item in items))


def requesting(name: str, **more: Any) -> Pod:
    return pod(spec={"containers": [{"name": "c", "resources": {"requests": {name: "1"}}}], **more})


async def device_resources(kube: Classes, found: Pod) -> dict[str, str]:
    return await _device_resources(cast(AskKube, kube), found)


async def test_resources_that_a_device_class_serves_are_found() -> None:
    kube = Classes(("big", "example.com/gpu"), ("plain", ""))
    assert await device_resources(kube, requesting("example.com/gpu")) == {"example.com/gpu": "big"}
    assert not kube.unread


async def test_device_classes_are_listed_only_for_a_waiting_pod_that_may_request_one() -> None:
    kube = Classes(("big", "example.com/gpu"))
    assert await device_resources(kube, requesting("cpu")) == {}
    assert await device_resources(kube, requesting("example.com/gpu", nodeName="w1")) == {}
    assert kube.asked == 0


async def test_without_the_right_to_list_device_classes_they_are_not_known() -> None:
    kube = Classes(forbids=True)
    assert await device_resources(kube, requesting("example.com/gpu")) == {}
    assert kube.unread == {"deviceclasses"}


class OnePage:
    """An API server's answer to one list of pods."""

    def __init__(self, items: list[Any] | None) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._items = items

    async def raw(self, _: str, path: str, *, parameters: dict[str, str], **__: Any) -> bytes:
        self.asked.append((path, parameters))
        return msgspec.json.encode({"metadata": {"continue": "more"}, "items": self._items})


async def test_pods_without_a_job_are_counted_from_one_page() -> None:
    """Thousands of pods may wait, and `top` looks every two seconds."""
    page = OnePage([{"metadata": {"name": name}} for name in ("a", "b")])
    assert await _without_job(cast(Client, page), SETTINGS) == 2
    ((path, wanted),) = page.asked
    assert path == "/api/v1/pods"
    assert wanted["labelSelector"] == f"!{JOB_ID}"
    assert f"spec.schedulerName={SETTINGS.scheduler_name}" in wanted["fieldSelector"]
    assert wanted["limit"] == str(MOST_COUNTED)
    assert await _without_job(cast(Client, OnePage(None)), SETTINGS) == 0
