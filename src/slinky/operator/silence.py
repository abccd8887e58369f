"""A Slurm that does not answer: how long that is borne, and what is said of it then. Pure.

*Invariants:* a blip, as when slurmctld reads its configuration, is no news. What is said names the
pods to look at, and stays the same while nothing changes.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from slinky.operator import names
from slinky.operator.conditions import Standing, broken
from slinky.operator.settings import SlurmSettings
from slinky.slurm import DeadlineError, SlurmError, UnavailableError

__all__ = ["Asked", "is_of_slurmrestd", "patience_left", "silent_head", "silent_slurmrestd"]

REASON = "SlurmNotAnswering"


class Asked(Protocol):
    """A cluster's client, as far as it tells whether Slurm answers."""

    @property
    def has_answered(self) -> bool: ...
    @property
    def silence(self) -> float: ...
    @property
    def silent_since(self) -> dt.datetime | None: ...
    @property
    def error(self) -> SlurmError | None: ...


def patience_left(asked: Asked | None, settings: SlurmSettings) -> float | None:
    """Seconds until its silence counts; None while it answers, or nobody asks."""
    if asked is None or asked.silent_since is None:
        return None
    borne = settings.current_seconds if asked.has_answered else settings.reconfigure_seconds
    return borne - asked.silence


def is_of_slurmrestd(error: SlurmError | None) -> bool:
    """Whether slurmrestd itself was not reached: whoever was reached would have said a number."""
    is_late = isinstance(error, DeadlineError)
    return isinstance(error, UnavailableError) and not is_late and error.number is None


def silent_head(asked: Asked, namespace: str, controller: str, restapis: Sequence[str], ready: Sequence[str]) -> Standing:
    """Of a Controller whose slurmctld's pod is ready. `ready`: the RestApis with a ready pod."""
    since = _since(asked)
    if not ready:
        named = ", ".join(restapis)
        said = f"no slurmrestd of RestApi {named} is ready (see its status)"
        return broken(
            REASON,
            f"slurmctld's pod is ready, but the operator has not reached Slurm since {since}: {said},"
            " so no worker is drained or replaced, and no new configuration is confirmed",
            available=True,
        )
    logs = f"kubectl -n {namespace} logs {names.controller_host(controller)}; kubectl -n {namespace} logs deploy/{names.restapi(ready[0])}"
    return broken(
        REASON,
        f"slurmctld's pod is ready, but Slurm has not answered through RestApi {ready[0]} since"
        f" {since}: {asked.error}. Look into the logs: {logs}",
        available=is_of_slurmrestd(asked.error),
    )


def silent_slurmrestd(asked: Asked, namespace: str, restapi: str) -> Standing:
    """Of a RestApi whose pods are ready, and which cannot be reached."""
    deployment = names.restapi(restapi)
    return broken(
        "NotAnswering",
        f"slurmrestd's pod is ready, but the operator has not reached it since {_since(asked)}:"
        f" {asked.error}. Look into kubectl -n {namespace} logs deploy/{deployment}, and whether a"
        f" NetworkPolicy keeps the operator from Service {deployment}",
    )


def _since(asked: Asked) -> str:
    moment = asked.silent_since
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC" if moment is not None else "?"
