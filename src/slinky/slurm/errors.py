"""What can go wrong with Slurm, for those who call this library.

SlurmError                      the root; `outcome` says whether the request took effect
    ConfigurationError          the client was told something that cannot work: an address, a key, a file
    UnsupportedError            the server (or library) at hand cannot do it; says which version could
    UnavailableError            Slurm could not be asked; nothing was done
        CircuitOpenError        not even tried: Slurm has been failing, and a ping has not succeeded yet
        DeadlineError           no answer in time to something that changes nothing
    OutcomeUnknownError         the request was sent and may have been carried out: look before trying again
    BadAnswerError              an answer that cannot be understood
    AuthenticationError         Slurm did not accept the token; the request itself was not judged, and nothing was done
    RefusedError                Slurm looked at it and said no; nothing was done
        ForbiddenError          who is asking may not
        NotFoundError           there is no such job, node, partition …
        AlreadyDoneError        it exists already, or is over already

Every error carries Slurm's `number` and `name` (None and "" where Slurm gave none), its `description`, the `request` it belongs to, and `outcome`.
What must stay true: no text in here ever holds a token.
"""

import enum
from collections.abc import Mapping

__all__ = [
    "AUTHENTICATION",
    "AlreadyDoneError",
    "AuthenticationError",
    "BadAnswerError",
    "CircuitOpenError",
    "ConfigurationError",
    "DeadlineError",
    "ForbiddenError",
    "NotFoundError",
    "Outcome",
    "OutcomeUnknownError",
    "RefusedError",
    "SlurmError",
    "UnavailableError",
    "UnsupportedError",
    "refusal",
]


class Outcome(enum.StrEnum):
    """Did the request take effect?"""

    NOT_DONE = "not done"
    UNKNOWN = "unknown"


class SlurmError(Exception):
    """The root of the tree."""

    outcome = Outcome.NOT_DONE

    def __init__(self, description: str, *, request: str = "", number: int | None = None, name: str = "") -> None:
        self.description = description
        self.request = request
        self.number = number
        self.name = name or (NAMES.get(number, "") if number is not None else "")
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        mark = " ".join(str(part) for part in (self.name, self.number) if part not in ("", None))
        return (f"{self.request}: " if self.request else "") + self.description + (f" ({mark})" if mark else "")

    @property
    def outcome_known(self) -> bool:
        return self.outcome is not Outcome.UNKNOWN


class ConfigurationError(SlurmError):
    """The client was told something that cannot work."""


class UnsupportedError(SlurmError):
    """The server or library at hand cannot do it."""


class UnavailableError(SlurmError):
    """Slurm could not be asked; nothing was done."""


class CircuitOpenError(UnavailableError):
    """Not tried, because Slurm is known to be down."""


class DeadlineError(UnavailableError):
    """No answer in time; the request changes nothing, so nothing was done."""


class OutcomeUnknownError(SlurmError):
    """The request may have been carried out."""

    outcome = Outcome.UNKNOWN


class BadAnswerError(SlurmError):
    """An answer that cannot be understood, to a request that changes nothing."""


class AuthenticationError(SlurmError):
    """Slurm did not accept the token; nothing was done.

    *Invariants:* not a RefusedError. Slurm has not looked at the request, so this is never a final answer to it: the same request may
    succeed with the next token.
    """


class RefusedError(SlurmError):
    """Slurm said no."""


class ForbiddenError(RefusedError):
    """Who is asking may not do that."""


class NotFoundError(RefusedError):
    """There is no such thing."""


class AlreadyDoneError(RefusedError):
    """It exists already, or it is over already."""


def refusal(number: int | None) -> type[RefusedError | AuthenticationError]:
    """The class for an error number of Slurm's."""
    if number in AUTHENTICATION:
        return AuthenticationError
    return RefusedError if number is None else KINDS.get(number, RefusedError)


# Slurm's own names for the numbers that a client meets; others are shown by number and description alone.
NAMES: Mapping[int, str] = {
    -1: "SLURM_ERROR",
    1001: "SLURM_COMMUNICATIONS_CONNECTION_ERROR",
    1002: "SLURM_COMMUNICATIONS_SEND_ERROR",
    1003: "SLURM_COMMUNICATIONS_RECEIVE_ERROR",
    1004: "SLURM_COMMUNICATIONS_SHUTDOWN_ERROR",
    1005: "SLURM_PROTOCOL_VERSION_ERROR",
    1007: "SLURM_PROTOCOL_AUTHENTICATION_ERROR",
    1800: "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR",
    1801: "SLURMCTLD_COMMUNICATIONS_SEND_ERROR",
    1802: "SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR",
    1900: "SLURM_NO_CHANGE_IN_DATA",
    2000: "ESLURM_INVALID_PARTITION_NAME",
    2001: "ESLURM_DEFAULT_PARTITION_NOT_SET",
    2002: "ESLURM_ACCESS_DENIED",
    2004: "ESLURM_REQUESTED_NODES_NOT_IN_PARTITION",
    2006: "ESLURM_INVALID_NODE_COUNT",
    2009: "ESLURM_JOB_SCRIPT_MISSING",
    2010: "ESLURM_USER_ID_MISSING",
    2011: "ESLURM_DUPLICATE_JOB_ID",
    2012: "ESLURM_PATHNAME_TOO_LONG",
    2014: "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
    2015: "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE",
    2016: "ESLURM_NODES_BUSY",
    2017: "ESLURM_INVALID_JOB_ID",
    2018: "ESLURM_INVALID_NODE_NAME",
    2021: "ESLURM_ALREADY_DONE",
    2025: "ESLURM_BAD_TASK_COUNT",
    2027: "ESLURM_IN_STANDBY_MODE",
    2028: "ESLURM_INVALID_NODE_STATE",
    2029: "ESLURM_INVALID_FEATURE",
    2036: "ESLURM_NOT_SUPPORTED",
    2037: "ESLURM_DISABLED",
    2038: "ESLURM_DEPENDENCY",
    2039: "ESLURM_BATCH_ONLY",
    2040: "ESLURM_LICENSES_UNAVAILABLE",
    2042: "ESLURM_JOB_HELD",
    2045: "ESLURM_INVALID_ACCOUNT",
    2048: "ESLURM_INVALID_LICENSES",
    2050: "ESLURM_ACCOUNTING_POLICY",
    2051: "ESLURM_INVALID_TIME_LIMIT",
    2052: "ESLURM_RESERVATION_ACCESS",
    2053: "ESLURM_RESERVATION_INVALID",
    2066: "ESLURM_INVALID_QOS",
    2072: "ESLURM_INVALID_GRES",
    2081: "ESLURM_INVALID_ARRAY",
    2082: "ESLURM_RESERVATION_NAME_DUP",
    2084: "ESLURM_JOB_FINISHED",
    2085: "ESLURM_JOB_NOT_RUNNING",
    5004: "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT",
    5005: "SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT",
    7000: "ESLURM_DB_CONNECTION",
    9000: "ESLURM_REST_INVALID_QUERY",
    9003: "ESLURM_REST_EMPTY_RESULT",
}

KINDS: Mapping[int, type[RefusedError]] = {
    1: ForbiddenError,  # EPERM
    2000: NotFoundError,
    2002: ForbiddenError,
    2010: ForbiddenError,  # "Invalid user id": of an update or a look, by a token whose user is no administrator
    2011: AlreadyDoneError,
    2017: NotFoundError,
    2018: NotFoundError,
    2021: AlreadyDoneError,
    2082: AlreadyDoneError,
    2084: AlreadyDoneError,
    2168: AlreadyDoneError,  # a node of that name exists
    9003: NotFoundError,
}

# Slurm's numbers for authentication: an expired or foreign credential, one that cannot be unpacked, that of user nobody (6010).
AUTHENTICATION = frozenset({1007, *range(6000, 6100), 9008})
