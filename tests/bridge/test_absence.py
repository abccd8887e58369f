"""Many jobs absent at once: when that is an alarm, when it is over, and what it holds back."""

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from slinky.bridge.absence import Alarm, Toll, is_mass, next_alarm
from slinky.bridge.absence_alarm import AbsenceAlarm, AbsenceGauges
from slinky.bridge.jobs import Jobs
from slinky.bridge.keys import ABSENCE_CONFIRMED
from slinky.bridge.memory import SETTLE_SECONDS, Known
from slinky.bridge.poller import JobPoller
from slinky.bridge.settings import AbsenceSettings
from slinky.bridge.workload import WorkloadKey
from slinky.kube import KubeError, Lease, Meta
from slinky.slurm import JobStatus, NotFoundError
from tests.bridge.both_sides import diagnostics
from tests.kube.virtual_time import run_in_virtual_time

SETTINGS = AbsenceSettings(share=0.25, jobs=3)


def test_a_few_are_no_alarm_and_neither_is_a_small_share() -> None:
    assert not is_mass(Toll(running=2, absent=2), SETTINGS)
    assert is_mass(Toll(running=3, absent=3), SETTINGS)
    assert not is_mass(Toll(running=100, absent=24), SETTINGS)
    assert is_mass(Toll(running=100, absent=25), SETTINGS)
    assert not is_mass(Toll(running=0, absent=0), AbsenceSettings(share=0, jobs=0))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from(["", "1", "2", "other"])), max_size=30))
def test_an_alarm_ends_only_when_they_are_back_or_when_its_own_name_is_confirmed(history: list[tuple[int, int, str]]) -> None:
    alarm: Alarm | None = None
    for number, (running, absent, confirmed) in enumerate(history):
        toll = Toll(max(running, absent), absent)
        before, alarm = alarm, next_alarm(alarm, toll, SETTINGS, confirmed, str(number))
        if before is None:
            assert (alarm is not None) == is_mass(toll, SETTINGS)
        elif alarm is None:
            assert confirmed == before.name or not is_mass(toll, SETTINGS)
        else:
            assert alarm.name == before.name
            assert confirmed != alarm.name


class Cluster:
    """Ten workloads with pods on nodes and a job each; the Lease; what was told."""

    def __init__(self) -> None:
        self.held = {job_id: ["RUNNING"] for job_id in range(1, 11)}
        self.annotations: dict[str, str] = {}
        self.events: list[str] = []
        self.looked: list[WorkloadKey] = []
        self.jobs = self.accounting = self
        self.lease_down = False
        me: Any = self
        self.poller = JobPoller(me, lambda _: None)
        self.views = Jobs(me, self.poller, "c1")
        self.known = {WorkloadKey("Pod", "ns", str(job_id)): Known(job_id=job_id, holds=True) for job_id in self.held}
        for key, known in self.known.items():
            self.poller.follow(known.job_id, key)
        registry = CollectorRegistry()
        self.alarm = AbsenceAlarm(
            SETTINGS, self.views, self.poller, self.known, self.looked.append, me, me, ("ns", "lease"), AbsenceGauges(registry)
        )
        self.registry = registry

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(name)

    async def states(self, job_ids: Any) -> list[JobStatus]:
        return [JobStatus(str(job_id), self.held[job_id]) for job_id in job_ids if job_id in self.held]

    async def parts(self, job_id: int) -> Any:
        raise NotFoundError(f"there is no job {job_id}")

    async def job(self, job_id: int) -> Any:
        raise NotFoundError(f"there is no job {job_id}")

    async def diag(self) -> Any:
        return diagnostics(1)

    async def distrust_markers(self) -> None: ...

    async def get(self, *_: Any) -> Lease:
        if self.lease_down:
            raise KubeError("the API server is not there")
        return Lease(metadata=Meta(name="lease", namespace="ns", uid="u", annotations=self.annotations))

    def record(self, about: Any, reason: str, note: str, *, warning: bool) -> None:
        assert (about.kind, about.name) == ("Lease", "lease")
        assert warning == (reason == "AbsenceAlarm")
        self.events.append(f"{reason}: {note}")

    async def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            await self.poller._look()
            await asyncio.sleep(0.5)

    async def state(self, job_id: int) -> str:
        key = WorkloadKey("Pod", "ns", str(job_id))
        view = await self.views.view(key, self.known[key])
        return view.state if view else ""


def told(story: Any) -> None:
    async def whole() -> None:
        await asyncio.sleep(1)
        cluster = Cluster()
        task = asyncio.create_task(cluster.alarm.run())
        try:
            await story(cluster)
        finally:
            task.cancel()

    run_in_virtual_time(whole())


def test_mass_absence_settles_nothing_and_is_told_once_and_ends_when_they_are_back() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.wait(3)
        assert cluster.alarm.problem is None
        cluster.held.clear()
        await cluster.wait(1)
        assert [await cluster.state(job_id) for job_id in (1, 2)] == ["absent"] * 2
        await cluster.wait(3 * SETTLE_SECONDS)
        assert [await cluster.state(job_id) for job_id in (1, 2)] == ["absent"] * 2
        assert "10 of 10 jobs" in (cluster.alarm.problem or "")
        assert cluster.value("slinky_bridge_absence_alarm") == 1
        assert cluster.value("slinky_bridge_absent_jobs") == 10
        assert [event.partition(":")[0] for event in cluster.events] == ["AbsenceAlarm"]
        cluster.held = {job_id: ["RUNNING"] for job_id in range(1, 10)}
        await cluster.wait(3)
        assert cluster.alarm.problem is None
        assert cluster.value("slinky_bridge_absence_alarm") == 0
        assert [event.partition(":")[0] for event in cluster.events] == ["AbsenceAlarm", "AbsenceAlarmOver"]

    told(story)


def test_an_administrators_word_ends_the_alarm_that_it_names_and_gives_up_what_is_absent() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.held.clear()
        await cluster.wait(3)
        assert cluster.alarm.alarm is not None
        cluster.annotations = {ABSENCE_CONFIRMED: "20200101T000000Z"}
        await cluster.wait(10)
        assert cluster.alarm.alarm is not None
        cluster.lease_down = True
        cluster.annotations = {ABSENCE_CONFIRMED: cluster.alarm.alarm.name}
        await cluster.wait(10)
        assert cluster.alarm.alarm is not None
        cluster.lease_down = False
        await cluster.wait(10)
        assert cluster.alarm.alarm is None
        assert set(cluster.looked) == set(cluster.known)
        assert await cluster.state(1) == "absent"
        await cluster.wait(SETTLE_SECONDS + 1)
        assert await cluster.state(1) == "lost"
        await cluster.wait(5)
        assert cluster.alarm.alarm is None, "what was given up raises no second one"

    told(story)


def test_one_absent_job_among_many_is_settled_by_itself() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.wait(1)
        del cluster.held[4]
        await cluster.wait(1)
        assert await cluster.state(4) == "absent"
        await cluster.wait(SETTLE_SECONDS + 1)
        assert await cluster.state(4) == "lost"
        assert cluster.events == []

    told(story)


def test_after_an_outage_every_job_is_looked_at_again() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.wait(1)
        cluster.known[WorkloadKey("Pod", "ns", "0")] = SimpleNamespace(job_id=0, holds=False)  # type: ignore[assignment]
        cluster.poller.epoch += 1
        await cluster.wait(3)
        assert sorted(key.name for key in cluster.looked) == sorted(str(job_id) for job_id in range(1, 11))

    told(story)
