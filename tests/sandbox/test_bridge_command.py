"""`slinky sandbox bridge`: what a newcomer does to have Slurm place pods, and how it ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.conftest import CHECKOUT, Cli, Starter
from tests.sandbox.processes import Started, children, started

pytestmark = [pytest.mark.sandbox, pytest.mark.long]


@pytest.fixture(scope="module")
def own(start_sandbox: Starter) -> Sandbox:
    """Not the shared one: a sandbox takes one bridge of that name."""
    return start_sandbox("bridge", Shape(nodes=2))


@pytest.fixture
def bridge(own: Sandbox) -> Iterator[Started]:
    with started("sandbox", "bridge", "--name", own.record.name, "--namespace", "team", "--namespace", "other") as process:
        process.until_said("ends with Ctrl-C")
        yield process


def kubectl(own: Sandbox, *arguments: str) -> str:
    done = subprocess.run([own.folder / "bin/kubectl", *arguments], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def webhooks(own: Sandbox) -> str:
    return kubectl(own, "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--output=name")


def test_pods_of_its_namespaces_are_placed_until_ctrl_c(bridge: Started, own: Sandbox, cli: Cli) -> None:
    """The lines that it prints are followed as they stand."""
    apply = re.search(r"kubectl apply -n (\S+) -f (\S+);", bridge.said)
    assert apply
    for namespace in (apply[1], "other"):
        kubectl(own, "apply", "-n", namespace, "-f", str(CHECKOUT / apply[2]))
        kubectl(
            own, "wait", "-n", namespace, "--for=jsonpath={.status.phase}=Running", "--timeout=60s", "pod/small", "pod/gpu", "pod/urgent"
        )
    queue = cli("sandbox", "slurm", "--name", own.record.name, "squeue", "--noheader", "--format=%j %a %q %T").stdout
    assert "team/urgent physics high RUNNING" in queue
    assert "other/small root normal RUNNING" in queue
    logs = re.search(r"its logs: (\S+)/admission.log and run.log", bridge.said)
    assert logs
    assert (Path(logs[1]) / "run.log").stat().st_size

    shell = os.environ | own.exports()
    overview = subprocess.run(
        [sys.executable, "-m", "slinky", "top", "--once"], env=shell, capture_output=True, text=True, timeout=90, check=False
    )
    assert "bridge: led by" in overview.stdout, overview.stdout + overview.stderr
    explained = subprocess.run(
        [sys.executable, "-m", "slinky", "explain", "pod", "team/small"], env=shell, capture_output=True, text=True, timeout=90, check=False
    )
    assert "pod-running" in explained.stdout, explained.stdout + explained.stderr
    looked = subprocess.run([sys.executable, "-m", "slinky", "doctor"], env=shell, capture_output=True, text=True, timeout=90, check=False)
    assert "leader-missing" not in looked.stdout and "leader-nobody" not in looked.stdout, looked.stdout + looked.stderr
    assert "slurm-unreachable" not in looked.stdout

    second = cli("sandbox", "bridge", "--name", own.record.name)
    assert second.returncode == 1
    assert "a bridge runs on sandbox" in second.stderr

    assert webhooks(own)
    assert bridge.end(signal.SIGINT) == 0
    assert "the bridge has ended" in bridge.said
    assert not webhooks(own)
    assert kubectl(own, "get", "pods", "-n", "team", "--output=jsonpath={.items[*].status.phase}") == "Running Running Running"


def test_a_process_that_dies_ends_it_with_a_sentence_and_nothing_is_left(bridge: Started, own: Sandbox) -> None:
    [scheduler] = [pid for pid, command in children(bridge.pid).items() if "bridge run" in command]
    bridge.send(signal.SIGKILL, scheduler)
    assert bridge.wait() == 1
    assert "slinky bridge run ended with -9" in bridge.said
    assert not webhooks(own)


def test_a_sandbox_that_is_not_there_is_named(cli: Cli) -> None:
    done = cli("sandbox", "bridge", "--name", "nosuch")
    assert done.returncode == 1
    assert "slinky sandbox up --name nosuch makes it" in done.stderr
