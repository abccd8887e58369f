"""Leader election on the real API server: two electors, a stopped process, a busy loop, a restart."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from slinky.kube import LEASES, Access, Client, Leading
from slinky.kube.leader import LeaderElector
from slinky.kube.leases import lease_clock
from slinky.sandbox.handle import Sandbox
from tests.kube_sandbox.conftest import eventually
from tests.kube_sandbox.elector_process import TIMES

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parent.parent.parent


async def test_one_leads_and_gives_it_back(client: Client, namespace: str) -> None:
    told: list[str] = []
    electors = [
        LeaderElector(
            client.access,
            "election",
            namespace,
            name,
            on_started=lambda name=name: told.append(f"{name} started"),  # type: ignore[misc]
            on_stopped=lambda name=name: told.append(f"{name} stopped"),  # type: ignore[misc]
        )
        for name in ("a", "b")
    ]
    first, second = electors
    first.start()
    await eventually("the first leads", lambda: first.is_leader)
    second.start()
    await eventually("the second knows", lambda: second.holder == "a")
    assert not second.is_leader
    before = time.monotonic()
    await first.stop()
    assert not first.is_leader
    await eventually("the second leads", lambda: second.is_leader)
    assert time.monotonic() - before < 8, "a Lease given back is not waited for"
    lease = await client.get(LEASES, "election", namespace)
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds, lease.spec.lease_transitions) == ("b", 15, 1)
    await second.stop()
    assert (await client.get(LEASES, "election", namespace)).spec.holder_identity == ""
    await eventually("all was told", lambda: told == ["a started", "a stopped", "b started", "b stopped"])


async def test_a_leaders_notes_stay_on_the_lease_for_the_next_one(client: Client, namespace: str) -> None:
    notes: dict[str, str] = {}
    first = LeaderElector(client.access, "election", namespace, "a", times=TIMES, notes=lambda: notes)
    first.start()
    await eventually("the first leads", lambda: first.is_leader)
    notes = {"example.com/note": "1"}

    async def said() -> str:
        return (await client.get(LEASES, "election", namespace)).metadata.annotations.get("example.com/note", "")

    async with asyncio.timeout(30):
        while await said() != "1":
            await asyncio.sleep(0.05)
    notes = {"example.com/note": "2"}
    await first.stop()
    second = LeaderElector(client.access, "election", namespace, "b", times=TIMES)
    second.start()
    await eventually("the second leads", lambda: second.is_leader)
    assert await said() == "2", "written when the Lease was given back"
    await second.stop()


async def test_a_busy_main_loop_keeps_the_lease(access: Access, namespace: str) -> None:
    elector = LeaderElector(access, "election", namespace, "busy", times=TIMES)
    rival = LeaderElector(access, "election", namespace, "rival", times=TIMES)
    elector.start()
    await eventually("it leads", lambda: elector.is_leader)
    rival.start()
    await eventually("the rival waits", lambda: rival.holder == "busy")
    until = time.monotonic() + TIMES.lease + 1
    samples = set()
    while time.monotonic() < until:  # no await: the loop is stuck for longer than the Lease lasts
        samples.add((elector.is_leader, rival.is_leader))
    assert samples == {(True, False)}
    await elector.stop()
    await rival.stop()


async def test_one_time_is_over_before_the_next_and_none_is_without_the_lease(client: Client, namespace: str) -> None:
    told: list[str] = []
    leading = Leading(client.access, "election", namespace, elect=True, seconds=3)

    async def lead() -> None:
        told.append(f"begins {leading.may_act()}")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)  # what a time leaves is put in order before the next
            told.append("is over")

    assert not leading.may_act()
    service = asyncio.create_task(leading.run(lead))
    try:
        await eventually("it leads", lambda: told == ["begins True"])
        await client.patch(LEASES, "election", {"spec": {"holderIdentity": "somebody-else"}}, namespace)
        await eventually("its first time is over, and the other was silent for long enough", lambda: len(told) == 3)
        assert told == ["begins True", "is over", "begins True"]
    finally:
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)
    assert told[-1] == "is over"
    assert not leading.may_act()
    assert (await client.get(LEASES, "election", namespace)).spec.holder_identity == ""


async def test_a_stopped_process_does_not_believe_it_leads_when_it_goes_on(sandbox: Sandbox, access: Access, namespace: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.kube_sandbox.elector_process",
        str(sandbox.kubeconfig),
        namespace,
        "sleeper",
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    output = process.stdout
    rival = LeaderElector(access, "election", namespace, "rival", times=TIMES)

    async def line() -> tuple[float, bool]:
        moment, leads = (await asyncio.wait_for(output.readline(), 20)).split()
        return float(moment), leads == b"1"

    try:
        while not (await line())[1]:
            pass
        rival.start()
        await eventually("the rival waits", lambda: rival.holder == "sleeper")
        process.send_signal(signal.SIGSTOP)
        assert not rival.is_leader
        await eventually("the rival leads", lambda: rival.is_leader)
        rival_leads_since = lease_clock()
        process.send_signal(signal.SIGCONT)
        after: list[bool] = []
        while len(after) < 100:
            moment, leads = await line()
            if moment >= rival_leads_since:
                after.append(leads)
        assert not any(after)
        assert rival.is_leader
    finally:
        process.kill()
        await process.communicate()
        await rival.stop()
