"""What is sent to slurmrestd, within which limits, and how each try looks to those who count. Plain values."""

from collections.abc import Callable

import msgspec

from slinky.slurm.lanes import Lane

__all__ = ["Attempt", "Limits", "Observer", "Request"]


class Attempt(msgspec.Struct, frozen=True):
    """One try of a request, for those who count. `call` is the path without version, ids and names: `POST slurm/job/submit`. `outcome` is `ok` or the error's kind."""

    call: str
    outcome: str
    seconds: float


Observer = Callable[[Attempt], None]

_NAMED = frozenset({"job", "node", "partition", "reservation", "resources", "account", "user", "qos", "cluster", "wckey", "association"})
_WORDS = frozenset({"submit", "allocate"})  # of what follows `job`, what is no id


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long, how often, how many. Seconds."""

    deadline: float = 30.0  # one call, repetitions and waiting for a turn included
    attempt: float = 12.0  # one try of something harmless; slurmrestd itself gives up on slurmctld after 10 s
    connect: float = 5.0
    attempts: int = 4
    first_pause: float = 0.1
    longest_pause: float = 3.0
    connections: int = 16  # slurmrestd takes 124 in all, from everyone
    circuit_threshold: int = 8


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """`changes`: it is meant to have an effect. `repeatable`: having it twice is the same as once."""

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    changes: bool = False
    repeatable: bool = False
    lane: Lane = Lane.NORMAL
    deadline: float | None = None

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def call(self) -> str:
        """For metrics: few words, whatever is asked for."""
        words = self.path.strip("/").split("/")
        if len(words) > 1 and words[1].startswith("v0"):
            del words[1]
        if len(words) > 2 and words[1] in _NAMED and words[2] not in _WORDS:
            words[2:] = ["*"]
        return f"{self.method} {'/'.join(words[:3])}"
