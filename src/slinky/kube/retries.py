"""Whether a failed request is tried again, and when. Pure: errors in, seconds or None out.

What must stay true: only what is safe to repeat is repeated: reads; anything that was never sent; anything that was refused at the door with a time to
come back (429 with Retry-After).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from slinky.kube.backoff import Backoff
from slinky.kube.errors import ConnectionFailedError, InterruptedReadError, RequestError, TooManyRequestsError, UnavailableError

__all__ = ["Retries", "pause_before_retry"]


@dataclass(frozen=True)
class Retries:
    """At most `most` further tries after the first one."""

    most: int = 4
    backoff: Backoff = Backoff(first=0.2, most=5.0)


NEVER = Retries(most=0)


def pause_before_retry(error: RequestError, failures: int, retries: Retries, dice: Callable[[], float] = random.random) -> float | None:
    """Seconds to wait before the next try; None: give up."""
    if failures > retries.most:
        return None
    pause = retries.backoff.seconds(failures, dice)
    match error:
        case ConnectionFailedError():
            return None if error.hopeless else pause
        case TooManyRequestsError(retry_after=float() | int()):
            return max(pause, error.retry_after or 0.0)
        case UnavailableError() | InterruptedReadError() if error.method == "GET":
            return max(pause, getattr(error, "retry_after", None) or 0.0)
        case _:
            return None
