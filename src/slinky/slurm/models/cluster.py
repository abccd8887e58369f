"""The cluster itself: partitions, reservations, licenses, shares, statistics, configuration, and whether the controllers answer."""

from typing import Any, ClassVar

import msgspec

from slinky.slurm.numbers import Envelope, Number, Triplet

__all__ = ["Configuration", "Diagnostics", "License", "Partition", "Ping", "Reservation", "Share"]


class PartitionNodes(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "partition_info.nodes"
    configured: str = ""
    allowed_allocation: str = ""
    total: int = 0


class PartitionCpus(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "partition_info.cpus"
    total: int = 0


class PartitionState(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "partition_info.partition"
    state: list[str] = []


class Allowed(msgspec.Struct, frozen=True, gc=False):
    allowed: str = ""
    deny: str = ""


class PartitionAccounts(Allowed, frozen=True, gc=False):
    SCHEMA: ClassVar = "partition_info.accounts"


class PartitionQos(Allowed, frozen=True, gc=False):
    SCHEMA: ClassVar = "partition_info.qos"
    assigned: str = ""


class PartitionPriority(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "partition_info.priority"
    job_factor: int = 0
    tier: int = 0


class PartitionMaximums(msgspec.Struct, frozen=True, gc=False, rename={"_time": "time", "_nodes": "nodes"}):
    SCHEMA: ClassVar = "partition_info.maximums"
    _time: Triplet | None = None
    _nodes: Triplet | None = None
    time = Number[int]("_time")
    nodes = Number[int]("_nodes")


class PartitionDefaults(msgspec.Struct, frozen=True, gc=False, rename={"_time": "time"}):
    SCHEMA: ClassVar = "partition_info.defaults"
    _time: Triplet | None = None
    time = Number[int]("_time")


class PartitionTres(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "partition_info.tres"
    configured: str = ""
    billing_weights: str = ""


class Partition(msgspec.Struct, gc=False, rename={"_partition": "partition"}):
    """One partition. Times are minutes (`grace_time` seconds). `flags` and `preempt_mode` are told from v0.0.45 on."""

    SCHEMA: ClassVar = "partition_info"
    SINCE: ClassVar = {"flags": 45, "preempt_mode": 45}

    name: str
    cluster: str = ""
    alternate: str = ""
    node_sets: str = ""
    topology: str = ""
    grace_time: int = 0
    flags: list[str] = []
    preempt_mode: list[str] = []
    nodes: PartitionNodes = PartitionNodes()
    cpus: PartitionCpus = PartitionCpus()
    accounts: PartitionAccounts = PartitionAccounts()
    qos: PartitionQos = PartitionQos()
    priority: PartitionPriority = PartitionPriority()
    maximums: PartitionMaximums = PartitionMaximums()
    defaults: PartitionDefaults = PartitionDefaults()
    tres: PartitionTres = PartitionTres()
    _partition: PartitionState = PartitionState()

    @property
    def states(self) -> list[str]:
        return self._partition.state

    @property
    def is_up(self) -> bool:
        return "UP" in self.states


class Reservation(msgspec.Struct, gc=False, rename={"_start_time": "start_time", "_end_time": "end_time"}):
    """One reservation; times are seconds since 1970."""

    SCHEMA: ClassVar = "reservation_info"

    name: str
    accounts: str = ""
    users: str = ""
    groups: str = ""
    features: str = ""
    flags: list[str] = []
    licenses: str = ""
    node_count: int = 0
    core_count: int = 0
    node_list: str = ""
    partition: str = ""
    tres: str = ""
    _start_time: Triplet | None = None
    _end_time: Triplet | None = None
    start_time = Number[int]("_start_time")
    end_time = Number[int]("_end_time")


class License(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"name": "LicenseName", "total": "Total", "used": "Used", "free": "Free", "reserved": "Reserved", "is_remote": "Remote"},
):
    """Licenses of one name."""

    SCHEMA: ClassVar = "license"
    name: str
    total: int = 0
    used: int = 0
    free: int = 0
    reserved: int = 0
    is_remote: bool = False


class Fairshare(msgspec.Struct, frozen=True, gc=False, rename={"_factor": "factor", "_level": "level"}):
    SCHEMA: ClassVar = "assoc_shares_obj_wrap.fairshare"
    _factor: Triplet | None = None
    _level: Triplet | None = None
    factor = Number[float]("_factor")
    level = Number[float]("_level")


class Share(
    msgspec.Struct, gc=False, rename={"_shares": "shares", "_effective_usage": "effective_usage", "_shares_normalized": "shares_normalized"}
):
    """The shares of an account or of a user in one."""

    SCHEMA: ClassVar = "assoc_shares_obj_wrap"
    name: str
    id: int = 0
    cluster: str = ""
    parent: str = ""
    partition: str = ""
    type: list[str] = []
    usage: int = 0
    fairshare: Fairshare = Fairshare()
    _shares: Triplet | None = None
    _shares_normalized: Triplet | None = None
    _effective_usage: Triplet | None = None
    shares = Number[int]("_shares")
    shares_normalized = Number[float]("_shares_normalized")
    effective_usage = Number[float]("_effective_usage")

    @property
    def is_user(self) -> bool:
        return "USER" in self.type


class RpcStatistics(msgspec.Struct, frozen=True, gc=False):
    """Messages of one kind that slurmctld has handled; times in microseconds."""

    SCHEMA: ClassVar = "stats_msg_rpc_type"
    message_type: str = ""
    count: int = 0
    total_time: int = 0
    queued: int = 0
    dropped: int = 0


class UserRpcStatistics(msgspec.Struct, frozen=True, gc=False):
    """Messages of one user that slurmctld has handled; time in microseconds."""

    SCHEMA: ClassVar = "stats_msg_rpc_user"
    user: str = ""
    user_id: int = 0
    count: int = 0
    total_time: int = 0


class ScheduleExit(msgspec.Struct, frozen=True, gc=False):
    """How often the main scheduler ended its cycle for what reason."""

    SCHEMA: ClassVar = "stats_msg.schedule_exit"
    end_job_queue: int = 0
    default_queue_depth: int = 0
    max_job_start: int = 0
    max_rpc_cnt: int = 0
    max_sched_time: int = 0
    licenses: int = 0


class BackfillExit(msgspec.Struct, frozen=True, gc=False):
    """The same of the backfill scheduler."""

    SCHEMA: ClassVar = "stats_msg.bf_exit"
    end_job_queue: int = 0
    bf_max_job_start: int = 0
    bf_max_job_test: int = 0
    bf_max_time: int = 0
    bf_node_space_size: int = 0
    state_changed: int = 0


class Diagnostics(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={f"_{name}": name for name in ("req_time", "req_time_start", "job_states_ts", "bf_when_last_cycle")},
):
    """slurmctld's statistics since `req_time_start`; cycles in microseconds."""

    SCHEMA: ClassVar = "stats_msg"
    server_thread_count: int = 0
    agent_queue_size: int = 0
    agent_count: int = 0
    agent_thread_count: int = 0
    dbd_agent_queue_size: int = 0
    jobs_submitted: int = 0
    jobs_started: int = 0
    jobs_completed: int = 0
    jobs_canceled: int = 0
    jobs_failed: int = 0
    jobs_pending: int = 0
    jobs_running: int = 0
    schedule_cycle_last: int = 0
    schedule_cycle_max: int = 0
    schedule_cycle_mean: int = 0
    schedule_cycle_mean_depth: int = 0
    schedule_cycle_per_minute: int = 0
    schedule_cycle_sum: int = 0
    schedule_cycle_total: int = 0
    schedule_cycle_depth: int = 0
    schedule_queue_length: int = 0
    schedule_exit: ScheduleExit = ScheduleExit()
    bf_active: bool = False
    bf_backfilled_jobs: int = 0
    bf_backfilled_het_jobs: int = 0
    bf_last_backfilled_jobs: int = 0
    bf_cycle_counter: int = 0
    bf_cycle_last: int = 0
    bf_cycle_max: int = 0
    bf_cycle_mean: int = 0
    bf_cycle_sum: int = 0
    bf_depth_mean: int = 0
    bf_depth_mean_try: int = 0
    bf_depth_sum: int = 0
    bf_depth_try_sum: int = 0
    bf_last_depth: int = 0
    bf_last_depth_try: int = 0
    bf_queue_len: int = 0
    bf_queue_len_mean: int = 0
    bf_queue_len_sum: int = 0
    bf_table_size: int = 0
    bf_table_size_mean: int = 0
    bf_table_size_sum: int = 0
    bf_exit: BackfillExit = BackfillExit()
    rpcs_by_message_type: list[RpcStatistics] = []
    rpcs_by_user: list[UserRpcStatistics] = []
    _req_time: Triplet | None = None
    _req_time_start: Triplet | None = None
    _job_states_ts: Triplet | None = None
    _bf_when_last_cycle: Triplet | None = None
    req_time = Number[int]("_req_time")
    req_time_start = Number[int]("_req_time_start")
    job_states_ts = Number[int]("_job_states_ts")
    bf_when_last_cycle = Number[int]("_bf_when_last_cycle")

    def is_of_another_start(self, before: "Diagnostics") -> bool:
        """Whether slurmctld was started since it told `before`. Its statistics begin anew at midnight (UTC) too, but not its counts of requests: those fall at a start only (and when an administrator resets them)."""
        if before.req_time_start == self.req_time_start:
            return False
        counts = {rpc.message_type: rpc.count for rpc in self.rpcs_by_message_type}
        return not before.rpcs_by_message_type or any(counts.get(rpc.message_type, 0) < rpc.count for rpc in before.rpcs_by_message_type)


class Ping(msgspec.Struct, frozen=True, gc=False):
    """One controller's answer; `latency` in microseconds. `status` says why not, from v0.0.45 on."""

    SCHEMA: ClassVar = "controller_ping"
    SINCE: ClassVar = {"status": 45}
    hostname: str
    responding: bool = False
    primary: bool = False
    latency: int = 0
    status: str = ""


class Configuration(msgspec.Struct, frozen=True):
    """slurm.conf as slurmctld has it: keys as in the file, values as JSON has them.

    `boot_time`: when slurmctld started, in seconds since 1970; 0 where it does not say.
    """

    values: dict[str, Any]
    boot_time: int = 0

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


class Shares(msgspec.Struct, frozen=True):
    shares: list[Share] | None = None


class PartitionList(Envelope, kw_only=True):
    partitions: list[Partition] | None = None


class ReservationList(Envelope, kw_only=True):
    reservations: list[Reservation] | None = None


class LicenseList(Envelope, kw_only=True):
    licenses: list[License] | None = None


class ShareList(Envelope, kw_only=True):
    shares: Shares = Shares()


class DiagnosticsAnswer(Envelope, kw_only=True):
    statistics: Diagnostics = Diagnostics()


class PingList(Envelope, kw_only=True):
    pings: list[Ping] | None = None


class ConfigurationState(
    msgspec.Struct,
    frozen=True,
    rename={"_next_job_id": "NEXT_JOB_ID", "boot_time": "BOOT_TIME"},
):
    """What slurmctld tells of itself beside slurm.conf, at the moment of the request."""

    _next_job_id: Triplet | None = None
    boot_time: int = 0
    next_job_id = Number[int]("_next_job_id")


class ConfigurationAnswer(Envelope, kw_only=True):
    slurm_conf: dict[str, Any]
    slurm_conf_meta: ConfigurationState = ConfigurationState()
