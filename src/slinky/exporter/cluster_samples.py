"""Licenses, reservations and fair shares as samples.

Pure. What must stay true: fair shares cannot be summed up, so those beyond the limit are left out, and those with the most usage told.
"""

import math
from collections.abc import Iterator, Sequence

from slinky.exporter.families import Family, gauge
from slinky.exporter.labels import Sums, add, clean, top, within
from slinky.exporter.settings import Limits
from slinky.slurm import License, Reservation, Share

__all__ = ["DESCRIBED", "license_families", "reservation_families", "share_families"]

LICENSES = gauge("slurm_licenses", "Licenses: used, free, reserved", "license", "state")
LICENSES_CONFIGURED = gauge("slurm_licenses_configured", "Licenses that there are", "license")
RESERVATIONS = gauge("slurm_reservations", "Reservations: active, coming, over", "state")
RESERVATION_ACTIVE = gauge("slurm_reservation_active", "1 while the reservation is in force", "reservation")
RESERVATION_NODES = gauge("slurm_reservation_nodes", "Nodes of a reservation", "reservation")
RESERVATION_CORES = gauge("slurm_reservation_cores", "Cores of a reservation", "reservation")
RESERVATION_START = gauge("slurm_reservation_start_timestamp_seconds", "When it begins", "reservation")
RESERVATION_END = gauge("slurm_reservation_end_timestamp_seconds", "When it ends", "reservation")
FACTOR = gauge(
    "slurm_fairshare_factor", "Fair-share factor, between 0 and 1: what counts for the priority of the user's jobs", "account", "user"
)
LEVEL = gauge(
    "slurm_fairshare_level",
    "Shares by usage, as Slurm's fair tree ranks siblings: above 1 for who has used less than is due",
    "account",
    "user",
)
SHARES = gauge("slurm_fairshare_shares_ratio", "Shares, as a part of all", "account", "user")
USAGE = gauge("slurm_fairshare_usage_ratio", "Effective usage, as a part of all", "account", "user")

UNUSED = 1.8e19  # a level of the largest number there is: nothing was used yet

DESCRIBED = (
    *(LICENSES, LICENSES_CONFIGURED),
    *(RESERVATIONS, RESERVATION_ACTIVE, RESERVATION_NODES, RESERVATION_CORES, RESERVATION_START, RESERVATION_END),
    *(FACTOR, LEVEL, SHARES, USAGE),
)


def license_families(licenses: Sequence[License], limits: Limits) -> Iterator[Family]:
    states, totals = Sums(), Sums()
    for one in licenses:
        name = clean(one.name)
        add(totals, (name,), one.total)
        for state, number in (("used", one.used), ("free", one.free), ("reserved", one.reserved)):
            add(states, (name, state), number)
    kept = top({labels[0]: value for labels, value in totals.items()}, limits.others)
    yield Family(LICENSES, within(states, 0, kept))
    yield Family(LICENSES_CONFIGURED, within(totals, 0, kept))


def reservation_families(reservations: Sequence[Reservation], now: float, limits: Limits) -> Iterator[Family]:
    states: Sums = {("active",): 0.0, ("coming",): 0.0, ("over",): 0.0}
    active, nodes, cores, starts, ends = Sums(), Sums(), Sums(), Sums(), Sums()
    # The soonest first: those count.
    for place, one in enumerate(sorted(reservations, key=lambda one: (_moment(one.start_time), one.name))):
        start, end = _moment(one.start_time), _moment(one.end_time)
        state = "coming" if now < start else "over" if end and now >= end else "active"
        add(states, (state,), 1)
        if place >= limits.others:
            continue
        labels = (clean(one.name),)
        active[labels] = float(state == "active")
        nodes[labels], cores[labels], starts[labels], ends[labels] = float(one.node_count), float(one.core_count), start, end
    yield Family(RESERVATIONS, states)
    for metric, sums in (
        (RESERVATION_ACTIVE, active),
        (RESERVATION_NODES, nodes),
        (RESERVATION_CORES, cores),
        (RESERVATION_START, starts),
        (RESERVATION_END, ends),
    ):
        yield Family(metric, sums)


def share_families(shares: Sequence[Share], limits: Limits) -> Iterator[Family]:
    users = sorted((one for one in shares if one.is_user), key=lambda one: (-one.usage, one.name, one.parent))[: limits.users]
    accounts = sorted((one for one in shares if not one.is_user), key=lambda one: (-one.usage, one.name))[: limits.accounts]
    factor, level, part, usage = Sums(), Sums(), Sums(), Sums()
    for one in (*accounts, *users):
        labels = (clean(one.parent), clean(one.name)) if one.is_user else (clean(one.name), "")
        if one.is_user and one.partition:
            continue  # a user's share in one partition: the same labels would be told twice
        _tell(factor, labels, one.fairshare.factor if one.is_user else None)
        _tell(level, labels, one.fairshare.level)
        _tell(part, labels, one.shares_normalized)
        _tell(usage, labels, one.effective_usage)
    for metric, sums in ((FACTOR, factor), (LEVEL, level), (SHARES, part), (USAGE, usage)):
        yield Family(metric, sums)


def _tell(sums: Sums, labels: tuple[str, ...], value: object) -> None:
    """Nothing where Slurm says that it is infinite, or says nothing."""
    if isinstance(value, int | float) and math.isfinite(value) and value < UNUSED:
        sums[labels] = float(value)


def _moment(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
