"""Which process is a sandbox's keeper: proof that a PID is still the one that was started, and the file that says so.

What must stay true: no PID is ever signalled that does not carry the start time and boot that were written down for it.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from slinky.sandbox.errors import SandboxError

__all__ = ["Identity", "KeeperFile", "end_process", "host_pid", "identify", "is_running", "read_keeper_file", "write_keeper_file"]


class Identity(msgspec.Struct, frozen=True):
    """A process that cannot be taken for another one."""

    pid: int
    start_time: int
    boot: str


class KeeperFile(msgspec.Struct, frozen=True):
    """`keeper.json`: all that is needed to take a sandbox down."""

    identity: str
    keeper: Identity


def write_keeper_file(folder: Path, content: KeeperFile) -> None:
    partial = folder / "keeper.json.new"
    partial.write_bytes(msgspec.json.encode(content))
    partial.rename(folder / "keeper.json")


def read_keeper_file(folder: Path) -> KeeperFile | None:
    """None where no keeper was ever started there. `record.json` says the same, should one of the two be damaged."""
    damaged = None
    for name in ("keeper.json", "record.json"):
        try:
            return msgspec.json.decode((folder / name).read_bytes(), type=KeeperFile)
        except FileNotFoundError:
            continue
        except msgspec.DecodeError as error:
            damaged = f"{folder / name} is damaged ({error})"
    if damaged:
        raise SandboxError(f"{damaged}: end the sandbox's keeper by hand (pgrep -f {folder}), then remove {folder}")
    return None


def identify(pid: int) -> Identity:
    return Identity(pid, _start_time(pid), _boot())


def is_running(identity: Identity) -> bool:
    try:
        return _boot() == identity.boot and _start_time(identity.pid) == identity.start_time and _state(identity.pid) != "Z"
    except OSError:
        return False


def end_process(identity: Identity, seconds: float = 10) -> None:
    """SIGKILL, and wait until it is gone. For a keeper: the kernel ends its whole PID namespace first."""
    if not is_running(identity):
        return
    handle = os.pidfd_open(identity.pid)
    try:
        if is_running(identity):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    deadline = time.monotonic() + seconds
    while is_running(identity):
        if time.monotonic() > deadline:
            raise SandboxError(f"process {identity.pid} did not end within {seconds:g} s of SIGKILL")
        time.sleep(0.02)


def host_pid(keeper: Identity, inner: int) -> int:
    """The PID by which the host knows a child of the keeper."""
    for child in Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split():
        with suppress(OSError):
            for line in Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[-1] == str(inner):
                    return int(child)
    raise SandboxError(f"the keeper {keeper.pid} has no child {inner}")


def _start_time(pid: int) -> int:
    return int(_stat(pid)[19])


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
