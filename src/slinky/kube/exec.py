"""A command in a container that runs, and what came of it.

In: a pod, a container, the words of a command. Out: its exit code and the beginning of what it said; or an error of `slinky.kube.errors`. It goes by WebSocket (`v5.channel.k8s.io`, or v4 before Kubernetes 1.30), with nothing on its standard input.
What must stay true: it ends within its deadline, though the command may not; a command whose end was not seen is an OutcomeUnknownError; output is kept up to a limit, and read to its end, unless `most_read` says that a command which
says more is given up.
"""

import asyncio
from collections.abc import Sequence

import aiohttp
import msgspec

from slinky.kube.errors import OutcomeUnknownError
from slinky.kube.transport import Request, Transport

__all__ = ["MOST_OUTPUT", "ExecResult", "run_command"]

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDOUT, STDERR, ERROR = 1, 2, 3
MOST_OUTPUT = 64 * 1024


class ExecResult(msgspec.Struct, frozen=True):
    """`exit_code` is None where the command could not be started (no such program in the image); `message` then says why."""

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    message: str = ""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    """What the error channel says at the end."""

    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


async def run_command(
    transport: Transport,
    path: str,
    command: Sequence[str],
    container: str = "",
    *,
    seconds: float = 30.0,
    most_output: int = MOST_OUTPUT,
    most_read: int | None = None,
) -> ExecResult:
    """`path` is that of the pod's `exec`."""
    parameters = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    if container:
        parameters.append(("container", container))
    request = Request("POST", path, "pods/exec", parameters, seconds=seconds)
    said = {STDOUT: bytearray(), STDERR: bytearray(), ERROR: bytearray()}
    read = 0
    try:
        async with asyncio.timeout(seconds), transport.websocket(request, PROTOCOLS) as socket:
            async for message in socket:
                read += len(message.data or b"")
                if most_read is not None and read > most_read:
                    raise OutcomeUnknownError("POST", path, f"the command said more than {most_read} bytes and was given up")
                if message.type is aiohttp.WSMsgType.BINARY and len(message.data) > 1 and message.data[0] in said:
                    kept = said[message.data[0]]
                    kept += message.data[1 : 1 + max(0, most_output - len(kept))]
                    if message.data[0] == ERROR:
                        break  # its last word
    except TimeoutError:
        raise OutcomeUnknownError("POST", path, f"the command had not ended after {seconds:g} s") from None
    if not said[ERROR]:
        raise OutcomeUnknownError("POST", path, "the connection ended before the command did")
    return _result(bytes(said[ERROR]), *(bytes(said[channel]).decode(errors="replace") for channel in (STDOUT, STDERR)))


def _result(error: bytes, stdout: str, stderr: str) -> ExecResult:
    try:
        status = msgspec.json.decode(error, type=_Status)
    except msgspec.DecodeError:
        return ExecResult(None, stdout, stderr, error.decode(errors="replace"))
    if status.status == "Success":
        return ExecResult(0, stdout, stderr)
    for cause in status.details.causes if status.details else ():
        if cause.reason == "ExitCode" and cause.message.isdigit():
            return ExecResult(int(cause.message), stdout, stderr, status.message)
    return ExecResult(None, stdout, stderr, status.message or status.reason)
