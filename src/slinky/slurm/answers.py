"""What an answer of slurmrestd means. Pure: status, content type and body go in; nothing, or an error and whether trying again can help, come out.

slurmrestd's manners that are dealt with here: errors as plain text; a success status with errors inside; errors with number 0; `null` for an empty
list; JSON that ends in the middle; the same trouble told as 401, 511, 1007, 6010 or 9008.

What must stay true: a request that changes something and may have reached slurmctld is never called "not done".
"""

import enum

import msgspec

from slinky.slurm.errors import (
    AUTHENTICATION,
    AuthenticationError,
    BadAnswerError,
    ForbiddenError,
    NotFoundError,
    OutcomeUnknownError,
    RefusedError,
    SlurmError,
    UnavailableError,
    UnsupportedError,
    refusal,
)
from slinky.slurm.numbers import Envelope, WireError

__all__ = ["Again", "Fault", "envelope_fault", "failed_answer", "unreadable"]


class Again(enum.Enum):
    """May the same request be sent once more?"""

    NEVER = "it would be refused again"
    IF_HARMLESS = "if it changes nothing, or changes the same thing twice"
    ALWAYS = "it was not carried out"
    RENEWED = "if there is another token"


class Fault(msgspec.Struct, frozen=True):
    """What went wrong with one attempt."""

    error: SlurmError
    again: Again

    @property
    def slurm_is_down(self) -> bool:
        return isinstance(self.error, UnavailableError | OutcomeUnknownError)


# slurmctld was not reached, or turned the request away before looking at it.
NOT_REACHED = {1001, 1800, 1804, 1805, 2027, 2131}
# The connection to slurmctld or slurmdbd broke, or nothing came back: it may have been carried out.
BROKEN = {-1, 1002, 1003, 1004, 1008, 1801, 1802, 1803, 5003, 5004, 5005, 7000}

_ENVELOPE = msgspec.json.Decoder(Envelope)


def failed_answer(request: str, changes: bool, status: int, text: bytes) -> Fault:
    """The fault in an answer whose status is not a success."""
    try:
        errors = _ENVELOPE.decode(text).errors
    except (msgspec.DecodeError, UnicodeDecodeError):
        errors = None
    if errors:
        return _numbered(request, changes, errors, status)
    said = text[:300].decode(errors="replace").strip() or f"HTTP status {status} and no text"
    if status in (401, 511):
        return Fault(AuthenticationError(said, request=request), Again.RENEWED)
    if status == 403:
        return Fault(ForbiddenError(said, request=request), Again.NEVER)
    if status == 404:
        return Fault(UnsupportedError(f"the server has no such path: {said}", request=request), Again.NEVER)
    if status == 429:
        return Fault(UnavailableError(said, request=request), Again.ALWAYS)
    if 400 <= status < 500 and status != 408:
        return Fault(RefusedError(said, request=request), Again.NEVER)
    # 503 too: a gateway says it also when the connection behind it broke after the request went through.
    return Fault(_broken(request, changes, f"HTTP {status}: {said}", None), Again.IF_HARMLESS)


def envelope_fault(request: str, changes: bool, envelope: Envelope) -> Fault | None:
    """The fault inside an answer whose status is a success."""
    return _numbered(request, changes, envelope.errors, 200) if envelope.errors else None


def unreadable(request: str, changes: bool, problem: str) -> Fault:
    """A success that cannot be read: something was done, if there was something to do."""
    said = f"the answer cannot be read: {problem}"
    if changes:
        return Fault(OutcomeUnknownError(said, request=request), Again.IF_HARMLESS)
    return Fault(BadAnswerError(said, request=request), Again.IF_HARMLESS)


def _numbered(request: str, changes: bool, errors: list[WireError], status: int) -> Fault:
    worst = max(errors, key=lambda error: error.error_number != 0)
    number = worst.error_number
    said = worst.description or worst.error
    if worst.error and number and worst.error.lower() not in said.lower():
        said = f"{said}: {worst.error}"
    if number in NOT_REACHED:
        return Fault(UnavailableError(said, request=request, number=number), Again.ALWAYS)
    if number in BROKEN:
        return Fault(_broken(request, changes, said, number), Again.IF_HARMLESS)
    if number in AUTHENTICATION or status in (401, 511):
        return Fault(AuthenticationError(said, request=request, number=number), Again.RENEWED)
    kind = refusal(number)
    if kind is RefusedError and ((number == 0 and not changes) or status == 404):
        kind = NotFoundError  # "Failure to query node x", number 0, status 200: that is how slurmrestd says so
    return Fault(kind(said, request=request, number=number or None), Again.NEVER)


def _broken(request: str, changes: bool, said: str, number: int | None) -> SlurmError:
    return (OutcomeUnknownError if changes else UnavailableError)(said, request=request, number=number)
