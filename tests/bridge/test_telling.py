"""Telling users: nothing for those who are bound at once, each half minute for those who wait, and never in the way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec

from slinky.bridge.keys import CONDITION
from slinky.bridge.plan import JobView, PodView, Snapshot
from slinky.bridge.settings import StatusSettings
from slinky.bridge.standing import Standing
from slinky.bridge.telling import FIRST_LOOK, Teller
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Meta, Pod
from slinky.kube.errors import InvalidError, Status
from slinky.kube.objects import PodStatus
from slinky.slurm import Job, UnavailableError
from tests.kube.virtual_time import run_in_virtual_time

KEY = WorkloadKey("Pod", "ns", "u")
WAITS = Snapshot(pods=[PodView(uid="u", state="waiting")], size=1)
BOUND = Snapshot(pods=[PodView(uid="u", state="bound")], size=1)


class World:
    """A pod, as the API server has it, and what Slurm says of its job. In place of both clients."""

    def __init__(self) -> None:
        self.pod = Pod(metadata=Meta(name="p", namespace="ns", uid="u"))
        self.said: Standing | int | None = 7
        self.reason = "Priority"
        self.writes = self.questions = 0
        self.down = self.gone = False
        self.jobs = self
        me: Any = self
        self.teller = Teller(me, me, me, StatusSettings(seconds=30, rate=10))
        self.teller.standings = lambda _: [([self.pod], self.said)]

    async def parts(self, job_id: int) -> list[Job]:
        self.questions += 1
        if self.down:
            raise UnavailableError("slurmctld is not there")
        return [Job(job_id=job_id, partition="bridge", state_reason=self.reason)]

    async def patch(self, _: object, name: str, change: dict[str, Any], *__: object, **___: object) -> None:
        if self.gone:
            raise InvalidError("PATCH", name, Status(code=422, message="metadata.uid: field is immutable"))
        self.writes += 1
        held = {condition["type"]: condition for condition in msgspec.to_builtins(self.pod.status.conditions)}
        held |= {condition["type"]: held.get(condition["type"], {}) | condition for condition in change["status"]["conditions"]}
        status = msgspec.convert({"conditions": list(held.values())}, PodStatus)
        self.pod = msgspec.structs.replace(self.pod, status=status)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        task = asyncio.create_task(self.teller.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_a_pod_that_is_bound_within_the_first_seconds_gets_no_word() -> None:
    async def story() -> None:
        async with World().running() as world:
            world.teller.look(KEY, WAITS, [world.pod])
            await asyncio.sleep(FIRST_LOOK / 2)
            world.said = Standing(reason="Running", message="runs", holds=True)
            world.teller.look(KEY, BOUND, [world.pod])
            await asyncio.sleep(600)
            assert (world.writes, world.questions) == (0, 0)
            assert not world.teller._waiting

    run_in_virtual_time(story())


def test_one_that_waits_is_looked_at_every_half_minute_and_written_when_there_is_something_new() -> None:
    async def story() -> None:
        async with World().running() as world:
            for _ in range(100):
                world.teller.look(KEY, WAITS, [world.pod])
            await asyncio.sleep(310)
            assert world.writes == 1
            assert 8 <= world.questions <= 12
            world.reason = "Resources"
            await asyncio.sleep(40)
            assert world.writes == 2
            world.teller.forget(KEY)
            await asyncio.sleep(40)
            asked = world.questions
            await asyncio.sleep(600)
            assert world.questions == asked, "who is gone is not looked at for ever"

    run_in_virtual_time(story())


def test_who_waits_for_its_turn_is_told_once_and_looked_at_again_when_it_has_come() -> None:
    """100,000 of them must cost nothing while they wait."""

    async def story() -> None:
        async with World().running() as world:
            asked = []
            world.teller.standings = lambda key: (asked.append(key), [([world.pod], world.said)])[1]  # type: ignore[func-returns-value]
            world.said = Standing(reason="Window", message="waits for its turn", lasting=True)
            world.teller.look(KEY, WAITS, [world.pod])
            await asyncio.sleep(3600)
            world.teller.look(KEY, WAITS, [world.pod])
            await asyncio.sleep(3600)
            assert (world.writes, len(asked)) == (1, 1)
            world.said = 7
            world.teller.look(KEY, msgspec.structs.replace(WAITS, job=JobView(job_id=7, state="pending")), [world.pod])
            await asyncio.sleep(FIRST_LOOK + 61)
            assert (world.writes, world.questions) == (2, 3)

    run_in_virtual_time(story())


def test_one_far_behind_in_line_is_told_again_when_its_position_is_known() -> None:
    async def story() -> None:
        async with World().running() as world:
            world.said = Standing(reason="SubmitLimit", message="more than 100 are ahead", lasting=True)
            world.teller.look(KEY, WAITS, [world.pod])
            world.teller.moved_up(KEY)  # nothing was told yet
            await asyncio.sleep(3600)
            assert world.writes == 1
            world.said = Standing(reason="SubmitLimit", message="number 100 in line")
            world.teller.moved_up(KEY)
            await asyncio.sleep(10)
            assert world.writes == 2

    run_in_virtual_time(story())


class Crowd(World):
    """A gang of many pods, and one pod of another namespace."""

    GANG, OTHER = WorkloadKey("Job", "ns", "train"), WorkloadKey("Pod", "other", "o")

    def __init__(self, number: int) -> None:
        super().__init__()
        names = [("ns", f"p{index}") for index in range(number)] + [("other", "o")]
        self.pods = {name: Pod(metadata=Meta(name=name, namespace=space, uid=name)) for space, name in names}
        self.written: list[tuple[float, str, str]] = []  # when, which, and the reason of the condition
        self.teller.standings = lambda key: [(self.of(key), self.said if key == self.GANG else 8)]

    def of(self, key: WorkloadKey) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.metadata.namespace == key.namespace]

    async def patch(self, _: object, name: str, change: dict[str, Any], *__: object, **___: object) -> None:
        self.pod = self.pods[name]
        await super().patch(_, name, change)
        self.pods[name] = self.pod
        for condition in change["status"]["conditions"]:
            if condition["type"] == CONDITION:
                self.written.append((asyncio.get_running_loop().time(), name, condition["reason"]))

    def waits(self, key: WorkloadKey) -> None:
        self.teller.look(key, WAITS, self.of(key))

    def bind(self, name: str) -> None:
        spec = msgspec.structs.replace(self.pods[name].spec, node_name="n")
        self.pods[name] = msgspec.structs.replace(self.pods[name], spec=spec)


def test_a_large_gang_does_not_keep_others_from_being_told() -> None:
    async def story() -> None:
        async with Crowd(1000).running() as world:
            assert isinstance(world, Crowd)
            world.waits(world.GANG)
            await asyncio.sleep(FIRST_LOOK + 1)
            world.waits(world.OTHER)
            await asyncio.sleep(FIRST_LOOK + 200)
            names = [name for _, name, _ in world.written]
            assert sorted(names) == sorted(world.pods), "each was told, once"
            assert names.index("o") < 200

    run_in_virtual_time(story())


def test_pods_of_a_large_gang_are_told_how_they_stand_when_their_turn_comes() -> None:
    """Not how they stood when the first was told."""

    async def story() -> None:
        async with Crowd(300).running() as world:
            assert isinstance(world, Crowd)
            world.waits(world.GANG)
            await asyncio.sleep(FIRST_LOOK + 5)
            told = {name for _, name, _ in world.written}
            assert 0 < len(told) < 100
            bound = [name for name in world.pods if name not in told and name != "o"][50:]
            for name in bound:
                world.bind(name)
            del world.pods["p299"]
            world.reason = "Resources"
            await asyncio.sleep(20)
            assert {reason for at, _, reason in world.written} == {"Priority", "Resources"}
            assert not {name for _, name, _ in world.written} & set(bound)
            assert world.teller.queue.agenda.failures(world.GANG) == 0

    run_in_virtual_time(story())


def test_a_large_gang_that_starts_while_it_is_told_that_it_waits_is_told_no_more_of_it() -> None:
    async def story() -> None:
        async with Crowd(300).running() as world:
            assert isinstance(world, Crowd)
            world.waits(world.GANG)
            await asyncio.sleep(FIRST_LOOK + 5)
            told = {name for _, name, _ in world.written}
            world.said = Standing(reason="Running", message="runs", holds=True)
            world.teller.look(world.GANG, BOUND, world.of(world.GANG))
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(60)
            assert {reason for at, _, reason in world.written if at > began + 1} == {"Running"}
            assert {name for _, name, _ in world.written} - told <= {f"p{len(told)}"}, "others never heard that they wait"
            assert not world.teller._rounds

    run_in_virtual_time(story())


def test_while_slurm_is_down_it_is_asked_less_and_less_and_told_again_afterwards() -> None:
    async def story() -> None:
        async with World().running() as world:
            world.down = True
            world.teller.look(KEY, WAITS, [world.pod])
            await asyncio.sleep(600)
            assert world.questions < 40
            world.down = False
            await asyncio.sleep(600)
            assert world.writes == 1

    run_in_virtual_time(story())


def test_a_pod_that_is_another_one_by_now_holds_up_nothing() -> None:
    async def story() -> None:
        async with World().running() as world:
            world.gone = True
            world.teller.look(KEY, WAITS, [world.pod])
            await asyncio.sleep(FIRST_LOOK + 1)
            assert world.teller.queue.agenda.failures(KEY) == 0

    run_in_virtual_time(story())


def test_what_was_said_is_put_right_when_it_runs_and_by_whom_it_was_said_does_not_matter() -> None:
    async def story() -> None:
        world = World()
        async with world.running():
            world.teller.look(KEY, WAITS, [world.pod])
            await asyncio.sleep(FIRST_LOOK + 1)
            assert world.writes == 1
            world.said = Standing(reason="Running", message="runs", holds=True)
            world.teller.look(KEY, BOUND, [world.pod])
            await asyncio.sleep(5)
            assert world.writes == 2

    run_in_virtual_time(story())


class Recorder:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record(self, _: object, reason: str, *__: object, **___: object) -> None:
        self.reasons.append(reason)


def test_that_a_job_is_suspended_and_runs_again_is_an_event_each_and_once() -> None:
    async def story() -> None:
        world, recorder = World(), Recorder()
        me: Any = world
        teller = Teller(me, me, recorder, StatusSettings())  # type: ignore[arg-type]
        runs = JobView(job_id=7, state="running")
        for job in (runs, msgspec.structs.replace(runs, suspended=True), msgspec.structs.replace(runs, suspended=True), runs, runs):
            teller.look(KEY, msgspec.structs.replace(BOUND, job=job), [world.pod])
        assert recorder.reasons == ["Suspended", "Resumed"]
        halted = msgspec.structs.replace(runs, suspended=True)
        teller.look(KEY, msgspec.structs.replace(WAITS, job=halted), [world.pod])
        teller.look(KEY, msgspec.structs.replace(BOUND, job=halted), [world.pod])
        assert recorder.reasons == ["Suspended", "Resumed", "Suspended"], "it waits no more, and is suspended still"
        teller.forget_all(KEY)
        assert not teller._suspended

    asyncio.run(story())


def test_pods_that_run_are_told_once_that_their_job_is_lost_and_that_it_is_back() -> None:
    async def story() -> None:
        async with World().running() as world:
            told: list[str] = []
            world.teller._events = SimpleNamespace(record=lambda _, reason, *__, **___: told.append(reason))  # type: ignore[assignment]
            world.pod = msgspec.structs.replace(world.pod, spec=msgspec.structs.replace(world.pod.spec, node_name="n"))
            world.teller.look(KEY, BOUND, [world.pod])
            await asyncio.sleep(60)
            assert world.writes == 0
            for state, said in (("absent", "Absent"), ("lost", "Lost")):
                world.said = Standing(reason=said, message=said)
                job = JobView(job_id=7, state=state)  # type: ignore[arg-type]
                for _ in range(5):
                    world.teller.look(KEY, msgspec.structs.replace(BOUND, job=job), [world.pod])
                await asyncio.sleep(60)
                assert (found := world.pod.condition(CONDITION)) is not None
                assert (found.reason, found.status) == (said, "False")
            assert (world.writes, told) == (2, ["JobLost"])
            world.said = Standing(reason="Running", message="runs", holds=True)
            world.teller.look(KEY, BOUND, [world.pod])
            await asyncio.sleep(60)
            assert (found := world.pod.condition(CONDITION)) is not None
            assert (found.reason, found.status, world.writes) == ("Running", "True", 3)
            world.teller.forget_all(KEY)
            assert not world.teller._without_job

    run_in_virtual_time(story())
