"""Claims that each worker has of its own, and what becomes of them.

In: a snapshot, and the pods that are about to be created or deleted. Out: claims to create, and whose they are to be.
What must stay true: a claim is never deleted by us: with whenDeleted=Delete the NodeSet owns it, with whenScaled=Delete a pod that is scaled away does, and goes with its owner; by default nobody owns it and it stays.
"""

from collections.abc import Iterator

from slinky.operator.kinds.nodeset import Retention
from slinky.operator.nodesets.acts import Act, CreateClaim, CreatePod, OwnClaims
from slinky.operator.nodesets.choice import Cause
from slinky.operator.nodesets.snapshot import Snapshot

__all__ = ["claim_names", "claims", "going_with"]


def claim_names(snapshot: Snapshot, pod: str) -> list[str]:
    return [f"{template['metadata']['name']}-{pod}" for template in snapshot.nodeset.spec.volume_claim_templates or []]


def claims(snapshot: Snapshot, missing: list[CreatePod]) -> Iterator[Act]:
    if not snapshot.nodeset.spec.volume_claim_templates:
        return
    for pod in missing:
        for number, name in enumerate(claim_names(snapshot, pod.name)):
            if name not in snapshot.claims:
                yield CreateClaim(name, number, ordinal=pod.ordinal, node=pod.node)
    uid = snapshot.nodeset.metadata.uid
    wanted = snapshot.nodeset.spec.persistent_volume_claim_retention_policy.when_deleted is Retention.DELETE
    ours = {name for pod in snapshot.pods for name in claim_names(snapshot, pod)} & snapshot.claims.keys()
    owned = {name for name in ours if any(owner.uid == uid for owner in snapshot.claims[name].metadata.owner_references)}
    wrong = ours - owned if wanted else owned
    if wrong:
        yield OwnClaims(tuple(sorted(wrong)), owned=wanted)


def going_with(snapshot: Snapshot, pod: str, cause: Cause) -> tuple[str, ...]:
    """Claims that a pod takes with it."""
    policy = snapshot.nodeset.spec.persistent_volume_claim_retention_policy
    if cause is not Cause.SCALE_IN or policy.when_scaled is not Retention.DELETE:
        return ()
    return tuple(name for name in claim_names(snapshot, pod) if name in snapshot.claims)
