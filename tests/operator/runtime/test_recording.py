"""When a slurmdbd counts as silent."""

from typing import Any

import pytest

from slinky.kube import Key
from slinky.operator.conditions import DEGRADED, is_available
from slinky.operator.recording import Recording, silent_slurmdbd
from slinky.slurm import ForbiddenError, SlurmError, UnavailableError, UnsupportedError

DEAD = UnavailableError("slurmdbd does not answer", number=7000)


class Slurm:
    """What slurmrestd answers, one after the other; None: all is well."""

    def __init__(self, *answers: SlurmError | None) -> None:
        self.answers = list(answers)
        self.accounting = self

    async def tres(self) -> list[Any]:
        if error := self.answers.pop(0):
            raise error
        return []


async def heard(*answers: SlurmError | None) -> tuple[str, int]:
    """The problem at the end, and how often that changed."""
    changes: list[None] = []
    slurm = Slurm(*answers)
    recording = Recording(Key("hpc", "c"), slurm, lambda: changes.append(None))  # type: ignore[arg-type]
    for _ in answers:
        await recording.look()
    return recording.problem, len(changes)


async def test_one_question_that_fails_is_no_news_and_two_are() -> None:
    assert await heard(None, DEAD) == ("", 0)
    assert await heard(DEAD, None, DEAD) == ("", 0)
    assert await heard(DEAD, DEAD, DEAD) == (str(DEAD), 1)
    assert await heard(DEAD, DEAD, None) == ("", 2)


@pytest.mark.parametrize("answer", [ForbiddenError("no"), UnsupportedError("no accounting")])
async def test_a_refusal_is_an_answer(answer: SlurmError) -> None:
    assert await heard(answer, answer, answer) == ("", 0)


async def test_an_accounting_says_what_is_not_recorded_and_where_to_look() -> None:
    slurm = Slurm(DEAD, DEAD)
    recording = Recording(Key("hpc", "c"), slurm, lambda: None)  # type: ignore[arg-type]
    await recording.look()
    await recording.look()
    standing = silent_slurmdbd(recording, "hpc", "a")
    assert standing[DEGRADED].status and not is_available(standing)
    assert "kubectl -n hpc logs a-accounting-0" in standing[DEGRADED].message
