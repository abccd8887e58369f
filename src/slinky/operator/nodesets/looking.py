"""What a pass over a NodeSet goes by: its pods and their nodes, its claims, how its cluster stands, what Slurm says, all as of one moment.

In: a NodeSet, its cluster as far as it can be made, and what is remembered of it. Out: a `Snapshot`. What must stay true: nothing is changed here; Slurm is asked for jobs only where a decision needs them, and where it does not answer, the snapshot says that nothing is known.
"""

import datetime as dt
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from slinky.kube import CLAIMS, Key, Node, PersistentVolumeClaim, Pod
from slinky.operator.departing import abandons
from slinky.operator.kinds import NodeSet
from slinky.operator.labels import CLUSTER
from slinky.operator.nodesets.daemons import names_of_others
from slinky.operator.nodesets.hearing import Hearing
from slinky.operator.nodesets.lending import external_head, held_elsewhere
from slinky.operator.nodesets.memory import Memory
from slinky.operator.nodesets.plan import JobsNeeded, jobs_needed, which_matters
from slinky.operator.nodesets.snapshot import ClusterStands, SlurmView, Snapshot, target_of
from slinky.operator.nodesets.status import selector_text
from slinky.operator.nodesets.waking import Waking
from slinky.operator.objects.view import ClusterView
from slinky.operator.objects.worker_pod import revision_of
from slinky.operator.relations import controller_of
from slinky.operator.silence import patience_left
from slinky.operator.site import Site
from slinky.slurm import SlurmError

__all__ = ["Look"]

log = logging.getLogger(__name__)


class Look:
    """`snapshot = await look.at(nodeset, view, memory)`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._hearings: dict[Key, Hearing] = {}

    async def at(self, nodeset: NodeSet, view: ClusterView | None, memory: Memory) -> Snapshot:
        """`view` is None where nothing can be made of it; `memory` is this NodeSet's."""
        watches, meta, now = self._site.watches, nodeset.metadata, time.monotonic()
        pods = {pod.metadata.name: pod for pod in watches.pods.by_index(Waking.BY_NODESET, meta.uid)}
        controller = Key(meta.namespace, nodeset.spec.controller_ref.name)
        hearing = self._hearings.setdefault(controller, Hearing())
        moment = dt.datetime.now(dt.UTC)
        left = patience_left(self._site.clusters.get(*controller), self._site.settings.slurm)
        snapshot = Snapshot(
            nodeset=nodeset,
            revision=revision_of(nodeset, view) if view is not None else "",
            now=moment,
            pods=pods,
            nodes=self._nodes(nodeset, pods.values()),
            slurm=hearing.view(self._site.clusters.get(*controller), moment),
            controller=self._stands(controller),
            is_abandoned=self._is_abandoned(nodeset, controller),
            created=memory.unseen_creations(pods, now),
            deleted=memory.unseen_deletions({pod.metadata.uid for pod in pods.values()}, now),
            refused=memory.lately_refused(now),
            taken=self._taken(nodeset, view),
            is_silent=left is not None and left <= 0,
            lent=self._lent(controller, pods.values()),
            propagated=tuple(self._site.settings.propagated_node_conditions),
        )
        if nodeset.spec.volume_claim_templates:
            snapshot = replace(snapshot, claims=await self._claims(nodeset, memory, frozenset(pods)))
        return replace(snapshot, slurm=await self._with_jobs(snapshot, controller, hearing))

    async def _claims(self, nodeset: NodeSet, memory: Memory, pods: frozenset[str]) -> Mapping[str, PersistentVolumeClaim]:
        """Listed anew where pods came or went since, or some are to come."""
        of = (pods, nodeset.metadata.generation)
        is_complete = not nodeset.spec.is_daemon_set and len(pods) >= nodeset.spec.replicas
        found = memory.claims(of, time.monotonic()) if is_complete else None
        if found is None:
            listed = await self._site.kube.list(CLAIMS, nodeset.metadata.namespace, labels=selector_text(nodeset))
            found = {claim.metadata.name: claim for claim in listed.items}
            memory.listed(of, found, time.monotonic())
        return found

    def _taken(self, nodeset: NodeSet, view: ClusterView | None) -> dict[str, str]:
        if view is None or not nodeset.spec.is_daemon_set or len(view.nodesets) < 2:
            return {}
        watches = self._site.watches
        return names_of_others(nodeset, view.nodesets, watches.nodes.list(), watches.pods.list(nodeset.metadata.namespace))

    def _lent(self, controller: Key, pods: Iterable[Pod]) -> dict[str, str]:
        watches = self._site.watches
        head = external_head(watches.kinds["Controller"].by_key(controller))
        if head is None:
            return {}
        lenders = (
            found.key
            for found in watches.kinds["Controller"].list()
            if found.metadata.namespace != controller.namespace and external_head(found) == head
        )
        others = (pod for key in lenders for pod in watches.pods.list(key.namespace) if pod.metadata.labels.get(CLUSTER) == key.name)
        return held_elsewhere(pods, others)

    def _nodes(self, nodeset: NodeSet, pods: Iterable[Pod]) -> dict[str, Node]:
        nodes = self._site.watches.nodes
        if nodeset.spec.is_daemon_set:
            return {node.metadata.name: node for node in nodes.list()}
        used = {pod.spec.node_name for pod in pods}
        pinned = (nodeset.status.ordinal_to_node or {}).values() if nodeset.spec.pin_to_node else ()
        targets = {target for pod in pods if not pod.spec.node_name and (target := target_of(pod))}
        return {name: node for name in {*used, *targets, *pinned} if name and (node := nodes.get(name)) is not None}

    def _stands(self, controller: Key) -> ClusterStands:
        kinds = self._site.watches.kinds
        found = kinds["Controller"].by_key(controller)
        if found is None:
            return ClusterStands.GONE
        if found.metadata.deletion_timestamp is not None:
            return ClusterStands.LEAVING
        has_restapi = any(controller_of(each) == controller.name for each in kinds["RestApi"].list(controller.namespace))
        return ClusterStands.HERE if has_restapi else ClusterStands.MUTE

    def _is_abandoned(self, nodeset: NodeSet, controller: Key) -> bool:
        kinds, meta = self._site.watches.kinds, nodeset.metadata
        found = kinds["NodeSet"].get(meta.name, meta.namespace)
        return found is not None and abandons(found, kinds["Controller"].by_key(controller))

    async def _with_jobs(self, snapshot: Snapshot, controller: Key, hearing: Hearing) -> SlurmView:
        needed = jobs_needed(snapshot)
        cluster = self._site.clusters.get(*controller)
        if needed is JobsNeeded.NOT or cluster is None:
            return snapshot.slurm
        leaves = snapshot.is_being_deleted and not snapshot.pods
        try:
            which = which_matters(snapshot)
            seen = await hearing.jobs(cluster, needed, heard_at=snapshot.slurm.heard_at, which=which, waiting=leaves)
        except SlurmError as error:
            log.info("NodeSet %s: jobs could not be asked for, so nothing is deleted: %s", snapshot.key, error)
            return snapshot.slurm
        partition = snapshot.nodeset.slurm_name
        waiting = tuple(job for job, partitions in seen.waiting or () if partition in partitions) if leaves else ()
        if leaves and not waiting and not seen.all_waiting:
            return snapshot.slurm  # one of those that were not read yet may wait there
        return replace(snapshot.slurm, jobs=seen.holding, knows_all_jobs=seen.is_complete, waiting=waiting)
