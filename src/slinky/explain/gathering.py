"""The facts about one pod, job or node, gathered from both sides side by side.

Comes in: who is asked about, the settings, how Kubernetes is reached. Goes out: `Facts`. What must stay true: few calls (about ten), each with a deadline; all of a queue is read only where it is short enough to be read.
"""

import asyncio
import datetime as dt
from collections import Counter

import msgspec

from slinky.bridge.claim import claim_lease
from slinky.bridge.keys import JOB_ID
from slinky.bridge.settings import Settings
from slinky.explain.asking import SECONDS, AskKube, AskSlurm
from slinky.explain.facts import MOST_COUNTED, Facts, KubeFacts, SlurmFacts, in_slurm
from slinky.explain.pods import job_of, requested
from slinky.explain.same_cluster import Told
from slinky.kube import (
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    Access,
    Client,
    Event,
    ForbiddenError,
    KubeObject,
    Lease,
    Namespace,
    Pod,
    Resource,
)
from slinky.kube import NotFoundError as KubeNotFoundError
from slinky.operator.settings import Settings as OperatorSettings
from slinky.slurm import Job, NotFoundError, SlurmClient, UnavailableError

__all__ = [
    "claim_lease_of",
    "gather_all",
    "gather_identity",
    "gather_job",
    "gather_node",
    "gather_pod",
    "gather_queue",
    "lease_of",
    "live_jobs",
]

MOST_QUEUED = 1000  # jobs in Slurm, above which nobody reads all records (8 to 27 KB each) to tell who goes first
SHOWN = 40  # jobs of an overview that are read one by one where there are more


async def gather_pod(settings: Settings, access: Access | Exception, namespace: str, name: str) -> Facts:
    async with AskKube(access) as kube, AskSlurm(settings) as slurm:
        pod = await kube.ask("pod", lambda client: _pod(client, name, namespace), None)
        kube_facts, slurm_facts = await asyncio.gather(_kube(kube, settings, namespace, pod), _slurm(slurm, job_of(pod)))
        return Facts(now=_now(), settings=settings, name=name, namespace=namespace, kube=kube_facts, slurm=slurm_facts)


async def gather_job(settings: Settings, access: Access | Exception, job_id: int) -> Facts:
    """With the pods that it is for."""
    async with AskKube(access) as kube, AskSlurm(settings) as slurm:
        found = await _slurm(slurm, job_id)
        home = _namespace_of(found.jobs[0]) if found.jobs else ""
        listing = await kube.ask("pods", lambda client: client.list(PODS, home, labels=f"{JOB_ID}={job_id}"), None) if home else None
        pods = tuple(listing.items) if listing else ()
        facts = KubeFacts(troubles=tuple(kube.troubles), unread=frozenset(kube.unread), pods=pods)
        return Facts(now=_now(), settings=settings, name=str(job_id), kube=facts, slurm=found)


class _Comment(msgspec.Struct):
    pods: list[str] = []


def _namespace_of(job: Job) -> str:
    """Of the pods that it is for, by what the bridge (or the original) wrote on it; empty where it is for none."""
    try:
        named = msgspec.json.decode(job.admin_comment, type=_Comment).pods
    except msgspec.DecodeError:
        return ""
    return named[0].partition("/")[0] if named else ""


async def gather_node(settings: Settings, access: Access | Exception, name: str) -> Facts:
    """By either side's name for it."""
    async with AskKube(access) as kube, AskSlurm(settings) as slurm:
        listing, lease, found = await asyncio.gather(
            kube.ask("nodes", lambda client: client.list(NODES), None),
            kube.ask("lease", lambda client: lease_of(client, settings), None),
            _slurm(slurm, 0, queue=False),
        )
        nodes = tuple(listing.items) if listing else ()
        node = next((node for node in nodes if name in (node.metadata.name, in_slurm(node))), None)
        events = await kube.ask("events", lambda client: _events(client, "", "Node", name), ())
        facts = KubeFacts(
            troubles=tuple(kube.troubles), unread=frozenset(kube.unread), node=node, nodes=nodes, lease=lease, events=tuple(events)
        )
        return Facts(now=_now(), settings=settings, name=name, kube=facts, slurm=found)


async def gather_queue(settings: Settings) -> SlurmFacts:
    """Slurm alone: its queue, partitions and nodes."""
    async with AskSlurm(settings) as slurm:
        return await _slurm(slurm, 0, whole=True)


async def gather_identity(settings: Settings) -> Told | None:
    """Which cluster the configured slurmrestd serves; None where it does not say."""
    async with AskSlurm(settings) as slurm:
        conf = await slurm.ask("conf", lambda client: client.conf(), None)
    if conf is None or not conf.boot_time:
        return None
    return Told(str(conf.values.get("ClusterName", "")), conf.boot_time)


async def gather_all(settings: Settings, access: Access | Exception, offset: int = 0) -> Facts:
    """For an overview: the queue (of a long one, some jobs from `offset` on), all nodes, and the pods that have a job.

    Pods of the bridge's scheduler without a job are counted.
    """
    async with AskKube(access) as kube, AskSlurm(settings) as slurm:
        listing, without_job, lease, claim, found = await asyncio.gather(
            kube.ask("pods", lambda client: client.list(PODS, labels=JOB_ID), None),
            kube.ask("pods", lambda client: _without_job(client, settings), 0),
            kube.ask("lease", lambda client: lease_of(client, settings), None),
            kube.ask("claim", lambda client: claim_lease_of(client, settings), None),
            _slurm(slurm, 0, queue=False),
        )
        nobody: tuple[dict[str, int], tuple[Job, ...] | None] = ({}, None)
        if "nodes" not in found.unread:
            counts, queue = await slurm.ask("queue", lambda client: _overview(client, offset), nobody)
            told = {"queue": queue, "counts": counts, "troubles": tuple(slurm.troubles), "unread": frozenset(slurm.unread)}
            found = msgspec.structs.replace(found, **told)
        else:
            found = msgspec.structs.replace(found, unread=found.unread | {"queue"})
        pods = tuple(listing.items) if listing else ()
        unread = frozenset(kube.unread)
        facts = KubeFacts(
            troubles=tuple(kube.troubles),
            unread=unread,
            pods=pods,
            without_job=without_job,
            lease=lease,
            claim=claim,
        )
        return Facts(now=_now(), settings=settings, kube=facts, slurm=found)


class _Some(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


async def _without_job(client: Client, settings: Settings) -> int:
    """How many pods wait for the bridge and have no job, from one page: at most `MOST_COUNTED`."""
    fields = (f"spec.schedulerName={settings.scheduler_name}", "spec.nodeName=", "status.phase=Pending")
    wanted = {
        "labelSelector": f"!{JOB_ID}",
        "fieldSelector": ",".join(fields),
        "limit": str(MOST_COUNTED),
    }
    body = await client.raw("GET", PODS.path(), parameters=wanted, resource="pods")
    try:
        return len(msgspec.json.decode(body, type=_Some).items or ())
    except msgspec.DecodeError:
        return 0


async def _kube(kube: AskKube, settings: Settings, namespace: str, pod: Pod | None) -> KubeFacts:
    name = pod.metadata.name if pod else ""
    lease, claim, home, events, orphan, devices = await asyncio.gather(
        kube.ask("lease", lambda client: lease_of(client, settings), None),
        kube.ask("claim", lambda client: claim_lease_of(client, settings), None),
        kube.ask("namespace", lambda client: _namespace(client, namespace), None),
        kube.ask("events", lambda client: _events(client, namespace, "Pod", name), ()) if pod else _nothing(),
        kube.ask("owner", lambda client: _is_orphan(client, pod), False) if pod else _nothing(),
        _device_resources(kube, pod),
    )
    return KubeFacts(
        troubles=tuple(kube.troubles),
        unread=frozenset(kube.unread),
        pod=pod,
        namespace=home,
        lease=lease,
        claim=claim,
        events=tuple(events),
        orphan=bool(orphan),
        device_resources=devices,
    )


async def _slurm(slurm: AskSlurm, job_id: int, *, queue: bool = True, whole: bool = False) -> SlurmFacts:
    """The queue is read where a job of it is asked about that waits, or `whole`."""
    server = await slurm.ask("server", lambda client: client.server(), None)
    if down := await slurm.controller():
        return SlurmFacts(troubles=(down,), unread=frozenset({"job", "partitions", "nodes", "reservations", "queue"}), asked=job_id)
    jobs, partitions, nodes, reservations = await asyncio.gather(
        slurm.ask("job", lambda client: _job(client, job_id), ()) if job_id else _nothing(),
        slurm.ask("partitions", lambda client: client.partitions.all(), []),
        slurm.ask("nodes", lambda client: client.nodes.all(), []),
        slurm.ask("reservations", lambda client: client.reservations.all(), []),
    )
    waiting = whole or (queue and any(job.is_pending for job in jobs))
    queued = await slurm.ask("queue", live_jobs, None) if waiting else None
    return SlurmFacts(
        troubles=tuple(slurm.troubles),
        unread=frozenset(slurm.unread),
        release=server.release if server else "",
        asked=job_id,
        jobs=tuple(jobs),
        queue=queued,
        partitions=tuple(partitions),
        nodes=tuple(nodes),
        reservations=tuple(reservations),
    )


async def live_jobs(client: SlurmClient) -> tuple[Job, ...] | None:
    """Those that wait or run; None where they are too many, or take too long."""
    if len(await client.jobs.states()) > MOST_QUEUED:
        return None
    try:
        async with asyncio.timeout(SECONDS * 0.8):
            return tuple([job async for job in client.jobs.stream() if not job.is_finished])
    except (TimeoutError, UnavailableError):
        return None


async def _overview(client: SlurmClient, offset: int) -> tuple[dict[str, int], tuple[Job, ...]]:
    """How many there are in each state, and all of them, or from `offset` on the latest of those that run and the oldest of those that wait."""
    alive = [status for status in await client.jobs.states() if not status.is_finished]
    counts = dict(Counter(str(status.state) for status in alive))
    if len(alive) <= SHOWN or (found := await live_jobs(client)) is None:
        waiting = sorted(status.job_id for status in alive if status.is_pending)
        waiting = waiting[min(offset, max(0, len(waiting) - SHOWN // 2)) :][: SHOWN // 2]
        others = sorted((status.job_id for status in alive if not status.is_pending), reverse=True)
        others = others[min(offset, max(0, len(others) - SHOWN // 2)) :][: SHOWN - len(waiting)]
        parts = await asyncio.gather(*(_job(client, job_id) for job_id in dict.fromkeys((*others, *waiting))))
        found = tuple({job.job_id: job for part in parts for job in part}.values())
    return counts, found


async def _job(client: SlurmClient, job_id: int) -> tuple[Job, ...]:
    try:
        return tuple(await client.jobs.parts(job_id))
    except NotFoundError:
        return ()


async def _pod(client: Client, name: str, namespace: str) -> Pod | None:
    try:
        return await client.get(PODS, name, namespace)
    except KubeNotFoundError:
        return None


async def _is_orphan(client: Client, pod: Pod) -> bool:
    """Of a pod that waits: whether the Job that made it is gone, and not only another of that name there."""
    owner = pod.metadata.controller
    if owner is None or owner.kind != "Job" or pod.spec.node_name or pod.is_over:
        return False
    try:
        return (await client.get(JOBS, owner.name, pod.metadata.namespace)).metadata.uid != owner.uid
    except KubeNotFoundError:
        return True


class _DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    extended_resource_name: str = ""


class _DeviceClass(KubeObject, frozen=True):
    spec: _DeviceClassSpec = _DeviceClassSpec()


DEVICE_CLASSES: Resource[_DeviceClass] = Resource("resource.k8s.io", "v1", "deviceclasses", _DeviceClass, namespaced=False)


async def _device_resources(kube: AskKube, pod: Pod | None) -> dict[str, str]:
    """Asked only for a pod that waits and requests a resource with a domain in its name."""
    if pod is None or pod.spec.node_name or not any("/" in name for name in requested(pod)):
        return {}

    async def classes(client: Client) -> list[_DeviceClass]:
        try:
            return list((await client.list(DEVICE_CLASSES)).items)
        except KubeNotFoundError:  # an older server
            return []
        except ForbiddenError:  # few tenants may, and few pods need it
            kube.unread.add("deviceclasses")
            return []

    found: list[_DeviceClass] = await kube.ask("deviceclasses", classes, [])
    return {each.spec.extended_resource_name: each.metadata.name for each in found if each.spec.extended_resource_name}


async def lease_of(client: Client, settings: Settings | OperatorSettings) -> Lease | None:
    try:
        return await client.get(LEASES, settings.leader.name, settings.namespace)
    except KubeNotFoundError:
        return None


async def claim_lease_of(client: Client, settings: Settings) -> Lease | None:
    """Also None where it may not be read: the bridge's own Lease tells what is needed most."""
    try:
        return await client.get(LEASES, claim_lease(settings.leader.name), settings.namespace)
    except (KubeNotFoundError, ForbiddenError):
        return None


async def _namespace(client: Client, name: str) -> Namespace | None:
    try:
        return await client.get(NAMESPACES, name)
    except KubeNotFoundError:
        return None


async def _events(client: Client, namespace: str, kind: str, name: str) -> tuple[Event, ...]:
    listing = await client.list(EVENTS, namespace, fields=f"regarding.kind={kind},regarding.name={name}")
    return tuple(
        sorted(
            listing.items, key=lambda event: event.event_time or event.metadata.creation_timestamp or dt.datetime.min.replace(tzinfo=dt.UTC)
        )
    )


async def _nothing() -> tuple[()]:
    return ()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
