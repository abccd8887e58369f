"""What all tests share: one sandbox for a run, and for each test a namespace and a partition that nobody else uses.

The sandbox is named after the checkout and, where several processes run the tests, after the process, so a run that was killed is cleaned up by the next one. Where a test failed, the servers'
logs are kept in `artefacts/`.
"""

import asyncio
import itertools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from slinky.sandbox.cache import digest
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import WORKLOADS, Shape
from slinky.sandbox.up import up

CHECKOUT = Path(__file__).parent.parent
ARTEFACTS = CHECKOUT / "artefacts"
NODES = 48
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")  # each has sandboxes of its own
_numbers = itertools.count()

# How long an example takes is the machine's matter. A run of `make test` tries the same examples each time; `make test-all` searches on.
settings.register_profile(
    "without the clock", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not os.environ.get("SLINKY_SEARCH")
)
settings.load_profile("without the clock")

Starter = Callable[[str, Shape], Sandbox]
Cli = Callable[..., subprocess.CompletedProcess[str]]


LONG_FILES = (
    "test_cluster",
    "test_workers",
    "test_fixed_seed",
    "test_endings",
    "test_hybrid",
    "test_node_states",
    "test_uninstall",
    "test_absence",
    "test_volumes",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast ones first: who breaks something plain should know within seconds. Of those on the sandbox the files that take minutes, so that no process is left alone with one at the end."""
    ranks = {name: rank for rank, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: (item.get_closest_marker("sandbox") is not None, ranks.get(item.path.stem, len(ranks))))


def pytest_configure() -> None:
    if not WORKER:
        shutil.rmtree(ARTEFACTS, ignore_errors=True)


@contextmanager
def starting(request: pytest.FixtureRequest) -> Iterator[Starter]:
    """Brings sandboxes up, and all of them down at the end."""
    if os.geteuid() != 0:
        pytest.fail("the tests on the sandbox need root; `make test-fast` leaves them out")
    started: list[str] = []
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def start(kind: str, shape: Shape) -> Sandbox:
        name = f"test-{digest(str(CHECKOUT))}-{kind}{WORKER}"
        down(name)
        started.append(name)
        with capture.global_and_fixture_disabled(), Progress() as progress:  # the first time, this builds for minutes: let it be seen
            return asyncio.run(up(name, shape, progress))

    yield start
    for name in started:
        down(name, ARTEFACTS / name if request.session.testsfailed else None)


@pytest.fixture(scope="module")
def start_sandbox(request: pytest.FixtureRequest) -> Iterator[Starter]:
    """Sandboxes of a module's own: one that nobody uses any more takes a tenth of a core from the others."""
    with starting(request) as start:
        yield start


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """The one most tests share: kwok nodes, Slurm with accounting, all add-ons."""
    with starting(request) as start:
        yield start("shared", Shape(nodes=NODES, addons=WORKLOADS))


@pytest.fixture
async def namespace(sandbox: Sandbox) -> AsyncIterator[str]:
    """A Kubernetes namespace of the test's own, with the ServiceAccount without which the API server takes no pods.

    The controller manager would create the account too, but later, and not at all while a test holds it.
    """
    name = f"t{next(_numbers)}"
    async with sandbox.kube() as kube:
        await kube.post("/api/v1/namespaces", {"metadata": {"name": name}})
        await kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}})
        yield name
        await kube.delete(f"/api/v1/namespaces/{name}")


@dataclass(frozen=True)
class Partition:
    name: str
    nodes: tuple[str, ...]


@pytest.fixture
async def partition(sandbox: Sandbox) -> AsyncIterator[Partition]:
    """A Slurm partition of the test's own, over four nodes that no other running test has."""
    number = next(_numbers)
    names = [f"kwok-{index:02}" for index in range(NODES)]
    start = (number * 4) % NODES
    found = Partition(f"p{number}", tuple(names[start : start + 4]))
    await sandbox.link.run("head", "scontrol", "create", f"PartitionName={found.name}", f"Nodes={','.join(found.nodes)}")
    yield found
    await sandbox.link.run("head", "scancel", f"--partition={found.name}")

    async def is_empty() -> bool:
        return not (await sandbox.link.run("head", "squeue", "--noheader", f"--partition={found.name}")).strip()

    await sandbox.until("slurmctld", f"partition {found.name} was empty", is_empty)
    await sandbox.link.run("head", "scontrol", "delete", f"PartitionName={found.name}")


@pytest.fixture
def cli() -> Cli:
    """The program as a user runs it."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "160", **options.pop("env", {})}  # type: ignore[dict-item]
        command = [str(CHECKOUT / ".venv/bin/slinky"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **{"timeout": 300, **options})  # type: ignore[call-overload, no-any-return]

    return run
