"""Kubernetes' side of a history: a watch on pods and nodes, straight to the API server, with nothing of the bridge's in between.

Comes in: raw watch events. Goes out: `PodSeen` and `NodeSeen`, one for each version, in order. What must stay true: a watch that ends goes on at the revision where it was; where that is too old, what a list shows in its stead is told, and
`gaps` counts it, since versions may be missing then.
"""

import asyncio
import contextlib
import datetime as dt
import json
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp

from slinky.bridge.keys import DEVICES, FINALIZER, JOB_ID
from slinky.kube.quantities import quantity
from tests.chaos.history import NodeSeen, PodSeen

__all__ = ["Observer", "node_seen", "pod_seen"]

SILENCE = 30.0  # the server is asked to end a watch before that
GPU = "nvidia.com/gpu"
GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name")


class Observer:
    """`async with Observer(server, context, namespaces)`: `pods` and `nodes` grow."""

    def __init__(self, server: str, context: ssl.SSLContext, namespaces: Sequence[str]) -> None:
        self._server, self._context, self._namespaces = server, context, set(namespaces)
        self.pods: list[PodSeen] = []
        self.nodes: list[NodeSeen] = []
        self.current: dict[str, PodSeen] = {}
        self._nodes: dict[str, NodeSeen] = {}
        self.gaps = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Observer":
        self._session = aiohttp.ClientSession(self._server, connector=aiohttp.TCPConnector(ssl=self._context), read_bufsize=1 << 24)
        synced = [asyncio.Event(), asyncio.Event()]
        followed: tuple[tuple[str, Callable[[dict[str, Any], bool], None], Callable[[set[str]], None]], ...] = (
            ("pods", self._pod, self._pods_left),
            ("nodes", self._node, lambda _: None),
        )
        for event, (what, tell, left) in zip(synced, followed, strict=True):
            self._tasks.append(asyncio.create_task(self._follow(what, tell, left, event), name=f"observer of {what}"))
        for event in synced:
            await event.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _follow(
        self, what: str, tell: Callable[[dict[str, Any], bool], None], left: Callable[[set[str]], None], synced: asyncio.Event
    ) -> None:
        revision = ""
        while True:
            try:
                if not revision:
                    revision = await self._list(what, tell, left)
                    self.gaps += synced.is_set()
                    synced.set()
                revision = await self._watch(what, revision, tell)
            except (aiohttp.ClientError, OSError, TimeoutError, json.JSONDecodeError):
                await asyncio.sleep(0.1)

    async def _list(self, what: str, tell: Callable[[dict[str, Any], bool], None], left: Callable[[set[str]], None]) -> str:
        async with self._session.get(f"/api/v1/{what}", timeout=aiohttp.ClientTimeout(SILENCE)) as answer:
            answer.raise_for_status()
            listed = json.loads(await answer.read())
        for item in listed["items"]:
            tell(item, False)
        left({item["metadata"]["uid"] for item in listed["items"]})
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, what: str, revision: str, tell: Callable[[dict[str, Any], bool], None]) -> str:
        """The revision where to go on; empty where that is too old for the server."""
        asked = {"watch": "true", "resourceVersion": revision, "allowWatchBookmarks": "true", "timeoutSeconds": str(int(SILENCE / 2))}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENCE)
        async with self._session.get(f"/api/v1/{what}", params=asked, timeout=timeout) as answer:
            if answer.status == 410:
                return ""
            answer.raise_for_status()
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return "" if event["object"].get("code") == 410 else revision
                    revision = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        tell(event["object"], event["type"] == "DELETED")
        return revision

    def _pod(self, found: dict[str, Any], gone: bool) -> None:
        if found["metadata"]["namespace"] not in self._namespaces:
            return
        seen = pod_seen(found, time.time(), gone=gone)
        before = self.current.get(seen.uid)
        if before is not None and before.revision >= seen.revision:
            return
        self.pods.append(seen)
        if gone:
            self.current.pop(seen.uid, None)
        else:
            self.current[seen.uid] = seen

    def _pods_left(self, there: set[str]) -> None:
        """Those that went while nobody looked."""
        for uid in self.current.keys() - there:
            last = self.current.pop(uid)
            self.pods.append(_gone(last, time.time()))

    def _node(self, found: dict[str, Any], gone: bool) -> None:
        """Of a node only what counts: its heartbeats are no news."""
        seen = node_seen(found, time.time(), gone=gone)
        before = self._nodes.get(seen.name)
        self._nodes[seen.name] = seen
        if before is None or _without_time(before) != _without_time(seen):
            self.nodes.append(seen)


def _without_time(seen: NodeSeen) -> tuple[object, ...]:
    return seen.name, seen.gone, seen.ready, seen.cpu, seen.memory, seen.gpus


def _gone(last: PodSeen, at: float) -> PodSeen:
    fields = {name: getattr(last, name) for name in last.__struct_fields__}
    return PodSeen(**{**fields, "at": at, "gone": True, "revision": last.revision + 1})


def pod_seen(pod: dict[str, Any], at: float, *, gone: bool = False) -> PodSeen:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    labels, annotations = meta.get("labels", {}), meta.get("annotations", {})
    statuses = [entry.get("state", {}) for entry in status.get("containerStatuses", [])]
    ended = [state["terminated"] for state in statuses if "terminated" in state]
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    over = status.get("phase") in ("Succeeded", "Failed")
    owner = next((f"{entry['kind']} {entry['name']}" for entry in meta.get("ownerReferences", [])), "")
    return PodSeen(
        revision=int(meta["resourceVersion"]),
        at=at,
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        gone=gone,
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        job_id=int(labels.get(JOB_ID, "0") or 0) if labels.get(JOB_ID, "0").isdigit() else -1,
        scheduled=_moment(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else 0.0,
        begun=bool(spec.get("nodeName")) and any("running" in state or "terminated" in state for state in statuses),
        ended=over or (bool(statuses) and len(ended) == len(statuses)),
        finished=max((_moment(state.get("finishedAt")) for state in ended), default=0.0),
        deleting="deletionTimestamp" in meta,
        held=FINALIZER in meta.get("finalizers", []),
        owner=owner,
        group=next((labels[key] for key in GROUP_LABELS if key in labels), ""),
        cpu=_sum(spec, "cpu", 1000),
        memory=_sum(spec, "memory", 1),
        gpus=_sum(spec, GPU, 1),
        devices=_devices(annotations.get(DEVICES, "")),
        exit_code=max((state.get("exitCode", 0) for state in ended), default=None),
        reason=status.get("reason", "") or conditions.get("DisruptionTarget", {}).get("reason", ""),
    )


def node_seen(node: dict[str, Any], at: float, *, gone: bool = False) -> NodeSeen:
    there = node["status"].get("allocatable", {})
    conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", [])}
    return NodeSeen(
        revision=int(node["metadata"]["resourceVersion"]),
        at=at,
        name=node["metadata"]["name"],
        gone=gone,
        ready=conditions.get("Ready") == "True",
        cpu=int(quantity(there.get("cpu", "0")) * 1000),
        memory=int(quantity(there.get("memory", "0"))),
        gpus=int(quantity(there.get(GPU, "0"))),
    )


def _sum(spec: dict[str, Any], name: str, times: int) -> int:
    asked = (container.get("resources", {}).get("requests", {}).get(name, "0") for container in spec["containers"])
    return int(sum(quantity(amount) * times for amount in asked))


def _devices(text: str) -> tuple[str, ...]:
    return tuple(f"{kind} {index}" for kind, indices in json.loads(text).items() for index in indices) if text else ()


def _moment(text: str | None) -> float:
    return dt.datetime.fromisoformat(text).timestamp() if text else 0.0
