"""A command that is run for what it says: its words, its complaint, its deadline."""

import sys

import pytest

from slinky.sandbox.commands import said_by
from slinky.sandbox.errors import SandboxError


async def test_what_it_says_is_given_back() -> None:
    assert await said_by("echo", "hello", called="echo", seconds=60) == "hello\n"


async def test_a_failure_is_told_with_its_complaint() -> None:
    with pytest.raises(SandboxError, match=r"^the thing ended with 3: no such luck$"):
        await said_by("sh", "-c", "echo no such luck >&2; exit 3", called="the thing", seconds=60)


async def test_it_does_not_outlive_its_deadline() -> None:
    program = "import time; time.sleep(600)"
    with pytest.raises(SandboxError, match=r"^the thing did not end within 0\.2 s$"):
        await said_by(sys.executable, "-c", program, called="the thing", seconds=0.2)
