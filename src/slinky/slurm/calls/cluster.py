"""The cluster itself: partitions, reservations, licenses, shares, statistics, configuration, and whether it is there."""

from typing import Any

import msgspec

from slinky.slurm.connection import Connection
from slinky.slurm.errors import NotFoundError
from slinky.slurm.lanes import Lane
from slinky.slurm.models.cluster import (
    Configuration,
    ConfigurationAnswer,
    Diagnostics,
    DiagnosticsAnswer,
    License,
    LicenseList,
    Partition,
    PartitionList,
    Ping,
    PingList,
    Reservation,
    ReservationList,
    Share,
    ShareList,
)
from slinky.slurm.numbers import Envelope
from slinky.slurm.paths import segment

__all__ = ["ClusterCalls", "Partitions", "Reservations"]

_PARTITIONS = msgspec.json.Decoder(PartitionList)
_RESERVATIONS = msgspec.json.Decoder(ReservationList)
_LICENSES = msgspec.json.Decoder(LicenseList)
_SHARES = msgspec.json.Decoder(ShareList)
_DIAGNOSTICS = msgspec.json.Decoder(DiagnosticsAnswer)
_PINGS = msgspec.json.Decoder(PingList)
_CONFIGURATION = msgspec.json.Decoder(ConfigurationAnswer)
_DONE = msgspec.json.Decoder(Envelope)


class Partitions:
    """`client.partitions`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> list[Partition]:
        """All partitions that the user may see."""
        return (await self._connection.read("slurm/partitions/", _PARTITIONS)).partitions or []

    async def get(self, name: str) -> Partition:
        """One partition. NotFoundError where there is none of that name."""
        found = (await self._connection.read(f"slurm/partition/{segment(name, 'partition')}", _PARTITIONS)).partitions
        if not found:
            raise NotFoundError(f"there is no partition {name}", request=f"partition/{name}")
        return found[0]


class Reservations:
    """`client.reservations`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> list[Reservation]:
        """All reservations."""
        return (await self._connection.read("slurm/reservations/", _RESERVATIONS)).reservations or []

    async def get(self, name: str) -> Reservation:
        """One reservation. NotFoundError where there is none of that name."""
        found = (await self._connection.read(f"slurm/reservation/{segment(name, 'reservation')}", _RESERVATIONS)).reservations
        if not found:
            raise NotFoundError(f"there is no reservation {name}", request=f"reservation/{name}")
        return found[0]

    async def put(self, name: str, **fields: Any) -> None:
        """Make a reservation, or change the one of that name; the fields are those of `reservation_desc_msg` in the served OpenAPI document."""
        await self._connection.change("POST", "slurm/reservation", _DONE, {"name": name, **fields}, repeatable=True)

    async def delete(self, name: str) -> None:
        """Remove a reservation."""
        await self._connection.change("DELETE", f"slurm/reservation/{segment(name, 'reservation')}", _DONE)


class ClusterCalls:
    """What the client offers directly: `client.ping()`, `client.diag()` …"""

    _connection: Connection

    async def ping(self) -> list[Ping]:
        """Each controller, and whether it answers. A controller that is down is no error here."""
        return (await self._connection.read("slurm/ping/", _PINGS, lane=Lane.URGENT)).pings or []

    async def is_up(self) -> bool:
        """Does some controller answer?"""
        return any(ping.responding for ping in await self.ping())

    async def licenses(self) -> list[License]:
        """All licenses."""
        return (await self._connection.read("slurm/licenses/", _LICENSES)).licenses or []

    async def shares(self, *, accounts: list[str] | None = None, users: list[str] | None = None) -> list[Share]:
        """The fair-share tree, or those accounts and users of it (sorted out here: slurmrestd 26.05 takes the filters and ignores them)."""
        found = (await self._connection.read("slurm/shares", _SHARES)).shares.shares or []
        if accounts is None and users is None:
            return found
        return [share for share in found if share.name in ((users if share.is_user else accounts) or ())]

    async def diag(self) -> Diagnostics:
        """slurmctld's statistics."""
        return (await self._connection.read("slurm/diag/", _DIAGNOSTICS)).statistics

    async def conf(self) -> Configuration:
        """slurm.conf as slurmctld has it (Slurm 26.05 and later)."""
        await self._connection.require("conf")
        answer = await self._connection.read("slurm/conf", _CONFIGURATION)
        return Configuration(answer.slurm_conf, answer.slurm_conf_meta.boot_time)

    async def reconfigure(self) -> None:
        """Make slurmctld read its configuration again."""
        await self._connection.change("GET", "slurm/reconfigure/", _DONE, repeatable=True)
