"""slurmctld's own statistics as samples: its schedulers, its messages, its queues.

Pure. What must stay true: what slurmctld counts since its start or its last reset (at midnight UTC, or `sdiag --reset`) is a counter, which may begin anew; times are seconds.
"""

from collections.abc import Iterator, Mapping

import msgspec

from slinky.exporter.families import Described, Family, counter, gauge
from slinky.exporter.labels import Sums, add, clean, top, within
from slinky.exporter.settings import Limits
from slinky.slurm import Diagnostics

__all__ = ["DESCRIBED", "scheduler_families"]

MICRO = 1e-6

JOB_EVENTS = counter("slurm_controller_job_events_total", "Jobs submitted, started, completed, canceled, failed", "event")
THREADS = gauge("slurm_controller_threads", "Threads of slurmctld that serve messages")
AGENTS = gauge("slurm_controller_agents", "Agents of slurmctld that send messages to nodes")
AGENT_THREADS = gauge("slurm_controller_agent_threads", "Threads of these agents")
AGENT_QUEUE = gauge("slurm_controller_agent_queue_messages", "Messages to nodes that wait to be sent again")
DBD_QUEUE = gauge("slurm_controller_dbd_queue_messages", "Messages to slurmdbd that wait")
RPCS = counter("slurm_controller_rpcs_total", "Messages handled, by kind", "message_type")
RPC_SECONDS = counter("slurm_controller_rpc_seconds_total", "Time that they took, by kind", "message_type")
RPCS_DROPPED = counter("slurm_controller_rpcs_dropped_total", "Messages dropped by slurmctld's rate limit, by kind", "message_type")
USER_RPCS = counter("slurm_controller_user_rpcs_total", "Messages handled, by user", "user")
USER_RPC_SECONDS = counter("slurm_controller_user_rpc_seconds_total", "Time that they took, by user", "user")
CYCLES = counter("slurm_scheduler_cycles_total", "Cycles of the main and of the backfill scheduler", "scheduler")
CYCLE_SECONDS = counter("slurm_scheduler_cycle_seconds_total", "Time that they took", "scheduler")
LAST_CYCLE = gauge("slurm_scheduler_last_cycle_seconds", "Time that the last cycle took", "scheduler")
LONGEST_CYCLE = gauge("slurm_scheduler_longest_cycle_seconds", "Time that the longest cycle took", "scheduler")
TESTED = counter("slurm_scheduler_tested_jobs_total", "Jobs that the schedulers looked at", "scheduler")
QUEUE = gauge("slurm_scheduler_queue_jobs", "Jobs that a scheduler has before it", "scheduler")
EXITS = counter("slurm_scheduler_exits_total", "Why cycles ended", "scheduler", "reason")
BACKFILLED = counter("slurm_scheduler_backfilled_jobs_total", "Jobs that the backfill scheduler started")
LAST_BACKFILL = gauge("slurm_scheduler_last_backfill_timestamp_seconds", "When the backfill scheduler ran last")

DESCRIBED = (
    *(JOB_EVENTS, THREADS, AGENTS, AGENT_THREADS, AGENT_QUEUE, DBD_QUEUE),
    *(RPCS, RPC_SECONDS, RPCS_DROPPED, USER_RPCS, USER_RPC_SECONDS),
    *(CYCLES, CYCLE_SECONDS, LAST_CYCLE, LONGEST_CYCLE, TESTED, QUEUE, EXITS, BACKFILLED, LAST_BACKFILL),
)


def scheduler_families(said: Diagnostics, limits: Limits) -> Iterator[Family]:
    events = ("submitted", "started", "completed", "canceled", "failed")
    yield Family(JOB_EVENTS, {(event,): float(getattr(said, f"jobs_{event}")) for event in events})
    for metric, value in (
        (THREADS, said.server_thread_count),
        (AGENTS, said.agent_count),
        (AGENT_THREADS, said.agent_thread_count),
        (AGENT_QUEUE, said.agent_queue_size),
        (DBD_QUEUE, said.dbd_agent_queue_size),
    ):
        yield Family(metric, {(): float(value)})
    yield from _messages(said, limits)
    yield from _schedulers(said)


def _messages(said: Diagnostics, limits: Limits) -> Iterator[Family]:
    numbers, seconds, dropped = Sums(), Sums(), Sums()
    for rpc in said.rpcs_by_message_type:
        labels = (clean(rpc.message_type),)
        add(numbers, labels, rpc.count)
        add(seconds, labels, rpc.total_time * MICRO)
        add(dropped, labels, rpc.dropped)
    kept = top({labels[0]: value for labels, value in numbers.items()}, limits.others)
    for metric, sums in ((RPCS, numbers), (RPC_SECONDS, seconds), (RPCS_DROPPED, dropped)):
        yield Family(metric, within(sums, 0, kept))
    numbers, seconds = Sums(), Sums()
    for user in said.rpcs_by_user:
        labels = (clean(user.user),)
        add(numbers, labels, user.count)
        add(seconds, labels, user.total_time * MICRO)
    kept = top({labels[0]: value for labels, value in numbers.items()}, limits.users)
    yield Family(USER_RPCS, within(numbers, 0, kept))
    yield Family(USER_RPC_SECONDS, within(seconds, 0, kept))


def _schedulers(said: Diagnostics) -> Iterator[Family]:
    yield _both(CYCLES, said.schedule_cycle_total, said.bf_cycle_counter)
    yield _both(CYCLE_SECONDS, said.schedule_cycle_sum * MICRO, said.bf_cycle_sum * MICRO)
    yield _both(LAST_CYCLE, said.schedule_cycle_last * MICRO, said.bf_cycle_last * MICRO)
    yield _both(LONGEST_CYCLE, said.schedule_cycle_max * MICRO, said.bf_cycle_max * MICRO)
    yield _both(TESTED, said.schedule_cycle_depth, said.bf_depth_sum)
    yield _both(QUEUE, said.schedule_queue_length, said.bf_queue_len)
    exits: dict[str, Mapping[str, int]] = {
        "main": msgspec.structs.asdict(said.schedule_exit),
        "backfill": msgspec.structs.asdict(said.bf_exit),
    }
    yield Family(EXITS, {(who, why.removeprefix("bf_")): float(n) for who, reasons in exits.items() for why, n in reasons.items()})
    yield Family(BACKFILLED, {(): float(said.bf_backfilled_jobs)})
    last = said.bf_when_last_cycle
    yield Family(LAST_BACKFILL, {(): float(last)} if isinstance(last, int) else {})


def _both(metric: Described, main: float, backfill: float) -> Family:
    return Family(metric, {("main",): float(main), ("backfill",): float(backfill)})
