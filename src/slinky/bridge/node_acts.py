"""One act of the registration or of the states, carried out in Slurm and told to people.

Comes in: an action from a plan. Goes out: a request, a line in the log, an Event. What must stay true: whatever came in between (it was done already, the node is gone, a job is still there) is no fault: the next look tells.
"""

import asyncio
import logging

from slinky.bridge.node_plan import Create, Delete, Down, Drain, Mark, NodeAction, Regroup, Resume, Undrain, Update
from slinky.bridge.node_reasons import CORDONED, LEAVING, OURS, RENEWING
from slinky.bridge.node_registry import NodeRegistry
from slinky.bridge.node_standing import NodeStandings
from slinky.slurm import (
    AlreadyDoneError,
    ConfigurationError,
    NotFoundError,
    OutcomeUnknownError,
    RefusedError,
    UnsupportedError,
)

__all__ = ["NodeActs"]

log = logging.getLogger(__name__)

BUSY = 2016
AT_ONCE = 8  # nodes made or removed side by side: each is a request of its own
QUIET = (LEAVING, RENEWING, CORDONED)  # drains for which people need no Event: they asked for it, or it is told otherwise


class NodeActs:
    def __init__(self, registry: NodeRegistry, standings: NodeStandings) -> None:
        self._registry, self._standings = registry, standings
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def attempt(self, name: str, called: str, action: NodeAction) -> str:
        """What Slurm has against it, if that will not be other after the next look; "" where it was done, or another look will tell. `called` is the node's name in Slurm."""
        try:
            await self._act(name, called, action)
        except OutcomeUnknownError as error:
            log.info("node %s is looked at again: %s", name, error)
            return f"Slurm did not register node {name}: {error.description}" if isinstance(action, Create) else ""
        except (RefusedError, ConfigurationError, UnsupportedError) as error:
            log.info("node %s is looked at again: %s", name, error)
            overtaken = isinstance(error, AlreadyDoneError) or (isinstance(error, NotFoundError) and not isinstance(action, Create))
            busy = isinstance(action, Delete) and error.number == BUSY
            return "" if overtaken or busy else f"Slurm refuses node {name}: {error.description}"
        return ""

    async def _act(self, name: str, called: str, action: NodeAction) -> None:
        match action:
            case Create(description):
                async with self._turns:
                    await self._registry.create(description)
                gres = ", ".join(f"{found.count} {found.name}" for found in description.gres) or "no GRES"
                features = f"features {','.join(description.features)}" if description.features else "drained from the start"
                self._standings.say(
                    name, "Registered", f"in Slurm with {description.cpus} CPUs, {description.real_memory} MiB, {gres}, {features}"
                )
            case Mark(mark):
                await self._registry.mark(called, mark)
                self._standings.say(name, "Registered", "Slurm's external node of this name is looked after from now on")
            case Update(change):
                await self._registry.update(called, change)
                log.info("node %s: changed in Slurm", name)
            case Regroup(mark):
                await self._registry.regroup(called, mark)
            case Drain(reason):
                await self._registry.drain(called, reason)
                self._held(name, "DrainedInSlurm", reason)
            case Down(reason):
                await self._registry.down(called, reason)
                self._standings.say(name, "DownInSlurm", reason, warning=True)
            case Undrain():
                await self._registry.undrain(called)
                log.info("node %s is in use again in Slurm", name)
            case Resume():
                await self._registry.resume(called)
                self._standings.say(name, "ResumedInSlurm", "it is in use again")
            case Delete(again):
                async with self._turns:
                    await self._registry.delete(called)
                self._standings.say(name, "Removed", "from Slurm, to be registered anew" if again else "from Slurm")
            case _:
                raise AssertionError(action)

    def _held(self, name: str, word: str, reason: str) -> None:
        if reason.startswith(QUIET):
            log.info("node %s is drained in Slurm: %s", name, reason)
        else:
            self._standings.say(name, word, reason.removeprefix(OURS).strip(), warning=True)
