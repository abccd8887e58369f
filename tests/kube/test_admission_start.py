"""The webhook's first words to the API server: what is lost is said again, some times; what is refused is not."""

from collections.abc import Callable

import pytest

from slinky.kube import (
    Backoff,
    ConflictError,
    ForbiddenError,
    KubeError,
    OutcomeUnknownError,
    UnavailableError,
    patiently,
    write_configuration,
)
from slinky.kube.admission import installing
from slinky.kube.admission.installing import MUTATING_CONFIGURATIONS, PATIENCE, TRIES
from slinky.kube.errors import Status

LOST = OutcomeUnknownError("POST", "/selfsubjectreviews", "the connection broke")
AWAY = UnavailableError("GET", "/configurations", Status(code=503))
NO = ForbiddenError("GET", "/configurations", Status(code=403))


def failing(*errors: KubeError) -> Callable[[], object]:
    left = list(errors)

    async def deed() -> int:
        if left:
            raise left.pop(0)
        return 7

    return deed


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "BACKOFF", Backoff(first=0.001, most=0.001))


async def test_what_is_lost_is_said_again() -> None:
    assert await patiently(failing(LOST, AWAY, LOST)) == 7  # type: ignore[arg-type]


async def test_not_for_ever() -> None:
    with pytest.raises(OutcomeUnknownError):
        await patiently(failing(*[LOST] * PATIENCE))  # type: ignore[arg-type]


async def test_who_is_refused_does_not_ask_again() -> None:
    with pytest.raises(ForbiddenError):
        await patiently(failing(NO))  # type: ignore[arg-type]


class Contested:
    """An API server where others are quicker, so many times."""

    def __init__(self, conflicts: int) -> None:
        self.conflicts, self.written = conflicts, 0

    async def get(self, *_: object) -> dict[str, object]:
        return {"metadata": {"name": "slinky", "resourceVersion": "7"}, "webhooks": []}

    async def replace(self, *_: object) -> None:
        self.conflicts -= 1
        if self.conflicts >= 0:
            raise ConflictError("PUT", "/configurations/slinky", Status(code=409))
        self.written += 1


WANTED = {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "slinky", "labels": {}}, "webhooks": []}


async def test_a_configuration_that_others_write_all_the_time_is_written_in_the_end() -> None:
    server = Contested(conflicts=3 * TRIES)
    await patiently(lambda: write_configuration(server, MUTATING_CONFIGURATIONS, dict(WANTED)))  # type: ignore[arg-type]
    assert server.written == 1


async def test_but_not_for_ever() -> None:
    server = Contested(conflicts=TRIES * PATIENCE)
    with pytest.raises(ConflictError, match="/configurations/slinky"):
        await patiently(lambda: write_configuration(server, MUTATING_CONFIGURATIONS, dict(WANTED)))  # type: ignore[arg-type]
    assert server.written == 0
