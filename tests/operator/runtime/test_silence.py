"""What is said of a Slurm that does not answer, and after how long."""

import datetime as dt

import pytest

from slinky.operator.conditions import DEGRADED, READY, is_available
from slinky.operator.settings import SlurmSettings
from slinky.operator.silence import (
    is_of_slurmrestd,
    patience_left,
    silent_head,
    silent_slurmrestd,
)
from slinky.slurm import AuthenticationError, DeadlineError, SlurmError, UnavailableError

SINCE = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
SETTINGS = SlurmSettings(current_seconds=30.0, reconfigure_seconds=180.0)
OF_CTLD = UnavailableError("Unable to contact slurm controller", number=1800)
OF_RESTD = UnavailableError("Cannot connect to host slurm-restapi")


class Silent:
    def __init__(self, silence: float, error: SlurmError = OF_CTLD, ever: bool = True) -> None:
        self.silence, self.error, self.has_answered = silence, error, ever
        self.silent_since = SINCE if silence else None


def test_a_blip_is_borne_and_a_slurm_that_starts_has_longer() -> None:
    assert patience_left(None, SETTINGS) is None
    assert patience_left(Silent(0.0), SETTINGS) is None
    assert patience_left(Silent(10.0), SETTINGS) == 20.0
    assert patience_left(Silent(31.0), SETTINGS) == -1.0
    assert patience_left(Silent(31.0, ever=False), SETTINGS) == 149.0


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (OF_RESTD, True),
        (OF_CTLD, False),
        (DeadlineError("no answer in time"), False),
        (AuthenticationError("not believed"), False),
        (None, False),
    ],
)
def test_whose_silence_it_is(error: SlurmError | None, is_so: bool) -> None:
    assert is_of_slurmrestd(error) is is_so


def test_a_slurmctld_that_does_not_answer_cannot_be_used_though_its_pod_is_ready() -> None:
    standing = silent_head(Silent(60.0), "hpc", "c", ["r"], ["r"])
    assert standing[DEGRADED].status and not standing[READY].status
    assert not is_available(standing)
    for words in (
        "since 2026-01-02 03:04:05 UTC",
        "Unable to contact slurm controller",
        "kubectl -n hpc logs c-controller-0",
        "kubectl -n hpc logs deploy/r-restapi",
    ):
        assert words in standing[DEGRADED].message


def test_without_a_slurmrestd_the_head_can_be_used_and_is_degraded() -> None:
    standing = silent_head(Silent(60.0, OF_RESTD), "hpc", "c", ["r"], [])
    assert standing[DEGRADED].status and is_available(standing)
    assert "no slurmrestd of RestApi r is ready" in standing[DEGRADED].message
    assert is_available(silent_head(Silent(60.0, OF_RESTD), "hpc", "c", ["r"], ["r"]))


def test_a_slurmrestd_that_does_not_answer_says_so_itself() -> None:
    standing = silent_slurmrestd(Silent(60.0, OF_RESTD), "hpc", "r")
    assert not is_available(standing)
    assert "NetworkPolicy" in standing[DEGRADED].message
