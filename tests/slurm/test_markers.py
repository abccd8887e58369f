"""What is remembered of markers: found by look-up, forgotten when Slurm forgets, renewed when it is old."""

import asyncio
import json
import time
from collections.abc import Iterable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.slurm import ConfigurationError, JobDescription, NotFoundError, UnsupportedError, job_ids, markers
from slinky.slurm.connection import Connection
from slinky.slurm.markers import Marked, Markers, carries, remembered, with_marker

PIECES = st.lists(st.sampled_from(["a", "b", "a-b", "-", ":", " ", '"', "1", "10", "ä", "_"]), max_size=6).map("".join)


class Answers:
    """In place of a connection: the jobs that Slurm has, and what was asked."""

    def __init__(self) -> None:
        self.jobs: dict[int, str] = {}
        self.asked: list[str] = []

    async def read(self, path: str, decoder: Any, params: dict[str, list[int]] | None = None, **_: object) -> Any:
        assert params is None
        self.asked.append(path)
        await asyncio.sleep(0.01)
        if path == "slurm/jobs/state/":
            return decoder.decode(json.dumps({"jobs": [{"job_id": str(job_id), "state": ["PENDING"]} for job_id in self.jobs]}))
        job_id = int(path.rpartition("/")[2])
        return decoder.decode(json.dumps({"jobs": [{"job_id": job_id, "extra": self.jobs[job_id]}]}))


def remembering(texts: Iterable[str]) -> tuple[Answers, Markers]:
    answers = Answers()
    known = Markers(cast(Connection, answers))
    known._loaded = True
    for job_id, text in enumerate(texts, 1):
        known._remember(Marked(job_id, extra=text))
        answers.jobs[job_id] = text
    return answers, known


@given(st.lists(PIECES, max_size=8), PIECES.filter(bool))
def test_a_look_up_finds_what_a_scan_would(texts: list[str], marker: str) -> None:
    _, known = remembering(texts)
    wanted = {job_id for job_id, text in enumerate(texts, 1) if carries(text, marker)}
    assert known._carriers(marker, "extra") == wanted
    known._forget(range(1, len(texts) + 1))
    assert not known._words
    assert not known._known


def test_a_look_up_does_not_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge's markers stand in JSON."""
    _, known = remembering(f'{{"slinky":1,"marker":"slinky-{number}","count":1}}' for number in range(3000))
    scanned: list[str] = []

    def counted(text: str, marker: str) -> bool:
        scanned.append(text)
        return carries(text, marker)

    monkeypatch.setattr(markers, "carries", counted)
    assert known.known("slinky-77", "extra") == 78
    assert known.known("slinky-none", "extra") is None
    assert not scanned
    assert known.known('"marker":"slinky-5"', "extra") == 6
    assert len(scanned) == 1


def test_of_a_long_text_the_beginning_is_kept() -> None:
    text = " ".join(f"word{number}" for number in range(1000))
    assert remembered(text).endswith(" word63")
    assert remembered("x" * 10_000) == "x" * 4096
    assert remembered("short: text!") == "short: text!"
    with pytest.raises(ConfigurationError, match="at its beginning"):
        with_marker(JobDescription(extra=text), "word64", "extra")


async def test_what_is_old_is_renewed_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, known = remembering(["mine", "gone"])
    await known.freshen()
    assert answers.asked == ["slurm/jobs/state/"]
    await known.freshen()
    assert len(answers.asked) == 1
    del answers.jobs[2]
    answers.jobs[3] = "another's"
    monkeypatch.setattr(markers, "FRESH_SECONDS", 0.0)
    await known.freshen()
    assert answers.asked == ["slurm/jobs/state/", "slurm/jobs/state/", "slurm/job/3"]
    assert (known.known("mine", "extra"), known.known("gone", "extra"), known.known("another's", "extra")) == (1, None, 3)
    monkeypatch.setattr(markers, "FRESH_SECONDS", 30.0)
    known._refresh_began = float("-inf")
    answers.asked.clear()
    await asyncio.gather(*(known.freshen() for _ in range(10)))
    assert answers.asked == ["slurm/jobs/state/"]


async def test_memory_is_bounded_by_the_jobs_that_slurm_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "FRESH_SUBMITS", 100)
    answers, known = remembering([])
    for job_id in range(1, 1001):  # each is forgotten by Slurm at once
        await known.freshen()
        known.submitted(job_id, JobDescription(extra=f"m-{job_id}"), once=True)
        assert known.known(f"m-{job_id}", "extra") == job_id
        assert len(known._known) <= 101
    assert len(answers.asked) == 10
    for job_id in range(2001, 3001):  # without `once` nobody freshens
        known.submitted(job_id, JobDescription(extra=f"m-{job_id}"), once=False)
    assert len(known._known) <= 201


async def test_all_fields_of_a_job_of_ours_are_remembered() -> None:
    _, known = remembering([])
    known.submitted(7, JobDescription(extra="one", comment="two", admin_comment='{"marker":"three"}'), once=False)
    assert (known.known("one", "extra"), known.known("two", "comment"), known.known("three", "admin_comment")) == (7, 7, 7)


async def test_after_a_loss_of_slurms_state_all_is_read_again_but_not_for_each_job_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, known = remembering(["mine"])
    loads = 0

    async def load() -> None:
        nonlocal loads
        loads += 1
        known._remember(Marked(1, extra="another's"))
        known._loaded = True

    monkeypatch.setattr(known, "_load", load)
    for _ in range(3):
        known.distrust()
        await known.prepare()
    assert loads == 1
    known._reloaded_at = float("-inf")
    await known.prepare()
    assert loads == 2, "what came too soon is not forgotten"
    assert (known.known("mine", "extra"), known.known("another's", "extra")) == (None, 1)
    assert answers.asked == []


class Site(Answers):
    """Many jobs of others, each submitted a second after the one before; the clock of Slurm is an hour ahead of ours. `following` is the next job's id, which Slurm tells from 26.05 on."""

    AHEAD = 3600

    def __init__(self, count: int) -> None:
        super().__init__()
        self.jobs = dict.fromkeys(range(1, count + 1), "")
        self.arrays: list[str] = []
        self.newest = int(time.time()) + self.AHEAD
        self.following = 0

    async def require(self, feature: str) -> None:
        if not self.following:
            raise UnsupportedError(feature)

    async def read(self, path: str, decoder: Any, params: dict[str, list[int]] | None = None, **_: object) -> Any:
        if path == "slurm/diag/":
            now = {"set": True, "number": int(time.time()) + self.AHEAD}
            return decoder.decode(json.dumps({"statistics": {"req_time": now, "jobs_pending": len(self.jobs)}}))
        if path == "slurm/conf":
            following = {"set": True, "number": self.following}
            return decoder.decode(json.dumps({"slurm_conf": {}, "slurm_conf_meta": {"NEXT_JOB_ID": following}}))
        if path == "slurm/jobs/state/":
            self.asked.append(path + ("some" if params else ""))
            if params:
                assert len(params["job_id"]) <= 500
                labels = [str(job_id) for job_id in params["job_id"] if job_id in self.jobs]
            else:
                labels = [*map(str, self.jobs), *self.arrays]
            return decoder.decode(json.dumps({"jobs": [{"job_id": label, "state": ["PENDING"]} for label in labels]}))
        self.asked.append(path)
        job_id = int(path.rpartition("/")[2])
        if job_id not in self.jobs:
            raise NotFoundError("no such job")
        last = self.following - 1 if self.following else max(self.jobs)
        submitted = {"set": True, "number": self.newest - (last - job_id) % 0x03FF0000}
        return decoder.decode(json.dumps({"jobs": [{"job_id": job_id, "extra": self.jobs[job_id], "submit_time": submitted}]}))

    @property
    def records(self) -> int:
        return sum(path.startswith("slurm/job/") for path in self.asked)


def alone(count: int) -> tuple[Site, Markers]:
    site = Site(count)
    known = Markers(cast(Connection, site))
    known.alone("extra")
    return site, known


async def test_a_client_that_submits_alone_reads_nothing_before_a_submit_however_many_jobs_others_start() -> None:
    site, known = alone(1000)
    for job_id in range(1001, 1101):
        await known.prepare()
        await known.freshen()
        assert known.known(f"m-{job_id}", "extra") is None
        known.submitted(job_id, JobDescription(extra=f"m-{job_id} and more"), once=True)
        site.jobs |= {job_id: "", 10_000 + job_id: "another's"}
        assert known.known(f"m-{job_id}", "extra") == job_id
    assert site.asked == []


async def test_a_search_reads_the_newest_jobs_down_to_the_moment_of_the_submit_by_slurms_clock() -> None:
    site, known = alone(3000)
    site.jobs[2990] = "mine"
    site.arrays = [f"5_{task}" for task in range(100)]
    assert await known.find_all("mine", "extra", since=time.time() - 20) == [2990]
    assert site.records <= 200
    read = site.records
    assert await known.find_all(["other", "mine"], "extra", since=time.time() - 20) == [2990]
    assert site.records - read <= 100, "what was read is not read again"
    assert await known.find_all("mine", "extra") == [2990]
    assert site.records == 3000, "and all of them where nothing tells when it was"
    assert await known.unread() == []
    known.distrust()
    assert len(await known.unread()) == 3000, "after a restart ids may mean other jobs"


async def test_what_others_write_on_many_jobs_is_not_kept() -> None:
    site, known = alone(0)
    for job_id in range(1, 101):
        known._remember(Marked(job_id, extra=" ".join(f"{job_id}-{word}" for word in range(60)), comment="x y z " * 50))
    assert len(known._words) <= 8 * 100
    site.jobs = {7: ""}
    await known.unread()
    assert list(known._known) == [7], "what Slurm forgot is forgotten"


async def test_where_slurm_has_very_many_jobs_ids_are_asked_for_from_the_highest_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of all states takes slurmrestd half a minute there."""
    monkeypatch.setattr(job_ids, "MANY_JOBS", 1000)
    monkeypatch.setattr(job_ids, "PORTION", 1000)
    site, known = alone(5000)
    site.jobs = {job_id: text for job_id, text in site.jobs.items() if job_id > 1000}
    known.submitted(2000, JobDescription(extra="own"), once=True)
    site.jobs[4990] = "mine"
    assert await known.find_all("mine", "extra", since=time.time() - 20) == [4990]
    assert "slurm/jobs/state/" not in site.asked
    assert site.records <= 200
    seen: set[int] = set()
    for _ in range(20):
        ids = await known.unread(live=True)
        assert len(ids) <= 2000
        assert await known.unread(live=True) == ids, "until they were read"
        seen |= {job.job_id for job in await known.read(ids)}
        site.jobs[max(site.jobs) + 1] = "new"
    assert set(range(1001, 2000)) < seen, "the oldest"
    assert {5001, 5010} < seen, "and the newcomers"
    assert "slurm/jobs/state/" not in site.asked
    site.jobs = {job_id: text for job_id, text in site.jobs.items() if job_id > 4000}
    for _ in range(10):
        await known.unread()
    assert len(known._known) <= len(site.jobs), "what Slurm forgot is forgotten"


async def test_the_highest_id_is_found_far_above_the_last_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_ids, "MANY_JOBS", 1000)
    site, known = alone(0)
    site.jobs = dict.fromkeys(range(700_000, 720_001), "")
    known.submitted(100, JobDescription(extra="own"), once=True)
    assert await known.ids.top() == 720_000
    assert len(site.asked) < 500
    fresh = Markers(cast(Connection, site))
    fresh.alone("extra")
    site.asked.clear()
    assert await fresh.ids.top() == 720_000
    assert "slurm/jobs/state/" not in site.asked, "also where nothing is known"
    assert len(site.asked) < 2500


async def test_no_gap_between_ids_hides_the_jobs_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is held for weeks, while others used up millions of ids."""
    monkeypatch.setattr(job_ids, "MANY_JOBS", 1000)
    site, known = alone(0)
    site.jobs = dict.fromkeys(range(2_000_001, 2_002_001), "")
    site.jobs |= {5: "mine", 6: ""}
    known.ids.saw(2_000_000)
    assert await known.ids.live() == set(site.jobs)
    first = len(site.asked)
    site.asked.clear()
    del site.jobs[6]
    site.jobs[2_002_001] = ""
    assert await known.ids.live() == set(site.jobs)
    assert len(site.asked) < first / 10, "ids that were free are not named again"
    assert await known.find_all("mine", "extra") == [5]


async def test_a_slurm_that_tells_the_next_id_is_not_probed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_ids, "MANY_JOBS", 1000)
    site, known = alone(0)
    site.jobs = dict.fromkeys(range(700_000, 720_001), "")
    site.jobs[720_000] = "mine"
    site.following = 720_001
    assert await known.find_all("mine", "extra", since=time.time() - 20) == [720_000]
    assert len(site.asked) - site.records <= 2
    assert site.records <= 200


@pytest.mark.parametrize("many", [1000, 100_000])
async def test_where_ids_began_again_at_one_the_newest_are_the_low_ones(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(job_ids, "MANY_JOBS", many)
    site, known = alone(300)
    top = 0x03FF0000
    site.jobs |= dict.fromkeys(range(top - 2000, top), "")
    site.jobs[290] = "mine"
    site.following = 301
    known.ids.saw(top - 1)
    assert await known.find_all("mine", "extra", since=time.time() - 20) == [290]
    assert site.records <= 200
    assert len(await known.unread()) + len(known._known) >= min(many, len(site.jobs)), "and the others are found as well"
