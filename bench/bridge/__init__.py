"""The bridge on a real Slurm and a real Kubernetes with 1,000 nodes: `python -m bench bridge [--quick] [--profile] [--sandbox NAME]`.

Rates in rounds against the raw limits, a pipeline without logic and kube-scheduler; the wait between Slurm's start and bound; CPU, calls and memory. `--profile` shows where the bridge's time goes
instead. `--sandbox` uses one that is up (`slinky sandbox up --nodes 1000 --with podgroup`) and leaves it up.
"""

import asyncio
import io
import pstats
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.bridge.costs import flat, lives, memory
from bench.bridge.ground import standing_on
from bench.bridge.plot import picture
from bench.bridge.pods import NAMESPACE
from bench.bridge.process import settings_for
from bench.bridge.rates import Sizes, Trial, fast, steady
from bench.rows import Row
from slinky.sandbox.bridge import python_on_the_head
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["measure", "profile"]

NAME = "bench-bridge"
SIZES = Sizes()
QUICK = Sizes(nodes=50, rounds=1, pods=150, gangs=4, steady_seconds=5, others=500, known=500, lives=30)


def measure(quick: bool, results: Path, sandbox: str = "") -> list[Row]:
    """All rows; the picture is written to `results`/bridge.svg."""
    with _ground(quick, sandbox) as (found, sizes, say):
        return asyncio.run(_measure(found, sizes, say, results, python_on_the_head(found)))


def profile(quick: bool, results: Path, sandbox: str = "") -> Path:
    """A burst of single pods with the bridge under cProfile: the functions that took longest, in `results`/bridge-profile.txt."""
    with _ground(quick, sandbox) as (found, sizes, say):
        return asyncio.run(_profile(found, sizes, say, results))


@contextmanager
def _ground(quick: bool, name: str) -> Iterator[tuple[Sandbox, Sizes, Callable[[str], None]]]:
    sizes = QUICK if quick else SIZES
    with Progress() as progress:
        if name:
            running = Sandbox.running(name)
            sizes = msgspec.structs.replace(sizes, nodes=running.record.shape.nodes)
            with progress.step("measuring the bridge") as step:
                yield running, sizes, step.say
            return
        down(NAME)
        try:
            made = asyncio.run(up(NAME, Shape(nodes=sizes.nodes, addons=("podgroup",)), progress))
            with progress.step("measuring the bridge") as step:
                yield made, sizes, step.say
        finally:
            down(NAME)


async def _measure(sandbox: Sandbox, sizes: Sizes, say: Callable[[str], None], results: Path, libslurm: list[str]) -> list[Row]:
    async with standing_on(sandbox) as ground:
        trial = Trial(ground, settings_for(sandbox, NAMESPACE), _workshop(sandbox), sizes, say, libslurm)
        rows = [*await fast(trial), *await steady(trial), *await lives(trial), *await flat(trial), *await memory(trial)]
    results.mkdir(parents=True, exist_ok=True)
    bars = [(row.what, row.figure, row.met) for row in rows if row.unit in ("/s", "pods/s")]
    (results / "bridge.svg").write_text(picture(bars, trial.waits))
    return rows


async def _profile(sandbox: Sandbox, sizes: Sizes, say: Callable[[str], None], results: Path) -> Path:
    async with standing_on(sandbox) as ground:
        trial = Trial(ground, settings_for(sandbox, NAMESPACE), _workshop(sandbox), sizes, say)
        data = trial.folder / "bridge.prof"
        async with trial.bridge(profile=data):
            await ground.create(trial.pods("profiled"))
            await ground.until_bound(sizes.pods)
    text = io.StringIO()
    text.write(f"{sizes.pods} single pods from created to bound and gone; the bridge under cProfile.\n")
    stats = pstats.Stats(str(data), stream=text).strip_dirs()
    stats.sort_stats("tottime").print_stats(45)
    stats.sort_stats("cumulative").print_stats(60)
    results.mkdir(parents=True, exist_ok=True)
    path = results / "bridge-profile.txt"
    lines = text.getvalue().splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines if str(data) not in line) + "\n")  # where it lay is this machine's
    return path


def _workshop(sandbox: Sandbox) -> Path:
    """Where the bridge's configuration and logs lie, as long as the sandbox does."""
    folder = sandbox.folder / "bench"
    folder.mkdir(exist_ok=True)
    for log in folder.glob("*.log"):
        log.unlink()
    return folder
