"""Whether a cluster's slurmdbd answers: asked rarely, by a client of its own.

In: where slurmrestd is. Out: what is wrong, and since when; a call when that changes. slurmdbd has no
health page, and its port is open also while it hangs or its database is away.

*Invariants:* a slurmdbd that does not answer changes nothing in how slurmctld is asked. One question
that fails is no news, two in a row are. A refusal is an answer.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from contextlib import suppress

from slinky.kube import Key
from slinky.operator.conditions import Standing, broken
from slinky.operator.names import accounting
from slinky.slurm import SlurmClient, SlurmError, UnavailableError

__all__ = ["Recording", "silent_slurmdbd"]

log = logging.getLogger(__name__)

ASK_SECONDS = 15.0
SURE = 2  # questions in a row that failed


class Recording:
    """`problem` is empty while slurmdbd answers, where there is none, and where nobody knows."""

    def __init__(self, key: Key, slurm: SlurmClient, changed: Callable[[], None]) -> None:
        self._key, self._slurm, self._changed = key, slurm, changed
        self.problem = ""
        self.since: dt.datetime | None = None
        self._failures = 0
        self._first: dt.datetime | None = None

    async def watch(self, is_to_be_asked: Callable[[], bool]) -> None:
        """Until cancelled."""
        try:
            while True:
                await asyncio.sleep(ASK_SECONDS)
                if is_to_be_asked():
                    await self.look()
        finally:
            with suppress(SlurmError):
                await self._slurm.close()

    async def look(self) -> None:
        try:
            await self._slurm.accounting.tres()
        except UnavailableError as error:
            self._heard(str(error))
        except SlurmError as error:
            log.debug("slurmdbd of %s: %s", self._key, error)
            self._heard("")
        else:
            self._heard("")

    def _heard(self, problem: str) -> None:
        self._failures = self._failures + 1 if problem else 0
        if self._failures == 1:
            self._first = dt.datetime.now(dt.UTC)
        before, is_sure = self.problem, self._failures >= SURE
        self.problem, self.since = (problem, self._first) if is_sure else ("", None)
        if bool(before) != bool(self.problem):
            log.warning("slurmdbd of %s %s", self._key, problem or "answers again")
            self._changed()


def silent_slurmdbd(recording: Recording, namespace: str, name: str) -> Standing:
    """Of an Accounting whose pod is ready."""
    moment = recording.since
    since = f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC" if moment is not None else "?"
    return broken(
        "SlurmdbdNotAnswering",
        f"slurmdbd's pod is ready, but slurmdbd has not answered since {since}:"
        f" {recording.problem}. slurmctld keeps what it has to record. Look whether the database"
        f" answers, and into kubectl -n {namespace} logs {accounting(name)}-0",
    )
