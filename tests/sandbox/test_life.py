"""A sandbox's life: up twice is up once, several live side by side, and nothing is left of one that is down, however it ended."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slinky.sandbox.cache import sandboxes
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.identity import is_running, read_keeper_file
from tests.conftest import CHECKOUT, Cli
from tests.sandbox.leftovers import HeldNamespace, leftovers

pytestmark = pytest.mark.sandbox

NAME = f"life-{os.getpid()}"
Hold = Callable[[int], HeldNamespace]


@pytest.fixture(autouse=True)
def no_sandbox_left() -> Iterator[None]:
    yield
    down(NAME)


@pytest.fixture
def hold() -> Iterator[Hold]:
    held: list[HeldNamespace] = []

    def hold(pid: int) -> HeldNamespace:
        held.append(HeldNamespace(pid))
        return held[-1]

    yield hold
    for each in held:
        each.close()


def up(cli: Cli, *options: str) -> Sandbox:
    done = cli("sandbox", "up", "--name", NAME, "--nodes", "3", *options)
    assert done.returncode == 0, done.stderr
    return Sandbox.running(NAME)


@pytest.mark.long
def test_up_twice_is_up_once_and_another_shape_is_refused(cli: Cli) -> None:
    first = up(cli)
    again = up(cli)
    assert again.record.keeper == first.record.keeper
    other = cli("sandbox", "up", "--name", NAME, "--nodes", "4")
    assert other.returncode == 1
    assert "is up with another shape (nodes is 3, not 4): take it down first" in other.stderr


@pytest.mark.long
def test_two_live_side_by_side_and_one_goes_without_the_other(cli: Cli, sandbox: Sandbox, hold: Hold) -> None:
    other = up(cli)
    assert other.record.addresses.network != sandbox.record.addresses.network
    for name, nodes in ((NAME, 3), (sandbox.record.name, sandbox.record.shape.nodes)):
        told = cli("sandbox", "kubectl", "--name", name, "get", "nodes", "--output=name")
        assert len(told.stdout.split()) == nodes
        assert (
            len(cli("sandbox", "slurm", "--name", name, "sinfo", "--noheader", "--Node", "--partition=bridge").stdout.splitlines()) == nodes
        )
    inside = hold(other.record.keeper.pid)
    assert cli("sandbox", "down", "--name", NAME).returncode == 0
    assert leftovers(other.record.identity, other.folder, inside) == []
    assert cli("sandbox", "slurm", "--name", sandbox.record.name, "scontrol", "ping").returncode == 0


def test_nothing_is_left_after_the_keeper_was_killed(cli: Cli, hold: Hold) -> None:
    found = up(cli)
    inside = hold(found.record.keeper.pid)
    os.kill(found.record.keeper.pid, signal.SIGKILL)
    wait_until(lambda: not found.is_running)
    assert "dead" in cli("sandbox", "list").stdout
    assert "is not running (its keeper ended)" in cli("sandbox", "kubectl", "--name", NAME, "get", "pods").stderr
    assert cli("sandbox", "down", "--name", NAME).returncode == 0
    assert leftovers(found.record.identity, found.folder, inside) == []


@pytest.mark.long
def test_a_dead_one_comes_up_anew(cli: Cli) -> None:
    found = up(cli)
    os.kill(found.record.keeper.pid, signal.SIGKILL)
    wait_until(lambda: not found.is_running)
    assert up(cli).record.keeper != found.record.keeper


@pytest.mark.long
@pytest.mark.parametrize("moment", ["keeper.json", "record.json", "logs/kube-apiserver.log"])
def test_nothing_is_left_after_up_was_killed_half_way(cli: Cli, moment: str, hold: Hold) -> None:
    folder = sandboxes() / NAME
    command = [str(CHECKOUT / ".venv/bin/slinky"), "sandbox", "up", "--name", NAME, "--nodes", "3"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until((folder / moment).exists)
        process.kill()
    kept = read_keeper_file(folder)
    assert kept is not None
    assert is_running(kept.keeper)
    inside = hold(kept.keeper.pid)
    refused = cli("sandbox", "kubectl", "--name", NAME, "get", "pods")
    assert refused.returncode == 1
    assert cli("sandbox", "down", "--name", NAME).returncode == 0
    assert leftovers(kept.identity, folder, inside) == []


@pytest.mark.long
def test_a_killed_up_is_completed_by_the_next(cli: Cli, hold: Hold) -> None:
    command = [str(CHECKOUT / ".venv/bin/slinky"), "sandbox", "up", "--name", NAME, "--nodes", "3"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until((sandboxes() / NAME / "logs/slurmctld.log").exists)
        process.kill()
    kept = read_keeper_file(sandboxes() / NAME)
    assert kept is not None
    inside = hold(kept.keeper.pid)
    up(cli)
    assert leftovers(kept.identity, Path("/nonexistent"), inside) == []


@pytest.mark.long
def test_another_process_that_got_the_keepers_pid_is_left_alone(cli: Cli) -> None:
    """PIDs are used again: only one that also started when the keeper did may be signalled."""
    found = up(cli)
    kept = (found.folder / "keeper.json").read_text()
    with subprocess.Popen(["sleep", "600"]) as bystander:
        os.kill(found.record.keeper.pid, signal.SIGKILL)
        wait_until(lambda: not found.is_running)
        (found.folder / "keeper.json").write_text(kept.replace(f'"pid":{found.record.keeper.pid}', f'"pid":{bystander.pid}'))
        assert cli("sandbox", "down", "--name", NAME).returncode == 0
        assert bystander.poll() is None
        bystander.kill()


def wait_until(true: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "not within its time"
        time.sleep(0.01)
