"""The lines between the bridge's processes and the two servers, and what goes wrong on them.

Comes in: faults of single requests, as their time comes. Goes out: each strikes the next request that it is meant for, on whichever line; one that finds none within two seconds takes any of its side. What must stay true: a fault strikes
once, and the journal tells of it when it does.
"""

import json
import random
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from slinky.sandbox.handle import Sandbox
from tests.chaos.journal import Journal
from tests.chaos.schedule import Fault
from tests.faults import PASS, HeardRequest, Tamper, TamperingProxy

__all__ = ["CLASSES", "Lines", "kube_context"]

PATIENCE = 2.0
SPARED = 1  # so many requests of a process get through between two that do not: a storm in which nothing does shows nothing
MOST_ARMED = 200

CLASSES: Mapping[str, Callable[[HeardRequest], bool]] = {
    "any": lambda asked: not _watches(asked) and not _renews(asked),
    "submit": lambda asked: asked.method == "POST" and asked.path.endswith("/job/submit"),
    "states": lambda asked: "/jobs/state" in asked.path,
    "allocation": lambda asked: "/resources/" in asked.path,
    "end": lambda asked: asked.method == "DELETE",
    "binding": lambda asked: asked.path.endswith("/binding"),
    "eviction": lambda asked: asked.path.endswith("/eviction"),
    "patch": lambda asked: asked.method == "PATCH",
    "lease": lambda asked: _renews(asked),
    "watch": lambda asked: _watches(asked),
    "nodes": lambda asked: asked.method == "POST" and asked.path.endswith("/nodes/"),
    "looks": lambda asked: asked.method == "GET" and "/nodes/" in asked.path,
    "create": lambda asked: asked.method == "POST" and asked.path.endswith("/pods"),
}
REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


def _watches(asked: HeardRequest) -> bool:
    return "watch=" in asked.path


def _renews(asked: HeardRequest) -> bool:
    return "/leases" in asked.path


class Armed:
    def __init__(self, fault: Fault) -> None:
        self.fault, self.since = fault, time.monotonic()
        self.side, _, self.which = fault.target.partition(" ")

    def fits(self, side: str, asked: HeardRequest) -> bool:
        if side != self.side:
            return False
        if self.fault.kind == "409" and asked.method == "GET":
            return False
        late = self.which not in ("watch", "lease") and time.monotonic() - self.since > PATIENCE
        return CLASSES["any" if late else self.which](asked)


class Lines:
    """`kube[name]` and `slurm[name]` are the lines of the process of that name."""

    def __init__(self, sandbox: Sandbox, journal: Journal, names: tuple[str, ...]) -> None:
        self._journal = journal
        self._armed: list[Armed] = []
        self._to_spare: dict[str, int] = {}
        self.kube = {name: TamperingProxy(sandbox.kube_server, kube_context(sandbox)) for name in names}
        self.slurm = {name: TamperingProxy(sandbox.slurm_server) for name in names}
        for side, proxies in (("kube", self.kube), ("slurm", self.slurm)):
            for name, proxy in proxies.items():
                proxy.plan = lambda asked, side=side, name=name: self._plan(side, name, asked)  # type: ignore[misc]
        for proxy in self.kube.values():
            proxy.answered = self._answered

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        for proxy in (*self.kube.values(), *self.slurm.values()):
            await self._stack.enter_async_context(proxy)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    def arm(self, fault: Fault) -> None:
        """From now on it waits for a request; a watch that is to be cut is cut now."""
        if fault.kind == "watch-cut":
            cut = self.kube[random.Random(fault.at).choice(sorted(self.kube))].cut_watch(int(fault.at * 1000))
            (self._journal.struck if cut else self._journal.missed)(fault.kind, fault.target)
        elif len(self._armed) < MOST_ARMED:
            self._armed.append(Armed(fault))
        else:
            self._journal.missed(fault.kind, fault.target)

    async def strike(self, fault: Fault) -> None:
        self.arm(fault)

    def disarm(self) -> None:
        for armed in self._armed:
            self._journal.missed(armed.fault.kind, armed.fault.target)
        self._armed.clear()

    def _plan(self, side: str, name: str, asked: HeardRequest) -> Tamper:
        line = f"{side} {name} {'lease' if _renews(asked) else 'watch' if _watches(asked) else ''}"
        if self._to_spare.get(line, 0) > 0:
            self._to_spare[line] -= 1
            return PASS
        found = next((armed for armed in self._armed if armed.fits(side, asked)), None)
        if found is None:
            return PASS
        self._armed.remove(found)
        self._to_spare[line] = SPARED
        self._journal.struck(found.fault.kind, found.fault.target, request=f"{asked.method} {asked.path.partition('?')[0]}")
        return tamper(found.fault, side)

    def _answered(self, asked: HeardRequest, status: int) -> None:
        if asked.path.endswith("/binding"):
            uid = json.loads(asked.body).get("metadata", {}).get("uid", "") if asked.body.startswith(b"{") else ""
            self._journal.act("binding", uid, str(status))


def tamper(fault: Fault, side: str) -> Tamper:
    kind = fault.kind
    if kind == "delay":
        return Tamper("delay", fault.seconds)
    if kind == "late":
        return Tamper("late", fault.seconds)
    if kind in ("reset", "done-reset", "half"):
        return Tamper(kind)  # type: ignore[arg-type]
    status = int(kind.removeprefix("done-"))
    return Tamper("done-answer" if kind.startswith("done-") else "answer", answer=answer(status, side))


def answer(status: int, side: str) -> bytes:
    """As the server itself would say it: slurmrestd in plain text."""
    reason = REASONS[status]
    if side == "kube":
        body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status, "message": "chaos"})
        kind = "application/json"
    else:
        body, kind = reason, "text/plain"
    retry = "Retry-After: 1\r\n" if status == 429 else ""
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n"
    return (head + body).encode()


def kube_context(sandbox: Sandbox) -> ssl.SSLContext:
    """As the sandbox's administrator."""
    home = sandbox.head / "etc/kubernetes/pki"
    context = ssl.create_default_context(cafile=str(home / "ca.crt"))
    context.load_cert_chain(home / "admin.crt", home / "admin.key")
    return context


def kubeconfig(url: str) -> str:
    """For a process that speaks plain HTTP to its line, which speaks as the administrator."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "chaos", "cluster": {"server": url}}],
        "contexts": [{"name": "chaos", "context": {"cluster": "chaos"}}],
        "current-context": "chaos",
    }
    return json.dumps(document)
