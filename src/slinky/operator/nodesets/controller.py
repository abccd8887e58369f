"""NodeSets' turns: who is looked at when something changes, and one pass over one of them.

In: changes of NodeSets, pods, Kubernetes nodes and Slurm. Out: a snapshot, a plan, and what `Carrier` makes of it; a status and Events.
What must stay true: all that a pass decides comes from one snapshot; changes that come in a crowd make few passes; what is wrong with a NodeSet stands in its status, and nothing of it is deleted meanwhile.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from slinky.kube import AlreadyExistsError, Backoff, ConflictError, Key, KubeMetrics, NotFoundError, WorkQueue
from slinky.operator.applying import ApplyError
from slinky.operator.assembling import Assembler
from slinky.operator.children import Owner
from slinky.operator.conditions import broken, is_available, was_available
from slinky.operator.files import UnreadableError
from slinky.operator.kinds import NODESETS, NodeSet, NodeSetSpec, Written
from slinky.operator.left_alone import Originals
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import Act, ChangePod, CreateClaim, CreatePod, LetGo, Tell
from slinky.operator.nodesets.carrying import Carrier
from slinky.operator.nodesets.looking import Look
from slinky.operator.nodesets.memory import Memory
from slinky.operator.nodesets.plan import choose, plan
from slinky.operator.nodesets.registering import Registering
from slinky.operator.nodesets.remarks import remarked
from slinky.operator.nodesets.revisions import REVISIONS, new_revision, surplus_revisions
from slinky.operator.nodesets.snapshot import Snapshot
from slinky.operator.nodesets.status import is_unregistered, numbers, selector_text, standing
from slinky.operator.nodesets.telling import told_of
from slinky.operator.nodesets.waking import Waking
from slinky.operator.objects.meta import owner
from slinky.operator.objects.view import ClusterView, slurm_key, sssd_conf
from slinky.operator.objects.worker_pod import worker_base, worker_claims, worker_pod
from slinky.operator.objects.workers import nodeset_objects
from slinky.operator.relations import controller_of
from slinky.operator.site import Site
from slinky.operator.statuses import conditions_of
from slinky.operator.trouble import Trouble
from slinky.slurm import SlurmError

__all__ = ["NodeSets"]

BACKOFF = Backoff(first=0.5, most=60.0)
UNSETTLED_SECONDS = 5.0  # between two looks at one that is not as it should be: deadlines pass without a sign


class NodeSets:
    """A leader's time: `await NodeSets(site, assembler).run()`."""

    def __init__(self, site: Site, assembler: Assembler, metrics: KubeMetrics | None = None) -> None:
        self._site, self._assembler = site, assembler
        self.queue: WorkQueue[Key] = WorkQueue(backoff=BACKOFF, expected=(Trouble, SlurmError))
        self._memories: dict[str, Memory] = {}
        self._look = Look(site)
        self._registering = Registering(site)
        self._originals = Originals(site.kube, site.watches)
        if metrics:
            metrics.follow("nodesets", self.queue)
            metrics.follow("registering", self._registering.queue)

    async def run(self) -> None:
        """Until cancelled."""
        waking = Waking(self._site, self.queue)
        waking.begin()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._registering.run(), name="registering")
                work = self.queue.serve(self._turn, workers=self._site.settings.concurrency)
                group.create_task(work, name="nodesets")
        finally:
            waking.end()

    async def _turn(self, key: Key) -> None:
        found = self._site.watches.kinds["NodeSet"].by_key(key)
        if found is None or not self._site.may_act():
            return
        try:
            await self._originals.check("NodeSet", found, partial(self.queue.add_after, key))
            await self._site.watches.files.known(key.namespace)
            await self._pass(found)
        except Trouble as trouble:
            await self._say_broken(found, trouble)
            if not trouble.lasting:
                raise
        except UnreadableError as error:
            await self._say_broken(found, Trouble("NamespaceUnreadable", str(error)))
            raise

    async def _pass(self, found: Written) -> None:
        deleted = found.metadata.deletion_timestamp is not None
        if deleted and not {marks.FINALIZER, marks.ORIGINALS} & set(found.metadata.finalizers):
            self._memories.pop(found.metadata.uid, None)
            return
        nodeset, view, trouble = (self._leaving(found), None, None) if deleted else await self._made_of(found)
        if view is not None:
            self._site.tell_what_has_no_effect("NodeSet", found, nodeset)
            await self._prepare(found, nodeset, view)
        memory = self._memories.setdefault(nodeset.metadata.uid, Memory())
        snapshot = await self._look.at(nodeset, view, memory)
        if nodeset.spec.revision_history_limit and view is not None:
            await self._keep_history(snapshot)
        remarks: list[ChangePod] = []
        if view is not None:
            snapshot, remarks = remarked(snapshot, view)
        acts: list[Act] = [*remarks, *plan(snapshot)]
        if view is None:
            acts = [act for act in acts if not isinstance(act, CreatePod | CreateClaim)]
        carrier = await self._carry_out(found, snapshot, acts, view)
        await self._report(found, snapshot, acts, carrier, trouble)

    # What it is made of

    def _leaving(self, found: Written) -> NodeSet:
        """One that is deleted has to be let go, also where its spec cannot be read."""
        try:
            return self._assembler.read(NodeSet, found)
        except Trouble:
            spec = msgspec.convert({"controllerRef": {"name": controller_of(found)}}, NodeSetSpec)
            return NodeSet(metadata=found.metadata, spec=spec)

    async def _made_of(self, found: Written) -> tuple[NodeSet, ClusterView | None, Trouble | None]:
        """The view is None where something is wrong with the NodeSet or the cluster, or a Secret that its workers show a digest of is not there or cannot be read: its workers are cared for as they are, and none is made or replaced, after a restart of the operator too.

        Workers that are missing wait then. Without the Secret their containers could not start; and where it only cannot be read, one made with the last digest would be replaced as soon as another is seen.
        Raises Trouble where not even that can be.
        """
        namespace = found.metadata.namespace
        try:
            nodeset = self._assembler.checked(NodeSet, found)
            controller = self._assembler.controller(nodeset.spec.controller_ref.name, namespace)
            view = await self._assembler.worker_view(controller)
            ssh = nodeset.spec.ssh
            view.need(slurm_key(controller), *(sssd_conf(ssh.sssd_conf_ref) if ssh.enabled else ()))
        except Trouble as trouble:
            controller = self._assembler.controller(controller_of(found), namespace)
            held = next((one for one in self._assembler.members(NodeSet, controller) if one.metadata.uid == found.metadata.uid), None)
            if held is None:
                raise
            return held, None, trouble
        return nodeset, view, None

    async def _prepare(self, found: Written, nodeset: NodeSet, view: ClusterView) -> None:
        if marks.FINALIZER not in found.metadata.finalizers or marks.ORIGINALS in found.metadata.finalizers:
            await self._finalizers(found, [*_of_others(found), marks.FINALIZER])
        meta = found.metadata
        try:
            await self._site.applier.apply(nodeset_objects(nodeset, view), Owner("NodeSet", meta.namespace, meta.name, meta.uid))
        except ApplyError as error:
            raise Trouble("Refused", f"Kubernetes refuses {error}") from error

    async def _finalizers(self, found: Written, wanted: list[str]) -> None:
        meta = found.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": wanted}}
        await self._site.kube.patch(NODESETS, meta.name, body, meta.namespace)

    async def _keep_history(self, snapshot: Snapshot) -> None:
        """Once for each change of what is made or in use."""
        kube, nodeset = self._site.kube, snapshot.nodeset
        namespace, memory = nodeset.metadata.namespace, self._memories[nodeset.metadata.uid]
        in_use = frozenset(worker.revision for worker in snapshot.workers)
        present = (snapshot.revision, in_use, nodeset.spec.revision_history_limit)
        if memory.history_kept == present:
            return
        held = (await kube.list(REVISIONS, namespace, labels=selector_text(nodeset))).items
        if made := new_revision(nodeset, snapshot.revision, held):
            with suppress(AlreadyExistsError):
                await kube.create(REVISIONS, made, namespace)
        for gone in surplus_revisions(held, snapshot.revision, in_use, nodeset.spec.revision_history_limit):
            with suppress(NotFoundError, ConflictError):
                await kube.delete(REVISIONS, gone.metadata.name, namespace, uid=gone.metadata.uid)
        memory.history_kept = present

    # What is done

    async def _carry_out(self, found: Written, snapshot: Snapshot, acts: list[Act], view: ClusterView | None) -> Carrier:
        site, nodeset = self._site, snapshot.nodeset
        namespace = nodeset.metadata.namespace
        cluster = site.clusters.get(namespace, nodeset.spec.controller_ref.name)
        memory = self._memories[nodeset.metadata.uid]
        memory.creation.begins((nodeset.metadata.generation, snapshot.revision))
        carrier = Carrier(site.kube, cluster, namespace, memory, at_once=site.settings.creates_at_once, may_act=site.may_act)

        base = worker_base(nodeset, view) if view is not None and any(isinstance(act, CreatePod) for act in acts) else None

        def make(act: CreatePod) -> dict[str, Any]:
            assert base is not None
            node = snapshot.nodes.get(act.node)
            made = worker_pod(nodeset, base, ordinal=act.ordinal, node=node, revision=snapshot.revision, name=act.name)
            if nodeset.spec.workload_disruption_protection:
                made["metadata"]["labels"] |= {marks.PROTECT: "true"}  # from its first moment on
            return made

        def make_claim(act: CreateClaim) -> dict[str, Any]:
            return worker_claims(nodeset, act.pod)[act.template]

        for act in acts:
            if isinstance(act, Tell):
                site.statuses.event("NodeSet", found, act.reason, act.note, warning=act.warning)
        await carrier.carry_out(acts, make, make_claim, owner(nodeset))
        if any(isinstance(act, LetGo) for act in acts) and site.may_act():
            await self._finalizers(found, _of_others(found))
        return carrier

    async def _report(self, found: Written, snapshot: Snapshot, acts: list[Act], carrier: Carrier, trouble: Trouble | None) -> None:
        for reason, note in told_of(acts, carrier.created, carrier.deleted):
            self._site.statuses.event("NodeSet", found, reason, note)
        choice = choose(snapshot)
        said = standing(snapshot, choice)
        if wrong := trouble or next(iter(carrier.problems), None):
            said = broken(wrong.reason, wrong.message, available=is_available(said))
        if not any(isinstance(act, LetGo) for act in acts):
            await self._site.statuses.say("NodeSet", found, said, **numbers(snapshot, choice))
        if snapshot.slurm.is_current and any(map(is_unregistered, snapshot.workers)):
            meta = snapshot.nodeset.metadata
            self._registering.look(Key(meta.namespace, snapshot.nodeset.spec.controller_ref.name))
        comes_again = carrier.again or (wrong is not None and not wrong.lasting)
        if (
            said["Progressing"].status
            or choice.going
            or choice.taken
            or comes_again
            or self._memories[snapshot.nodeset.metadata.uid].is_waiting
        ):
            self.queue.add_after(found.key, UNSETTLED_SECONDS)
        if wait := self._memories[snapshot.nodeset.metadata.uid].creation.waits(time.monotonic()):
            self.queue.add_after(found.key, wait)

    async def _say_broken(self, found: Written, trouble: Trouble) -> None:
        available = was_available(conditions_of(found.status))
        said = broken(trouble.reason, trouble.message, available=available)
        await self._site.statuses.say("NodeSet", found, said)


def _of_others(found: Written) -> list[str]:
    """The finalizers that are neither ours nor the original's."""
    return [each for each in found.metadata.finalizers if each not in (marks.FINALIZER, marks.ORIGINALS)]
