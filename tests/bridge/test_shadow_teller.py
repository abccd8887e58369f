"""The teller of shadow mode: nothing on pods, no Events; the record, and why those that wait do."""

from typing import Any

import pytest

from slinky.bridge.shadow import ShadowTeller
from slinky.bridge.shadow_record import ShadowRecord
from slinky.bridge.shadow_report import Report
from slinky.bridge.standing import Standing
from slinky.bridge.workload import WorkloadKey
from slinky.kube import KubeError
from slinky.slurm import NotFoundError
from tests.bridge.test_shadow_record import key, pod, snapshot


class Written:
    """In the stead of the ConfigMap."""

    def __init__(self) -> None:
        self.record = ShadowRecord(lambda: 1000.0)
        self.reports: list[Report] = []
        self.fails: Exception | None = None

    async def write(self, reasons: dict[WorkloadKey, str]) -> None:
        if self.fails:
            raise self.fails
        self.reports.append(self.record.report(reasons))


class NoJobs:
    def __init__(self) -> None:
        self.jobs = self

    async def parts(self, job_id: int) -> Any:
        raise NotFoundError(f"there is no job {job_id}")


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def teller(written: Written) -> ShadowTeller:
    shadow: Any = written
    slurm: Any = NoJobs()
    return ShadowTeller(shadow, slurm, 60.0)


async def test_the_reason_of_each_that_waits_is_in_the_report(teller: ShadowTeller, written: Written) -> None:
    for name, job_id in (("a", 7), ("b", 8), ("c", 9)):
        teller.look(key(name), snapshot(), [pod(name)])
        written.record.submitted(key(name), job_id)
    said: dict[WorkloadKey, Any] = {
        key("a"): [([pod()], Standing(reason="Window", message="waits for its turn"))],
        key("b"): [([pod("b")], 8)],
    }
    teller.standings = lambda asked: said.get(asked, [])
    await teller._write_report()
    assert {case.workload: case.reason for case in written.reports[0].waiting} == {
        "Pod team/a": "waits for its turn",
        "Pod team/b": "",
        "Pod team/c": "",
    }


@pytest.mark.parametrize("error", [KubeError("no API server"), TypeError("nobody thought of this")])
async def test_a_report_that_cannot_be_written_stops_nothing(
    teller: ShadowTeller, written: Written, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    written.fails = error
    await teller._write_report()
    assert "the report of shadow mode cannot be" in caplog.text
    assert str(error) in caplog.text
    written.fails = None
    await teller._write_report()
    assert len(written.reports) == 1


def test_what_would_be_told_to_users_is_told_to_nobody(teller: ShadowTeller, written: Written) -> None:
    teller.held([pod()], "why")
    teller.requeued([pod()], "why")
    teller.waits([pod()], "why")
    teller.evicted(pod(), "why")
    teller.parked([pod()], "no node has 1000 CPUs")
    teller.look(key(), snapshot(parked=True), [pod()])
    assert [case.reason for case in written.record.report({}).refused] == ["no node has 1000 CPUs"]
