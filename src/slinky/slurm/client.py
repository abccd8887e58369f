"""The client: one object through which everything is asked.

Comes in: where slurmrestd is and who asks. Goes out: `jobs`, `nodes`, `partitions`, `reservations`, `accounting`, the calls about the cluster as a whole, and `call` for
anything else that the served OpenAPI document has. It holds connections: use it as a context manager, or close it.
"""

import re
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl

import msgspec

from slinky.slurm.address import TLS, Address
from slinky.slurm.calls.accounting import Accounting
from slinky.slurm.calls.cluster import ClusterCalls, Partitions, Reservations
from slinky.slurm.calls.jobs import Jobs
from slinky.slurm.calls.nodes import Nodes
from slinky.slurm.connection import Connection, Params, Server, pairs
from slinky.slurm.credentials import Credentials
from slinky.slurm.descriptions import encode
from slinky.slurm.errors import UnsupportedError
from slinky.slurm.lanes import Lane
from slinky.slurm.markers import Markers
from slinky.slurm.numbers import Envelope
from slinky.slurm.paths import escaped
from slinky.slurm.requests import Limits, Observer, Request
from slinky.slurm.settings import found_address, found_credentials
from slinky.slurm.transport import Transport
from slinky.slurm.versions import Version

__all__ = ["SlurmClient"]


class Document(Envelope, kw_only=True):
    """Any answer, whole."""

    content: dict[str, Any]


class WholeDocument:
    """Decodes what no model of ours describes."""

    def decode(self, text: bytes) -> Document:
        content = msgspec.json.decode(text, type=dict[str, Any])
        envelope = msgspec.convert({key: content.get(key) for key in ("errors", "warnings")}, Envelope)
        return Document(errors=envelope.errors, warnings=envelope.warnings, content=content)


class SlurmClient(ClusterCalls):
    """A Slurm cluster, through its slurmrestd.

    Without arguments, from the environment: SLINKY_SLURM_URL, and a token from SLINKY_SLURM_TOKEN_FILE or SLURM_JWT.

    >>> async with SlurmClient("http://head:6820", TokenFile("/run/slurm/token")) as slurm:  # doctest: +SKIP
    ...     await slurm.jobs.states()
    """

    def __init__(
        self,
        url: str = "",
        credentials: Credentials | None = None,
        *,
        tls: TLS | None = None,
        limits: Limits | None = None,
        version: str = "",
        observer: Observer | None = None,
    ) -> None:
        address = Address.parse(url or found_address(), tls)
        transport = Transport(address, credentials or found_credentials(), limits or Limits(), observer)
        self._use(Connection(transport, Version.parse(version) if version else None), None)

    def _use(self, connection: Connection, markers: Markers | None) -> None:
        self._connection = connection
        self._markers = markers or Markers(connection)
        self.jobs = Jobs(connection, self._markers)
        self.nodes = Nodes(connection)
        self.partitions = Partitions(connection)
        self.reservations = Reservations(connection)
        self.accounting = Accounting(connection)

    def __repr__(self) -> str:
        transport = self._connection.transport
        return f"<SlurmClient of {transport.address.socket or transport.address.base} as {transport.credentials.user or 'whom the token names'}>"

    async def __aenter__(self) -> Self:
        self._connection.transport.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; those who still wait for an answer get an error."""
        await self._connection.transport.close()

    def within(self, seconds: float) -> "SlurmClient":
        """The same client, with another deadline for each call: `await client.within(2).ping()`."""
        other = object.__new__(type(self))
        other._use(self._connection.within(seconds), self._markers)
        return other

    async def server(self) -> Server:
        """The version that is spoken, the server's release, and the paths that it has."""
        return await self._connection.server()

    async def call(
        self, method: str, path: str, body: Any = None, *, params: Params | None = None, repeatable: bool = False, lane: Lane = Lane.NORMAL
    ) -> dict[str, Any]:
        """Anything in the served OpenAPI document, with the same safety: `await client.call("GET", "/slurm/{version}/diag/")`.

        `{version}` stands for the version that is spoken; a name in the path is to be escaped (`urllib.parse.quote`). Anything but a GET counts as a change that is sent once only, unless it is `repeatable`.
        """
        server = await self.server()
        path, _, query = path.partition("?")
        path = escaped(path.replace("{version}", str(server.version)))
        if path != "/openapi/v3" and not any(
            re.fullmatch(re.sub(r"\\\{[^/]*\\\}", "[^/]+", re.escape(known)), path) for known in server.paths
        ):
            raise UnsupportedError(f"the server has no path {path}; /openapi/v3 lists those it has", request=f"{method} {path}")
        request = Request(
            method=method.upper(),
            path=path,
            params=(*parse_qsl(query, keep_blank_values=True), *pairs(params)),
            body=None if body is None else encode(body),
            changes=method.upper() != "GET",
            repeatable=repeatable,
            lane=lane,
            deadline=self._connection.deadline,
        )
        return (await self._connection.transport.call(request, WholeDocument())).content
