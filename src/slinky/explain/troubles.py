"""What a failed question says about the side that was asked: an error of either client as a finding. Pure."""

import base64
import binascii
import datetime as dt
import json
from collections.abc import Sequence

import msgspec

from slinky.bridge.settings import Settings
from slinky.explain.catalogue import entry
from slinky.explain.findings import Finding
from slinky.kube import ApiError, KubeError, UnauthorizedError
from slinky.kube import ForbiddenError as KubeForbiddenError
from slinky.slurm import AuthenticationError, ConfigurationError, ForbiddenError, Ping, SlurmError

__all__ = ["Token", "controller_trouble", "kube_trouble", "read_token", "slurm_trouble"]


class Token(msgspec.Struct, frozen=True):
    """What a Slurm token says of itself; it is not verified, and never shown. `ends` None: it says no end."""

    user: str = ""
    ends: dt.datetime | None = None
    begins: dt.datetime | None = None


def read_token(text: str) -> Token:
    try:
        part = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        user, ends, begins = claims.get("sun") or claims.get("username") or "", claims.get("exp"), claims.get("iat")
        return Token(str(user), _time(ends), _time(begins))
    except (LookupError, ValueError, AttributeError, binascii.Error):
        return Token()


def _time(seconds: object) -> dt.datetime | None:
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC) if isinstance(seconds, int | float) else None
    except (OverflowError, ValueError, OSError):
        return None


def kube_trouble(error: Exception, what: str) -> Finding:
    """`what` was to be read."""
    seen = f"{what}: {error}"
    match error:
        case UnauthorizedError():
            return entry("kubernetes-unauthorized").found("Kubernetes", seen)
        case KubeForbiddenError():
            return entry("kubernetes-forbidden").found("Kubernetes", seen, what=f"get, list on {what}")
        case ApiError() if error.code < 500:
            return entry("kubernetes-forbidden").found("Kubernetes", seen, what=f"get, list on {what}")
        case KubeError() | TimeoutError() | OSError():
            return entry("kubernetes-unreachable").found("Kubernetes", seen)
    return entry("kubernetes-unreachable").found("Kubernetes", f"{what}: {type(error).__name__}: {error}")


def slurm_trouble(error: Exception, what: str, settings: Settings, token: Token | None, now: dt.datetime) -> Finding:
    """`token` None: it could not be read."""
    seen, said = f"{what}: {error}", settings.slurm
    user = said.user or (token.user if token else "") or "unknown"
    match error:
        case ConfigurationError() if token is None:
            return entry("slurm-token-unreadable").found("Slurm", seen, file=said.token_file)
        case AuthenticationError():
            if token and token.ends and token.ends <= now:
                seen = f"the token ended at {token.ends:%Y-%m-%d %H:%M:%S} UTC: {error}"
                return entry("slurm-token-expired").found("Slurm", seen, user=user, file=said.token_file)
            return entry("slurm-token-refused").found("Slurm", seen, user=user)
        case ForbiddenError():
            return entry("slurm-forbidden").found("Slurm", seen, user=user)
        case SlurmError():
            return entry("slurm-unreachable").found("Slurm", seen, url=settings.slurm_rest_api)
    return entry("slurm-unreachable").found("Slurm", f"{what}: {type(error).__name__}: {error}", url=settings.slurm_rest_api)


def controller_trouble(pings: Sequence[Ping]) -> Finding | None:
    """Where slurmrestd answers, and no slurmctld behind it does."""
    if not pings or any(ping.responding for ping in pings):
        return None
    host = pings[0].hostname
    seen = f"slurmctld on {host} does not answer" + (f": {pings[0].status}" if pings[0].status else "")
    return entry("slurm-controller-down").found("Slurm", seen, host=host)
