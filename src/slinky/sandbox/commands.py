"""A command that is run to its end, with a deadline, for what it says.

Comes in: the command, and what people call it. Goes out: what it wrote, or a SandboxError with what it complained of. What must stay true: it does not outlive its deadline.
"""

import asyncio

from slinky.sandbox.errors import SandboxError

__all__ = ["said_by"]

LONGEST = 2000  # characters of a complaint, the last ones


async def said_by(*command: str, called: str, seconds: float) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(seconds):
            out, wrong = await process.communicate()
    except TimeoutError:
        raise SandboxError(f"{called} did not end within {seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SandboxError(f"{called} ended with {process.returncode}: {wrong.decode(errors='replace').strip()[-LONGEST:]}")
    return out.decode(errors="replace")
