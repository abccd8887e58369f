"""The cache against a plain dict, through generated histories."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slinky.kube import Cache, Change, ChangeType, Key, KubeError, KubeObject, Meta
from slinky.kube.cache import differences

NAMES = st.sampled_from("abc")
LABELS = st.sampled_from(["", "red", "blue"])
UIDS = st.integers(0, 2)


def thing(name: str, uid: int = 0, version: int = 0, colour: str = "") -> KubeObject:
    return KubeObject(
        metadata=Meta(name=name, namespace="n", uid=str(uid), resource_version=str(version), labels={"colour": colour} if colour else {})
    )


def colours(found: KubeObject) -> list[str]:
    return list(found.metadata.labels.values())


class Replica:
    """Holds what it is told, and insists on being told the truth."""

    def __init__(self) -> None:
        self.held: dict[Key, KubeObject] = {}

    def __call__(self, change: Change[KubeObject]) -> None:
        assert (change.type is ChangeType.ADDED) == (change.old is None) == (change.key not in self.held), change
        assert (change.type is ChangeType.DELETED) == (change.new is None), change
        if change.type is ChangeType.MODIFIED:
            assert change.old is self.held[change.key]
            assert change.new is not None
            assert change.new.metadata.uid == self.held[change.key].metadata.uid
        if change.new is None:
            del self.held[change.key]
        else:
            self.held[change.key] = change.new


class Histories(RuleBasedStateMachine):
    """Puts, removals and relists in any order: reads, index, subscribers and late subscribers all agree with a dict."""

    @initialize()
    def start(self) -> None:
        self.cache: Cache[KubeObject] = Cache()
        self.cache.add_index("colour", colours)
        self.replica = Replica()
        self.cache.subscribe(self.replica)
        self.truth: dict[Key, KubeObject] = {}
        self.version = 0

    @rule(name=NAMES, uid=UIDS, colour=LABELS)
    def put(self, name: str, uid: int, colour: str) -> None:
        self.version += 1
        new = thing(name, uid, self.version, colour)
        self.truth[new.key] = new
        self.cache.put(new)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.truth.pop(Key("n", name), None)
        self.cache.remove(Key("n", name))

    @rule(kept=st.dictionaries(NAMES, st.tuples(UIDS, LABELS)))
    def relist(self, kept: dict[str, tuple[int, str]]) -> None:
        self.version += 1
        listed = {}
        for name, (uid, colour) in kept.items():
            held = self.truth.get(Key("n", name))
            same = held is not None and held.metadata.uid == str(uid)
            new = held if same and held is not None else thing(name, uid, self.version, colour)
            listed[new.key] = new
        self.truth = listed
        asyncio.run(self.cache.replace(dict(listed), batch=1))

    @invariant()
    def all_agree(self) -> None:
        assert {found.key: found for found in self.cache.list()} == self.truth == self.replica.held
        for colour in ("red", "blue"):
            expected = {key for key, found in self.truth.items() if colour in colours(found)}
            assert {found.key for found in self.cache.by_index("colour", colour)} == expected
        assert set(self.cache.index_values("colour")) == {c for found in self.truth.values() for c in colours(found)}
        late = Replica()
        self.cache.subscribe(late)()
        assert late.held == self.truth


TestHistories = Histories.TestCase


def test_an_unchanged_object_is_no_change() -> None:
    held = {Key("n", "a"): thing("a", version=5)}
    assert list(differences(held, {Key("n", "a"): thing("a", version=5)})) == []


def test_one_made_again_under_its_name_is_deleted_and_added() -> None:
    old, new = {Key("n", "a"): thing("a", uid=1)}, {Key("n", "a"): thing("a", uid=2)}
    assert [change.type for change in differences(old, new)] == [ChangeType.DELETED, ChangeType.ADDED]


def test_a_failing_subscriber_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    cache: Cache[KubeObject] = Cache()
    seen: list[Change[KubeObject]] = []

    def failing(_: Change[KubeObject]) -> None:
        raise RuntimeError("oh dear")

    cache.subscribe(failing)
    cache.subscribe(seen.append)
    with caplog.at_level(logging.ERROR):
        cache.put(thing("a"))
    assert [change.type for change in seen] == [ChangeType.ADDED]
    assert "oh dear" in caplog.text


def test_a_failing_index_function_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    cache: Cache[KubeObject] = Cache()
    cache.add_index("colour", lambda found: [found.metadata.labels["colour"]])
    with caplog.at_level(logging.ERROR):
        for colour in ("", "red", "", "blue"):
            cache.put(thing("a", colour=colour))
    assert cache.index_values("colour") == ["blue"]
    assert "index function failed" in caplog.text


@given(st.lists(st.tuples(NAMES, UIDS, st.booleans())), st.integers(1, 5))
def test_a_slow_reader_of_changes_arrives_at_the_same_state(steps: list[tuple[str, int, bool]], pace: int) -> None:
    """It fetches once in a while; what it missed is merged, at most two changes a key, and the sum is right."""

    async def history() -> None:
        cache: Cache[KubeObject] = Cache()
        replica: dict[Key, KubeObject] = {}
        async with cache.changes() as changes:

            async def read() -> None:
                async for change in changes:
                    if change.new is None:
                        del replica[change.key]
                    else:
                        assert (change.type is ChangeType.ADDED) == (change.key not in replica)
                        replica[change.key] = change.new

            reader = asyncio.create_task(read())
            for version, (name, uid, gone) in enumerate(steps):
                if gone:
                    cache.remove(Key("n", name))
                else:
                    cache.put(thing(name, uid, version))
                assert all(len(waiting) <= 2 for waiting in changes._pending.values())
                if version % pace == 0:
                    await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
            assert replica == {found.key: found for found in cache.list()}
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    asyncio.run(history())


async def test_waiting_for_the_first_list_has_an_end() -> None:
    cache: Cache[KubeObject] = Cache()
    with pytest.raises(KubeError, match="did not arrive"):
        await cache.wait_synced(0.01)
    await cache.replace({})
    await cache.wait_synced(0)
