"""Where slurmrestd listens, and how a connection to it is made safe.

Comes in: `http://host:6820`, `https://host:6820` or `unix:///run/slurmrestd.sock`, with a CA and a client certificate where asked for.
Goes out: an aiohttp connector and the base of every URL.
"""

import ssl
from typing import Self
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from slinky.slurm.errors import ConfigurationError
from slinky.slurm.one_answer import take_one_answer

__all__ = ["TLS", "Address"]


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """Files in PEM. `ca` in place of the system's authorities; `certificate` (and `key`, where it is not in the same file) to show to the server."""

    ca: str = ""
    certificate: str = ""
    key: str = ""

    @classmethod
    def of_files(cls, ca: str, certificate: str, key: str) -> Self | None:
        """None where none is named."""
        return cls(ca=ca, certificate=certificate, key=key) if ca or certificate else None

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(name for name in (self.ca, self.certificate, self.key) if name)
            raise ConfigurationError(f"the certificates cannot be used ({files}): {error}") from error
        return context


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """`base` is what paths are appended to; `socket` is set for a unix socket, `tls` for https."""

    base: str
    socket: str = ""
    tls: TLS | None = None

    @classmethod
    def parse(cls, url: str, tls: TLS | None = None) -> "Address":
        try:
            parts = urlsplit(url)
            base = str(URL(f"{parts.scheme}://{parts.netloc}{parts.path}")).rstrip("/") if parts.scheme in ("http", "https") else ""
        except ValueError as error:
            raise ConfigurationError(f"{_shown(url)} is no address: {error}; it would look like http://host:6820") from None
        if parts.username or parts.password:
            raise ConfigurationError("an address holds no user or password; credentials are given beside it")
        if tls and parts.scheme != "https":
            raise ConfigurationError(f"certificates were given, but {url!r} is not an https:// address")
        match parts.scheme:
            case "unix" | "http+unix":
                path = unquote(parts.netloc + parts.path)
                if not path.startswith("/"):
                    raise ConfigurationError(f"{url!r} names no absolute path of a socket; it would look like unix:///run/slurmrestd.sock")
                return cls(base="http://localhost", socket=path)
            case "http" | "https" if parts.hostname:
                tls = (tls or TLS()) if parts.scheme == "https" else None
                return cls(base=base, tls=tls)
        raise ConfigurationError(
            f"{url!r} is no address of slurmrestd; it would look like http://host:6820, https://host:6820 or unix:///path"
        )

    def connector(self, limit: int) -> aiohttp.BaseConnector:
        if self.socket:
            return take_one_answer(aiohttp.UnixConnector(path=self.socket, limit=limit))
        if self.tls:
            return take_one_answer(aiohttp.TCPConnector(limit=limit, ssl=self.tls.context()))
        return take_one_answer(aiohttp.TCPConnector(limit=limit))


def _shown(url: str) -> str:
    """Without what may be a password."""
    scheme, separator, rest = url.partition("://")
    return repr(f"{scheme}{separator}{rest.rpartition('@')[2]}")
