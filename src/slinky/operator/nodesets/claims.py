"""Claims that each worker has of its own, and what becomes of them.

In: a snapshot, and the pods that are about to be created or deleted. Out: claims to create, and whose they are to be.
What must stay true: a claim is never deleted by us: with whenDeleted=Delete the NodeSet owns it, with whenScaled=Delete a pod that is scaled away does, alone, and goes with its owner; by default nobody owns it and it stays.
A pod that is not scaled away after all owns none, before it can go for any other cause; no pod is made on a claim that is on its way out.
"""

from collections.abc import Iterator

from slinky.kube import PersistentVolumeClaim
from slinky.operator.kinds.nodeset import Retention
from slinky.operator.nodesets.acts import Act, CreateClaim, CreatePod, DisownClaims, OwnClaims
from slinky.operator.nodesets.choice import Cause, Choice, live
from slinky.operator.nodesets.snapshot import Snapshot, Worker

__all__ = ["claim_names", "claims", "going_with", "has_stale_claims", "wrongly_owned"]


def claim_names(snapshot: Snapshot, pod: str) -> list[str]:
    return [f"{template['metadata']['name']}-{pod}" for template in snapshot.nodeset.spec.volume_claim_templates or []]


def has_stale_claims(snapshot: Snapshot, pod: str) -> bool:
    """Whether a pod of this name would get a claim that goes: with one of its name that was scaled away."""
    living = {found.metadata.uid for found in snapshot.pods.values()}

    def is_stale(claim: PersistentVolumeClaim) -> bool:
        meta = claim.metadata
        return meta.deletion_timestamp is not None or any(one.kind == "Pod" and one.uid not in living for one in meta.owner_references)

    return any(name in snapshot.claims and is_stale(snapshot.claims[name]) for name in claim_names(snapshot, pod))


def wrongly_owned(snapshot: Snapshot, worker: Worker, cause: Cause | None) -> tuple[str, ...]:
    """Claims that would go with a pod, and are not to."""
    right = going_with(snapshot, worker.name, cause)
    return tuple(
        name
        for name in claim_names(snapshot, worker.name)
        if name not in right
        and name in snapshot.claims
        and any(owner.uid == worker.uid for owner in snapshot.claims[name].metadata.owner_references)
    )


def claims(snapshot: Snapshot, choice: Choice, missing: list[CreatePod]) -> Iterator[Act]:
    if not snapshot.nodeset.spec.volume_claim_templates:
        return
    disowned: set[str] = set()
    for worker in live(snapshot):
        if wrong := wrongly_owned(snapshot, worker, choice.going.get(worker.uid)):
            disowned.update(wrong)
            yield DisownClaims(wrong, worker.uid)
    for pod in missing:
        for number, name in enumerate(claim_names(snapshot, pod.name)):
            if name not in snapshot.claims:
                yield CreateClaim(name, number, pod=pod.name)
    uid = snapshot.nodeset.metadata.uid
    wanted = snapshot.nodeset.spec.persistent_volume_claim_retention_policy.when_deleted is Retention.DELETE
    ours = {name for pod in snapshot.pods for name in claim_names(snapshot, pod)} & snapshot.claims.keys()
    owned = {name for name in ours if any(owner.uid == uid for owner in snapshot.claims[name].metadata.owner_references)}
    with_pods = {name for name in ours if any(owner.kind == "Pod" for owner in snapshot.claims[name].metadata.owner_references)} - disowned
    not_so = ours - owned - with_pods if wanted else owned
    if not_so:
        yield OwnClaims(tuple(sorted(not_so)), owned=wanted)


def going_with(snapshot: Snapshot, pod: str, cause: Cause | None) -> tuple[str, ...]:
    """Claims that a pod takes with it."""
    policy = snapshot.nodeset.spec.persistent_volume_claim_retention_policy
    if cause is not Cause.SCALE_IN or policy.when_scaled is not Retention.DELETE:
        return ()
    return tuple(name for name in claim_names(snapshot, pod) if name in snapshot.claims)
