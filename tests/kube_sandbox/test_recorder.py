"""Events on the real API server, as `kubectl describe` and `kubectl events` will show them."""

import time

import pytest

from slinky.kube import EVENTS, PODS, Client, Retries
from slinky.kube.eventlog import EventLog
from slinky.kube.recorder import EventRecorder, reference
from tests.kube_sandbox.conftest import eventually, pod
from tests.kube_sandbox.faults import FaultyLine

pytestmark = pytest.mark.sandbox


async def test_repeated_events_are_one_with_a_count(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("a"), namespace)
    about = reference(made, "v1", "Pod")
    recorder = EventRecorder(client, "slinky-test", "here", memory=EventLog(count_every=0.5))
    async with recorder.running() as events:
        events.record(about, "Waiting", "for resources", action="Submit", warning=True)

        async def found() -> bool:
            return bool((await client.list(EVENTS, namespace)).items)

        await eventually("the first was written", found)
        for _ in range(9):
            events.record(about, "Waiting", "for resources", action="Submit", warning=True)

        async def counted() -> bool:
            series = (await client.list(EVENTS, namespace)).items[0].series
            return series is not None and series.count == 10

        await eventually("the rest was counted", counted, 5)
    (event,) = (await client.list(EVENTS, namespace)).items
    assert (event.reason, event.note, event.action, event.type) == ("Waiting", "for resources", "Submit", "Warning")
    assert (event.regarding.uid, event.reporting_controller) == (about.uid, "slinky-test")
    assert recorder.dropped == 0


async def test_an_event_of_a_namespace_that_is_gone_is_dropped_and_the_next_one_is_written(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("a"), namespace)
    about = reference(made, "v1", "Pod")
    recorder = EventRecorder(client, "slinky-test", "here")
    async with recorder.running() as events:
        events.record(type(about)(kind="Pod", api_version="v1", namespace="no-such-namespace", name="x"), "Lost", "nobody sees this")
        await eventually("it was dropped", lambda: recorder.dropped == 1)
        events.record(about, "Seen", "this one")
    assert [event.reason for event in (await client.list(EVENTS, namespace)).items] == ["Seen"]


async def test_recording_never_waits_for_the_server(line: FaultyLine, client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("a"), namespace)
    about = reference(made, "v1", "Pod")
    await line.refuse()
    async with Client(line.access, retries=Retries(most=0)) as lossy:
        recorder = EventRecorder(lossy, "slinky-test", "here")
        async with recorder.running() as events:
            before = time.monotonic()
            for number in range(1000):
                events.record(about, "Much", str(number))
            assert time.monotonic() - before < 0.5
            assert recorder.dropped >= 900
