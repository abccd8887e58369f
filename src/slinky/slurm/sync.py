"""The client for scripts and notebooks: the same calls, waited for. Made from the async ones by scripts/generate_sync_face.py; do not edit.

>>> with SlurmClient("http://head:6820") as slurm:  # doctest: +SKIP
...     print(slurm.jobs.states())
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from slinky.slurm.address import TLS
from slinky.slurm.calls.accounting import Accounting as AccountingCalls
from slinky.slurm.calls.cluster import Partitions as PartitionsCalls
from slinky.slurm.calls.cluster import Reservations as ReservationsCalls
from slinky.slurm.calls.jobs import Jobs as JobsCalls
from slinky.slurm.calls.nodes import Nodes as NodesCalls
from slinky.slurm.client import SlurmClient as AsyncClient
from slinky.slurm.connection import Params, Server
from slinky.slurm.credentials import Credentials
from slinky.slurm.descriptions import JobDescription, NodeChange, NodeDescription
from slinky.slurm.lanes import Lane
from slinky.slurm.markers import MarkerField
from slinky.slurm.models.accounting import Account, AccountedJob, Association, Cluster, Qos, Tres, User, Wckey
from slinky.slurm.models.cluster import Configuration, Diagnostics, License, Partition, Ping, Reservation, Share
from slinky.slurm.models.jobs import Allocation, CancelResult, Job, JobStatus, Submitted, Update
from slinky.slurm.models.nodes import Node
from slinky.slurm.pace import Pace
from slinky.slurm.portal import Portal
from slinky.slurm.requests import Limits, Observer
from slinky.slurm.watch import JobTransition, NodeTransition

__all__ = ["SlurmClient"]


class Jobs:
    """`client.jobs`. Waited for."""

    def __init__(self, inner: JobsCalls, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def submit(
        self, job: JobDescription, *, marker: str = "", marker_in: MarkerField = "extra", once: bool = False, settle: float = 15.0
    ) -> Submitted:
        """Submit a batch job.

        With a `marker` (a text of yours, unique to the job, kept in the field `marker_in`), the job can be found again when an answer was lost. `once` asks for
        that: a job that carries the marker already is returned instead of a second one being made, and after an unknown outcome the job is looked for, and
        submitted again only if it has not appeared `settle` seconds after Slurm answers again. Without `once`, an unknown outcome raises OutcomeUnknownError.

        What `once` promises: of jobs submitted through this client, at once; of jobs that others submitted, as this client saw them within the last 30 seconds
        (two clients that submit one marker at the same time make two jobs); and for as long as slurmctld knows the job (MinJobAge after its end).
        """
        return self._portal.run(self._inner.submit(job, marker=marker, marker_in=marker_in, once=once, settle=settle))

    def submit_external(
        self, job: JobDescription, *, marker: str = "", marker_in: MarkerField = "extra", once: bool = False, settle: float = 15.0
    ) -> Submitted:
        """Submit a job whose work runs elsewhere: Slurm gives it resources and starts nothing. See `submit` for the rest."""
        return self._portal.run(self._inner.submit_external(job, marker=marker, marker_in=marker_in, once=once, settle=settle))

    def submit_hetjob(
        self,
        parts: Sequence[JobDescription],
        *,
        external: bool = False,
        marker: str = "",
        marker_in: MarkerField = "extra",
        once: bool = False,
        settle: float = 15.0,
    ) -> Submitted:
        """Submit a heterogeneous job: one allocation of several shapes, which starts as a whole. The id is the leader's, that of the first part; `parts` tells the others'. All carry the marker; see `submit` for the rest."""
        return self._portal.run(
            self._inner.submit_hetjob(parts, external=external, marker=marker, marker_in=marker_in, once=once, settle=settle)
        )

    def get(self, job_id: int) -> Job:
        """One job, in full. NotFoundError where Slurm does not know it (any more)."""
        return self._portal.run(self._inner.get(job_id))

    def parts(self, job_id: int, *, brief: bool = False) -> list[Job]:
        """The parts of a hetjob, its leader first, whichever of them is named; any other job alone. `brief`: without the cores of each node, which are more than half of a record."""
        return self._portal.run(self._inner.parts(job_id, brief=brief))

    def all(self) -> list[Job]:
        """All jobs, in full: 8 to 27 KB each. For thousands of them use `stream` or `states`."""
        return self._portal.run(self._inner.all())

    def stream(self) -> Iterator[Job]:
        """All jobs, in full, one by one: a list of up to 64 MB is decoded as a whole, a longer one as it arrives, so that memory stays bounded here. Not so in slurmrestd, which held 5.4 GB after two lists of 20,000 jobs: for tens of thousands use `unread` and `records`."""
        return self._portal.iterate(self._inner.stream())

    def states(self, job_ids: Iterable[int] | None = None) -> list[JobStatus]:
        """The states of these jobs, or of all: small requests, whose cost goes by the jobs asked for and not by those that there are. Jobs that Slurm does not know are left out."""
        return self._portal.run(self._inner.states(job_ids))

    def update(self, job_id: int, changes: JobDescription) -> list[Update]:
        """Change what `changes` names and nothing else. An array answers for each of its tasks."""
        return self._portal.run(self._inner.update(job_id, changes))

    def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""
        self._portal.run(self._inner.hold(job_id))

    def release(self, job_id: int) -> None:
        """Let a held job start."""
        self._portal.run(self._inner.release(job_id))

    def requeue(self, job_id: int, *, hold: bool = False) -> None:
        """Send a batch job back to the queue (Slurm 26.05 and later; external jobs cannot)."""
        self._portal.run(self._inner.requeue(job_id, hold=hold))

    def requeue_many(self, job_ids: Iterable[int], *, hold: bool = False) -> None:
        """The same for several, in one request."""
        self._portal.run(self._inner.requeue_many(job_ids, hold=hold))

    def cancel(self, job_id: int, signal: str = "KILL") -> None:
        """End a job (or send it a signal). One that is over already is fine; one that does not exist raises NotFoundError.

        A signal other than KILL to an external job makes slurmctld call the node: see the guide before using one.
        """
        self._portal.run(self._inner.cancel(job_id, signal))

    def cancel_many(self, job_ids: Iterable[int], signal: str = "KILL") -> list[CancelResult]:
        """End many jobs in one request (1,000 in 50 ms). Returns what Slurm had to say about some of them; most need no word."""
        return self._portal.run(self._inner.cancel_many(job_ids, signal))

    def allocation(self, job_id: int) -> Allocation:
        """What a running job has on each of its nodes: cores, memory, GRES (Slurm 25.11 and later)."""
        return self._portal.run(self._inner.allocation(job_id))

    def find(self, marker: str, *, marker_in: MarkerField = "extra") -> Job | None:
        """The job that carries the marker, if Slurm has one. Costs the states, and those jobs alone that appeared since this client last looked."""
        return self._portal.run(self._inner.find(marker, marker_in=marker_in))

    def find_all(self, marker: str | Sequence[str], *, marker_in: MarkerField = "extra", since: float = 0.0) -> list[int]:
        """The ids of all jobs that carry the marker, or one of several; more than one for the parts of a hetjob, and if a job was submitted without `once`. `since` (seconds since 1970): it was not submitted earlier, so that a client that submits `alone` reads fewer jobs."""
        return self._portal.run(self._inner.find_all(marker, marker_in=marker_in, since=since))

    def submits_alone(self, marker_in: MarkerField = "extra") -> None:
        """From now on no other client submits this client's markers, which begin this field: jobs that others submit are not read before a submit with `once`. Jobs that an earlier client submitted are found with `newest` and `unread`."""
        self._portal.run(self._inner.submits_alone(marker_in))

    def last_id(self) -> int:
        """The highest job id that this client knows to have been used, from memory."""
        return self._portal.run(self._inner.last_id())

    def ids_used(self, job_id: int) -> None:
        """Note that ids up to this one have been used: the search for newer ones begins there."""
        self._portal.run(self._inner.ids_used(job_id))

    def live_ids(self) -> set[int]:
        """The ids of all jobs and arrays that are not over: one request, or, where Slurm has more than 20,000 jobs, one for each 500 ids, as a list of 100,000 takes slurmrestd half a minute. The first call then names every id up to the newest, which can take minutes; later ones name the newer ids and those that were live."""
        return self._portal.run(self._inner.live_ids())

    def unread(self, *, live: bool = False) -> list[int]:
        """The ids of jobs that this client has neither submitted nor read so far, the oldest first, without arrays; with `live` without those that are over. Where Slurm has more than 20,000 jobs, a portion of them: the same ids until they were read, then others."""
        return self._portal.run(self._inner.unread(live=live))

    def records(self, job_ids: Collection[int], *, learn: bool = False) -> list[Job]:
        """These jobs in full, one request each, 16 at a time: as quick as a list of all, and neither slurmrestd nor this client holds more than a few of them in memory. Jobs that Slurm does not know are left out; of a hetjob all parts come with its leader, of an array all tasks. With `learn` they count as read, for `unread` and `newest`."""
        return self._portal.run(self._inner.records(job_ids, learn=learn))

    def newest(self, since: float = 0.0) -> Iterator[list[Job]]:
        """Groups of jobs that this client has neither submitted nor read so far, the newest first, down to those that were submitted before `since` (seconds since 1970 by this machine's clock)."""
        return self._portal.iterate(self._inner.newest(since))

    def distrust_markers(self) -> None:
        """Slurm is known to have lost jobs, and may give their ids to others: what is remembered of markers is read anew before it is used again."""
        self._portal.run(self._inner.distrust_markers())

    def watch(self, job_ids: Iterable[int] | None = None, pace: Pace | None = None) -> Iterator[JobTransition]:
        """Transitions of these jobs (or of all), from now on; the first word on each job is its state at the start. See `slinky.slurm.watch`."""
        return self._portal.iterate(self._inner.watch(job_ids, pace))


class Nodes:
    """`client.nodes`. Waited for."""

    def __init__(self, inner: NodesCalls, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def all(self) -> list[Node]:
        """All nodes (about 3 KB each)."""
        return self._portal.run(self._inner.all())

    def get(self, name: str) -> Node:
        """One node. NotFoundError where there is none of that name."""
        return self._portal.run(self._inner.get(name))

    def create(self, node: NodeDescription) -> list[str]:
        """Make a node, or several of one shape, and return their names. Slurm 25.11 and later.

        Without GRES several are made in one request, all or none; with GRES slurmctld takes one at a time, and a refusal leaves those before it.
        """
        return self._portal.run(self._inner.create(node))

    def update(self, names: str | Iterable[str], change: NodeChange) -> None:
        """Change one or many, in one request."""
        self._portal.run(self._inner.update(names, change))

    def drain(self, names: str | Iterable[str], reason: str) -> None:
        """No new jobs; those there run on."""
        self._portal.run(self._inner.drain(names, reason))

    def undrain(self, names: str | Iterable[str]) -> None:
        """Take back a drain, and nothing else."""
        self._portal.run(self._inner.undrain(names))

    def down(self, names: str | Iterable[str], reason: str) -> None:
        """Out of use at once; the jobs there end as NODE_FAIL."""
        self._portal.run(self._inner.down(names, reason))

    def resume(self, names: str | Iterable[str]) -> None:
        """Back in use, from drained or down. Where one of several was in use already, Slurm does it for the others and refuses all the same (2180)."""
        self._portal.run(self._inner.resume(names))

    def delete(self, names: str | Iterable[str]) -> None:
        """Remove a run-time node, or several in one request: slurmctld makes its tables anew for each request. Where one of several is refused, the others are gone all the same. Not while a live job names one in `excluded_nodes`: Slurm then refuses every update of that job."""
        self._portal.run(self._inner.delete(names))

    def since(self, update_time: int) -> tuple[list[Node] | None, int]:
        """All nodes, or None where nothing changed since the last answer, whose second value is `update_time`; 0 asks for all."""
        return self._portal.run(self._inner.since(update_time))

    def watch(self, pace: Pace | None = None) -> Iterator[NodeTransition]:
        """Transitions of all nodes, for ever; the first word on each is its state at the start. Slurm answers in 100 bytes while nothing changed; that one was deleted is seen when another changes, or all are asked for (`Pace.whole`)."""
        return self._portal.iterate(self._inner.watch(pace))


class Partitions:
    """`client.partitions`. Waited for."""

    def __init__(self, inner: PartitionsCalls, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def all(self) -> list[Partition]:
        """All partitions that the user may see."""
        return self._portal.run(self._inner.all())

    def get(self, name: str) -> Partition:
        """One partition. NotFoundError where there is none of that name."""
        return self._portal.run(self._inner.get(name))


class Reservations:
    """`client.reservations`. Waited for."""

    def __init__(self, inner: ReservationsCalls, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def all(self) -> list[Reservation]:
        """All reservations."""
        return self._portal.run(self._inner.all())

    def get(self, name: str) -> Reservation:
        """One reservation. NotFoundError where there is none of that name."""
        return self._portal.run(self._inner.get(name))

    def put(self, name: str, **fields: Any) -> None:
        """Make a reservation, or change the one of that name; the fields are those of `reservation_desc_msg` in the served OpenAPI document."""
        self._portal.run(self._inner.put(name, **fields))

    def delete(self, name: str) -> None:
        """Remove a reservation."""
        self._portal.run(self._inner.delete(name))


class Accounting:
    """`client.accounting`. Waited for."""

    def __init__(self, inner: AccountingCalls, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def accounts(self) -> list[Account]:
        """All accounts."""
        return self._portal.run(self._inner.accounts())

    def account(self, name: str) -> Account:
        """One account, with its associations and coordinators."""
        return self._portal.run(self._inner.account(name))

    def users(self) -> list[User]:
        """All users."""
        return self._portal.run(self._inner.users())

    def user(self, name: str) -> User:
        """One user, with associations."""
        return self._portal.run(self._inner.user(name))

    def associations(self, *, account: str = "", user: str = "", cluster: str = "") -> list[Association]:
        """Who may use which account; filtered where asked."""
        return self._portal.run(self._inner.associations(account=account, user=user, cluster=cluster))

    def qos(self) -> list[Qos]:
        """All qualities of service."""
        return self._portal.run(self._inner.qos())

    def clusters(self) -> list[Cluster]:
        """All clusters that report here."""
        return self._portal.run(self._inner.clusters())

    def tres(self) -> list[Tres]:
        """All trackable resources."""
        return self._portal.run(self._inner.tres())

    def wckeys(self) -> list[Wckey]:
        """All workload characterization keys."""
        return self._portal.run(self._inner.wckeys())

    def job(self, job_id: int) -> AccountedJob:
        """A job as accounting keeps it; of several with that id (ids are used again), the latest; of a hetjob's leader, itself."""
        return self._portal.run(self._inner.job(job_id))

    def jobs(
        self,
        *,
        users: Sequence[str] = (),
        accounts: Sequence[str] = (),
        states: Sequence[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> list[AccountedJob]:
        """Jobs of the past (and present); without `since`, of today. Times are seconds since 1970."""
        return self._portal.run(self._inner.jobs(users=users, accounts=accounts, states=states, since=since, until=until))


class SlurmClient:
    """A Slurm cluster, through its slurmrestd; each call waits for its answer. The arguments are those of `slinky.slurm.SlurmClient`."""

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
        self._use(AsyncClient(url, credentials, tls=tls, limits=limits, version=version, observer=observer), Portal())

    def _use(self, inner: AsyncClient, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal
        self.jobs = Jobs(inner.jobs, portal)
        self.nodes = Nodes(inner.nodes, portal)
        self.partitions = Partitions(inner.partitions, portal)
        self.reservations = Reservations(inner.reservations, portal)
        self.accounting = Accounting(inner.accounting, portal)

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread behind them; calls that other threads wait for end with an error."""
        self._portal.close(self._inner.close)

    def within(self, seconds: float) -> "SlurmClient":
        """The same client, with another deadline for each call."""
        other = object.__new__(type(self))
        other._use(self._inner.within(seconds), self._portal)
        return other

    def ping(self) -> list[Ping]:
        """Each controller, and whether it answers. A controller that is down is no error here."""
        return self._portal.run(self._inner.ping())

    def is_up(self) -> bool:
        """Does some controller answer?"""
        return self._portal.run(self._inner.is_up())

    def licenses(self) -> list[License]:
        """All licenses."""
        return self._portal.run(self._inner.licenses())

    def shares(self, *, accounts: list[str] | None = None, users: list[str] | None = None) -> list[Share]:
        """The fair-share tree, or those accounts and users of it (sorted out here: slurmrestd 26.05 takes the filters and ignores them)."""
        return self._portal.run(self._inner.shares(accounts=accounts, users=users))

    def diag(self) -> Diagnostics:
        """slurmctld's statistics."""
        return self._portal.run(self._inner.diag())

    def conf(self) -> Configuration:
        """slurm.conf as slurmctld has it (Slurm 26.05 and later)."""
        return self._portal.run(self._inner.conf())

    def reconfigure(self) -> None:
        """Make slurmctld read its configuration again."""
        self._portal.run(self._inner.reconfigure())

    def server(self) -> Server:
        """The version that is spoken, the server's release, and the paths that it has."""
        return self._portal.run(self._inner.server())

    def call(
        self, method: str, path: str, body: Any = None, *, params: Params | None = None, repeatable: bool = False, lane: Lane = Lane.NORMAL
    ) -> dict[str, Any]:
        """Anything in the served OpenAPI document, with the same safety: `client.call("GET", "/slurm/{version}/diag/")`.

        `{version}` stands for the version that is spoken; a name in the path is to be escaped (`urllib.parse.quote`). Anything but a GET counts as a change that is sent once only, unless it is `repeatable`.
        """
        return self._portal.run(self._inner.call(method, path, body, params=params, repeatable=repeatable, lane=lane))
