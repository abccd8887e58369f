"""When a token is made anew, and whose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.operator.tokens import Held, held_token, next_look
from slinky.slurm.credentials import mint

KEY = b"k" * 32


def test_a_token_of_ours_is_known_again() -> None:
    text = mint(KEY, "alice", 900, 1000).encode()
    assert held_token(text, KEY, "alice", 900) == Held(1000, 1900)
    assert held_token(text + b"\n", KEY, "alice", 900) == Held(1000, 1900)


@pytest.mark.parametrize(
    ("key", "user", "lifetime"), [(b"x" * 32, "alice", 900), (KEY, "bob", 900), (KEY, "alice", 3600)], ids=["key", "user", "lifetime"]
)
def test_a_token_by_another_key_for_another_user_or_time_does_not_count(key: bytes, user: str, lifetime: float) -> None:
    assert held_token(mint(KEY, "alice", 900, 1000).encode(), key, user, lifetime) is None


@given(st.binary(max_size=80))
def test_anything_else_in_the_secret_is_no_token(text: bytes) -> None:
    assert held_token(text, KEY, "alice", 900) is None


@given(st.integers(0, 2000))
def test_a_new_one_is_due_at_four_fifths_of_its_life(now: int) -> None:
    wait = next_look(Held(1000, 2000), now)
    assert wait == max(0, 1800 - now)
    assert next_look(Held(1000, 2000), now + wait) == 0
