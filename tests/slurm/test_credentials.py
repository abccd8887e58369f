"""Where tokens come from, when they are renewed, and that they are shown nowhere."""

import base64
import hashlib
import hmac
import json
import os
import traceback
from pathlib import Path

import pytest

from slinky.slurm import ConfigurationError, Credentials, EnvironmentToken, FixedToken, MintedToken, SlurmClient, TokenFile
from slinky.slurm.credentials import mint

SECRET = "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl"


def test_headers_name_the_user_where_one_is_given() -> None:
    assert FixedToken(SECRET, "alice").headers() == {"X-SLURM-USER-TOKEN": SECRET, "X-SLURM-USER-NAME": "alice"}
    assert FixedToken(SECRET).headers() == {"X-SLURM-USER-TOKEN": SECRET}


def test_the_environment_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = EnvironmentToken("TOKEN_HERE")
    monkeypatch.setenv("TOKEN_HERE", "one.two.three")
    assert credentials.token() == "one.two.three"
    monkeypatch.setenv("TOKEN_HERE", f"SLURM_JWT={SECRET}\n")
    assert credentials.token() == SECRET
    monkeypatch.delenv("TOKEN_HERE")
    with pytest.raises(ConfigurationError, match="TOKEN_HERE"):
        credentials.token()


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    credentials = TokenFile(file, look_every=0)
    assert credentials.token() == "first"
    replacement = tmp_path / "new"
    replacement.write_text("other")  # same length, perhaps the same time: another inode
    os.utime(replacement, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    replacement.rename(file)
    assert credentials.token() == "other"


def test_a_refused_token_is_looked_for_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    credentials = TokenFile(file)
    assert not credentials.stale(credentials.token())
    times = file.stat()
    file.write_text("other")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # a change that cannot be seen from outside
    assert credentials.stale("first")
    assert credentials.token() == "other"


def test_a_minted_token_says_who_and_until_when_and_is_renewed() -> None:
    now = 1000.0
    key = b"k" * 32
    credentials = MintedToken(key, "alice", lifespan=90, clock=lambda: now)
    first = credentials.token()
    signed, _, signature = first.rpartition(".")
    assert base64.urlsafe_b64decode(signature + "=") == hmac.new(key, signed.encode(), hashlib.sha256).digest()
    claims = json.loads(base64.urlsafe_b64decode(first.split(".")[1] + "=="))
    assert claims == {"iat": 1000, "exp": 1090, "sun": "alice"}
    now = 1059.0
    assert credentials.token() == first
    now = 1060.0
    assert credentials.token() != first
    assert credentials.token() == mint(key, "alice", 90, 1060)


@pytest.mark.parametrize("text", ["", "two words", "line\nbreak", "tök"])
def test_what_is_no_token_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        FixedToken(text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("credentials", [FixedToken(SECRET), MintedToken(b"k" * 32, "root")], ids=str)
async def test_a_token_is_in_no_repr_and_no_error(credentials: Credentials) -> None:
    token = credentials.token()
    async with SlurmClient("http://127.0.0.1:9", credentials) as client:
        with pytest.raises(Exception, match="openapi") as caught:
            await client.within(0.5).ping()
        shown = [repr(credentials), repr(client), *traceback.format_exception(caught.value)]
    assert not any(token in text for text in shown)


def test_a_key_too_short_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="32"):
        MintedToken(b"short", "root")


def test_a_file_that_is_empty_for_a_moment_keeps_its_old_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("")
    credentials = TokenFile(file, look_every=0)
    with pytest.raises(ConfigurationError, match="but nothing"):
        credentials.token()
    file.write_text("first")
    assert credentials.token() == "first"
    times = file.stat()
    for text in ("", "\n"):
        file.write_text(text)
        assert credentials.token() == "first"
        assert not credentials.stale("first")
    file.write_text("other")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert credentials.token() == "other"


def test_who_asks_is_told_by_the_token_where_no_user_is_given() -> None:
    token = mint(b"k" * 32, "alice", 90, 1000)
    assert FixedToken(token).asks_as() == "alice"
    assert FixedToken(token, "bob").asks_as() == "bob"
    for none in ("opaque", "a.b.c", SECRET, "e30.W10.x", "e30.eyJzdW4iOjF9.x"):
        assert FixedToken(none).asks_as() == ""


def test_what_cannot_be_a_user_or_a_key_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'a\\nb' is no name of a user"):
        FixedToken(SECRET, "a\nb")
    with pytest.raises(ConfigurationError, match=r"/nope: No such file"):
        MintedToken(tmp_path / "nope", "root")
