"""A Token's turns over a day, with a clock of the test's own."""

import base64
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from slinky.kube import Meta
from slinky.kube.objects import OwnerReference
from slinky.operator.children import Child, Owner
from slinky.operator.files import Content
from slinky.operator.kinds import KeyReference, Token, TokenSpec, Written
from slinky.operator.settings import Settings
from slinky.operator.tokens import TokenKeeper
from slinky.operator.trouble import Trouble
from slinky.slurm.credentials import claimed_user


class World:
    """One namespace: its Secrets, as the keeper sees and writes them."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1_000_000.0
        self.key = b"k" * 32
        self.secrets: dict[str, dict[str, str]] = {}
        self.said: dict[str, Any] = {}
        self.told: list[str] = []
        self.owner = OwnerReference(uid="uid-t", controller=True)
        self.settings = Settings(**settings)
        self.watches = SimpleNamespace(files=self)
        self.applier = self.statuses = self
        self.keeper = TokenKeeper(self, clock=lambda: self.now)  # type: ignore[arg-type]

    async def content(self, _kind: str, name: str, namespace: str) -> Content | None:
        if name not in self.secrets:
            return None
        meta = Meta(name=name, namespace=namespace, owner_references=(self.owner,))
        return Content(metadata=meta, data=self.secrets[name])

    async def secret_key(self, _name: str, _key: str, _namespace: str) -> bytes:
        return self.key

    async def apply(self, objects: Sequence[dict[str, Any]], _owner: Owner, *, kept: Sequence[Child] = ()) -> None:
        names = {each["metadata"]["name"] for each in objects} | {child.key.name for child in kept}
        self.secrets = {name: data for name, data in self.secrets.items() if name in names}
        self.secrets |= {each["metadata"]["name"]: each["data"] for each in objects}

    async def say(self, _kind: str, _found: Written, standing: Any, **fields: Any) -> None:
        self.said = {"standing": standing, **fields}

    def event(self, _kind: str, _found: Written, reason: str, _note: str) -> None:
        self.told.append(reason)

    async def turn(self, **said: Any) -> float | None:
        spec: dict[str, Any] = {"username": "alice", "jwt_key_ref": KeyReference(name="key", key="jwt.key"), "lifetime": "1h"} | said
        token = Token(
            metadata=Meta(name="t", namespace="lab", uid="uid-t"),
            spec=TokenSpec(**spec),
        )
        return await self.keeper.keep(Written(metadata=token.metadata), token)

    def token(self, user: str = "alice") -> str:
        return base64.b64decode(self.secrets[f"t-jwt-{user}"]["SLURM_JWT"]).decode()


async def test_over_a_day_there_is_always_a_good_token_and_few_are_made() -> None:
    world = World()
    seen: list[str] = []
    for _ in range(100):
        wait = await world.turn()
        assert wait is not None and wait > 0
        if not seen or seen[-1] != world.token():
            seen.append(world.token())
        assert claimed_user(world.token()) == "alice"
        world.now += wait
        if world.now > 1_000_000 + 86400:
            break
    assert len(seen) == 86400 // 2880 + 1  # one in 48 minutes
    assert world.told == ["TokenIssued"] * len(seen)


async def test_nothing_is_made_before_its_time() -> None:
    world = World()
    wait = await world.turn()
    first = world.token()
    world.now += (wait or 0) - 1
    assert await world.turn() == 1.0 and world.token() == first
    world.now += 1
    await world.turn()
    assert world.token() != first


async def test_another_key_user_or_lifetime_makes_another_at_once() -> None:
    world = World()
    await world.turn()
    first = world.token()
    world.key = b"n" * 32
    await world.turn()
    second = world.token()
    assert second != first
    await world.turn(lifetime="2h")
    assert world.token() != second
    await world.turn(username="bob")
    assert set(world.secrets) == {"t-jwt-bob"}


async def test_one_that_is_not_refreshed_stays_as_it_is() -> None:
    world = World()
    assert await world.turn(refresh=False) is None
    first = world.token()
    world.now += 100 * 3600
    assert await world.turn(refresh=False) is None
    assert world.token() == first


async def test_a_user_who_is_no_longer_allowed_loses_the_token() -> None:
    world = World()
    await world.turn()
    world.settings = Settings(allowed_token_users={"lab": ["bob"]})
    with pytest.raises(Trouble, match="alice") as trouble:
        await world.turn()
    assert trouble.value.reason == "UserNotAllowed" and not world.secrets


@pytest.mark.parametrize("user", ["root", "slurm"])
async def test_a_star_never_means_those_whom_slurm_obeys(user: str) -> None:
    world = World(allowed_token_users={"*": ["*"]})
    with pytest.raises(Trouble):
        await world.turn(username=user)
    assert not world.secrets


def _of_secret(name: str) -> OwnerReference:
    return OwnerReference(kind="Secret", name=name, uid="uid-key", controller=True)


async def test_a_secret_that_the_original_made_is_refreshed() -> None:
    """There it belongs to the Secret with the key. Left alone, its token would soon be over."""
    world = World()
    world.owner = _of_secret("key")
    theirs = base64.b64encode(b"the.originals.token").decode()
    world.secrets = {"t-jwt-alice": {"SLURM_JWT": theirs}}
    assert await world.turn()
    assert claimed_user(world.token()) == "alice" and world.told == ["TokenIssued"]


async def test_a_secret_of_another_keys_is_left_alone() -> None:
    world = World()
    world.owner = _of_secret("another")
    world.secrets = {"t-jwt-alice": {"SLURM_JWT": "dGhlaXJz"}}
    with pytest.raises(Trouble) as trouble:
        await world.turn()
    assert trouble.value.reason == "SecretTaken"
    assert world.secrets == {"t-jwt-alice": {"SLURM_JWT": "dGhlaXJz"}}
