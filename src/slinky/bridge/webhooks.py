"""The admission webhook's handlers: what the API server asks, turned into decisions of `admission`, and those into answers.

Comes in: AdmissionRequests, whether a namespace is managed and how it is labelled, who the bridge is. Goes out: AdmissionResponses, whose refusals begin with the object's name, and counts.
What must stay true: no decision is taken here; a namespace that was labelled a moment ago counts as managed (the API server, which asks, knows that already), and nobody is refused for
labels that were changed a moment ago; each look-up has a deadline below the API server's.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from slinky.bridge.admission import Verdict, admit_change, admit_pod, admit_root
from slinky.bridge.policy import Grant, Policy
from slinky.bridge.settings import Settings
from slinky.bridge.webhook_configuration import CHANGES, PODS, WORKLOADS
from slinky.kube import NAMESPACES, AdmissionMetrics, AdmissionRequest, AdmissionResponse, Cache, Client, Namespace, NotFoundError

__all__ = ["KINDS", "ManagedNamespaces", "Webhooks", "named"]

LOOK_UP_SECONDS = 2.0
MOST_NAME = 253  # as long as a name can be; the API server checks names after the webhook has seen them
KINDS = frozenset({"Pod", "Job", "JobSet", "LeaderWorkerSet", "PodGroup", "Workload"})

Judge = Callable[[AdmissionRequest], Awaitable[tuple[Verdict, Mapping[str, Any]]]]
Handler = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]


class ManagedNamespaces:
    """Which namespaces are managed, and what labels they have. `cache` is a watch of namespaces, needed where a selector or a label decides.

    One that the cache does not hold, or holds as not managed, is looked up: whoever asks has just seen that it is. A no from the server is a no.
    """

    def __init__(self, settings: Settings, client: Client, cache: Cache[Namespace] | None) -> None:
        self._settings = settings
        self._client = client
        self._cache = cache

    async def manages(self, name: str) -> bool:
        if self._settings.managed_namespace_selector is None:
            return self._settings.manages(name, {})
        held = self._cache.get(name) if self._cache is not None else None
        if held is not None and self._settings.manages(name, dict(held.metadata.labels)):
            return True
        try:
            found = await self._client.get(NAMESPACES, name, seconds=LOOK_UP_SECONDS)
        except NotFoundError:
            return False
        return self._settings.manages(name, dict(found.metadata.labels))

    async def labels(self, name: str, *, fresh: bool = False) -> Mapping[str, str]:
        """As the watch has them, or, where they must be `fresh` or it does not hold the namespace, as the server has them now."""
        held = self._cache.get(name) if self._cache is not None and not fresh else None
        if held is None:
            try:
                held = await self._client.get(NAMESPACES, name, seconds=LOOK_UP_SECONDS)
            except NotFoundError:
                return {}
        return held.metadata.labels


class Namespaces(Protocol):
    async def manages(self, name: str) -> bool: ...

    async def labels(self, name: str, *, fresh: bool = False) -> Mapping[str, str]: ...


class Webhooks:
    """`handlers` is what an AdmissionServer takes. `users` are the bridge."""

    def __init__(self, settings: Settings, namespaces: Namespaces, users: frozenset[str], metrics: AdmissionMetrics) -> None:
        self._settings = settings
        self._policy = Policy(settings)
        self._namespaces = namespaces
        self._users = users
        self._metrics = metrics

    @property
    def handlers(self) -> dict[str, Handler]:
        return {PODS: self._answering(self._pod), CHANGES: self._answering(self._change), WORKLOADS: self._answering(self._workload)}

    async def _pod(self, request: AdmissionRequest) -> tuple[Verdict, Mapping[str, Any]]:
        pod = request.document()
        # Who names our scheduler is ours in any namespace: no need to know more.
        ours = pod.get("spec", {}).get("schedulerName") == self._settings.scheduler_name
        managed = ours or await self._namespaces.manages(request.namespace)
        by_bridge = self._by_bridge(request)
        return await self._granted(
            request, lambda grant: admit_pod(pod, self._settings, managed=managed, by_bridge=by_bridge, grant=grant)
        ), pod

    async def _change(self, request: AdmissionRequest) -> tuple[Verdict, Mapping[str, Any]]:
        old, new, by_bridge = request.old_document(), request.document(), self._by_bridge(request)
        resize = request.sub_resource == "resize"
        judge = partial(admit_change, old, new, self._settings, by_bridge=by_bridge, resize=resize)
        return await self._granted(request, lambda grant: judge(grant=grant)), new

    async def _workload(self, request: AdmissionRequest) -> tuple[Verdict, Mapping[str, Any]]:
        root = request.document()
        before = request.old_document() if request.operation == "UPDATE" else None
        return await self._granted(request, lambda grant: admit_root(root, self._settings, before, grant)), root

    async def _granted(self, request: AdmissionRequest, judge: Callable[[Grant], Verdict]) -> Verdict:
        """What is refused by the labels that we know is judged again by those that the server has."""
        name = request.namespace
        if not self._policy.needs_labels:
            return judge(self._policy.grant(name, {}))
        verdict = judge(self._policy.grant(name, await self._namespaces.labels(name)))
        if verdict.refusal:
            verdict = judge(self._policy.grant(name, await self._namespaces.labels(name, fresh=True)))
        return verdict

    def _by_bridge(self, request: AdmissionRequest) -> bool:
        return request.user_info.username in self._users

    def _answering(self, judge: Judge) -> Handler:
        async def handle(request: AdmissionRequest) -> AdmissionResponse:
            started, outcome = time.perf_counter(), "failed"
            try:
                verdict, document = await judge(request)
                changed = verdict.patches and not self._settings.shadow
                outcome = "refused" if verdict.refusal else "changed" if changed else "allowed"
            except asyncio.CancelledError:
                outcome = "late"
                raise
            finally:
                self._metrics.count(request, outcome, time.perf_counter() - started)
            if self._settings.shadow:
                would = [f"slurm-bridge would refuse it: {verdict.refusal}"] if verdict.refusal else []
                return AdmissionResponse(True, warnings=(*would, *verdict.warnings))
            if verdict.refusal:
                return AdmissionResponse.refuse(f"{named(request, document)}: {verdict.refusal}")
            return AdmissionResponse(True, patch=verdict.patches, warnings=verdict.warnings)

        return handle


def named(request: AdmissionRequest, document: Mapping[str, Any]) -> str:
    """What people know the object by. A pod of a controller has no name yet when it is created, but a beginning of one, and an owner."""
    meta = document.get("metadata", {})
    name = request.name or meta.get("name") or (f"{meta['generateName']}*" if meta.get("generateName") else "(no name)")
    owner = next((owner for owner in meta.get("ownerReferences") or () if owner.get("controller")), None)
    made_by = f" of {str(owner['kind'])[:MOST_NAME]} {str(owner['name'])[:MOST_NAME]}" if owner else ""
    return f"{request.kind.kind} {request.namespace}/{name[:MOST_NAME]}{made_by}"
