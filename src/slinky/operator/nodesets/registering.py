"""Workers that Slurm has forgotten register again, without a restart of their pods.

A slurmctld that lost its state (no volume, or a new one) knows no dynamic node, and a slurmd
registers by itself only when it starts. slurmctld reaches a slurmd only through a node record. So
each forgotten worker gets a record under a name of ours, drained, with the address of its pod. Then
slurmctld is asked to reconfigure: it tells every slurmd, each begins again and registers under its
own name with all that it has, and our records are deleted. Slurm itself ends what still runs there
for jobs that it has forgotten.

In: the worker pods of a cluster, and what Slurm says of its nodes. Out: workers that Slurm knows.

*Invariants:* nothing is done while workers come in by themselves, nor to a Slurm that is not ours.
No job can run on a record of ours. One that is left behind is deleted in the next turn. A slurmd
that stays away is asked ever more rarely.
"""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slinky.kube import Backoff, Key, Pod, WorkQueue
from slinky.operator import labels
from slinky.operator.clusters import Cluster
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import in_order
from slinky.operator.nodesets.snapshot import slurm_name
from slinky.operator.site import Site
from slinky.slurm import Node, NodeDescription, SlurmError, UnsupportedError, compress

__all__ = ["PREFIX", "Registering", "Tries", "forgotten", "left_behind"]

log = logging.getLogger(__name__)

PREFIX = "slinky-register-"
REASON = marks.OURS + "a worker is asked to register again"
READY = dt.timedelta(seconds=30)  # that a slurmd may take to register after it is ready
STILL_SECONDS = 10.0  # in which no worker came by itself
AGAIN = Backoff(first=60.0, most=3600.0, factor=3.0)  # each time makes every slurmd begin again
LOOK_SECONDS = 5.0
COMING_SECONDS, COMING_LOOK = 15.0, 0.5
RECORDS_AT_ONCE = 100
WORKERS = 4


def forgotten(pods: Iterable[Pod], nodes: Mapping[str, Node], now: dt.datetime) -> dict[str, str]:
    """Workers whose slurmd is ready and which Slurm does not know: name in Slurm to address."""
    found: dict[str, str] = {}
    for pod in pods:
        ready, name = pod.condition("Ready"), slurm_name(pod)
        since = ready.last_transition_time if ready and ready.status == "True" else None
        leaves = pod.metadata.deletion_timestamp is not None or pod.is_over
        if leaves or since is None or now < since + READY or name in nodes:
            continue
        if pod.status.pod_ip:
            found[name] = pod.status.pod_ip
    return found


def left_behind(nodes: Mapping[str, Node]) -> list[str]:
    """Records of ours that a turn did not come to delete."""
    return [name for name, node in nodes.items() if name.startswith(PREFIX) and (marks.is_ours(node.reason) or not node.reason)]


@dataclass
class Tries:
    """Of one cluster. Times are of time.monotonic()."""

    missing: frozenset[str] = frozenset()
    since: float = 0.0
    times: int = 0
    not_before: float = 0.0

    def wait(self, missing: frozenset[str], now: float) -> float:
        """Seconds until they are to be asked; 0: now."""
        if missing != self.missing:
            self.missing, self.since = missing, now
        return max(0.0, self.since + STILL_SECONDS - now, self.not_before - now)

    def asked(self, now: float) -> None:
        self.times += 1
        self.not_before = now + AGAIN.seconds(self.times, lambda: 1.0)


class Registering:
    """`look(key)` where a worker of a cluster is not known to its Slurm."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._tries: dict[Key, Tries] = {}
        backoff = Backoff(first=5.0, most=300.0)
        self.queue: WorkQueue[Key] = WorkQueue(expected=(SlurmError,), backoff=backoff)

    def look(self, key: Key) -> None:
        if key not in self._tries:
            self._tries[key] = Tries()
            self.queue.add(key)

    async def run(self) -> None:
        await self.queue.serve(self._turn, workers=WORKERS)

    async def _turn(self, key: Key) -> None:
        site, tries = self._site, self._tries.setdefault(key, Tries())
        found, cluster = site.watches.kinds["Controller"].by_key(key), site.clusters.get(*key)
        is_ours = found is not None and found.spec.get("external") is not True
        if found is None or not is_ours or cluster is None:
            self._tries.pop(key, None)
            return
        if not cluster.is_current or not site.may_act():
            self.queue.add_after(key, LOOK_SECONDS)
            return
        missing = forgotten(self._workers(key), cluster.nodes, dt.datetime.now(dt.UTC))
        old = left_behind(cluster.nodes)
        if not missing and not old:
            self._tries.pop(key, None)
            return
        wait = tries.wait(frozenset(missing), time.monotonic())
        if old:
            await self._forget(cluster, old)
        if missing and wait <= 0:
            await self._ask(key, cluster, missing, tries)
        self.queue.add_after(key, max(LOOK_SECONDS, wait))

    def _workers(self, key: Key) -> Iterable[Pod]:
        wanted = labels.cluster_workers(key.name)
        for pod in self._site.watches.pods.list(key.namespace):
            if all(pod.metadata.labels.get(name) == value for name, value in wanted.items()):
                yield pod

    async def _ask(self, key: Key, cluster: Cluster, missing: Mapping[str, str], tries: Tries) -> None:
        await cluster.look()  # some may have come since
        missing = {name: address for name, address in missing.items() if name not in cluster.nodes}
        if not missing:
            return
        tries.asked(time.monotonic())
        names = compress(in_order(missing))
        found = self._site.watches.kinds["Controller"].by_key(key)
        if found is not None:
            self._site.statuses.event(
                "Controller",
                found,
                "WorkersForgotten",
                f"Slurm does not know {len(missing)} workers whose slurmd runs ({names[:400]}):"
                " it was started without its state, or their records were deleted. They are asked"
                " to register again. Slurm ends what still runs there for jobs that it does not know",
                warning=True,
            )
        records = [f"{PREFIX}{number}" for number in range(len(missing))]
        try:
            await self._record(cluster, records, list(missing.values()))
            await cluster.slurm.reconfigure()
            await self._until_known(cluster, frozenset(missing))
        except UnsupportedError as error:
            log.warning("Slurm of %s cannot be made to know its workers: %s", key, error)
        finally:
            await self._forget(cluster, records)

    @staticmethod
    async def _record(cluster: Cluster, records: Sequence[str], addresses: Sequence[str]) -> None:
        """Down and drained before slurmctld speaks with them."""
        for start in range(0, len(records), RECORDS_AT_ONCE):
            part = records[start : start + RECORDS_AT_ONCE]
            there = ",".join(addresses[start : start + RECORDS_AT_ONCE])
            made = NodeDescription(name=compress(part), external=False, address=there, other={"State": "FUTURE"})
            await cluster.slurm.nodes.create(made)
            await cluster.slurm.nodes.down(part, REASON)
            await cluster.slurm.nodes.drain(part, REASON)

    @staticmethod
    async def _until_known(cluster: Cluster, wanted: frozenset[str]) -> None:
        until = time.monotonic() + COMING_SECONDS
        while time.monotonic() < until and not wanted <= cluster.nodes.keys():
            await asyncio.sleep(COMING_LOOK)
            await cluster.look()

    @staticmethod
    async def _forget(cluster: Cluster, records: Sequence[str]) -> None:
        try:
            await cluster.slurm.nodes.delete(list(records))
        except SlurmError as error:
            log.info("records %s are not deleted yet: %s", records[:5], error)
        finally:
            cluster.look_anew()
