"""Whether there are hetjobs, and which of a hetjob's components a pod is for."""

import asyncio
from typing import Any

import msgspec
import pytest

from slinky.bridge.annotations import JobSettings
from slinky.bridge.hetjobs import BELIEVED_SECONDS, Hetjobs, components_for
from slinky.bridge.submission import Submission, hetjob_of, submission_of
from slinky.bridge.translate import Site, components, whereto
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Pod
from slinky.slurm import RefusedError
from slinky.slurm.connection import Server
from slinky.slurm.versions import Version
from tests.kube.virtual_time import run_in_virtual_time

SITE = Site(cluster="c1", partition="bridge")


class Slurm:
    def __init__(self, release: str) -> None:
        self._release = release

    async def server(self) -> Server:
        return Server(Version(45), self._release, frozenset())


def hetjobs(release: str = "Slurm-26.05.5&openapi/slurmctld", wanted: bool = True) -> Hetjobs:
    return Hetjobs(Slurm(release), wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("release", "lacking"),
    [
        ("Slurm-26.05.3&openapi/slurmctld", False),
        ("Slurm-26.11.0", False),
        ("Slurm 26.05.2", True),
        ("Slurm-25.11.4&openapi/slurmctld", True),
        ("unknown", False),
    ],
)
async def test_a_server_says_by_its_release_whether_it_has_hetjobs_for_external_jobs(release: str, lacking: bool) -> None:
    why = await hetjobs(release).lacking()
    assert bool(why) is lacking
    assert not lacking or "26.05.3 and later do" in why


async def test_never_is_never() -> None:
    assert await hetjobs(wanted=False).lacking() == "gangs.hetjobs is never"


def test_a_refusal_counts_for_a_while_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        found = hetjobs()
        assert not found.refused(RefusedError("no such account", number=2045))
        assert await found.lacking() == ""
        for _ in range(2):
            assert found.refused(RefusedError("Requested operation not supported on this system", number=2036))
            assert "not supported" in await found.lacking()
            await asyncio.sleep(BELIEVED_SECONDS + 1)
            assert await found.lacking() == ""

    run_in_virtual_time(story())
    assert len([record for record in caplog.records if "largest needs for all" in record.getMessage()]) == 1


def a_pod(name: str, cpus: str, gpus: int = 0, memory: str = "1Gi") -> Pod:
    requests: dict[str, Any] = {"cpu": cpus, "memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "c", "resources": {"requests": requests}}
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"containers": [container]}}, Pod)


def a_gang(*pods: Pod) -> Workload:
    key = WorkloadKey("CoschedulingPodGroup", "ns", "train")
    return Workload(key=key, name="train", pods=pods, size=len(pods), settings=JobSettings())


def submitted(workload: Workload) -> Submission:
    jobs = components(workload, SITE)
    return hetjob_of([submission_of(7 + number, job) for number, job in enumerate(jobs)], [((), whereto(workload.pods[0])) for _ in jobs])


def test_a_pod_is_for_the_component_that_is_like_it() -> None:
    leader, workers = a_pod("l", "1"), [a_pod("w0", "2", 2), a_pod("w1", "2", 2)]
    job = submitted(a_gang(leader, *workers))
    assert components_for(a_gang(leader, *workers), SITE, job) == {"l": 0, "w0": 1, "w1": 1}
    again = a_gang(a_pod("w9", "2", 2), a_pod("l9", "1"))
    assert components_for(again, SITE, job) == {"w9": 1, "l9": 0}


def test_one_that_is_like_none_is_for_one_that_holds_it_or_for_none() -> None:
    job = submitted(a_gang(a_pod("l", "1"), a_pod("w", "4", 2)))
    others = a_gang(a_pod("a", "2", 1), a_pod("b", "8"), a_pod("c", "1", 3), a_pod("d", "1", 0, "64Gi"))
    assert components_for(others, SITE, job) == {"a": 1, "b": -1, "c": -1, "d": -1}


def test_a_job_that_is_no_hetjob_has_no_components() -> None:
    gang = a_gang(a_pod("a", "1"), a_pod("b", "1"))
    assert components_for(gang, SITE, submission_of(7, components(gang, SITE)[0])) == {}
