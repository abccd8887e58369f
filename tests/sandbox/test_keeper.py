"""The keeper: what it runs, what it says of it, what it bounds."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest

from slinky.sandbox import keeper as module
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.keeper import Keeper, Part, socket_name
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.sandbox


async def test_a_log_is_cut_and_its_writer_goes_on_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_BYTES", 10_000)
    monkeypatch.setattr(module, "LOG_SECONDS", 0.01)
    keeper = Keeper(tmp_path)
    log = tmp_path / "logs/talker.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"".join(b"%06d\n" % line for line in range(5000)))
        task = asyncio.create_task(keeper.bound_logs())
        async with asyncio.timeout(20):
            while log.stat().st_size > 10_000:
                await asyncio.sleep(0.01)
        writer.write(b"the end\n")
        task.cancel()
    lines = log.read_text().splitlines()
    assert lines[-2:] == ["004999", "the end"]
    assert log.stat().st_size < 10_000


async def test_what_ended_is_told_with_its_code_or_signal(sandbox: Sandbox) -> None:
    for name, command, code in (("told-3", "exit 3", 3), ("told-9", "kill -9 $$", -9)):
        await sandbox.link.start(Part(name, "head", ["sh", "-c", command]))
        async with asyncio.timeout(20):
            while (state := (await sandbox.link.parts())[name]).exit_code is None:
                await asyncio.sleep(0.02)
        assert state.exit_code == code
        await sandbox.link.start(Part(name, "head", ["sleep", "infinity"]))
        assert (await sandbox.link.parts())[name].exit_code is None
        with pytest.raises(SandboxError, match="it can be forgotten when it has ended"):
            await sandbox.link.forget(name)
        await sandbox.stop(name)
        await sandbox.link.forget(name)
        assert name not in await sandbox.link.parts()


async def test_commands_have_nothing_of_the_shell_that_brought_the_sandbox_up(sandbox: Sandbox) -> None:
    """Its PATH may begin with another sandbox's commands, its SLURM_CONF may name another Slurm."""
    said = dict(line.partition("=")[::2] for line in (await sandbox.link.run("head", "env")).splitlines())
    assert said == module.ENVIRONMENT


async def test_orphans_are_taken_note_of(sandbox: Sandbox) -> None:
    """What a part leaves behind ends up with the keeper, which must not collect zombies."""
    await sandbox.link.run("head", "sh", "-c", "(sleep 0.2 & exec true) >/dev/null 2>&1")

    async def no_zombies() -> bool:
        return "Z" not in (await sandbox.link.run("head", "ps", "-o", "stat", "--ppid", "1")).replace("STAT", "")

    await sandbox.until("etcd", "no zombie was left", no_zombies)


async def test_errors_name_what_was_asked(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="no machine 'moon'; there is head"):
        await sandbox.link.run("moon", "true")
    with pytest.raises(SandboxError, match="no part 'moon'; there is"):
        await sandbox.link.signal("moon", 15)
    with pytest.raises(SandboxError, match="false on head failed"):
        await sandbox.link.run("head", "false")


def test_only_root_is_answered(sandbox: Sandbox) -> None:
    """The socket is abstract, so anyone may connect; the keeper looks at who it is."""
    code = f"""
import os, socket
os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect({socket_name(sandbox.record.identity)!r})
try:
    s.sendall(b'{{"operation":"status"}}\\n')
    print(repr(s.recv(100)))
except (BrokenPipeError, ConnectionResetError):
    print(repr(b""))
"""
    python = CHECKOUT / ".venv/bin/python"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "b''"
    with socket.socket(socket.AF_UNIX) as mine:
        mine.settimeout(20)
        mine.connect(socket_name(sandbox.record.identity))
        mine.sendall(b'{"operation":"status"}\n')
        assert mine.recv(10)
    assert os.geteuid() == 0
