"""Tokens: a Slurm user's token in a Secret, made anew before it is over. Pure, but for the last class.

Comes in: a Token, the key that signs, and the token that is in the Secret. Goes out: a new token where one is needed, and the moment to look again. What must stay true: a token is made only for users whom the settings allow, with the webhook or
without; one that is signed by another key, for another user or for another time is not left there; a token is in its Secret and in no log.
"""

import base64
import binascii
import datetime as dt
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from slinky.kube import Key, Meta
from slinky.operator import names
from slinky.operator.children import Child, Owner
from slinky.operator.conditions import settled
from slinky.operator.kinds import Token, Written
from slinky.operator.kinds.durations import seconds_of
from slinky.operator.objects.secrets import token_secret, token_secret_name
from slinky.operator.trouble import Trouble
from slinky.operator.validation import problems
from slinky.slurm.credentials import mint

if TYPE_CHECKING:
    from slinky.operator.site import Site

__all__ = ["SHARE", "Held", "TokenKeeper", "held_token", "next_look"]

SHARE = 0.8  # of its life after which another takes its place


class Held(msgspec.Struct, frozen=True):
    """A token that stands in a Secret and is as it should be."""

    issued_at: int
    expires_at: int


def held_token(text: bytes | None, key: bytes, user: str, lifetime: float) -> Held | None:
    """What a Secret holds, if it is what we would have made; None where it is anything else."""
    if not text:
        return None
    try:
        part = text.split(b".")[1]
        issued = int(json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))["iat"])
    except (LookupError, TypeError, ValueError, binascii.Error):
        return None
    if mint(key, user, lifetime, issued).encode() != text.strip():
        return None
    return Held(issued, int(issued + lifetime))


def next_look(held: Held, now: float) -> float:
    """Seconds until a new one is due; 0 where it is."""
    return max(0.0, held.issued_at + SHARE * (held.expires_at - held.issued_at) - now)


class TokenKeeper:
    """One Token's turn: `await keeper.keep(found, token)` gives the seconds until the next, or None."""

    def __init__(self, site: "Site", clock: Callable[[], float] = time.time) -> None:
        self._site = site
        self._clock = clock

    async def keep(self, found: Written, token: Token) -> float | None:
        site, spec, namespace = self._site, token.spec, token.metadata.namespace
        owner = Owner("Token", namespace, token.metadata.name, token.metadata.uid)
        if not site.settings.allows_token(namespace, spec.username):
            await site.applier.apply([], owner)
            raise Trouble("UserNotAllowed", f"tokens for user {spec.username} are not allowed in namespace {namespace}", lasting=True)
        if wrong := problems(token, site.settings):
            raise Trouble(wrong[0].reason, "; ".join(map(str, wrong)), lasting=True)
        key, lifetime = await self._key(token), seconds_of(spec.lifetime)
        name, place = token_secret_name(token)
        there = await site.watches.files.content("Secret", name, namespace)
        if there is not None and not self._is_for(there.metadata, owner, token):
            raise Trouble("SecretTaken", f"Secret {name} is there already, and is not this Token's", lasting=True)
        text = there.bytes_of(place) if there else None
        held = held_token(text, key, spec.username, lifetime)
        if held is None and text and not spec.refresh:
            raise Trouble("NotRefreshed", f"Secret {name} holds a token that is not as the spec says, and refresh is false", lasting=True)
        if held is None or (spec.refresh and next_look(held, self._clock()) <= 0):
            held = await self._make(owner, token, key, lifetime)
            site.statuses.event("Token", found, "TokenIssued", f"a token for {spec.username} was put into Secret {name}")
        else:
            await site.applier.apply([], owner, kept=[Child("Secret", Key(namespace, name))])
        moments = {"issuedAt": _moment(held.issued_at), "expiresAt": _moment(held.expires_at)}
        await site.statuses.say("Token", found, settled(f"Secret {name} holds a token for {spec.username}"), **moments)
        return max(1.0, next_look(held, self._clock())) if spec.refresh else None

    @staticmethod
    def _is_for(found: Meta, owner: Owner, token: Token) -> bool:
        """Its own, or one that the original made: that belongs to the Secret with the key."""
        key, holder = token.spec.jwt_reference, found.controller
        if key is not None and holder is not None and holder.kind == "Secret":
            return holder.name == key.name
        return any(owner.uid == each.uid for each in found.owner_references)

    async def _key(self, token: Token) -> bytes:
        reference = token.spec.jwt_reference
        if reference is None or not reference.name:
            raise Trouble("InvalidSpec", "spec.jwtKeyRef names no Secret", lasting=True)
        return await self._site.secret_key(reference.name, reference.key or names.JWT_KEY, token.metadata.namespace)

    async def _make(self, owner: Owner, token: Token, key: bytes, lifetime: float) -> Held:
        now = int(self._clock())
        await self._site.applier.apply([token_secret(token, mint(key, token.spec.username, lifetime, now))], owner)
        return Held(now, int(now + lifetime))


def _moment(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
