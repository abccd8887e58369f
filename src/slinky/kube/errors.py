"""What can go wrong with Kubernetes, for those who call this package.

KubeError                       the root
    ConfigurationError          a kubeconfig, an in-cluster mount or a setting that cannot work
    CredentialsError            a token file or an exec plugin did not give credentials
    ConnectionFailedError       the server was not reached; nothing was sent, nothing was done
    DeadlineError               no answer in time to a request that changes nothing
    InterruptedReadError        the connection broke under a request that changes nothing
    OutcomeUnknownError         a write was sent and no clear answer came: it may have been done, look before trying again
    BadAnswerError              an answer that cannot be understood
    ApiError                    the server answered, and said no; nothing was done
        BadRequestError         400
        UnauthorizedError       401, also after the credentials were renewed once
        ForbiddenError          403
        NotFoundError           404
        AlreadyExistsError      409, the name is taken
        ConflictError           409, the object has changed since it was read
        ExpiredError            410, the resource version is too old to go on from
        TooLargeError           413
        InvalidError            422, a field is wrong
        TooManyRequestsError    429, a budget or the server's fairness; `retry_after` says when
        UnavailableError        5xx: the server cannot now

Every error of a request carries `method` and `path`; every ApiError also `code`, `reason` (Kubernetes' own word), `message` and `causes`.
What must stay true: no text in here ever holds a token, a key or a password.
"""

import msgspec

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "BadAnswerError",
    "BadRequestError",
    "ConfigurationError",
    "ConflictError",
    "ConnectionFailedError",
    "CredentialsError",
    "DeadlineError",
    "ExpiredError",
    "ForbiddenError",
    "InterruptedReadError",
    "InvalidError",
    "KubeError",
    "NotFoundError",
    "OutcomeUnknownError",
    "RequestError",
    "Status",
    "TooLargeError",
    "TooManyRequestsError",
    "UnauthorizedError",
    "UnavailableError",
    "refusal",
    "refusal_by_status",
]


class KubeError(Exception):
    """The root of the tree."""


class ConfigurationError(KubeError):
    """What we were told to use cannot work."""


class CredentialsError(KubeError):
    """There are no credentials to send."""


class RequestError(KubeError):
    """Something about one request: `method`, `path`, `message`."""

    def __init__(self, method: str, path: str, message: str) -> None:
        self.method = method
        self.path = path
        self.message = message
        super().__init__(method, path, message)

    def __str__(self) -> str:
        return f"{self.method} {self.path}: {self.message}"


class ConnectionFailedError(RequestError):
    """Nothing was sent. `hopeless` where trying again cannot help: a certificate that is not trusted, a name that does not match."""

    def __init__(self, method: str, path: str, message: str, *, hopeless: bool = False) -> None:
        super().__init__(method, path, message)
        self.hopeless = hopeless


class DeadlineError(RequestError):
    """A read that took too long."""


class InterruptedReadError(RequestError):
    """A read whose connection broke."""


class OutcomeUnknownError(RequestError):
    """A write that may have been done."""


class BadAnswerError(RequestError):
    """Not what was asked for."""


class Cause(msgspec.Struct, frozen=True):
    """One of several things that are behind a failure, such as the disruption budget that is in the way."""

    reason: str = ""
    message: str = ""


class Details(msgspec.Struct, frozen=True):
    causes: tuple[Cause, ...] | None = None


class Status(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Kubernetes' own description of a failure, as it stands in an answer's body or in a watch's ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        return (self.details.causes if self.details else None) or ()


class ApiError(RequestError):
    """The server's no."""

    def __init__(self, method: str, path: str, status: Status, retry_after: float | None = None) -> None:
        self.code = status.code
        self.reason = status.reason
        self.causes = status.causes
        self.retry_after = retry_after
        super().__init__(method, path, status.message)

    def __str__(self) -> str:
        return f"{self.method} {self.path}: {self.code} {self.reason or type(self).__name__}: {self.message}"


class BadRequestError(ApiError): ...


class UnauthorizedError(ApiError): ...


class ForbiddenError(ApiError): ...


class NotFoundError(ApiError): ...


class AlreadyExistsError(ApiError): ...


class ConflictError(ApiError): ...


class ExpiredError(ApiError): ...


class TooLargeError(ApiError): ...


class InvalidError(ApiError): ...


class TooManyRequestsError(ApiError): ...


class UnavailableError(ApiError): ...


BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    413: TooLargeError,
    422: InvalidError,
    429: TooManyRequestsError,
}
AMBIGUOUS_REASONS = ("Timeout", "ServerTimeout")


def refusal(method: str, path: str, code: int, body: bytes, retry_after: float | None = None) -> RequestError:
    """The error for an answer that is not a success: by its code, and by the Status in its body where there is one."""
    status = _status(code, body)
    if _may_have_been_done(method, status, retry_after):
        return OutcomeUnknownError(method, path, f"{code} {status.reason}: {status.message}; it may have been done all the same")
    return refusal_by_status(method, path, status, retry_after)


def refusal_by_status(method: str, path: str, status: Status, retry_after: float | None = None) -> ApiError:
    kind = BY_CODE.get(status.code, UnavailableError if status.code >= 500 else ApiError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExistsError
    return kind(method, path, status, retry_after)


def _may_have_been_done(method: str, status: Status, retry_after: float | None) -> bool:
    """A gateway's or etcd's time-out says nothing about the write behind it; a 503 with Retry-After was refused at the door."""
    if method == "GET":
        return False
    return status.code in (502, 504) or status.reason in AMBIGUOUS_REASONS or (status.code == 503 and retry_after is None)


def _status(code: int, body: bytes) -> Status:
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status()
    text = status.message or body[:400].decode(errors="replace").strip()
    return Status(code=status.code or code, reason=status.reason, message=text, details=status.details)
