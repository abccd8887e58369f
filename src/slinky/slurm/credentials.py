"""Who is asking: the token that goes with each request, from wherever it comes.

Comes in: a token, an environment variable, a file, or an HS256 key. Goes out: the two headers that slurmrestd reads. `stale()` is called when Slurm did
not believe a token, and says whether there is another one worth trying.

What must stay true: a token is in the header and nowhere else. No repr, no exception and no log line of this library holds one.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from slinky.slurm.errors import ConfigurationError

__all__ = ["Credentials", "EnvironmentToken", "FixedToken", "MintedToken", "TokenFile", "mint"]

WORD = re.compile(r"[A-Za-z0-9_\-.=+/]+")


class Credentials(ABC):
    """A source of tokens, for one user (`user` empty: the one whom the token names)."""

    def __init__(self, user: str = "") -> None:
        if not user.isprintable():
            raise ConfigurationError(f"{user!r} is no name of a user: it has characters that no header may have")
        self.user = user

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.user or 'whom the token names'}>"

    def headers(self) -> dict[str, str]:
        """Cheap: called for each request."""
        found = {"X-SLURM-USER-TOKEN": self.token()}
        if self.user:
            found["X-SLURM-USER-NAME"] = self.user
        return found

    def asks_as(self) -> str:
        """The user's name: the one that was given, or the one in the token's claims; empty where neither says."""
        return self.user or claimed_user(self.token())

    @abstractmethod
    def token(self) -> str:
        """The token as it is now."""

    def stale(self, refused: str) -> bool:
        """Slurm refused that token: is there another one to try?"""
        return self.token() != refused


class FixedToken(Credentials):
    """A token that never changes."""

    def __init__(self, token: str, user: str = "") -> None:
        super().__init__(user)
        self._token = clean(token, "the token")

    def token(self) -> str:
        return self._token


class EnvironmentToken(Credentials):
    """Read from the environment at each request; SLURM_JWT is where Slurm's own commands look."""

    def __init__(self, variable: str = "SLURM_JWT", user: str = "") -> None:
        super().__init__(user)
        self.variable = variable

    def token(self) -> str:
        if not (text := os.environ.get(self.variable, "")):
            raise ConfigurationError(f"the environment variable {self.variable} is to hold a Slurm token, and is empty")
        return clean(text, f"${self.variable}")


class TokenFile(Credentials):
    """A file that is read again when it changes (a mounted secret, `scontrol token > file`). It is looked at every `look_every` seconds, and when Slurm refuses."""

    def __init__(self, path: str | Path, user: str = "", look_every: float = 0.2) -> None:
        super().__init__(user)
        self.path = Path(path)
        self.look_every = look_every
        self._look_at = 0.0
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def token(self) -> str:
        now = time.monotonic()
        if now < self._look_at:
            return self._token
        try:
            state = self.path.stat()
            seen = (state.st_mtime_ns, state.st_ino, state.st_size)
            if seen != self._seen:
                text = self.path.read_text()
                if text.strip() or not self._token:  # empty: being written at this moment; the old token holds until there is a new one
                    self._token = clean(text, str(self.path))
                    self._seen = seen
            self._look_at = now + self.look_every
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the Slurm token cannot be read from {self.path}: {type(error).__name__}") from None
        return self._token

    def stale(self, refused: str) -> bool:
        self._seen, self._look_at = None, 0.0
        return super().stale(refused)


class MintedToken(Credentials):
    """Short-lived tokens, made from slurmctld's HS256 key (`jwt_hs256.key`) and renewed at two thirds of their life."""

    def __init__(self, key: bytes | Path, user: str, lifespan: float = 900, clock: Callable[[], float] = time.time) -> None:
        if not user:
            raise ConfigurationError("a minted token needs the name of its user")
        super().__init__(user)
        try:
            self._key = key.read_bytes() if isinstance(key, Path) else key
        except OSError as error:
            raise ConfigurationError(f"the HS256 key cannot be read from {key!s}: {error.strerror}") from None
        if len(self._key) < 16:
            raise ConfigurationError(f"the HS256 key has {len(self._key)} bytes; Slurm's have 32 or more")
        self.lifespan = lifespan
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0

    def token(self) -> str:
        now = self._clock()
        if now >= self._renew_at:
            self._token = mint(self._key, self.user, self.lifespan, now)
            self._renew_at = now + self.lifespan * 2 / 3
        return self._token

    def stale(self, refused: str) -> bool:
        if self._token == refused:
            self._renew_at = 0.0
        return super().stale(refused)


def mint(key: bytes, user: str, lifespan: float, now: float) -> str:
    """An HS256 JSON web token as Slurm reads it: who (`sun`), since when, until when."""
    header = {"alg": "HS256", "typ": "JWT"}
    claims = {"iat": int(now), "exp": int(now + lifespan), "sun": user}
    signed = b".".join(_base64(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    return (signed + b"." + _base64(hmac.new(key, signed, hashlib.sha256).digest())).decode()


def claimed_user(token: str) -> str:
    """Whom a JSON web token names (`sun`). It is not verified: that is Slurm's to do."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        user = claims["sun"]
    except (LookupError, TypeError, ValueError):
        return ""
    return user if isinstance(user, str) else ""


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def clean(text: str, where: str) -> str:
    """A token as it may stand in a header; what `scontrol token` prints (`SLURM_JWT=…`) is understood."""
    token = text.strip().removeprefix("SLURM_JWT=").strip()
    if not WORD.fullmatch(token):
        raise ConfigurationError(
            f"{where} holds no Slurm token" + (", but nothing" if not token else ": it has characters that no token has")
        )
    return token
