"""The API server killed and started again, on a sandbox that no other test uses: other controllers take half a minute to come to themselves."""

from collections import Counter

import pytest

from slinky.kube import LEASES, Access, Change, ChangeType, Client, ElectionTimes, Key, KubeObject, LeaderElector
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.conftest import Starter
from tests.kube_sandbox.conftest import eventually
from tests.kube_sandbox.faults import FaultyLine
from tests.kube_sandbox.test_reflector import CONFIG_MAPS, follow, make

pytestmark = [pytest.mark.sandbox, pytest.mark.long]


@pytest.fixture(scope="module")
def sandbox(start_sandbox: Starter) -> Sandbox:
    return start_sandbox("kube-restarts", Shape(nodes=1))


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "paged"])
async def test_an_expired_version_means_a_relist_that_tells_exactly_what_changed(
    sandbox: Sandbox, line: FaultyLine, client: Client, namespace: str, streamed: bool
) -> None:
    """A restarted API server cannot go on from a version before its start; the changes happened while we were cut off."""
    await make(client, namespace, "same", "changed", "deleted", "made-again")
    async with Client(line.access) as lossy:
        reflector = follow(lossy, namespace, streamed_lists=streamed)
        async with reflector.running() as cache:
            await cache.wait_synced(10)
            changes: list[Change[KubeObject]] = []
            cache.subscribe(changes.append, replay=False)
            before = cache.get("made-again", namespace)
            await line.refuse()
            await make(client, namespace, "added")
            await client.patch(CONFIG_MAPS, "changed", {"data": {"k": "v"}}, namespace)
            await client.delete(CONFIG_MAPS, "deleted", namespace)
            await client.delete(CONFIG_MAPS, "made-again", namespace)
            await make(client, namespace, "made-again")
            await sandbox.restart("kube-apiserver", seconds=1)

            async def is_ready() -> bool:
                return await client.raw("GET", "/readyz", seconds=2) == b"ok"

            await eventually("the API server was back", is_ready, 60)
            assert changes == []
            await line.listen()
            await eventually("it listed anew", lambda: reflector.health.relists >= 2)
            await eventually("all was told", lambda: len(changes) >= 5)
            told = Counter((change.type, change.key.name) for change in changes)
            assert told == Counter(
                {
                    (ChangeType.ADDED, "added"): 1,
                    (ChangeType.MODIFIED, "changed"): 1,
                    (ChangeType.DELETED, "deleted"): 1,
                    (ChangeType.DELETED, "made-again"): 1,
                    (ChangeType.ADDED, "made-again"): 1,
                }
            )
            after = cache.by_key(Key(namespace, "made-again"))
            assert before is not None
            assert after is not None
            assert before.metadata.uid != after.metadata.uid


async def test_the_leader_leads_on_through_a_restart_of_the_server(
    sandbox: Sandbox, access: Access, client: Client, namespace: str
) -> None:
    elector = LeaderElector(access, "election", namespace, "steady", times=ElectionTimes(lease=30, renew=25, retry=0.5))
    elector.start()
    await eventually("it leads", lambda: elector.is_leader)
    before = (await client.get(LEASES, "election", namespace)).spec.renew_time
    await sandbox.restart("kube-apiserver", seconds=1)

    async def renewed_again() -> bool:
        lease = await client.get(LEASES, "election", namespace, seconds=2)
        assert elector.is_leader
        return lease.spec.renew_time is not None and before is not None and lease.spec.renew_time > before

    await eventually("the Lease was renewed after the restart", renewed_again, 60)
    assert (await client.get(LEASES, "election", namespace)).spec.lease_transitions == 0
    await elector.stop()
