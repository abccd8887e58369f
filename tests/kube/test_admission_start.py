"""The webhook's first words to the API server: what is lost is said again, some times; what is refused is not."""

from collections.abc import Callable

import pytest

from slinky.kube import Backoff, ForbiddenError, KubeError, OutcomeUnknownError, UnavailableError, patiently
from slinky.kube.admission import installing
from slinky.kube.admission.installing import PATIENCE
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
