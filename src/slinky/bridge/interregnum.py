"""A time in which no bridge leads: what an administrator's command needs before it changes what a bridge would change too.

Comes in: access to Kubernetes, the settings. Goes out: leave to act, for as long as the Lease is ours; or an error that names who leads. What must stay true: nothing is changed while a bridge leads or could; the Lease is given back at the end,
whatever happened; without leader election nobody can tell, so one must be told.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from slinky.bridge.claim import claim_lease
from slinky.bridge.settings import Settings
from slinky.kube import (
    LEASES,
    NAMESPACES,
    Access,
    Client,
    ConflictError,
    ElectionTimes,
    KubeError,
    LeaderElector,
    NotFoundError,
)

__all__ = ["BridgeLeadsError", "interregnum", "leader_of", "remove_lease"]

MARGIN_SECONDS = 1.0


class BridgeLeadsError(KubeError):
    """A bridge is at work, or may be."""


@asynccontextmanager
async def interregnum(
    access: Access, kube: Client, settings: Settings, command: str, *, none_runs: bool = False
) -> AsyncIterator[Callable[[], bool]]:
    """Yields a function that tells whether one may act (still). `none_runs`: we are told that no bridge runs, and take the Lease from whoever has it. Raises BridgeLeadsError."""
    lease, home = settings.leader.name, settings.namespace
    if not settings.leader.elect and not none_runs:
        raise BridgeLeadsError(
            "leader.elect is off, so nobody can tell whether a bridge runs; stop all of them (slinky bridge run), and say --no-bridge-runs"
        )
    if not settings.leader.elect or not await _exists(kube, home):  # without its namespace no bridge can lead
        yield lambda: True
        return
    if none_runs:
        with suppress(NotFoundError):
            await kube.delete(LEASES, lease, home)
    began = asyncio.Event()
    seconds = settings.leader.seconds
    elector = LeaderElector(
        access,
        lease,
        home,
        f"{command}_{socket.gethostname()}_{os.urandom(4).hex()}",
        times=ElectionTimes.within(seconds),
        on_started=began.set,
    )
    elector.start()
    try:
        try:
            async with asyncio.timeout(seconds * 1.2 + MARGIN_SECONDS):
                await began.wait()
        except TimeoutError:
            raise BridgeLeadsError(
                f"a bridge leads: {elector.holder or 'Lease cannot be read or written'} (Lease {home}/{lease}); end all of them first (scale their Deployment to 0), or, if none runs, say --no-bridge-runs"
            ) from None
        yield lambda: elector.is_leader
    finally:
        await elector.stop()


async def leader_of(kube: Client, settings: Settings) -> str:
    """Who holds the Lease, as far as it says: it may have run out. Empty where nobody does."""
    try:
        return (await kube.get(LEASES, settings.leader.name, settings.namespace)).spec.holder_identity
    except NotFoundError:
        return ""


async def remove_lease(kube: Client, settings: Settings) -> str:
    """Once it was given back, and with it the Lease of the claim. Who has taken it meanwhile, if somebody has: then it stays."""
    name, home = settings.leader.name, settings.namespace
    try:
        found = await kube.get(LEASES, name, home)
        if found.spec.holder_identity:
            return found.spec.holder_identity
        await kube.delete(LEASES, name, home, uid=found.metadata.uid, resource_version=found.metadata.resource_version)
        await kube.delete(LEASES, claim_lease(name), home)
    except NotFoundError:
        return ""
    except ConflictError:
        return await leader_of(kube, settings) or "somebody"
    return ""


async def _exists(kube: Client, namespace: str) -> bool:
    try:
        await kube.get(NAMESPACES, namespace)
    except NotFoundError:
        return False
    return True
