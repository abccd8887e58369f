"""Whether a Lease is held: by somebody, and renewed in time. Pure."""

import datetime as dt
from collections.abc import Iterator

from slinky.explain.catalogue import entry
from slinky.explain.findings import Finding
from slinky.kube import Lease

__all__ = ["is_held", "leader_findings"]

MARGIN = dt.timedelta(seconds=5)  # clocks differ, and who renews late still leads


def is_held(lease: Lease | None, now: dt.datetime) -> bool:
    if lease is None or not lease.spec.holder_identity or lease.spec.renew_time is None:
        return False
    return now - lease.spec.renew_time <= dt.timedelta(seconds=lease.spec.lease_duration_seconds) + MARGIN


def leader_findings(whose: str, lease: Lease | None, namespace: str, name: str, now: dt.datetime) -> Iterator[Finding]:
    """`whose` is how the findings' codes begin."""
    about = f"Lease {namespace}/{name}"
    if lease is None:
        yield entry(f"{whose}leader-missing").found(about, "it does not exist", namespace=namespace, name=name)
    elif not is_held(lease, now):
        holder, renewed = lease.spec.holder_identity, lease.spec.renew_time
        words = f"{holder} renewed it last at {renewed:%Y-%m-%d %H:%M:%S} UTC" if holder and renewed else "it has no holder"
        yield entry(f"{whose}leader-nobody").found(about, words, namespace=namespace)
