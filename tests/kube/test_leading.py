"""A service's time as leader where nobody elects: it begins at once, and what it raises is heard. With an election, see tests/kube_sandbox."""

import asyncio

import pytest

from slinky.kube import Access, Leading

NOBODY = Access(server="http://localhost:1")


async def test_without_an_election_it_leads_at_once_and_what_it_raises_ends_it() -> None:
    leading = Leading(NOBODY, "lease", "ns", elect=False, seconds=15)
    assert leading.may_act()

    async def lead() -> None:
        raise ValueError("a fault of ours")

    with pytest.raises(ValueError, match="a fault of ours"):
        await leading.run(lead)


async def test_its_end_waits_for_what_a_time_leaves() -> None:
    told: list[str] = []
    leading = Leading(NOBODY, "lease", "ns", elect=False, seconds=15)

    async def lead() -> None:
        told.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            told.append("is over")

    service = asyncio.create_task(leading.run(lead))
    while not told:
        await asyncio.sleep(0)
    service.cancel()
    with pytest.raises(asyncio.CancelledError):
        await service
    assert told == ["begins", "is over"]


def test_before_an_election_nobody_may_act() -> None:
    assert not Leading(NOBODY, "lease", "ns", elect=True, seconds=15).may_act()
