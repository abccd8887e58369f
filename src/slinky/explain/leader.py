"""Whether a Lease is held: by somebody, and renewed in time. Pure."""

import datetime as dt

from slinky.kube import Lease

__all__ = ["is_held"]

MARGIN = dt.timedelta(seconds=5)  # clocks differ, and who renews late still leads


def is_held(lease: Lease | None, now: dt.datetime) -> bool:
    if lease is None or not lease.spec.holder_identity or lease.spec.renew_time is None:
        return False
    return now - lease.spec.renew_time <= dt.timedelta(seconds=lease.spec.lease_duration_seconds) + MARGIN
