"""kube-scheduler itself as the judge of which nodes accept a pod.

Comes in: a sandbox that is up, and pods as documents. Goes out: for each of them the nodes that passed kube-scheduler's own filters. A second kube-scheduler runs on the head, for pods that name it; what passes its filters it hands to an
HTTP extender, which is a server of this process: that writes the names down and accepts none, so nothing is ever bound. Where no node passed, kube-scheduler asks nobody and says so in the pod's condition.
What must stay true: all nodes are looked at, not a sample; resources, preemption and what only scores are left out, so that a verdict speaks of the other filters; the process ends with the one who started it.

    async with oracle(sandbox) as judge:
        verdicts = await judge.verdicts([document, …])  # Key → Verdict(pod, nodes)
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple

import yaml
from aiohttp import web

from slinky.kube import PODS, Cache, Change, Client, Key, NotFoundError, Pod, Reflector, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.keeper import Part
from slinky.sandbox.kubernetes import BIN

__all__ = ["Oracle", "Verdict", "oracle"]

LEFT_OUT = ("DefaultPreemption", "NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality")
VERDICT_SECONDS = 60.0
AT_ONCE = 16
_numbers = itertools.count()


class Verdict(NamedTuple):
    """The pod as the API server keeps it, the nodes that kube-scheduler accepts for it, and what it says."""

    pod: Pod
    nodes: frozenset[str]
    message: str


class _Extender:
    """Writes down what passed, by the pod's UID, and accepts nothing."""

    def __init__(self) -> None:
        self.passed: dict[str, frozenset[str]] = {}

    async def filter(self, request: web.Request) -> web.Response:
        asked = await request.json()
        names = asked["NodeNames"] or []
        self.passed[asked["Pod"]["metadata"]["uid"]] = frozenset(names)
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "written down")})


class Oracle:
    """Asked for verdicts; `pods` are those that were put before it."""

    def __init__(self, kube: Client, name: str, pods: Cache[Pod], extender: _Extender) -> None:
        self.kube = kube
        self.name = name
        self._pods = pods
        self._extender = extender
        self._places = asyncio.Semaphore(AT_ONCE)

    async def verdicts(self, documents: Sequence[dict[str, Any]]) -> dict[Key, Verdict]:
        """Puts the pods before kube-scheduler, all at once, and takes them away again. Each needs a name and a namespace."""
        found = await asyncio.gather(*(self._verdict(document) for document in documents))
        return {verdict.pod.key: verdict for verdict in found}

    async def _verdict(self, document: dict[str, Any]) -> Verdict:
        meta, spec = document["metadata"], {**document["spec"], "schedulerName": self.name}
        async with self._places:
            made = await self.kube.create(PODS, {**document, "spec": spec}, meta["namespace"])
            try:
                judged = await self._judged(made)
            finally:
                with suppress(NotFoundError):
                    await self.kube.delete(PODS, made.metadata.name, made.metadata.namespace, grace_seconds=0)
            condition = judged.condition("PodScheduled")
            assert condition
            return Verdict(judged, self._extender.passed.pop(judged.metadata.uid, frozenset()), condition.message)

    async def _judged(self, made: Pod) -> Pod:
        """Until kube-scheduler has said that it is not to be placed, which it always says here."""
        done: asyncio.Future[Pod] = asyncio.get_running_loop().create_future()

        def look(change: Change[Pod]) -> None:
            pod = change.new
            if pod is None or pod.metadata.uid != made.metadata.uid or done.done():
                return
            condition = pod.condition("PodScheduled")
            if condition and condition.reason == "Unschedulable":
                done.set_result(pod)
            elif condition and condition.status == "False":
                done.set_exception(AssertionError(f"kube-scheduler could not judge {pod.key}: {condition.reason}: {condition.message}"))

        end = self._pods.subscribe(look)
        try:
            async with asyncio.timeout(VERDICT_SECONDS):
                return await done
        except TimeoutError:
            raise AssertionError(f"no verdict on {made.key} within {VERDICT_SECONDS:g} s") from None
        finally:
            end()


@asynccontextmanager
async def oracle(sandbox: Sandbox, *, leave_out: Sequence[str] = LEFT_OUT, gates: str = "") -> AsyncIterator[Oracle]:
    """A kube-scheduler and its extender, for as long as the block lasts. `leave_out` are plugins that say nothing in it."""
    number = next(_numbers)
    name = f"oracle-{number}"
    async with AsyncExitStack() as stack:
        extender = _Extender()
        port = await stack.enter_async_context(_served(extender))
        configuration = _configuration(name, f"http://{sandbox.record.addresses.host}:{port}", leave_out)
        (sandbox.head / f"etc/kubernetes/{name}.yaml").write_text(yaml.safe_dump(configuration))
        command = [f"{BIN}/kube-scheduler", f"--config=/etc/kubernetes/{name}.yaml", "--secure-port=0"]
        await sandbox.link.start(Part(name, "head", [*command, *([f"--feature-gates={gates}"] if gates else [])]))
        stack.push_async_callback(_ended, sandbox, name)
        kube = await stack.enter_async_context(Client(from_kubeconfig(sandbox.kubeconfig)))
        pods = await stack.enter_async_context(Reflector(kube, PODS, fields=f"spec.schedulerName={name}").running())
        await pods.wait_synced()
        yield Oracle(kube, name, pods, extender)


async def _ended(sandbox: Sandbox, name: str) -> None:
    await sandbox.stop(name)
    await sandbox.link.forget(name)


@asynccontextmanager
async def _served(extender: _Extender) -> AsyncIterator[int]:
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/filter", extender.filter)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "0.0.0.0", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _configuration(name: str, url: str, leave_out: Sequence[str]) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-scheduler.kubeconfig", "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 60,  # one verdict for each pod
        "podMaxBackoffSeconds": 60,
        "profiles": [{"schedulerName": name, "plugins": {"multiPoint": {"disabled": [{"name": plugin} for plugin in leave_out]}}}],
        "extenders": [{"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, "enableHTTPS": False, "httpTimeout": "20s"}],
    }
