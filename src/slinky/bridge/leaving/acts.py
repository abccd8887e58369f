"""Carrying out what uninstalling has planned: the thin edge, and the loop of looks and steps.

Comes in: a looker, the clients, leave to act. Goes out: acts, step by step, with a new look before each; words on how far it is; at the end what is left. What must stay true: nothing is done without leave; a thing that fails is tried a few times and then left,
with the reason; waiting has an end.
"""

import asyncio
import datetime as dt
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from slinky.bridge.executor import Executor
from slinky.bridge.key_policy import POLICIES, POLICY_BINDINGS
from slinky.bridge.keys import CORDONED_FOR_SLURM, FINALIZER, MANAGED_NODE, NODE_CONDITION, OVERRULED
from slinky.bridge.leaving.look import SECRETS, Looker
from slinky.bridge.leaving.plan import Plan, Running, Waiting, plan_leaving
from slinky.bridge.leaving.steps import Act, Clear, DeleteNode, DeletePod, Drain, EndJob, Evict, Left, LetGo, RemoveObject, Step, Undrain
from slinky.bridge.node_reasons import LEAVING
from slinky.bridge.pod_policy import POD_POLICIES, POD_POLICY_BINDINGS
from slinky.bridge.settings import Settings
from slinky.bridge.standing import conditions_for
from slinky.kube import (
    MUTATING_CONFIGURATIONS,
    NODES,
    PODS,
    VALIDATING_CONFIGURATIONS,
    Backoff,
    Client,
    ConflictError,
    KubeError,
    NotFoundError,
    PatchKind,
    Pod,
    TooManyRequestsError,
)
from slinky.slurm import AlreadyDoneError, NodeChange, SlurmClient, SlurmError
from slinky.slurm import NotFoundError as NotInSlurmError

__all__ = ["Leaver"]

log = logging.getLogger(__name__)

AT_ONCE = 16
MOST_TRIES = 3
POLL_SECONDS = 1.0
BACKOFF = Backoff(first=0.3, most=15.0)
SAY_SECONDS = 15.0
TOGETHER = 500  # jobs in one request

Say = Callable[[str], None]


class Leaver:
    """`await leaver.run()` returns what is left. `may_act` is asked before each act; `seconds` is how long pods and jobs that are ending are waited for."""

    def __init__(
        self,
        looker: Looker,
        executor: Executor,
        kube: Client,
        slurm: SlurmClient,
        settings: Settings,
        *,
        running: Running,
        waiting: Waiting,
        seconds: float,
        may_act: Callable[[], bool],
        say: Say,
    ) -> None:
        self._looker, self._executor, self._kube, self._slurm, self._settings = looker, executor, kube, slurm, settings
        self._running, self._waiting, self._seconds, self._may_act, self._say = running, waiting, seconds, may_act, say
        self._tries: Counter[tuple[str, str]] = Counter()
        self._failures: dict[tuple[str, str], str] = {}
        self._held: set[tuple[str, str]] = set()
        self._said_at = float("-inf")

    async def run(self) -> Plan:
        """The last plan, of which nothing can be carried out any more; what failed, and what did not come to an end in time, is among what is left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        last, again, rounds = "", 0, 0
        while True:
            plan = plan_leaving(await self._looker.look(), self._running, self._waiting)
            step = next((step for step in plan.steps if self._to_do(step)), None)
            if step is not None:
                again = again + 1 if step.title == last else 0
                last = step.title
                if again:  # what was done does not show yet, or failed
                    await asyncio.sleep(BACKOFF.seconds(again))
                await self._carry_out(step)
                continue
            last = ""
            later = [left for step in plan.steps for left in step.later]
            later += [Left("pod", name, self._failures[title, name]) for title, name in self._held]
            if not later or loop.time() > until:
                return self._with_failures(plan, later)
            self._say_what_is_waited_for(later, until - loop.time())
            rounds = rounds + 1 if self._held else 0
            await asyncio.sleep(BACKOFF.seconds(rounds) if rounds else POLL_SECONDS)
            self._held.clear()

    def _to_do(self, step: Step) -> list[Act]:
        keys = {act.name: (step.title, act.name) for act in step.acts}
        return [act for act in step.acts if self._tries[keys[act.name]] < MOST_TRIES and keys[act.name] not in self._held]

    def _with_failures(self, plan: Plan, later: Iterable[Left]) -> Plan:
        failed = [
            Left(step.title, act.name, "failed: " + self._failures.get((step.title, act.name), "it was done, and does not show"))
            for step in plan.steps
            for act in step.acts
            if (step.title, act.name) not in self._held
        ]
        return Plan(steps=plan.steps, left=(*plan.left, *later, *failed), runs_on=plan.runs_on)

    def _say_what_is_waited_for(self, later: Sequence[Left], seconds: float) -> None:
        first, more = later[0], f" and {len(later) - 1} more" if len(later) > 1 else ""
        self._say_now_and_then(f"waiting for {first.kind} {first.name}{more}: {first.why} (for {seconds:.0f} s more)")

    def _say_now_and_then(self, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= SAY_SECONDS:
            self._said_at = now
            self._say(text)

    async def _carry_out(self, step: Step) -> None:
        """An eviction that a disruption budget forbids now is put off, and holds up nothing else."""
        acts = self._to_do(step)
        turns, done = asyncio.Semaphore(AT_ONCE), 0
        self._said_at = asyncio.get_running_loop().time()

        async def one(some: Sequence[Act], work: Callable[[], Awaitable[None]]) -> None:
            nonlocal done
            async with turns:
                if not self._may_act():
                    return
                keys = [(step.title, act.name) for act in some]
                self._tries.update(keys)
                for key in keys:
                    self._failures.pop(key, None)
                try:
                    await work()
                except TooManyRequestsError as error:
                    log.info("%s: %s: %s", step.title, some[0].name, error)
                    self._failures |= dict.fromkeys(keys, str(error))
                    self._tries.subtract(keys)
                    self._held.update(keys)
                except (KubeError, SlurmError) as error:
                    log.warning("%s: %s: %s", step.title, some[0].name, error)
                    self._failures |= dict.fromkeys(keys, str(error))
                done += len(some)
                self._say_now_and_then(f"{step.title}: {done} of {len(acts)} so far")

        plain = [act for act in acts if isinstance(act, EndJob) and act.exit_code is None]
        together = {id(act) for act in plain}
        async with asyncio.TaskGroup() as tasks:
            for act in acts:
                if id(act) not in together:
                    tasks.create_task(one([act], partial(self._act, act)))
            for start in range(0, len(plain), TOGETHER):
                part = plain[start : start + TOGETHER]
                tasks.create_task(one(part, partial(self._cancel, step, part)))
        if not self._may_act():
            raise KubeError("the Lease was lost: another process leads now; nothing more is done here, run again when it has ended")
        failed = sum((step.title, act.name) in self._failures for act in acts)
        self._said_at = float("-inf")
        self._say(f"{step.title}: {len(acts) - failed}" + (f", {failed} not (yet)" if failed else ""))

    async def _cancel(self, step: Step, jobs: Sequence[EndJob]) -> None:
        name_of = {str(job_id): job.name for job in jobs for job_id in job.job_ids}
        for result in await self._slurm.jobs.cancel_many(job_id for job in jobs for job_id in job.job_ids):
            if result.error.code and result.label in name_of:
                self._failures[step.title, name_of[result.label]] = result.error.message or result.error.string

    async def _act(self, act: Act) -> None:
        match act:
            case RemoveObject(plural, name):
                await self._remove(plural, name)
            case Drain(name, mark):
                if mark:
                    await self._slurm.nodes.update([name], NodeChange(extra=mark))
                await self._slurm.nodes.drain([name], f"{LEAVING} the bridge is being uninstalled")
            case Undrain(name):
                await self._slurm.nodes.undrain([name])
            case LetGo():
                await self._let_go(act)
            case DeletePod(pod):
                await self._executor.release(pod)
                await self._ignore_gone(self._kube.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid))
            case Evict(pod):
                await self._ignore_gone(self._kube.evict(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid))
            case EndJob(job_id, _, exit_code, components):
                await self._executor.end_job(job_id, exit_code, "the bridge was uninstalled", running=True, components=components)
            case DeleteNode(name):
                try:
                    await self._slurm.nodes.delete(name)
                except (NotInSlurmError, AlreadyDoneError):
                    log.debug("node %s is gone already", name)
            case Clear():
                await self._clear(act)

    async def _remove(self, plural: str, name: str) -> None:
        policies = (POLICIES, POLICY_BINDINGS, POD_POLICIES, POD_POLICY_BINDINGS)
        known = (MUTATING_CONFIGURATIONS, VALIDATING_CONFIGURATIONS, *policies, SECRETS)
        resource = {found.plural: found for found in known}[plural]
        await self._ignore_gone(self._kube.delete(resource, name, self._settings.namespace if resource is SECRETS else ""))

    async def _let_go(self, act: LetGo) -> None:
        """What the pod says about it first, in one change, refused where its finalizers are others by now: the next look shows them."""
        meta = act.pod.metadata
        if act.word is not None and (conditions := conditions_for(act.pod, act.word, dt.datetime.now(dt.UTC))):
            change = {"metadata": {"uid": meta.uid}, "status": {"conditions": conditions}}
            await self._patched(act.pod, change, PatchKind.STRATEGIC, "status")
        patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": meta.uid}]
        for kind, keys in (("labels", act.labels), ("annotations", act.annotations)):
            patch += [{"op": "remove", "path": f"/metadata/{kind}/{key.replace('~', '~0').replace('/', '~1')}"} for key in keys]
        if act.finalizer:
            path = f"/metadata/finalizers/{meta.finalizers.index(FINALIZER)}"
            patch += [{"op": "test", "path": path, "value": FINALIZER}, {"op": "remove", "path": path}]
        if len(patch) > 1:
            await self._patched(act.pod, patch, PatchKind.JSON)

    async def _patched(self, pod: Pod, change: Any, kind: PatchKind, subresource: str = "") -> None:
        try:
            await self._kube.patch(PODS, pod.metadata.name, change, pod.metadata.namespace, kind=kind, subresource=subresource)
        except NotFoundError:
            log.debug("pod %s is gone already", pod.key)

    async def _clear(self, act: Clear) -> None:
        """Each by its key, in what the node is now: others write taints and conditions at the same time."""
        node = await self._kube.get(NODES.untyped, act.name)
        spec: dict[str, Any] = {}
        if act.taint:
            ours = {"key": MANAGED_NODE, "value": self._settings.scheduler_name}
            spec["taints"] = [taint for taint in node["spec"].get("taints") or () if {key: taint.get(key) for key in ours} != ours] or None
        if act.cordon:
            spec["unschedulable"] = None
        if spec or act.word:
            gone_words = dict.fromkeys(([CORDONED_FOR_SLURM] if act.cordon else []) + ([OVERRULED] if act.word else []))
            meta = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": gone_words}
            await self._kube.patch(NODES, act.name, {"metadata": meta, "spec": spec})
        if act.condition:
            gone = {"status": {"conditions": [{"type": NODE_CONDITION, "$patch": "delete"}]}}
            await self._kube.patch(NODES, act.name, gone, kind=PatchKind.STRATEGIC, subresource="status")

    @staticmethod
    async def _ignore_gone(call: Awaitable[None]) -> None:
        try:
            await call
        except (NotFoundError, ConflictError) as error:
            log.debug("gone already: %s", error)
