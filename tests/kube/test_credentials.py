"""Token files that are renewed, and real exec plugins: small programs written for the test."""

import asyncio
import datetime as dt
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from slinky.kube import Access, CredentialsError, ExecPlugin, Identity
from slinky.kube.credentials import TOKEN_FILE_SECONDS, Credentials

SECRET = "s3cr3t-token"


class Clock:
    def __init__(self) -> None:
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()

    def __call__(self) -> float:
        return self.now


def credentials(identity: Identity, clock: Clock | None = None, certificates: list[tuple[bytes, bytes]] | None = None) -> Credentials:
    took = certificates if certificates is not None else []
    return Credentials(Access("https://k:6443", identity, authority="CA"), lambda *pair: took.append(pair), clock or Clock())


async def authorization(found: Credentials) -> str:
    return (await found.headers()).get("Authorization", "")


async def test_a_token_file_is_read_again_after_a_minute_or_a_refusal(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    file.write_text("one\n")
    found = credentials(Identity(token_file=file), clock)
    assert await authorization(found) == "Bearer one"
    file.write_text("two")
    assert await authorization(found) == "Bearer one"
    clock.now += TOKEN_FILE_SECONDS
    assert await authorization(found) == "Bearer two"
    file.write_text("three")
    assert await found.renew()
    assert await authorization(found) == "Bearer three"


async def test_a_missing_or_empty_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="token: No such file"):
        await credentials(Identity(token_file=tmp_path / "token")).headers()
    (tmp_path / "empty").touch()
    with pytest.raises(CredentialsError, match="empty"):
        await credentials(Identity(token_file=tmp_path / "empty")).headers()


async def test_basic() -> None:
    assert await authorization(credentials(Identity(username="a", password="b"))) == "Basic YTpi"


async def test_impersonated_groups_are_each_a_header() -> None:
    headers = await credentials(Identity(token="t", impersonate="bob", impersonate_groups=("x", "y"))).headers()
    assert headers.getall("Impersonate-Group") == ["x", "y"]


async def test_what_cannot_be_renewed_says_so() -> None:
    assert not await credentials(Identity(token=SECRET)).renew()


def plugin(folder: Path, status: dict[str, Any], *, code: str = "") -> ExecPlugin:
    """Prints `status`, and notes each run with what it was told."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    script = folder / "login"
    script.write_text(f"#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO\" >> '{folder}/runs'\n{code}\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    script.chmod(0o755)
    return ExecPlugin(str(script), cluster_info=True)


def runs(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "runs").read_text().splitlines()]


async def test_a_plugin_runs_once_until_its_answer_expires(tmp_path: Path) -> None:
    clock = Clock()
    expiry = dt.datetime.fromtimestamp(clock.now + 600, dt.UTC).isoformat().replace("+00:00", "Z")
    found = credentials(Identity(plugin=plugin(tmp_path, {"token": SECRET, "expirationTimestamp": expiry})), clock)
    for _ in range(3):
        assert await authorization(found) == f"Bearer {SECRET}"
    assert len(runs(tmp_path)) == 1
    clock.now += 595
    await found.headers()
    assert len(runs(tmp_path)) == 2
    assert runs(tmp_path)[0]["spec"]["cluster"]["server"] == "https://k:6443"


async def test_a_plugin_is_not_run_by_two_requests_at_once(tmp_path: Path) -> None:
    found = credentials(Identity(plugin=plugin(tmp_path, {"token": SECRET})))
    await asyncio.gather(*(found.headers() for _ in range(5)))
    assert len(runs(tmp_path)) == 1


async def test_a_plugin_without_expiry_runs_again_only_after_a_refusal(tmp_path: Path) -> None:
    clock = Clock()
    found = credentials(Identity(plugin=plugin(tmp_path, {"token": SECRET})), clock)
    await found.headers()
    clock.now += 1e6
    await found.headers()
    assert len(runs(tmp_path)) == 1
    await found.renew()
    await found.headers()
    assert len(runs(tmp_path)) == 2


async def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    certificates: list[tuple[bytes, bytes]] = []
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    found = credentials(Identity(plugin=plugin(tmp_path, status)), certificates=certificates)
    assert await authorization(found) == ""
    assert certificates == [(b"CERT", b"KEY")]


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ({"token": SECRET}, "echo no ticket >&2; exit 3", "ended with 3: no ticket"),
        ({}, "", "neither a token nor a certificate"),
        ({"token": SECRET}, "echo this is no JSON", "printed no ExecCredential"),
        ({"token": SECRET}, 'echo \'{"kind": "Odd"}\'; exit 0', "expected client.authentication.k8s.io/v1"),
    ],
)
async def test_a_plugin_that_fails_is_explained_without_its_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: dict[str, Any], code: str, said: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CredentialsError, match=said) as caught:
        await credentials(Identity(plugin=plugin(tmp_path, status, code=code))).headers()
    assert SECRET not in f"{caught.value!r}{caught.value.__context__!r}{caplog.text}"


async def test_a_missing_plugin_shows_how_to_get_it() -> None:
    with pytest.raises(CredentialsError, match="apt install it"):
        await credentials(Identity(plugin=ExecPlugin("/no/such/login", install_hint="apt install it"))).headers()
