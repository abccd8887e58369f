"""What the original slurm-exporter tells, under its names: for dashboards and rules that were written for it.

Pure. Names, labels and units are the original's: all are gauges, also those called `_total`; `_bytes` are MB, and `_seconds` microseconds. What must stay true: no name of ours is among them; users, accounts, partitions and nodes are bounded here too.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from slinky.exporter.families import Family, gauge
from slinky.exporter.labels import OTHER, Sums, add, clean, top
from slinky.exporter.settings import Limits
from slinky.exporter.snapshot import JobFacts, Snapshot
from slinky.slurm import Diagnostics, JobState, Node, Partition
from slinky.slurm.tres import MIB

__all__ = ["original_families"]

Rows = dict[tuple[str, ...], Sums]  # by the labels' values: what is counted, by the end of its name

JOB_STATES = {state: state.lower().replace("_", "") for state in map(str, JobState) if state != "UNKNOWN"}
JOB_FLAGS = {flag: flag.lower().replace("_", "") for flag in ("COMPLETING", "CONFIGURING", "POWER_UP_NODE", "STAGE_OUT")}
JOB_COUNTS = ("", *JOB_STATES.values(), *JOB_FLAGS.values(), "hold")
NODE_STATES = {state: state.lower() for state in ("ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN")}
NODE_FLAGS = {
    flag: flag.lower().replace("_", "")
    for flag in ("COMPLETING", "DRAIN", "FAIL", "MAINTENANCE", "NOT_RESPONDING", "PLANNED", "REBOOT_REQUESTED", "RESERVED")
}
NODE_COUNTS = ("", *NODE_STATES.values(), *NODE_FLAGS.values())
NODE_RESOURCES = (
    *("cpus_total", "cpus_effective_total", "cpus_alloc_total", "cpus_idle_total"),
    *("memory_bytes", "memory_effective_bytes", "memory_alloc_bytes", "memory_free_bytes"),
)

# The ends of names under slurm_scheduler_ and slurm_bfscheduler_, and the statistic that each tells.
STATISTICS = {
    "scheduler_cycle_depth_total": "schedule_cycle_depth",
    "scheduler_cycle_last_seconds": "schedule_cycle_last",
    "scheduler_cycle_max_seconds": "schedule_cycle_max",
    "scheduler_cycle_mean_seconds": "schedule_cycle_mean",
    "scheduler_cycle_depth_mean_total": "schedule_cycle_mean_depth",
    "scheduler_cycle_perminute_total": "schedule_cycle_per_minute",
    "scheduler_cycle_sum_seconds_total": "schedule_cycle_sum",
    "scheduler_cycle_total": "schedule_cycle_total",
    "scheduler_queue_total": "schedule_queue_length",
    "scheduler_defaultqueuedepth_total": "schedule_exit.default_queue_depth",
    "scheduler_endjobqueue_total": "schedule_exit.end_job_queue",
    "scheduler_licenses_total": "schedule_exit.licenses",
    "scheduler_maxjobstart_total": "schedule_exit.max_job_start",
    "scheduler_maxrpc_total": "schedule_exit.max_rpc_cnt",
    "scheduler_maxschedtime_total": "schedule_exit.max_sched_time",
    "bfscheduler_active_bool": "bf_active",
    "bfscheduler_backfilledhetjobs_total": "bf_backfilled_het_jobs",
    "bfscheduler_backfilledjobs_total": "bf_backfilled_jobs",
    "bfscheduler_cycle_total": "bf_cycle_counter",
    "bfscheduler_cycle_seconds": "bf_cycle_last",
    "bfscheduler_cycle_max_seconds": "bf_cycle_max",
    "bfscheduler_cycle_mean_seconds": "bf_cycle_mean",
    "bfscheduler_cycle_sum_seconds": "bf_cycle_sum",
    "bfscheduler_depth_mean_total": "bf_depth_mean",
    "bfscheduler_depth_try_total": "bf_depth_mean_try",
    "bfscheduler_depth_sum_total": "bf_depth_sum",
    "bfscheduler_depth_trysum_total": "bf_depth_try_sum",
    "bfscheduler_lastbackfilledjobs_total": "bf_last_backfilled_jobs",
    "bfscheduler_lastdepth_total": "bf_last_depth",
    "bfscheduler_lastdepthtry_total": "bf_last_depth_try",
    "bfscheduler_queue_total": "bf_queue_len",
    "bfscheduler_queue_mean_total": "bf_queue_len_mean",
    "bfscheduler_queue_sum_total": "bf_queue_len_sum",
    "bfscheduler_table_total": "bf_table_size",
    "bfscheduler_tablemean_total": "bf_table_size_mean",
    "bfscheduler_tablesum_total": "bf_table_size_sum",
    "bfscheduler_lastcycle_timestamp": "bf_when_last_cycle",
    "bfscheduler_maxjobstart_total": "bf_exit.bf_max_job_start",
    "bfscheduler_maxjobtest_total": "bf_exit.bf_max_job_test",
    "bfscheduler_maxtime_total": "bf_exit.bf_max_time",
    "bfscheduler_nodespace_total": "bf_exit.bf_node_space_size",
    "bfscheduler_endjobqueue_total": "bf_exit.end_job_queue",
    "bfscheduler_statechanged_total": "bf_exit.state_changed",
    "scheduler_jobs_stats_timestamp": "job_states_ts",
    "scheduler_jobs_canceled_total": "jobs_canceled",
    "scheduler_jobs_completed_total": "jobs_completed",
    "scheduler_jobs_failed_total": "jobs_failed",
    "scheduler_jobs_pending_total": "jobs_pending",
    "scheduler_jobs_running_total": "jobs_running",
    "scheduler_jobs_started_total": "jobs_started",
    "scheduler_jobs_submitted_total": "jobs_submitted",
    "scheduler_agent_total": "agent_count",
    "scheduler_agent_queue_total": "agent_queue_size",
    "scheduler_agent_thread_total": "agent_thread_count",
    "scheduler_thread_total": "server_thread_count",
    "scheduler_dbdagentqueue_total": "dbd_agent_queue_size",
}


def original_families(snapshot: Snapshot, limits: Limits) -> Iterator[Family]:
    if snapshot.nodes is not None:
        yield from _nodes(snapshot.nodes, limits)
    if snapshot.jobs is not None:
        yield from _jobs(snapshot.jobs, limits)
    if snapshot.partitions is not None and snapshot.nodes is not None and snapshot.jobs is not None:
        yield from _partitions(snapshot.partitions, snapshot.nodes, snapshot.jobs, limits)
    if snapshot.diagnostics is not None:
        yield from _statistics(snapshot.diagnostics)


def _nodes(nodes: Sequence[Node], limits: Limits) -> Iterator[Family]:
    whole: Rows = {}
    per_node: Rows = {}
    for place, node in enumerate(sorted(nodes, key=lambda node: node.name)):
        _count_node(whole.setdefault((), {}), node)
        if limits.nodes:
            _count_resources(per_node.setdefault((clean(node.name) if place < limits.nodes else OTHER,), {}), node)
    whole.setdefault((), {})
    yield from _told("slurm_nodes", (), NODE_COUNTS, whole)
    yield from _told("slurm_node", ("node",), NODE_RESOURCES, per_node)


def _jobs(jobs: Sequence[JobFacts], limits: Limits) -> Iterator[Family]:
    accounts = top(_weights(jobs, "account"), limits.accounts)
    users = top(_weights(jobs, "user"), limits.users)
    whole, by_account, by_user = Rows({(): {}}), Rows(), Rows()
    for job in jobs:
        user = (str(job.user_id), clean(job.user)) if job.user in users else ("", OTHER)
        _count_job(whole[()], job)
        _count_job(by_account.setdefault((clean(job.account) if job.account in accounts else OTHER,), {}), job)
        _count_job(by_user.setdefault(user, {}), job)
    for prefix, labels, rows in (
        ("slurm_jobs", (), whole),
        ("slurm_account_jobs", ("account",), by_account),
        ("slurm_user_jobs", ("userid", "username"), by_user),
    ):
        yield from _told(prefix, labels, (*JOB_COUNTS, "cpus_alloc_total", "memory_alloc_bytes"), rows)


def _partitions(partitions: Sequence[Partition], nodes: Sequence[Node], jobs: Sequence[JobFacts], limits: Limits) -> Iterator[Family]:
    """A job that waits for one of several counts in each, as does a node of several."""
    sizes = {partition.name: float(partition.cpus.total) for partition in partitions}
    kept = top(sizes, limits.partitions)
    of_nodes: Rows = {(clean(name),): {} for name in kept}
    of_jobs: Rows = {(clean(name),): {} for name in kept}
    for node in nodes:
        for name in node.partitions:
            row = of_nodes.setdefault((clean(name) if name in kept else OTHER,), {})
            _count_node(row, node)
            _count_resources(row, node)
    for job in jobs:
        for name in filter(None, job.partition.split(",")):
            row = of_jobs.setdefault((clean(name) if name in kept else OTHER,), {})
            _count_job(row, job)
            if job.state is JobState.PENDING:
                most = ("pending_maxnodecount_total",)
                row[most] = max(row.get(most, 0.0), float(job.node_count))
    ends = (*JOB_COUNTS, "cpus_alloc_total", "memory_alloc_bytes", "pending_maxnodecount_total")
    yield from _told("slurm_partition_jobs", ("partition",), ends, of_jobs)
    yield from _told("slurm_partition_nodes", ("partition",), (*NODE_COUNTS, *NODE_RESOURCES), of_nodes)


def _count_job(row: Sums, job: JobFacts) -> None:
    add(row, ("",), 1)
    if state := JOB_STATES.get(job.state):
        add(row, (state,), 1)
    for flag in job.flags & JOB_FLAGS.keys():
        add(row, (JOB_FLAGS[flag],), 1)
    if job.hold:
        add(row, ("hold",), 1)
    if job.state in (JobState.RUNNING, JobState.SUSPENDED):
        add(row, ("cpus_alloc_total",), job.resources.cpus)
        add(row, ("memory_alloc_bytes",), job.resources.memory / MIB)


def _count_node(row: Sums, node: Node) -> None:
    add(row, ("",), 1)
    add(row, (NODE_STATES[node.base_state],), 1)
    for flag in {str(flag) for flag in node.state_flags} & NODE_FLAGS.keys():
        add(row, (NODE_FLAGS[flag],), 1)


def _count_resources(row: Sums, node: Node) -> None:
    free = node.free_mem
    values = (
        *(node.cpus, node.effective_cpus, node.alloc_cpus, node.alloc_idle_cpus),
        *(node.real_memory, node.real_memory - node.specialized_memory, node.alloc_memory, free if isinstance(free, int) else 0),
    )
    for end, value in zip(NODE_RESOURCES, values, strict=True):
        add(row, (end,), value)


def _statistics(said: Diagnostics) -> Iterator[Family]:
    for end, path in STATISTICS.items():
        value: Any = said
        for step in path.split("."):
            value = getattr(value, step)
        yield Family(
            gauge(f"slurm_{end}", f"The original exporter's: {path} of sdiag"), {(): float(value) if isinstance(value, int) else 0.0}
        )


def _told(prefix: str, labels: tuple[str, ...], ends: Sequence[str], rows: Rows) -> Iterator[Family]:
    """One family for each end of a name; a row without it has 0."""
    for end in ends:
        name = f"{prefix}_{end}" if "_" in end else "_".join(filter(None, (prefix, end, "total")))
        yield Family(
            gauge(name, f"The original exporter's: {(end or 'all').replace('_', ' ')}", *labels),
            {values: row.get((end,), 0.0) for values, row in rows.items()},
        )


def _weights(jobs: Sequence[JobFacts], attribute: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for job in jobs:
        name = getattr(job, attribute)
        found[name] = found.get(name, 0.0) + 1 + job.resources.cpus
    return found
