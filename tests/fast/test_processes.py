"""Processes that are told to end when they have just ended by themselves."""

import asyncio
import os
import signal
import time
from pathlib import Path

from slinky.sandbox.processes import Processes

ROUNDS = 40  # whoever waits for the child and whoever signals it race


async def test_an_exit_code_is_the_process_s_own_also_if_it_was_killed_a_moment_before(tmp_path: Path) -> None:
    processes = Processes("bridge", tmp_path)
    codes = set()
    for number in range(ROUNDS):
        processes._processes["run"] = child = await asyncio.create_subprocess_exec("sleep", "60")
        os.kill(child.pid, signal.SIGKILL)
        until = time.perf_counter() + number * 2e-5
        while time.perf_counter() < until:
            pass  # busy: the thread that waits for the child must not come first
        codes.add(await processes.stop("run", signal.SIGKILL))
    assert codes == {-signal.SIGKILL}


async def test_one_that_runs_ends_by_the_signal_that_it_is_sent(tmp_path: Path) -> None:
    processes = Processes("bridge", tmp_path)
    processes._processes["run"] = await asyncio.create_subprocess_exec("sleep", "60")
    assert await processes.stop("run") == -signal.SIGTERM
