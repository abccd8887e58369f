"""Whether a Lease is held and renewed in time, and whether its holder does nothing because of a claim conflict. Pure."""

import datetime as dt
from collections.abc import Iterator

from slinky.bridge.claim import conflict_in
from slinky.explain.catalogue import entry
from slinky.explain.findings import Finding
from slinky.kube import Lease

__all__ = ["claim_finding", "is_held", "leader_findings"]

MARGIN = dt.timedelta(seconds=5)  # clocks differ, and who renews late still leads


def is_held(lease: Lease | None, now: dt.datetime) -> bool:
    if lease is None or not lease.spec.holder_identity or lease.spec.renew_time is None:
        return False
    return now - lease.spec.renew_time <= dt.timedelta(seconds=lease.spec.lease_duration_seconds) + MARGIN


def claim_finding(lease: Lease | None, claim: Lease | None, now: dt.datetime) -> Finding | None:
    """Of a leader that does nothing. `claim` is the Lease of the bridge's claim, which the leader writes on."""
    conflict = conflict_in(claim.metadata.annotations) if claim else None
    if claim is None or conflict is None or not is_held(lease, now):
        return None
    about = f"Lease {claim.metadata.namespace}/{claim.metadata.name}"
    seen = f"Slurm job {conflict.job_id} carries claim {conflict.claim}, which this Kubernetes did not write"
    return entry("bridge-claim-conflict").found(
        about,
        seen,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        word=conflict.word,
    )


def leader_findings(whose: str, lease: Lease | None, namespace: str, name: str, now: dt.datetime) -> Iterator[Finding]:
    """`whose` is how the findings' codes begin."""
    about = f"Lease {namespace}/{name}"
    if lease is None:
        yield entry(f"{whose}leader-missing").found(about, "it does not exist", namespace=namespace, name=name)
    elif not is_held(lease, now):
        holder, renewed = lease.spec.holder_identity, lease.spec.renew_time
        words = f"{holder} renewed it last at {renewed:%Y-%m-%d %H:%M:%S} UTC" if holder and renewed else "it has no holder"
        yield entry(f"{whose}leader-nobody").found(about, words, namespace=namespace)
