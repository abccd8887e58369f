"""The record of shadow mode: each workload counted once, also across a restart; bounded; both sides compared."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from slinky.bridge.plan import JobView, PodView, Snapshot
from slinky.bridge.shadow_record import MOST_CASES, ShadowRecord
from slinky.bridge.shadow_report import Report, Tally
from slinky.bridge.shadow_store import MOST_BYTES, _halved
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod

BEGAN = 1_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def record(clock: Clock) -> ShadowRecord:
    return ShadowRecord(clock)


def pod(name: str = "a", node: str = "", waited: float = 2.0, phase: str = "Running") -> Pod:
    made = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": made + dt.timedelta(seconds=waited)}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "team", "uid": f"{name}-uid", "creationTimestamp": made},
            "spec": {"nodeName": node},
            "status": {"phase": phase, "conditions": [placed] if node else []},
        },
        Pod,
    )


def key(name: str = "a") -> WorkloadKey:
    return WorkloadKey("Pod", "team", f"{name}-uid")


def snapshot(state: Any = "waiting", job: Any = None, **more: Any) -> Snapshot:
    view = JobView(job_id=7, state=job) if job else None
    return Snapshot(pods=[PodView(uid="a-uid", state=state)], size=1, job=view, **more)


def test_a_workload_from_its_submit_to_its_end(record: ShadowRecord, clock: Clock) -> None:
    record.saw(pod())
    record.looked(key(), snapshot(), [pod()])
    record.submitted(key(), 7)
    record.looked(key(), snapshot(job="pending"), [pod()])
    clock.now += 30
    record.saw(pod(node="n1"))
    [waiting] = record.report({key(): "Resources"}).waiting
    assert (waiting.workload, waiting.slurm_wait, waiting.kube_wait, waiting.reason) == ("Pod team/a", 30.0, 2.0, "Resources")
    record.started(7, BEGAN, BEGAN + 40)
    record.bound("a-uid", "n2")
    record.looked(key(), snapshot("over", job="running"), [pod(phase="Succeeded")])
    record.forgotten(key())
    report = record.report({})
    [case] = report.latest
    assert (case.state, case.slurm_wait, case.kube_wait, case.slurm_nodes, case.kube_nodes) == ("ended", 40.0, 2.0, "n2", "n1")
    assert report.total == Tally(
        submitted=1, started=1, ended=1, slurm_wait=40.0, slurm_wait_most=40.0, kube_wait=2.0, kube_wait_most=2.0, pods_placed=1
    )
    assert report.namespaces == {"team": report.total}
    assert report.longest == [case]
    assert record.counts() == {}


def test_what_ended_before_slurm_would_have_started_it_is_missed(record: ShadowRecord) -> None:
    record.looked(key(), snapshot(), [pod()])
    record.submitted(key(), 7)
    record.looked(key(), snapshot("over", job="pending"), [pod(phase="Succeeded")])
    record.looked(key(), snapshot("over"), [pod(phase="Succeeded")])
    report = record.report({})
    assert (report.total.missed, report.total.ended, report.latest[0].state) == (1, 0, "missed")


def test_what_would_be_evicted_counts_once(record: ShadowRecord) -> None:
    record.looked(key(), snapshot(), [pod()])
    record.submitted(key(), 7)
    record.started(7, BEGAN, BEGAN)
    record.evicted(pod(), "Slurm job 7 is PREEMPTED")
    record.forgotten(key())
    report = record.report({})
    assert (report.total.evicted, report.total.ended) == (1, 0)
    assert report.evicted[0].reason == "Slurm job 7 is PREEMPTED"
    assert report.evicted_uids == ["a-uid"]


def test_refused_by_admission_by_us_or_by_slurm_with_the_reason_and_once(record: ShadowRecord) -> None:
    record.refused(pod("b"), "annotation x is not known")
    record.refused(pod("b"), "annotation x is not known")
    record.parked([pod()], "no node has 1000 CPUs")
    for _ in range(3):
        record.looked(key(), snapshot(parked=True), [pod()])
    report = record.report({})
    assert report.total.refused == 2
    assert {case.workload: case.reason for case in report.refused} == {
        "Pod team/b": "annotation x is not known",
        "Pod team/a": "no node has 1000 CPUs",
    }
    record.submitted(key(), 7)
    assert [case.workload for case in record.report({}).refused] == ["Pod team/b"]


def test_a_restart_counts_nothing_twice_and_forgets_nothing(record: ShadowRecord, clock: Clock) -> None:
    record.parked([pod("c")], "no node has 1000 CPUs")
    record.looked(key("c"), snapshot(parked=True), [pod("c")])
    record.looked(key(), snapshot(), [pod()])
    record.submitted(key(), 7)
    record.started(7, BEGAN, BEGAN + 1)
    record.looked(key("b"), snapshot(), [pod("b")])
    record.submitted(key("b"), 8)
    clock.now += 10
    written = msgspec.json.decode(msgspec.json.encode(record.report({})), type=Report)

    clock.now += 100
    after = ShadowRecord(clock, written)
    after.adopted(key(), 7, BEGAN, BEGAN + 1)
    after.adopted(key("b"), 8, BEGAN, BEGAN + 50)  # while nobody was there
    after.adopted(key("d"), 9, BEGAN + 60, 0)  # submitted after the last report was written
    after.started(7, BEGAN, BEGAN + 1)
    after.started(8, BEGAN, BEGAN + 50)
    after.parked([pod("c")], "no node has 1000 CPUs")
    after.looked(key("c"), snapshot(parked=True), [pod("c")])
    report = after.report({})
    assert (report.total.submitted, report.total.started, report.total.refused) == (3, 2, 1)
    assert (report.total.slurm_wait, report.since) == (51.0, BEGAN)


def test_the_report_is_bounded_whatever_happened(record: ShadowRecord) -> None:
    for number in range(3 * MOST_CASES):
        name = f"{'long-' * 40}{number}"
        record.looked(key(name), snapshot(), [pod(name)])
        record.submitted(key(name), number)
        record.started(number, BEGAN, BEGAN + number)
        record.bound(f"{name}-uid", f"node{number}" * 10)
        record.evicted(pod(name), "x" * 10_000) if number % 2 else None
        record.forgotten(key(name))
        record.refused(pod(f"r{name}"), "y" * 10_000)
    report = record.report({})
    assert max(map(len, (report.refused, report.evicted, report.longest, report.latest))) == MOST_CASES
    assert report.longest[0].slurm_wait == 3 * MOST_CASES - 1
    assert len(msgspec.json.encode(report)) < MOST_BYTES
    assert report.total.refused == 3 * MOST_CASES
    halved = _halved(report)
    assert len(msgspec.json.encode(halved)) < len(msgspec.json.encode(report)) * 0.6
    assert halved.total == report.total


def test_what_is_over_from_the_beginning_is_nobodys_business(record: ShadowRecord) -> None:
    record.saw(pod(node="n1", phase="Succeeded"))
    record.looked(key(), snapshot("over"), [pod(phase="Succeeded")])
    record.refused(pod("b", phase="Failed"), "why")
    assert record.report({}).total == Tally()
