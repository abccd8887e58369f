"""What is written for volumes: the thin edge towards Kubernetes. Each act may be repeated; none is done by a process that does not lead.

What must stay true: nothing is written over what somebody else wrote since we looked (the version goes along); what is undone is ours, and not yet in use.
"""

import logging
from collections.abc import Callable

from slinky.bridge.volumes.stock import SELECTED_NODE
from slinky.bridge.workload import NotLeadingError
from slinky.kube import CLAIMS, VOLUMES, Client, ConflictError, Key, NotFoundError, PersistentVolume, PersistentVolumeClaim

__all__ = ["StorageActs"]

log = logging.getLogger(__name__)

BY_CONTROLLER = (
    "pv.kubernetes.io/bound-by-controller"  # tells the controller that it may unbind the volume again: nobody asked for this one by name
)
MOST_TRIES = 4


class StorageActs:
    """Raises ConflictError where the object has changed since it was read, NotFoundError where it is gone."""

    def __init__(self, kube: Client, may_act: Callable[[], bool] = lambda: True) -> None:
        self._kube = kube
        self._may_act = may_act

    async def select(self, claim: PersistentVolumeClaim, node: str) -> str:
        """The claim's volume shall be made for that node. Returns the claim's new version."""
        self._check()
        meta = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version, "annotations": {SELECTED_NODE: node}}
        written = await self._kube.patch(CLAIMS, claim.metadata.name, {"metadata": meta}, claim.metadata.namespace)
        return written.metadata.resource_version

    async def give(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
        """The volume is for that claim from now on; the controller does the rest. Returns the volume's new version."""
        self._check()
        meta: dict[str, object] = {"uid": volume.metadata.uid, "resourceVersion": volume.metadata.resource_version}
        if volume.spec.claim_ref is None:
            meta["annotations"] = {BY_CONTROLLER: "yes"}
        ref = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        }
        written = await self._kube.patch(VOLUMES, volume.metadata.name, {"metadata": meta, "spec": {"claimRef": ref}})
        return written.metadata.resource_version

    async def unselect(self, claim: Key, uid: str, node: str) -> None:
        """As long as the claim has no volume, and names the node that we wrote."""
        for _ in range(MOST_TRIES):
            self._check()
            try:
                now = await self._kube.get(CLAIMS, claim.name, claim.namespace)
                if now.metadata.uid != uid or now.spec.volume_name or now.metadata.annotations.get(SELECTED_NODE) != node:
                    return
                meta = {"uid": uid, "resourceVersion": now.metadata.resource_version, "annotations": {SELECTED_NODE: None}}
                await self._kube.patch(CLAIMS, claim.name, {"metadata": meta}, claim.namespace)
            except NotFoundError:
                return
            except ConflictError:
                continue
            return
        log.warning("claim %s changes all the time: it keeps node %s as the one its volume is made for", claim, node)

    async def take_back(self, volume: str, claim: Key, uid: str, *, by_name: bool) -> None:
        """As long as it was not bound. `by_name`: its owner had reserved it for a claim of that name, and that stays."""
        for _ in range(MOST_TRIES):
            self._check()
            try:
                now = await self._kube.get(VOLUMES, volume)
                ref = now.spec.claim_ref
                if ref is None or ref.uid != uid or now.status.phase != "Available" or await self._has_volume(claim, uid):
                    return
                meta: dict[str, object] = {"uid": now.metadata.uid, "resourceVersion": now.metadata.resource_version}
                if not by_name:
                    meta["annotations"] = {BY_CONTROLLER: None}
                rest = {"uid": None, "resourceVersion": None} if by_name else None
                await self._kube.patch(VOLUMES, volume, {"metadata": meta, "spec": {"claimRef": rest}})
            except NotFoundError:
                return
            except ConflictError:
                continue
            return
        log.warning("volume %s changes all the time: it stays with claim %s", volume, claim)

    async def _has_volume(self, claim: Key, uid: str) -> bool:
        try:
            now = await self._kube.get(CLAIMS, claim.name, claim.namespace)
        except NotFoundError:
            return False
        return now.metadata.uid == uid and bool(now.spec.volume_name)

    def _check(self) -> None:
        if not self._may_act():
            raise NotLeadingError("this process does not lead (any more)")
