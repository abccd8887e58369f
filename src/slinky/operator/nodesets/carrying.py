"""Carries acts out: on Kubernetes side by side, in Slurm many nodes at once.

In: acts about one NodeSet. Out: the world changed, what went wrong as one Trouble at the end. What is independent waits for nothing: a slow Slurm keeps no pod from being created.
What must stay true: pods are created slowly at first, and not again at once where one was refused; before a pod goes on Slurm's word, and before a drain is made or undone, Slurm is looked at once more, and only what still holds is done; a pod is written to and deleted under its uid only; nothing is done once another process leads.
"""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from slinky.kube import (
    CLAIMS,
    PODS,
    AlreadyExistsError,
    ApiError,
    Client,
    ConflictError,
    KubeError,
    NotFoundError,
    PatchKind,
)
from slinky.operator.clusters import Cluster
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import (
    Act,
    ChangePod,
    CreateClaim,
    CreatePod,
    DeletePod,
    DeleteSlurmNode,
    DisownClaims,
    Drain,
    OwnClaims,
    Resume,
    SetComment,
    SetConditions,
    SetFeatures,
    SetTopology,
    in_order,
)
from slinky.operator.nodesets.creation import slow_start
from slinky.operator.nodesets.drains import is_drained
from slinky.operator.nodesets.memory import Memory
from slinky.operator.nodesets.slurm_marks import is_nobodys, refusal_of
from slinky.operator.trouble import Trouble
from slinky.slurm import NodeChange, RefusedError, SlurmError
from slinky.slurm import NotFoundError as NoSuchNodeError

__all__ = ["Carrier"]

log = logging.getLogger(__name__)

A = TypeVar("A")
OF_SLURM = (Drain, Resume, SetComment, SetTopology, SetFeatures, DeleteSlurmNode)
SLURM_AT_ONCE = 8
RECORDS_AT_ONCE = 200  # that are deleted; their names are in the request's path

Make = Callable[[CreatePod], dict[str, Any]]
MakeClaim = Callable[[CreateClaim], dict[str, Any]]


class Carrier:
    """For one pass over one NodeSet."""

    def __init__(
        self, kube: Client, cluster: Cluster | None, namespace: str, memory: Memory, *, at_once: int, may_act: Callable[[], bool]
    ) -> None:
        self._kube, self._cluster, self._namespace, self._memory = kube, cluster, namespace, memory
        self._turns = asyncio.Semaphore(at_once)
        self._slurm_turns = asyncio.Semaphore(SLURM_AT_ONCE)
        self._may_act = may_act
        self.problems: list[Trouble] = []
        self.again = False  # something had changed since it was judged: it is to be looked at again, also where nothing more is heard
        self.created: list[str] = []
        self.deleted: list[DeletePod] = []

    async def carry_out(self, acts: Sequence[Act], make: Make, make_claim: MakeClaim, owner: dict[str, Any]) -> None:
        """All of them, as far as possible; what was refused stands in `problems`."""
        await asyncio.gather(
            self._in_slurm([act for act in acts if isinstance(act, OF_SLURM)]),
            self._each([act for act in acts if isinstance(act, ChangePod)], self._change),
            self._each([act for act in acts if isinstance(act, SetConditions)], self._conditions),
            self._delete([act for act in acts if isinstance(act, DeletePod)], str(owner["uid"])),
            self._create(acts, make, make_claim, owner),
        )

    # Slurm

    async def _in_slurm(self, acts: Sequence[Act]) -> None:
        cluster = self._cluster
        if not acts or cluster is None:
            return
        if any(isinstance(act, Drain | Resume | DeleteSlurmNode) for act in acts) and not await self._has_looked(cluster):
            return
        records = [act for act in acts if isinstance(act, DeleteSlurmNode)]
        await asyncio.gather(
            *(self._tell_slurm(act) for act in acts if not isinstance(act, DeleteSlurmNode)), self._delete_records(cluster, records)
        )
        with suppress(SlurmError):
            await cluster.look()  # so that the next pass sees it

    async def _has_looked(self, cluster: Cluster) -> bool:
        try:
            await cluster.look()
        except SlurmError as error:
            self.problems.append(Trouble("SlurmNotAnswering", f"Slurm does not answer: {error}"))
            return False
        return True

    async def _tell_slurm(self, act: Act) -> None:
        async with self._slurm_turns:
            await self._asked(act, lambda: self._slurm_call(act))

    async def _slurm_call(self, act: Act) -> None:
        assert self._cluster is not None
        nodes = self._cluster.slurm.nodes
        match act:
            case Drain(names, reason):
                for whole, some in self._reasons(names, reason).items():
                    await nodes.drain(some, whole)
            case Resume(names):
                await self._resume(names)
            case SetComment(name, comment):
                await nodes.update([name], NodeChange(comment=comment))
            case SetTopology(names, topology):
                await nodes.update(names, NodeChange(topology_str=topology))
            case SetFeatures(names, available, active):
                await nodes.update(names, NodeChange(features=list(available), features_act=list(active)))
            case DeleteSlurmNode(name, _):
                with suppress(NoSuchNodeError):
                    await nodes.delete(name)

    async def _delete_records(self, cluster: Cluster, acts: Sequence[DeleteSlurmNode]) -> None:
        """Many in one request, as slurmctld makes its tables anew for each; where one of them is refused, each by itself."""

        def may_go(act: DeleteSlurmNode) -> bool:
            node = cluster.nodes.get(act.name)
            return node is not None and (not act.renewed or (is_nobodys(node) and not node.is_busy))

        by_name = {act.name: act for act in acts if may_go(act)}
        names = in_order(by_name)
        for start in range(0, len(names), RECORDS_AT_ONCE):
            part = names[start : start + RECORDS_AT_ONCE]
            if not self._may_act():
                return
            try:
                await cluster.slurm.nodes.delete(part)
            except RefusedError:
                await asyncio.gather(*(self._tell_slurm(by_name[name]) for name in part))
            except SlurmError as error:
                self.problems.append(Trouble("SlurmNotAnswering", f"Slurm does not answer: {error}"))
                return
            finally:
                cluster.look_anew()

    def _reasons(self, names: Sequence[str], reason: str) -> dict[str, list[str]]:
        """What each is drained with. Not those that somebody else has drained: an administrator may have been first. Of one that is down, what he said of it stays behind our reason."""
        assert self._cluster is not None
        found: dict[str, list[str]] = {}
        for name in names:
            node = self._cluster.nodes.get(name)
            if node is None or not is_drained(node) or marks.is_ours(node.reason):
                told = marks.said_before(node.reason) if node is not None and (node.is_down or is_drained(node)) else ""
                found.setdefault(marks.with_before(reason, told), []).append(name)
        return found

    async def _resume(self, names: Sequence[str]) -> None:
        """Only what is ours at this moment: an administrator may have taken it over since."""
        assert self._cluster is not None
        nodes, known = self._cluster.slurm.nodes, self._cluster.nodes
        found = [node for name in names if (node := known.get(name)) is not None and marks.is_ours(node.reason)]
        await nodes.undrain([node.name for node in found if "DRAIN" in node.states])
        told = {node.name: before for node in found if node.is_down and (before := marks.said_before(node.reason))}
        await nodes.resume([node.name for node in found if "DRAIN" not in node.states and node.is_down and node.name not in told])
        for name, before in told.items():  # it was down before we drained it, for somebody's own reason: so it is again
            await nodes.update([name], NodeChange(reason=before))

    async def _asked(self, act: Act, call: Callable[[], Awaitable[None]]) -> None:
        if not self._may_act():
            return
        try:
            await call()
        except RefusedError as error:
            if remembered := refusal_of(act):
                self._memory.refused(remembered, time.monotonic())
                log.warning("Slurm refuses %s: %s; asked again in some minutes", remembered, error)
            self.problems.append(Trouble("SlurmRefuses", f"Slurm refuses: {error}"))
        except SlurmError as error:
            self.problems.append(Trouble("SlurmNotAnswering", f"Slurm does not answer: {error}"))

    # Kubernetes

    async def _each(self, acts: Iterable[A], do: Callable[[A], Awaitable[None]]) -> None:
        async def one(act: A) -> None:
            async with self._turns:
                if not self._may_act():
                    return
                try:
                    await do(act)
                except (NotFoundError, ConflictError) as error:
                    log.debug("%s: %s", act, error)  # gone, or another by now: what is seen next decides
                    self.again = True
                except ApiError as error:
                    self.problems.append(Trouble("Refused", f"Kubernetes refuses: {error.message}"))
                except KubeError as error:
                    self.problems.append(Trouble("KubernetesNotAnswering", str(error)))

        await asyncio.gather(*map(one, acts))

    async def _change(self, act: ChangePod) -> None:
        body = {"metadata": {"uid": act.uid, "labels": dict(act.labels), "annotations": dict(act.annotations)}}
        await self._kube.patch(PODS, act.name, body, self._namespace)

    async def _conditions(self, act: SetConditions) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said: list[dict[str, Any]] = [
            {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
            for kind, (status, reason, message) in act.conditions.items()
        ]
        said += [{"type": kind, "$patch": "delete"} for kind in act.gone]
        body = {"metadata": {"uid": act.uid}, "status": {"conditions": said}}
        await self._kube.patch(PODS, act.name, body, self._namespace, kind=PatchKind.STRATEGIC, subresource="status")

    async def _delete(self, acts: Sequence[DeletePod], nodeset: str) -> None:
        on_word = [act for act in acts if act.on_word]
        kept: set[str] = set()
        if on_word:
            kept = {act.uid for act in on_word} - await self._still_free(on_word)
        await self._each([act for act in acts if act.uid not in kept], lambda act: self._delete_one(act, nodeset))

    async def _still_free(self, acts: Sequence[DeletePod]) -> set[str]:
        """Uids of pods whose nodes Slurm has drained and free at this moment."""
        cluster = self._cluster
        if cluster is None or not await self._has_looked(cluster):
            return set()
        nodes = {act.uid: cluster.nodes.get(act.on_word) for act in acts}
        return {uid for uid, node in nodes.items() if node is not None and is_drained(node) and not node.is_busy}

    async def _delete_one(self, act: DeletePod, nodeset: str) -> None:
        for claim in act.claims:  # each goes when the last of its owners has gone
            owner = {"apiVersion": "v1", "kind": "Pod", "name": act.name, "uid": act.uid}
            await self._own(claim, add=owner, take=nodeset)
        grace = 0 if act.at_once else None
        await self._kube.delete(PODS, act.name, self._namespace, uid=act.uid, resource_version=act.version, grace_seconds=grace)
        self._memory.deleted(act.uid, time.monotonic())
        self.deleted.append(act)

    async def _create(self, acts: Sequence[Act], make: Make, make_claim: MakeClaim, owner: dict[str, Any]) -> None:
        async def claim(act: CreateClaim) -> None:
            try:
                await self._kube.create(CLAIMS, make_claim(act), self._namespace)
            except AlreadyExistsError:
                return

        async def pod(act: CreatePod) -> None:
            try:
                await self._kube.create(PODS, make(act), self._namespace)
            except AlreadyExistsError:
                await self._ours_already(act.name, str(owner["uid"]))
            else:
                self.created.append(act.name)
            self._memory.created(act.name, time.monotonic())

        async def own(act: OwnClaims) -> None:
            for name in act.names:
                await self._own(name, **({"add": owner} if act.owned else {"take": str(owner["uid"])}))

        async def disown(act: DisownClaims) -> None:
            for name in act.names:
                await self._own(name, take=act.uid)

        await self._each([act for act in acts if isinstance(act, DisownClaims)], disown)
        taken = self._memory.lately_taken(time.monotonic())
        pods = [act for act in acts if isinstance(act, CreatePod)]
        self.problems += [taken[act.name] for act in pods if act.name in taken]
        pods = [act for act in pods if act.name not in taken]
        claimed = await self._start_slowly([act for act in acts if isinstance(act, CreateClaim)], claim, len(pods))
        await self._each([act for act in acts if isinstance(act, OwnClaims)], own)
        if claimed and await self._start_slowly(pods, pod, len(pods)) and pods:
            self._memory.creation.went_well()

    async def _start_slowly(self, acts: Sequence[A], do: Callable[[A], Awaitable[None]], workers: int) -> bool:
        """Whether none was refused: the first refusal keeps back those that are not on their way yet. `workers`: how many pods are to come."""
        creation = self._memory.creation
        if acts and creation.waits(time.monotonic()) and creation.trouble is not None:
            self.problems.append(creation.trouble)
            return False
        refusals: dict[int, KubeError] = {}
        made = len(self.created)

        async def tried(numbered: tuple[int, A]) -> None:
            number, act = numbered
            try:
                await do(act)
            except (NotFoundError, ConflictError):
                raise
            except KubeError as error:
                refusals[number] = error

        for some in slow_start(list(enumerate(acts))):
            await self._each(some, tried)
            if refusals:
                error = refusals[min(refusals)]  # the one that comes first next time too: the same words are one Event
                said = error.message if isinstance(error, ApiError) else str(error)
                come = len(self.created) - made
                if come:
                    creation.went_well()
                self.problems.append(creation.was_refused(said, workers - come, time.monotonic()))
                return False
        return True

    async def _ours_already(self, name: str, uid: str) -> None:
        """The watch is late; or another has a pod of this name."""
        found = await self._kube.get(PODS, name, self._namespace)
        controller = found.metadata.controller
        if controller is None or controller.uid != uid:
            whose = f"{controller.kind} {controller.name}" if controller else "nobody"
            trouble = Trouble("NameTaken", f"pod {name} is there already and belongs to {whose}; delete or rename one of the two")
            self._memory.name_taken(name, trouble, time.monotonic())
            self.problems.append(trouble)

    async def _own(self, claim: str, *, add: dict[str, Any] | None = None, take: str = "") -> None:
        """Under the version that was read: of two who write owners at once, one is refused and comes again."""
        found = await self._kube.get(CLAIMS.untyped, claim, self._namespace)
        meta = found["metadata"]
        owners = [each for each in meta.get("ownerReferences") or [] if each.get("uid") not in (take, (add or {}).get("uid"))]
        owners += [add] if add else []
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "ownerReferences": owners}}
        self._memory.forget_claims()
        await self._kube.patch(CLAIMS, claim, body, self._namespace)
