"""Completing an external job with its true exit code, which no REST call can do: through libslurm, where it is installed.

Comes in: a job and how its work ended. Goes out: the job as COMPLETED or FAILED with that exit code, so that `afterok` between Slurm's jobs and work elsewhere means
what it says. libslurm runs in a child process (see `libslurm_child`), found at run time and never required: UnsupportedError says clearly when it is not available.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from slinky.slurm.credentials import Credentials
from slinky.slurm.errors import DeadlineError, OutcomeUnknownError, UnsupportedError, refusal

__all__ = ["JobCompletion", "return_code"]

log = logging.getLogger(__name__)

ENDING_SECONDS = 5.0
CHILD = Path(__file__).with_name("libslurm_child.py")


class Greeting(msgspec.Struct):
    version: int = 0
    unavailable: str = ""


class Result(msgspec.Struct):
    job_id: int
    number: int
    text: str = ""


def return_code(exit_code: int, signal: int = 0) -> int:
    """As wait(2) packs it, which is how slurmctld reads it."""
    if not (0 <= exit_code <= 255 and 0 <= signal <= 127):
        raise ValueError(f"exit code {exit_code} or signal {signal} is none that a process can have")
    return exit_code << 8 | signal


class JobCompletion:
    """One child, started at the first use and again if it ends. `interpreter` is the command that runs Python where libslurm is."""

    def __init__(
        self,
        credentials: Credentials | None = None,
        *,
        library: str = "",
        interpreter: Sequence[str] = (sys.executable,),
        seconds: float = 15.0,
    ) -> None:
        self._credentials = credentials
        self._library = library
        self._interpreter = list(interpreter)
        self._seconds = seconds
        self._child: asyncio.subprocess.Process | None = None
        self._token = ""
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def is_available(self) -> bool:
        """Is there a libslurm here whose layout is known?"""
        async with self._turn:
            try:
                await self._ready()
            except (UnsupportedError, DeadlineError) as error:
                log.info("jobs cannot be completed with their exit code: %s", error)
                return False
            return True

    async def complete(self, job_id: int, exit_code: int = 0, signal: int = 0) -> None:
        """End a running job: COMPLETED for 0, FAILED otherwise."""
        request = f"completion of job {job_id}"
        line = msgspec.json.encode({"job_id": job_id, "code": return_code(exit_code, signal)}) + b"\n"
        async with self._turn:
            child = await self._ready()
            answer = await self._ask(child, line, request)
            if answer.job_id != job_id:
                await self.close()
                raise OutcomeUnknownError(f"libslurm's process answered for job {answer.job_id}", request=request)
        if answer.number:
            raise refusal(answer.number)(answer.text, request=request, number=answer.number)

    async def close(self) -> None:
        """End the child: the end of its input first, as it may run behind another program that does not pass signals on."""
        child, self._child = self._child, None
        if not child:
            return
        if child.stdin:
            child.stdin.close()
        with suppress(ProcessLookupError):
            child.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await child.wait()

    async def _ready(self) -> asyncio.subprocess.Process:
        token = self._credentials.token() if self._credentials else ""
        if self._child and self._child.returncode is None and token == self._token:
            return self._child
        await self.close()
        environment = {**os.environ, **({"SLURM_JWT": token} if token else {})}
        command = [*self._interpreter, "-I", str(CHILD), *([self._library] if self._library else [])]
        self._child = child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=environment
        )
        self._token = token
        greeting = await self._greeting(child)
        if greeting.unavailable:
            await self.close()
            raise UnsupportedError(f"not available: {greeting.unavailable}", request="libslurm")
        return child

    async def _greeting(self, child: asyncio.subprocess.Process) -> Greeting:
        assert child.stdout
        try:
            async with asyncio.timeout(self._seconds):
                line = await child.stdout.readline()
            return msgspec.json.decode(line, type=Greeting)
        except (TimeoutError, msgspec.DecodeError):
            await self.close()
            raise UnsupportedError(
                "not available: the process that was to load libslurm ended, or said nothing that makes sense", request="libslurm"
            ) from None
        except BaseException:  # cancelled, perhaps: what the child still says would be taken for the answer to what is asked next
            await self.close()
            raise

    async def _ask(self, child: asyncio.subprocess.Process, line: bytes, request: str) -> Result:
        assert child.stdin
        assert child.stdout
        try:
            async with asyncio.timeout(self._seconds):
                child.stdin.write(line)
                await child.stdin.drain()
                return msgspec.json.decode(await child.stdout.readline(), type=Result)
        except TimeoutError:
            await self.close()
            raise OutcomeUnknownError(f"libslurm did not answer within {self._seconds:g} s", request=request) from None
        except (OSError, msgspec.DecodeError):
            await self.close()
            raise OutcomeUnknownError(
                "the process with libslurm ended in the middle: it does so when libslurm meets a fatal error", request=request
            ) from None
        except BaseException:  # as above
            await self.close()
            raise
