"""Which copy of a cluster may act: what a claim in Slurm and one in Kubernetes mean to each other, and what a leader makes of them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from slinky.bridge.adoption import found_in
from slinky.bridge.claim import (
    BEAT_SECONDS,
    Claim,
    Claimed,
    ClaimKeeper,
    claim_of,
    conflict_in,
    foreign_among,
    is_foreign,
)
from slinky.bridge.keys import CLAIM, CLAIM_CONFLICT, TAKE_OVER
from slinky.bridge.marker import Failure, comment_for, failures_of, told_of, told_that, with_claim, with_failures, with_told
from slinky.kube import InvalidError, KubeError, Lease, Meta, NotFoundError
from slinky.kube.errors import ConflictError, Status, UnavailableError
from slinky.slurm import Job, JobDescription
from slinky.slurm import NotFoundError as NoSuchJobError
from tests.kube.virtual_time import run_in_virtual_time


def comment(claim: object = "", pods: int = 1) -> str:
    """A job's admin_comment as the bridge writes it, with this claim."""
    names = [("team", f"pod-{number}") for number in range(pods)]
    text = comment_for("c", "Pod team/uid", names, ["uid"])
    return with_claim(text, str(claim)) if claim else text


claims = st.builds(Claim, st.integers(0, 5), st.sampled_from("ab"), st.integers(0, 5))


@given(claims)
def test_a_claim_is_read_as_it_was_written(claim: Claim) -> None:
    assert Claim.parse(str(claim)) == claim
    assert claim_of(comment(claim)) == claim


NO_CLAIMS = ["", "7", "7.a", "7.a.b", "a.b.7", "7..1", "7.a-b.1", "7.a.x", "rack=3", "7.a.1.", " 7.a.1", "7.a.1\n"]


@pytest.mark.parametrize(
    "text", [*NO_CLAIMS, "9" * 5000 + ".a.1", "7.a." + "9" * 5000, f"7.{'a' * 5000}.1", "\N{ARABIC-INDIC DIGIT SEVEN}.a.1"]
)
def test_whatever_else_stands_there_is_no_claim(text: str) -> None:
    assert Claim.parse(text) is None
    assert claim_of(text) is None
    assert claim_of(comment(text)) is None


def test_a_claim_stays_with_what_else_the_comment_says() -> None:
    told, failures = told_that("gpu&ib", "n[1-3]"), (Failure(0, "u", 3),)
    text = with_failures(with_told(comment("1.a.0"), told), failures)
    text = with_claim(text, "1.a.1")
    assert (claim_of(text), told_of(text), failures_of(text)) == (Claim(1, "a", 1), told, failures)
    assert claim_of(with_told(text, told_that("", ""))) == Claim(1, "a", 1)
    assert with_claim("a person's words", "1.a.1") == "a person's words"


def test_a_claim_in_what_the_owner_of_a_job_can_write_says_nothing() -> None:
    """Slurm lets the owner change `extra` and `comment`, but not `admin_comment`."""
    forged = "slinky-claim=999999.abc.1"
    for words in (forged, comment("999999.abc.1")):
        job = Job(
            job_id=1,
            job_states=["RUNNING"],
            flags=["EXTERNAL_JOB"],
            admin_comment=comment("1.a.0"),
            extra=words,
            comment=words,
        )
        found = found_in(job, "c")
        assert found is not None
        assert found.claim == Claim(1, "a", 0)


def test_what_this_kubernetes_wrote_is_not_foreign_and_what_it_cannot_have_written_is() -> None:
    stored = Claim(5, "a", 10)
    assert not [each for each in (stored, Claim(5, "a", 0), Claim(4, "z", 99)) if is_foreign(each, stored)]
    for foreign in (Claim(5, "a", 11), Claim(5, "b", 0), Claim(6, "a", 0)):
        assert is_foreign(foreign, stored)


@given(st.lists(st.sampled_from(["beat", "submit", "restart"]), max_size=20), st.integers(0, 20))
def test_a_copy_is_told_by_anything_that_production_did_after_the_backup(history: list[str], cut: int) -> None:
    """Production's own leaders never take production's jobs for foreign; a copy does, from the first act after its backup on."""
    stored, jobs, backup = Claim(1, "t1", 0), [Claim(1, "t1", 0)], Claim(1, "t1", 0)
    shown = False  # in Slurm, since the backup
    for moment, act in enumerate(history):
        if moment == cut:
            backup, shown = stored, False
        if act == "restart":
            stored = Claim(stored.generation + 1, f"t{moment + 2}")
        elif act == "beat":
            stored = Claim(stored.generation, stored.token, stored.beat + 1)
            jobs[0], shown = stored, True
        else:
            jobs.append(stored)
            shown = shown or stored != backup
        assert not foreign_among([Claimed(1, job) for job in jobs], stored)
    assert bool(foreign_among([Claimed(1, job) for job in jobs], backup)) == (shown and any(is_foreign(job, backup) for job in jobs))
    if cut < len(history) and "beat" in history[cut:]:
        assert foreign_among([Claimed(1, job) for job in jobs], backup)


def test_a_kubernetes_without_a_claim_knows_its_jobs_by_their_pods() -> None:
    own, other = Claimed(1, Claim(3, "a", 0), is_ours=True), Claimed(2, Claim(2, "b", 0))
    assert foreign_among([own], None) == []
    assert foreign_among([own, other], None) == [other]


class Sides:
    """A Kubernetes with the one Lease, and a Slurm with some jobs. `shared` Slurm is that of two of them."""

    def __init__(self, slurm: dict[int, str] | None = None, annotations: dict[str, str] | None = None) -> None:
        self.comments = {} if slurm is None else slurm
        self.forged = ""  # what the owners of all jobs wrote into `extra`
        self.beats: list[int] = []  # jobs whose comment was written
        self.fault = ""  # what becomes of writes to the Lease: "refused", "with a lost answer"
        self.annotations = annotations
        self.jobs = self

    def keeper(self) -> ClaimKeeper:
        me: Any = self
        found = ClaimKeeper(me, me, ("slinky", "bridge"), CollectorRegistry())
        found.live = lambda: list(self.comments)
        found.begin()
        return found

    def claimed(self) -> list[Claimed]:
        return [Claimed(job_id, claim) for job_id, text in self.comments.items() if (claim := claim_of(text))]

    # Slurm

    async def update(self, job_id: int, change: JobDescription) -> None:
        self.comments[job_id] = change.admin_comment or ""
        self.beats.append(job_id)

    # Both: a job by its number, a Lease by its name

    async def get(self, what: Any, name: str = "", _: str = "") -> Any:
        if isinstance(what, int):
            if what not in self.comments:
                raise NoSuchJobError("no such job")
            return Job(job_id=what, job_states=["RUNNING"], admin_comment=self.comments[what], extra=self.forged)
        if self.annotations is None:
            raise NotFoundError("GET", name, Status(code=404))
        return Lease(metadata=Meta(name=name, annotations=self.annotations))

    async def create(self, _: Any, body: dict[str, Any], __: str) -> Lease:
        self.annotations = {}
        return Lease(metadata=Meta(name=body["metadata"]["name"]))

    async def patch(self, _: Any, name: str, patch: Any, __: str, **___: Any) -> None:
        assert self.annotations is not None
        if self.fault == "refused":
            raise ConflictError("PATCH", name, Status(code=409))
        self._change(name, patch)
        if self.fault:
            raise UnavailableError("PATCH", name, Status(code=504))

    def _change(self, name: str, patch: Any) -> None:
        assert self.annotations is not None
        if isinstance(patch, dict):
            both = self.annotations | patch["metadata"]["annotations"]
            self.annotations = {key: value for key, value in both.items() if value is not None}
            return
        test, replace = patch
        if self.annotations.get(CLAIM) != test["value"]:
            raise InvalidError("PATCH", name, Status(code=422))
        self.annotations[CLAIM] = replace["value"]


def test_each_leader_has_the_next_generation_and_only_then_may_act() -> None:
    async def story() -> None:
        sides = Sides()
        for generation in (1, 2, 3):
            keeper = sides.keeper()
            assert not keeper.may_act
            assert await keeper.settle(sides.claimed())
            assert keeper.may_act
            sides.comments[generation] = comment(keeper.stamp())
            found = claim_of(sides.comments[generation])
            assert found is not None
            assert found.generation == generation
            assert sides.annotations is not None
            assert sides.annotations[CLAIM] == str(found)

    run_in_virtual_time(story())


def test_a_restored_copy_does_nothing_while_production_leads_and_production_goes_on() -> None:
    async def story() -> None:
        production = Sides()
        first = production.keeper()
        await first.settle([])
        production.comments[1] = comment(first.stamp())
        copy = Sides(production.comments, dict(production.annotations or {}))  # backed up now
        beats = asyncio.create_task(first.run())
        await asyncio.sleep(BEAT_SECONDS * 1.5)
        second = copy.keeper()
        assert not await second.settle(copy.claimed())
        assert not second.may_act
        assert second.problem
        assert "Slurm job 1 has claim" in second.problem
        shown = conflict_in(copy.annotations or {})
        assert shown is not None
        assert (shown.job_id, shown.word) == (1, copy.claimed()[0].claim.word)
        assert conflict_in(production.annotations or {}) is None
        await asyncio.sleep(BEAT_SECONDS * 5)
        assert first.may_act
        assert claim_of(production.comments[1]) == Claim.parse((production.annotations or {})[CLAIM])

        foreign = copy.claimed()[0].claim
        assert copy.annotations is not None
        copy.annotations[TAKE_OVER] = foreign.word  # an administrator
        assert await second.settle(copy.claimed())
        assert second.may_act
        assert CLAIM_CONFLICT not in copy.annotations
        await asyncio.sleep(BEAT_SECONDS * 2)
        assert not first.may_act, "the one that was taken over from notices"
        beats.cancel()

    run_in_virtual_time(story())


def test_a_leader_that_meets_a_foreign_job_stops_until_that_is_over() -> None:
    async def story() -> None:
        sides = Sides()
        keeper = sides.keeper()
        await keeper.settle([])
        task = asyncio.create_task(keeper.run())
        sides.comments[7] = comment("9.zz.0")
        assert not keeper.is_foreign_job(6, None)
        assert not keeper.is_foreign_job(6, Claim.parse(keeper.stamp() or ""))
        assert keeper.is_foreign_job(7, claim_of(sides.comments[7]))
        assert not keeper.may_act
        await asyncio.sleep(BEAT_SECONDS * 3)
        assert not keeper.may_act
        assert CLAIM_CONFLICT in (sides.annotations or {})
        del sides.comments[7]
        await asyncio.sleep(BEAT_SECONDS * 2)
        assert keeper.may_act
        assert CLAIM_CONFLICT not in (sides.annotations or {})
        task.cancel()

    run_in_virtual_time(story())


def test_a_leader_that_was_stopped_while_another_led_says_nothing_of_a_copy() -> None:
    async def story() -> None:
        sides, told = Sides(), []
        old = sides.keeper()
        await old.settle([])
        events: Any = SimpleNamespace(record=lambda *words, **_: told.append(words))
        old.events = events
        task = asyncio.create_task(old.run())
        sides.comments[1] = comment(old.stamp())
        new = sides.keeper()
        assert await new.settle(sides.claimed())
        sides.comments[2] = comment(new.stamp())
        assert old.is_foreign_job(2, claim_of(sides.comments[2]))
        assert not old.may_act
        await asyncio.sleep(BEAT_SECONDS * 3)
        assert not old.may_act
        assert (old.problem, told) == (None, [])
        assert CLAIM_CONFLICT not in (sides.annotations or {})
        assert new.may_act
        task.cancel()

    run_in_virtual_time(story())


ACTS = ["beat", "beat refused", "beat with a lost answer", "submit", "restart", "restart with a lost answer"]


@given(st.lists(st.sampled_from(ACTS), max_size=12))
@example(["submit", "beat refused", "submit", "restart"])
@example(["submit", "beat with a lost answer", "beat", "submit", "restart"])
def test_requests_that_fail_never_make_a_leader_take_its_own_jobs_for_those_of_a_copy(acts: list[str]) -> None:
    """One Kubernetes, one leader at a time; writes to it fail, or are carried out and their answers are lost."""

    async def story() -> None:
        sides = Sides()
        keeper = sides.keeper()
        assert await keeper.settle([])
        task = asyncio.create_task(keeper.run())
        await asyncio.sleep(BEAT_SECONDS / 2)
        beats = 0
        for act in acts:
            what, _, sides.fault = act.partition(" ")
            if what == "beat":
                await asyncio.sleep(BEAT_SECONDS)
                beats += bool(sides.comments) and not sides.fault
            elif what == "submit":
                sides.comments[len(sides.comments) + 1] = comment(keeper.stamp())
            else:
                task.cancel()
                keeper = sides.keeper()
                if sides.fault:
                    with pytest.raises(KubeError):
                        await keeper.settle(sides.claimed())
                    sides.fault = ""
                assert await keeper.settle(sides.claimed()), keeper.problem
                task = asyncio.create_task(keeper.run())
                await asyncio.sleep(BEAT_SECONDS / 2)
            sides.fault = ""
        assert keeper.may_act
        assert len(sides.beats) == beats, "each beat that the servers took came to a job"
        task.cancel()

    run_in_virtual_time(story())


def test_a_slurm_that_lost_its_jobs_and_jobs_without_a_claim_stop_nothing() -> None:
    async def story() -> None:
        assert await Sides({}, {CLAIM: "7.ab.12"}).keeper().settle([])
        old = Sides({1: "", 2: "rack=3", 3: comment()})
        assert await old.keeper().settle(old.claimed())

    run_in_virtual_time(story())


def test_the_owner_of_a_job_does_not_stop_the_bridge() -> None:
    """She writes a newer claim into all that Slurm lets her write of her running job."""

    async def story() -> None:
        sides = Sides()
        keeper = sides.keeper()
        await keeper.settle([])
        task = asyncio.create_task(keeper.run())
        sides.comments[1] = comment(keeper.stamp())
        for sides.forged in ("slinky-claim=999999.abc.1", "slinky-claim=" + "9" * 5000 + ".abc.1", comment("9.a.1")):
            before = len(sides.beats)
            await asyncio.sleep(BEAT_SECONDS * 2)
            assert keeper.may_act
            assert len(sides.beats) > before, "the beat goes on"
            assert await sides.keeper().settle(sides.claimed()), "also at a leader's start"
            assert await keeper.settle(sides.claimed())
        task.cancel()

    run_in_virtual_time(story())


def test_a_beat_is_written_on_the_shortest_comment_of_the_oldest_jobs() -> None:
    """slurmctld logs all of a comment that is written."""

    async def story() -> None:
        sides = Sides()
        keeper = sides.keeper()
        await keeper.settle([])
        task = asyncio.create_task(keeper.run())
        for job_id, pods in ((1, 500), (2, 300), (3, 1), (4, 1)):
            sides.comments[job_id] = comment(keeper.stamp(), pods)
        await asyncio.sleep(BEAT_SECONDS * 4)
        assert set(sides.beats) == {3}
        task.cancel()

    run_in_virtual_time(story())


def test_a_beat_loses_nothing_that_another_part_writes_into_the_comment() -> None:
    async def story() -> None:
        sides = Sides()
        keeper = sides.keeper()
        await keeper.settle([])
        sides.comments[1] = comment(keeper.stamp())
        task = asyncio.create_task(keeper.run())
        async with keeper.comments.of(1):
            held = sides.comments[1]
            await asyncio.sleep(BEAT_SECONDS * 2)
            assert not sides.beats
            sides.comments[1] = with_failures(held, [Failure(0, "u", 3)])
        await asyncio.sleep(BEAT_SECONDS)
        assert sides.beats
        assert failures_of(sides.comments[1]) == (Failure(0, "u", 3),)
        task.cancel()

    run_in_virtual_time(story())
