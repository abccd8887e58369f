"""How long a sandbox takes to come up and go, once everything is built."""

import asyncio
import time

from bench.rows import Row
from slinky.sandbox.building import build
from slinky.sandbox.down import down
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["measure"]

NAME = "bench-times"


def measure(quick: bool) -> list[Row]:
    sizes = {20: 20.0} if quick else {100: 20.0, 1000: 60.0}
    rows: list[Row] = []
    with Progress() as progress:
        for nodes, goal in sizes.items():
            shape = Shape(nodes=nodes)
            asyncio.run(build(shape, progress))
            down(NAME)
            started = time.monotonic()
            asyncio.run(up(NAME, shape, progress))
            rows.append(Row(f"warm up with {nodes} kwok nodes", time.monotonic() - started, "s", at_most=goal))
            started = time.monotonic()
            down(NAME)
            rows.append(Row(f"down with {nodes} kwok nodes", time.monotonic() - started, "s", at_most=10.0))
    return rows
