"""A server whose version is known: what the calls are made of.

Comes in: a path below `/slurm/` or `/slurmdb/` and the decoder of the answer. Goes out: a `Request` in the version that both sides speak. The version is found
at the first use, from what the server itself offers, so a client can be made while Slurm is down.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from slinky.slurm.descriptions import encode
from slinky.slurm.errors import UnsupportedError
from slinky.slurm.lanes import Lane
from slinky.slurm.numbers import Envelope
from slinky.slurm.requests import Request
from slinky.slurm.transport import Decodes, Transport
from slinky.slurm.versions import Version, choose, offered, require

__all__ = ["Connection", "Params", "Server", "pairs"]

log = logging.getLogger(__name__)

E = TypeVar("E", bound=Envelope)
Params = Mapping[str, str | int | Sequence[str | int] | None]


class Info(msgspec.Struct, frozen=True):
    version: str = ""


class OpenApi(Envelope, kw_only=True):
    paths: dict[str, msgspec.Raw]
    info: Info = Info()


_OPENAPI = msgspec.json.Decoder(OpenApi)


class Server(msgspec.Struct, frozen=True):
    """What the server said about itself."""

    version: Version
    release: str
    paths: frozenset[str]

    @property
    def slurm(self) -> tuple[int, ...]:
        """The release of its Slurm as numbers, (26, 5, 3); empty where it does not say."""
        found = re.search(r"(\d+)\.(\d+)\.(\d+)", self.release)
        return tuple(map(int, found.groups())) if found else ()

    @property
    def has_accounting(self) -> bool:
        return any(path.startswith("/slurmdb/") for path in self.paths)


class Connection:
    """`within` gives one with another deadline, over the same transport."""

    def __init__(self, transport: Transport, wanted: Version | None = None, deadline: float | None = None) -> None:
        self.transport = transport
        self.deadline = deadline
        self._wanted = wanted
        self._found: list[Server] = []
        self._finding = asyncio.Lock()

    def within(self, seconds: float) -> "Connection":
        other = Connection(self.transport, self._wanted, seconds)
        other._found, other._finding = self._found, self._finding
        return other

    async def server(self) -> Server:
        """What is at the other end; asked once."""
        if not self._found:
            async with self._finding:
                if not self._found:
                    request = Request(method="GET", path="/openapi/v3", lane=Lane.URGENT, deadline=self.deadline)
                    answer = await self.transport.call(request, _OPENAPI)
                    version = choose(offered(answer.paths), self._wanted)
                    self._found.append(Server(version, answer.info.version, frozenset(answer.paths)))
                    self.transport.ping_path = f"/slurm/{version}/ping/"
                    log.info("speaking %s with %s at %s", version, answer.info.version, self.transport.address.base)
        return self._found[0]

    async def require(self, feature: str) -> None:
        require(feature, (await self.server()).version)

    async def read(self, path: str, decoder: Decodes[E], params: Params | None = None, lane: Lane = Lane.NORMAL) -> E:
        """GET something that changes nothing."""
        request = Request(method="GET", path=await self.path(path), params=pairs(params), lane=lane, deadline=self.deadline)
        return await self._call(request, decoder)

    async def change(
        self,
        method: str,
        path: str,
        decoder: Decodes[E],
        body: object = None,
        *,
        params: Params | None = None,
        repeatable: bool = False,
        lane: Lane = Lane.NORMAL,
    ) -> E:
        """Anything that has an effect."""
        request = Request(
            method=method,
            path=await self.path(path),
            params=pairs(params),
            body=None if body is None else encode(body),
            changes=True,
            repeatable=repeatable,
            lane=lane,
            deadline=self.deadline,
        )
        return await self._call(request, decoder)

    async def _call(self, request: Request, decoder: Decodes[E]) -> E:
        try:
            return await self.transport.call(request, decoder)
        except UnsupportedError:
            self._found.clear()  # the path is gone: perhaps Slurm was upgraded, and the next call finds the version that it serves now
            raise

    async def path(self, path: str) -> str:
        """`slurm/jobs/` → `/slurm/v0.0.45/jobs/`."""
        server = self._found[0] if self._found else await self.server()
        family, _, rest = path.partition("/")
        if family == "slurmdb" and not server.has_accounting:
            raise UnsupportedError(
                "the server offers no accounting: slurmrestd finds slurmdbd configured only if it was when slurmrestd started", request=path
            )
        return f"/{family}/{server.version}/{rest}"


def pairs(params: Params | None) -> tuple[tuple[str, str], ...]:
    """Lists as repeated parameters: that is what slurmrestd reads (a comma list makes it fail)."""
    found: list[tuple[str, str]] = []
    for key, value in (params or {}).items():
        if value is None:
            continue
        many = [value] if isinstance(value, str | int) else value
        found += [(key, str(item)) for item in many]
    return tuple(found)
