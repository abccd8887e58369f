"""What the bridge knows of Kubernetes: watches, and what is made of them.

Comes in: a client and the settings. Goes out: caches of pods, Jobs, nodes, namespaces and groups, and on top of them who belongs to which workload, what is in use on each node, where pods may go, and what each namespace may. What must stay true: pods are read last, as what a pod
is part of depends on the rest; a Kubernetes that does not answer is waited for.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from slinky.bridge.eligibility import Surroundings
from slinky.bridge.foreign import shrunk
from slinky.bridge.grants import Grants
from slinky.bridge.groups import PodGroups
from slinky.bridge.judgement import KubernetesJudgement
from slinky.bridge.ledger import Ledger
from slinky.bridge.membership import Membership
from slinky.bridge.node_names import NodeNames
from slinky.bridge.policy import Policy
from slinky.bridge.settings import Settings
from slinky.bridge.shadow_cluster import ShadowCluster
from slinky.bridge.volumes.live import Volumes
from slinky.bridge.volumes.verdicts import VolumeVerdicts
from slinky.bridge.volumes.watching import StorageWatch
from slinky.bridge.workload import WorkloadKey
from slinky.kube import JOBS, NAMESPACES, NODES, PODS, Backoff, Cache, Client, HealthServer, KubeError, KubeMetrics, Reflector

__all__ = ["Watches", "release_of"]

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.5, most=15.0)


async def release_of(kube: Client) -> tuple[int, int]:
    """Of Kubernetes: some of its rules have changed over time. Waited for, however long the API server takes."""
    failures = 0
    while True:
        try:
            version = msgspec.json.decode(await kube.raw("GET", "/version"), type=dict[str, Any])
            break
        except KubeError as error:
            failures += 1
            log.warning("waiting for Kubernetes: %s", error)
            await asyncio.sleep(BACKOFF.seconds(failures))
    minor = re.match(r"\d+", str(version["minor"]))
    return int(version["major"]), int(minor[0]) if minor else 0


class Watches:
    """`touched(key)` is called for a workload of which something changed, `look(key)` for one whose root did, if there is such a workload, `namespace_changed(name)` where its labels did. In shadow mode `played` is the cluster as it would be."""

    def __init__(
        self,
        kube: Client,
        settings: Settings,
        release: tuple[int, int],
        metrics: KubeMetrics,
        *,
        touched: Callable[[WorkloadKey], None],
        look: Callable[[WorkloadKey], None],
        namespace_changed: Callable[[str], None],
    ) -> None:
        self._metrics = metrics
        self._jobs, self.nodes, self._namespaces = Reflector(kube, JOBS), Reflector(kube, NODES), Reflector(kube, NAMESPACES)
        self._before_pods: dict[str, Reflector[Any]] = {"jobs": self._jobs, "nodes": self.nodes, "namespaces": self._namespaces}
        self.played: ShadowCluster | None = None
        if settings.shadow:  # all pods in one watch, as whose they would be is not written on them
            self._own = Reflector(kube, PODS)
            self.played = ShadowCluster(self._own.cache, self._namespaces.cache, settings, shrunk)
            self.pods, others = self.played.pods, self.played.others
        else:
            name = settings.scheduler_name
            self._own = Reflector(kube, PODS, fields=f"spec.schedulerName={name}")
            foreign = Reflector(kube, PODS, fields=f"spec.schedulerName!={name},spec.nodeName!=", transform=shrunk)
            self._before_pods["other pods"] = foreign
            self.pods, others = self._own.cache, foreign.cache
        self._groups_known = False
        self.groups = PodGroups(
            kube,
            lambda group: self.membership.group_changed(group),
            jobs=self._jobs.cache,
            members=lambda key: self.membership.pods(key),
            look=look,
        )
        self.membership = Membership(
            self.pods, self._jobs.cache, touched, partial(self.groups.get, members=False), self.groups.part, settings.never_managed
        )
        self.grants = Grants(Policy(settings), self._namespaces.cache, namespace_changed)
        self.ledger = Ledger([self.pods], self.nodes.cache, foreign=[others], mapped=settings.gres)
        surroundings = Surroundings([self.pods, others], self.nodes.cache, self._namespaces.cache, release=release)
        self._storage = StorageWatch(kube, metrics.follow)
        self.volumes = Volumes(self._storage.caches, (self.pods, others), touched, self._storage.trouble)
        surroundings.filters.append(self.volumes.judge)
        surroundings.volumes = VolumeVerdicts(self.volumes, self.nodes.cache)
        self.judgement = KubernetesJudgement(surroundings, self.ledger)
        self.names = NodeNames(self.nodes.cache)

    async def fill(self, stack: AsyncExitStack, health: HealthServer) -> None:
        """Until all is known; they are followed until `stack` ends."""
        for what, reflector in {**self._before_pods, "pods": self._own}.items():
            self._metrics.follow(what, reflector)
            health.ready(what, partial(_not_listed, reflector.cache))
        health.ready("groups", lambda: None if self._groups_known else self.groups.describe())
        for reflector in self._before_pods.values():
            await _filled(stack, reflector)
        await stack.enter_async_context(self.groups.running())
        await self.groups.wait_synced()
        self._groups_known = True
        await stack.enter_async_context(self._storage.running(self.volumes.needed, self.volumes.learned))
        await _filled(stack, self._own)


async def _filled(stack: AsyncExitStack, reflector: Reflector[Any]) -> None:
    """Until its first list has arrived, however long the API server takes."""
    cache = await stack.enter_async_context(reflector.running())
    while not cache.is_synced:
        try:
            await cache.wait_synced()
        except KubeError as error:
            log.warning("waiting for Kubernetes: %s", error)


def _not_listed(cache: Cache[Any]) -> str | None:
    return None if cache.is_synced else "not listed yet"
