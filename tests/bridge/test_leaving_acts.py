"""Uninstalling, as a loop: what fails is tried a few times and named, a disruption budget is waited for and holds up nothing else, and nothing is done without leave."""

from collections.abc import Callable
from typing import Any

import pytest

from slinky.bridge.leaving import acts
from slinky.bridge.leaving.acts import Leaver
from slinky.bridge.leaving.plan import Look, Plan
from slinky.bridge.settings import Settings
from slinky.kube import KubeError, Pod, TooManyRequestsError
from slinky.kube.errors import ForbiddenError, Status
from slinky.slurm import CancelResult
from tests.bridge.test_leaving import WEBHOOKS, World, a_job, a_pod, look


class Servers:
    """In place of both clients and the looker, over a world of plain values. `trouble` is asked before each write."""

    def __init__(self, now: Look) -> None:
        self.world = World(now)
        self.trouble: Callable[[str, str], None] = lambda *_: None
        self.log: list[str] = []
        self.jobs: Any = self

    async def look(self) -> Look:
        return self.world.now

    def _do(self, what: str, name: str) -> None:
        self.log.append(f"{what} {name}")
        self.trouble(what, name)

    def _pod(self, name: str) -> Pod:
        return next(pod for pod in self.world.now.pods if pod.metadata.name == name)

    async def delete(self, _: Any, name: str, *__: Any, **___: Any) -> None:
        self._do("delete", name)
        self.world.put(objects=())

    async def evict(self, name: str, _: str, **__: Any) -> None:
        self._do("evict", name)
        self.world.replace(self._pod(name), None)

    async def patch(self, _: Any, name: str, *__: Any, **___: Any) -> None:
        self._do("patch", name)

    async def cancel_many(self, job_ids: Any) -> list[CancelResult]:
        for job_id in list(job_ids):
            self._do("cancel", str(job_id))
            self.world.put(jobs=[job for job in self.world.now.jobs or () if job.submission.job_id != job_id])
        return []

    async def leave(self, seconds: float = 5.0, may_act: Callable[[], bool] = lambda: True, running: Any = "evict") -> Plan:
        said: list[str] = []
        servers: Any = self
        leaver = Leaver(
            servers,
            servers,
            servers,
            servers,
            Settings(),
            running=running,
            waiting="keep",
            seconds=seconds,
            may_act=may_act,
            say=said.append,
        )
        return await leaver.run()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(acts, "BACKOFF", type("Soon", (), {"seconds": staticmethod(lambda _: 0.01)}))


def servers() -> Servers:
    pods = [a_pod("held", 7, "n"), a_pod("free", 8, "n")]
    return Servers(look(pods=pods, jobs=[a_job(7, "held"), a_job(8, "free")]))


async def test_a_disruption_budget_is_waited_for_and_holds_up_nothing_else() -> None:
    found = servers()
    budget = TooManyRequestsError("POST", "x", Status(code=429, message="the budget needs 1 pod"))

    def trouble(what: str, name: str) -> None:
        if (what, name) == ("evict", "held") and "cancel 8" not in found.log:
            raise budget

    found.trouble = trouble
    plan = await found.leave()
    assert not plan.left
    assert found.log.index("cancel 8") < found.log.index("cancel 7")


async def test_a_budget_that_never_gives_way_is_named_when_the_time_is_up() -> None:
    found = servers()

    def trouble(what: str, name: str) -> None:
        if (what, name) == ("evict", "held"):
            raise TooManyRequestsError("POST", "x", Status(code=429, message="the budget needs 1 pod"))

    found.trouble = trouble
    plan = await found.leave(seconds=0.1)
    assert {left.name: "budget" in left.why for left in plan.left} == {"ns/held": True, "7": False}
    assert "cancel 8" in found.log


async def test_what_fails_is_tried_a_few_times_and_named_and_the_rest_goes_on() -> None:
    found = servers()

    def trouble(what: str, name: str) -> None:
        if (what, name) == ("evict", "held"):
            raise ForbiddenError("POST", "x", Status(code=403, message="you may not"))

    found.trouble = trouble
    plan = await found.leave(seconds=0.1)
    assert found.log.count("evict held") == acts.MOST_TRIES
    assert "you may not" in {left.name: left.why for left in plan.left}["ns/held"]
    assert "cancel 8" in found.log


async def test_what_is_done_and_does_not_show_comes_to_an_end_too() -> None:
    found = Servers(look(pods=[a_pod("p", 0, "n")], jobs=[]))
    plan = await found.leave(running="keep")
    assert found.log == ["patch p"] * acts.MOST_TRIES
    assert [left.why for left in plan.left] == ["failed: it was done, and does not show"]


async def test_without_leave_nothing_is_done() -> None:
    found = Servers(look(pods=[a_pod("p", 7, "n")], objects=WEBHOOKS))
    with pytest.raises(KubeError, match="the Lease was lost"):
        await found.leave(may_act=lambda: False)
    assert found.log == []
