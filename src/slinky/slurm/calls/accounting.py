"""Accounting (slurmdbd): who may what, and the jobs of the past. UnsupportedError where the server has none."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from slinky.slurm.connection import Connection
from slinky.slurm.errors import NotFoundError
from slinky.slurm.lanes import Lane
from slinky.slurm.models.accounting import (
    Account,
    AccountedJob,
    AccountedJobList,
    AccountList,
    Association,
    AssociationList,
    Cluster,
    ClusterList,
    Qos,
    QosList,
    Tres,
    TresList,
    User,
    UserList,
    Wckey,
    WckeyList,
)
from slinky.slurm.paths import segment

__all__ = ["Accounting"]

T = TypeVar("T")

_ACCOUNTS = msgspec.json.Decoder(AccountList)
_USERS = msgspec.json.Decoder(UserList)
_ASSOCIATIONS = msgspec.json.Decoder(AssociationList)
_QOS = msgspec.json.Decoder(QosList)
_CLUSTERS = msgspec.json.Decoder(ClusterList)
_TRES = msgspec.json.Decoder(TresList)
_WCKEYS = msgspec.json.Decoder(WckeyList)
_JOBS = msgspec.json.Decoder(AccountedJobList)


class Accounting:
    """`client.accounting`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def accounts(self) -> list[Account]:
        """All accounts."""
        return (await self._connection.read("slurmdb/accounts/", _ACCOUNTS)).accounts or []

    async def account(self, name: str) -> Account:
        """One account, with its associations and coordinators."""
        params = {"with_assocs": "true", "with_coords": "true"}
        return _only(
            (await self._connection.read(f"slurmdb/account/{segment(name, 'account')}", _ACCOUNTS, params)).accounts, "account", name
        )

    async def users(self) -> list[User]:
        """All users."""
        return (await self._connection.read("slurmdb/users/", _USERS)).users or []

    async def user(self, name: str) -> User:
        """One user, with associations."""
        return _only(
            (await self._connection.read(f"slurmdb/user/{segment(name, 'user')}", _USERS, {"with_assocs": "true"})).users, "user", name
        )

    async def associations(self, *, account: str = "", user: str = "", cluster: str = "") -> list[Association]:
        """Who may use which account; filtered where asked."""
        params = {"account": account or None, "user": user or None, "cluster": cluster or None}
        return (await self._connection.read("slurmdb/associations/", _ASSOCIATIONS, params)).associations or []

    async def qos(self) -> list[Qos]:
        """All qualities of service."""
        return (await self._connection.read("slurmdb/qos/", _QOS)).qos or []

    async def clusters(self) -> list[Cluster]:
        """All clusters that report here."""
        return (await self._connection.read("slurmdb/clusters/", _CLUSTERS)).clusters or []

    async def tres(self) -> list[Tres]:
        """All trackable resources."""
        return (await self._connection.read("slurmdb/tres/", _TRES)).tres or []

    async def wckeys(self) -> list[Wckey]:
        """All workload characterization keys."""
        return (await self._connection.read("slurmdb/wckeys/", _WCKEYS)).wckeys or []

    async def job(self, job_id: int) -> AccountedJob:
        """A job as accounting keeps it; of several with that id (ids are used again), the latest; of a hetjob's leader, itself."""
        found = (await self._connection.read(f"slurmdb/job/{job_id:d}", _JOBS)).jobs
        return max(found, key=lambda job: (job.job_id == job_id, job.time.submission)) if found else _only([], "job", str(job_id))

    async def jobs(
        self,
        *,
        users: Sequence[str] = (),
        accounts: Sequence[str] = (),
        states: Sequence[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> list[AccountedJob]:
        """Jobs of the past (and present); without `since`, of today. Times are seconds since 1970."""
        params: dict[str, str | None] = {
            "users": ",".join(users) or None,
            "account": ",".join(accounts) or None,
            "state": ",".join(states) or None,
            "start_time": None if since is None else str(since),
            "end_time": None if until is None else str(until),
        }
        return (await self._connection.read("slurmdb/jobs/", _JOBS, params, lane=Lane.BULK)).jobs or []


def _only(found: list[T] | None, what: str, name: str) -> T:
    if not found:
        raise NotFoundError(f"there is no {what} {name} in accounting", request=f"slurmdb/{what}/{name}")
    return found[0]
