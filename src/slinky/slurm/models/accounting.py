"""What slurmdbd keeps: accounts, users, associations, QoS, clusters, TRES, wckeys, and the jobs of the past."""

from typing import ClassVar

import msgspec

from slinky.slurm.models.jobs import ExitCode
from slinky.slurm.models.states import JobStates
from slinky.slurm.numbers import Envelope, Number, Triplet

__all__ = ["Account", "AccountedJob", "Association", "Cluster", "Qos", "Tres", "User", "Wckey"]


class Tres(msgspec.Struct, frozen=True, gc=False):
    """A trackable resource; `count` where it is a quantity of one."""

    SCHEMA: ClassVar = "tres"
    type: str
    name: str = ""
    id: int = 0
    count: int = 0


class AssociationName(msgspec.Struct, frozen=True, gc=False):
    """Who, in which account, where: what names an association."""

    SCHEMA: ClassVar = "assoc_short"
    account: str = ""
    cluster: str = ""
    partition: str = ""
    user: str = ""
    id: int = 0


class Coordinator(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "coord"
    name: str = ""
    direct: bool = False


class Account(msgspec.Struct, gc=False):
    """An account (a project, a group)."""

    SCHEMA: ClassVar = "account"
    name: str
    description: str = ""
    organization: str = ""
    flags: list[str] = []
    associations: list[AssociationName] = []
    coordinators: list[Coordinator] = []


class UserDefaults(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "user.default"
    account: str = ""
    wckey: str = ""


class User(msgspec.Struct, gc=False):
    """A person, as accounting knows her."""

    SCHEMA: ClassVar = "user"
    name: str
    administrator_level: list[str] = []
    default: UserDefaults = UserDefaults()
    flags: list[str] = []
    associations: list[AssociationName] = []
    coordinators: list[Coordinator] = []

    @property
    def is_administrator(self) -> bool:
        return "Administrator" in self.administrator_level


class AssociationDefaults(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "assoc.default"
    qos: str = ""


class Association(msgspec.Struct, gc=False):
    """Who may use which account, where, with which QoS."""

    SCHEMA: ClassVar = "assoc"
    account: str
    user: str = ""
    cluster: str = ""
    partition: str = ""
    parent_account: str = ""
    id: int = 0
    is_default: bool = False
    lineage: str = ""
    comment: str = ""
    qos: list[str] = []
    shares_raw: int = 0
    flags: list[str] = []
    default: AssociationDefaults = AssociationDefaults()


class QosPreemption(msgspec.Struct, frozen=True, gc=False, rename={"over": "list"}):
    SCHEMA: ClassVar = "qos.preempt"
    over: list[str] = []
    mode: list[str] = []


class QosLimits(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "qos.limits"
    grace_time: int = 0


class Qos(msgspec.Struct, gc=False, rename={"_priority": "priority", "_usage_factor": "usage_factor"}):
    """A quality of service; `preempt.over` names those it takes from."""

    SCHEMA: ClassVar = "qos"
    name: str
    id: int = 0
    description: str = ""
    flags: list[str] = []
    preempt: QosPreemption = QosPreemption()
    limits: QosLimits = QosLimits()
    _priority: Triplet | None = None
    _usage_factor: Triplet | None = None
    priority = Number[int]("_priority")
    usage_factor = Number[float]("_usage_factor")


class ClusterController(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "cluster_rec.controller"
    host: str = ""
    port: int = 0


class Cluster(msgspec.Struct, gc=False):
    """A cluster that reports to this slurmdbd."""

    SCHEMA: ClassVar = "cluster_rec"
    name: str
    nodes: str = ""
    rpc_version: int = 0
    flags: list[str] = []
    controller: ClusterController = ClusterController()
    tres: list[Tres] = []


class Wckey(msgspec.Struct, frozen=True, gc=False):
    """A workload characterization key."""

    SCHEMA: ClassVar = "wckey"
    name: str
    id: int = 0
    user: str = ""
    cluster: str = ""
    flags: list[str] = []


class AccountedTimes(msgspec.Struct, frozen=True, gc=False, rename={"_limit": "limit"}):
    """Seconds since 1970 (0: not yet); `elapsed` in seconds, `limit` in minutes."""

    SCHEMA: ClassVar = "job.time"
    submission: int = 0
    eligible: int = 0
    start: int = 0
    end: int = 0
    elapsed: int = 0
    suspended: int = 0
    _limit: Triplet | None = None
    limit = Number[int]("_limit")


class AccountedState(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "job.state"
    current: list[str] = []
    reason: str = ""


class AccountedComments(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "job.comment"
    administrator: str = ""
    job: str = ""
    system: str = ""


class AccountedTres(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "job.tres"
    allocated: list[Tres] = []
    requested: list[Tres] = []


class AccountedJob(JobStates, msgspec.Struct, gc=False, rename={"job_state": "state"}):
    """A job as accounting keeps it, long after slurmctld forgot it."""

    SCHEMA: ClassVar = "job"
    job_id: int
    name: str = ""
    user: str = ""
    group: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    cluster: str = ""
    nodes: str = ""
    extra: str = ""
    working_directory: str = ""
    allocation_nodes: int = 0
    restart_cnt: int = 0
    time: AccountedTimes = AccountedTimes()
    job_state: AccountedState = AccountedState()
    comment: AccountedComments = AccountedComments()
    tres: AccountedTres = AccountedTres()
    exit_code: ExitCode | None = None
    derived_exit_code: ExitCode | None = None

    @property
    def states(self) -> list[str]:
        return self.job_state.current


class AccountList(Envelope, kw_only=True):
    accounts: list[Account] | None = None


class UserList(Envelope, kw_only=True):
    users: list[User] | None = None


class AssociationList(Envelope, kw_only=True):
    associations: list[Association] | None = None


class QosList(Envelope, kw_only=True):
    qos: list[Qos] | None = None


class ClusterList(Envelope, kw_only=True):
    clusters: list[Cluster] | None = None


class TresList(Envelope, kw_only=True, rename={"tres": "TRES"}):
    tres: list[Tres] | None = None


class WckeyList(Envelope, kw_only=True):
    wckeys: list[Wckey] | None = None


class AccountedJobList(Envelope, kw_only=True):
    jobs: list[AccountedJob] | None = None
