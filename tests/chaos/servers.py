"""Faults of servers and of the bridge's processes, carried out on a sandbox.

Comes in: a fault, when its time has come. Goes out: the deed, its undoing after `seconds`, and a word to the journal. What must stay true: whatever is stopped goes on, whatever is taken away comes back, also when the run is broken off; of
one thing only one fault at a time.
"""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from slinky.kube import LEASES, Client, KubeError, PatchKind
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from tests.chaos.journal import Journal
from tests.chaos.lines import Lines
from tests.chaos.nodes import Nodes
from tests.chaos.old_state import OldState
from tests.chaos.processes import ADMISSION, CLUSTER, RUNNERS, Processes
from tests.chaos.schedule import OLD_STATE, Fault

__all__ = ["Servers"]

STOP_SECONDS = 3.0  # an API server with open watches would take half a minute to end


class Servers:
    def __init__(
        self, sandbox: Sandbox, kube: Client, lines: Lines, processes: Processes, nodes: Nodes, journal: Journal, old: OldState
    ) -> None:
        self._sandbox, self._kube, self._lines, self._processes = sandbox, kube, lines, processes
        self._journal, self._old = journal, old
        self._busy: set[str] = set()
        self._deeds: Mapping[str, Callable[[Fault, random.Random], Awaitable[str]]] = {
            "slurmrestd-restart": lambda fault, _: self._restart("slurmrestd", fault),
            "slurmctld-restart": lambda fault, _: self._restart("slurmctld", fault),
            "slurmdbd-restart": lambda fault, _: self._restart("slurmdbd", fault),
            "apiserver-restart": lambda fault, _: self._restart("kube-apiserver", fault),
            "slurmctld-stopped": self._slurmctld_stopped,
            "leader-killed": lambda fault, _: self._end_leader(signal.SIGKILL, fault),
            "leader-restart": lambda fault, _: self._end_leader(signal.SIGTERM, fault),
            "leader-stopped": self._leader_stopped,
            "waiting-one-killed": self._waiting_one_killed,
            "lease-taken": self._lease_taken,
            "slurm-unreachable": lambda fault, dice: self._unreachable("slurm", fault, dice),
            "kube-unreachable": lambda fault, dice: self._unreachable("kube", fault, dice),
            "webhook-down": self._webhook_down,
            "token-rotated": self._token_rotated,
            "token-expired": self._token_expired,
            OLD_STATE: self._old_state,
            **nodes.deeds,
        }

    async def strike(self, fault: Fault) -> None:
        """Until it has passed. Where there is nothing to strike, or it is struck already, nothing is done."""
        dice = random.Random(f"{fault.kind} {fault.target}")
        try:
            target = await self._deeds[fault.kind](fault, dice)
        except (SandboxError, KubeError, OSError) as error:
            self._journal.missed(fault.kind, f"{fault.target}: {str(error).splitlines()[0]}")
            return
        if target:
            self._journal.over(fault.kind, target)
        else:
            self._journal.missed(fault.kind, fault.target)

    def _take(self, thing: str) -> bool:
        if thing in self._busy:
            return False
        self._busy.add(thing)
        return True

    # Servers

    async def _restart(self, part: str, fault: Fault) -> str:
        if not self._take(part):
            return ""
        try:
            self._journal.struck(fault.kind, part, seconds=fault.seconds)
            stopped = await self._sandbox.stop(part, STOP_SECONDS)
            await asyncio.sleep(fault.seconds)
            await self._sandbox.link.start(stopped)
        finally:
            self._busy.discard(part)
        return part

    async def _slurmctld_stopped(self, fault: Fault, _: random.Random) -> str:
        if not self._take("slurmctld"):
            return ""
        try:
            self._journal.struck(fault.kind, "slurmctld", seconds=fault.seconds)
            await self._sandbox.link.signal("slurmctld", signal.SIGSTOP)
            await asyncio.sleep(fault.seconds)
        finally:
            await self._sandbox.link.signal("slurmctld", signal.SIGCONT)
            self._busy.discard("slurmctld")
        return "slurmctld"

    async def _old_state(self, fault: Fault, _: random.Random) -> str:
        if not self._take("slurmctld"):
            return ""
        try:
            await self._old.keep()
            await asyncio.sleep(fault.seconds)
            self._journal.struck(fault.kind, "slurmctld", seconds=fault.seconds)
            self._journal.act("old-state", "slurmctld", str(self._old.kept_at))
            await self._old.restore()
        finally:
            self._busy.discard("slurmctld")
        return "slurmctld"

    # The bridge's processes

    async def _end_leader(self, number: signal.Signals, fault: Fault) -> str:
        name = await self._processes.leader()
        return await self._end(name, number, fault)

    async def _waiting_one_killed(self, fault: Fault, _: random.Random) -> str:
        leader = await self._processes.leader()
        return await self._end(next(name for name in RUNNERS if name != leader), signal.SIGKILL, fault)

    async def _end(self, name: str, number: signal.Signals, fault: Fault) -> str:
        if not self._take(name):
            return ""
        try:
            self._journal.struck(fault.kind, name, seconds=fault.seconds)
            await self._processes.restart(name, number, fault.seconds)
        finally:
            self._busy.discard(name)
        return name

    async def _leader_stopped(self, fault: Fault, _: random.Random) -> str:
        name = await self._processes.leader()
        if not self._take(name):
            return ""
        try:
            self._journal.struck(fault.kind, name, seconds=fault.seconds)
            self._processes.halt(name)
            await asyncio.sleep(fault.seconds)
        finally:
            self._processes.go_on(name)
            self._busy.discard(name)
        return name

    async def _lease_taken(self, fault: Fault, _: random.Random) -> str:
        """Somebody else has it: who led must notice, and wait until that one has been silent for long enough."""
        change = {"spec": {"holderIdentity": "somebody-else"}}
        await self._kube.patch(LEASES, CLUSTER, change, "kube-system", kind=PatchKind.MERGE)
        self._journal.struck(fault.kind, CLUSTER)
        return CLUSTER

    async def _webhook_down(self, fault: Fault, _: random.Random) -> str:
        return await self._end(ADMISSION, signal.SIGKILL, fault)

    async def _unreachable(self, side: str, fault: Fault, dice: random.Random) -> str:
        """For one of the processes, or for both."""
        lines: Mapping[str, Any] = self._lines.slurm if side == "slurm" else self._lines.kube
        names = dice.choice([RUNNERS, RUNNERS[:1], RUNNERS[1:]])
        thing = f"{side} of {' and '.join(names)}"
        if not self._take(side):
            return ""
        try:
            self._journal.struck(fault.kind, thing, seconds=fault.seconds)
            await asyncio.gather(*(lines[name].refuse() for name in names))
            await asyncio.sleep(fault.seconds)
        finally:
            for name in names:
                await lines[name].listen()
            self._busy.discard(side)
        return thing

    async def _token_rotated(self, fault: Fault, _: random.Random) -> str:
        self._processes.new_token()
        self._journal.struck(fault.kind, "the bridge's token")
        return "token"

    async def _token_expired(self, fault: Fault, _: random.Random) -> str:
        try:
            self._processes.new_token(expired=True)
            self._journal.struck(fault.kind, "the bridge's token", seconds=fault.seconds)
            await asyncio.sleep(fault.seconds)
        finally:
            self._processes.new_token()
        return "token"
