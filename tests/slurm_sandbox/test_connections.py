"""The ways to slurmrestd: a unix socket, https with a CA of one's own and a client certificate, tokens from everywhere, the sync face, the command line."""

import asyncio
import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from slinky.cli.slurm import slurm as command_line
from slinky.sandbox.handle import Sandbox
from slinky.slurm import TLS, EnvironmentToken, FixedToken, JobDescription, MintedToken, SlurmClient, TokenFile, UnavailableError, sync
from tests.slurm_sandbox.conftest import until

pytestmark = pytest.mark.sandbox

JOB = JobDescription(name="way", tasks=1, partition="bridge", memory_per_node=16)


@pytest.fixture
def token(sandbox: Sandbox) -> str:
    return sandbox.token_file.read_text().strip()


# Tokens


async def test_tokens_from_everywhere(sandbox: Sandbox, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", token)
    (tmp_path / "token").write_text(f"SLURM_JWT={token}\n")
    key = sandbox.head / "etc/slurm/jwt_hs256.key"
    for credentials in (
        FixedToken(token),
        EnvironmentToken("A_TOKEN"),
        TokenFile(tmp_path / "token"),
        MintedToken(key, "root", lifespan=30),
    ):
        async with SlurmClient(sandbox.slurm_server, credentials) as client:
            assert await client.is_up()


async def test_a_client_from_the_environment_alone(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sandbox.exports().items():
        if name.startswith("SLINKY_SLURM"):
            monkeypatch.setenv(name, value)
    async with SlurmClient() as client:
        assert await client.is_up()


# A unix socket: a second slurmrestd, listening on one


@pytest.fixture
async def socket(sandbox: Sandbox) -> AsyncIterator[Path]:
    parts = await sandbox.link.parts()
    usual = parts["slurmrestd"].part
    await sandbox.link.run("head", "install", "-d", "-o", usual.user, "-m", "755", "/var/lib/slurmrestd-test")
    path = sandbox.head / "var/lib/slurmrestd-test/socket"
    path.unlink(missing_ok=True)
    command = [*usual.command[:-1], "unix:/var/lib/slurmrestd-test/socket"]
    await sandbox.link.start(msgspec.structs.replace(usual, name="slurmrestd-socket", command=command))

    async def listens() -> bool:
        return path.exists()

    await until(listens, "slurmrestd's socket")
    yield path
    await sandbox.stop("slurmrestd-socket")
    shutil.rmtree(path.parent)


async def test_a_unix_socket(socket: Path, token: str) -> None:
    async with SlurmClient(f"unix://{socket}", FixedToken(token)) as client:
        assert await client.is_up()
        submitted = await client.jobs.submit_external(JOB)
        await client.jobs.cancel(submitted.job_id)
    async with SlurmClient(f"unix://{socket}.not-there", FixedToken(token)) as client:
        with pytest.raises(UnavailableError):
            await client.within(1).ping()


# https: TLS is ended in front of the real slurmrestd


class Authority:
    """A CA of one's own, and what it signs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(name, self._key, authority=True)
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> Path:
        """Certificate and key, in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = self.folder / f"{name}-by-{self.name}.pem"
        text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file.write_bytes(text + self._sign(name, key).public_bytes(serialization.Encoding.PEM))
        return file

    def _sign(self, name: str, key: ec.EllipticCurvePrivateKey, authority: bool = False) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = subject if authority else self.certificate.subject
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256())


@asynccontextmanager
async def behind_tls(upstream: str, certificate: Path, clients: Path) -> AsyncIterator[str]:
    parts = urlsplit(upstream)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(clients))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}"


async def test_https_with_a_ca_of_ones_own_and_a_client_certificate(sandbox: Sandbox, token: str, tmp_path: Path) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    mine = TLS(ca=str(ours.ca), certificate=str(ours.issue("me")))
    async with behind_tls(sandbox.slurm_server, ours.issue("server"), ours.ca) as url:
        async with SlurmClient(url, FixedToken(token), tls=mine) as client:
            assert await client.is_up()
        for wrong in (
            TLS(ca=str(others.ca), certificate=mine.certificate),
            TLS(ca=str(ours.ca)),
            TLS(ca=str(ours.ca), certificate=str(others.issue("me"))),
        ):
            async with SlurmClient(url, FixedToken(token), tls=wrong) as client:
                with pytest.raises(UnavailableError):
                    await client.within(1).ping()


# The sync face


@pytest.fixture
def waiting(sandbox: Sandbox) -> Iterator[sync.SlurmClient]:
    with sync.SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file)) as client:
        yield client


def test_the_sync_face(waiting: sync.SlurmClient) -> None:
    assert waiting.is_up()
    job_id = waiting.jobs.submit_external(JOB).job_id
    seen = []
    for transition in waiting.jobs.watch([job_id]):
        assert transition.after
        seen.append(str(transition.after.state))
        if transition.after.is_running:
            waiting.jobs.cancel(job_id)
    assert seen[-2:] == ["RUNNING", "CANCELLED"]
    assert job_id in [job.job_id for job in waiting.jobs.stream()]
    assert waiting.within(5).nodes.get("kwok-00").name == "kwok-00"
    assert {account.name for account in waiting.accounting.accounts()} >= {"physics"}


async def test_the_sync_face_inside_a_running_loop_as_in_a_notebook(waiting: sync.SlurmClient) -> None:
    assert waiting.partitions.get("bridge").is_up


# The command line


def run(sandbox: Sandbox, *arguments: str, text: str | None = None) -> tuple[int, str]:
    environment = {name: value for name, value in sandbox.exports().items() if name.startswith("SLINKY_SLURM")}
    result = CliRunner().invoke(command_line, arguments, input=text, env=environment)
    return result.exit_code, result.output


def test_the_command_line(sandbox: Sandbox) -> None:
    assert "primary" in run(sandbox, "ping")[1]
    assert "kwok-[00-" in run(sandbox, "partitions")[1]
    code, text = run(
        sandbox,
        "submit",
        "--external",
        "-n",
        "1",
        "-p",
        "bridge",
        "--mem",
        "16",
        "-t",
        "90",
        "-J",
        "typed",
        "--marker",
        f"cli-{id(object())}",
    )
    assert code == 0
    job_id = text.strip()
    [job] = json.loads(run(sandbox, "jobs", job_id, "-o", "json")[1])
    assert (job["job_id"], job["name"], job["time_limit"]) == (int(job_id), "typed", 90)
    assert "typed" in run(sandbox, "jobs")[1]
    assert run(sandbox, "cancel", job_id)[0] == 0
    assert run(sandbox, "cancel", "99999999")[0] == 1
    code, text = run(sandbox, "-o", "json", "submit", "-", "--hold", "-p", "compute", text="#!/bin/sh\ntrue\n")
    assert code == 0
    assert run(sandbox, "cancel", str(json.loads(text[text.index("{") :])["job_id"]))[0] == 0
    assert run(sandbox, "drain", "kwok-[07-08]", "--reason", "typed")[0] == 0
    assert "DRAIN" in run(sandbox, "nodes", "kwok-07")[1]
    assert run(sandbox, "resume", "kwok-[07-08]")[0] == 0
    assert "DRAIN" not in run(sandbox, "nodes", "kwok-07")[1]


def test_an_error_is_one_line_and_exit_code_1(sandbox: Sandbox) -> None:
    command = [sys.executable, "-c", "from slinky.cli import main; main()", "slurm", "--url", sandbox.slurm_server]
    result = subprocess.run([*command, "--token-file", "/no/such/file", "ping"], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("slinky: ")
    assert len(result.stderr.splitlines()) == 1
