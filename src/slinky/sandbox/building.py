"""What a sandbox is made of, built where the cache has it not: the Debian root with the images made from it, and programs from Go modules.

Comes in: a shape. Goes out: where each of it lies. What must stay true: all that does not wait for each other is built side by side; the first error is told, and not a group of them.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from slinky.sandbox import addons, kubernetes
from slinky.sandbox.debian import build_root
from slinky.sandbox.golang import build_kubernetes, build_program
from slinky.sandbox.images import build_images
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import WORKLOADS, Shape

__all__ = ["Built", "build", "build_all", "ungrouped"]


class Built:
    """Where everything that had to be built lies."""

    images: Path | None = None

    def __init__(self, shape: Shape, progress: Progress) -> None:
        self.kubernetes = build_kubernetes(shape.kubernetes, kubernetes.PROGRAMS, progress)
        self.programs = {"kubernetes": self.kubernetes, "kwok": build_program("kwok", progress)}
        self.helm = build_program("helm", progress)
        if shape.real_nodes:
            self.programs["kubernetes-node"] = build_kubernetes(shape.kubernetes, kubernetes.NODE_PROGRAMS, progress)
        wanted = [name for addon in shape.addons for name in addons.programs_of(addon)] + (["coredns"] if shape.real_nodes else [])
        self.programs |= {name: build_program(name, progress) for name in wanted}
        self.manifests = {addon: addons.build_manifests(addon, progress) for addon in shape.addons}


async def build(shape: Shape, progress: Progress) -> tuple[Path, Built]:
    """The Debian root with the images made from it, and the programs, side by side: the one waits for the network, the other for the processor."""
    async with asyncio.TaskGroup() as group:
        files = group.create_task(_root_and_images(shape, progress))
        programs = group.create_task(asyncio.to_thread(Built, shape, progress))
    built = programs.result()
    root, built.images = files.result()
    return root, built


async def _root_and_images(shape: Shape, progress: Progress) -> tuple[Path, Path | None]:
    root = await asyncio.to_thread(build_root, progress)
    images = await asyncio.to_thread(build_images, root, shape.operator, progress) if shape.real_nodes else None
    return root, images


async def build_all(progress: Progress) -> None:
    """All that any shape needs, but for other releases of Kubernetes, cert-manager and KEDA."""
    everything = Shape(real_nodes=1, addons=WORKLOADS)

    async def images() -> None:
        for operator in (False, True):
            await _root_and_images(msgspec.structs.replace(everything, operator=operator), progress)

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(images())
            group.create_task(asyncio.to_thread(Built, everything, progress))

    await ungrouped(both())


async def ungrouped(coroutine: Any) -> Any:
    """A task group's first error instead of the group: one sentence for the reader."""
    try:
        return await coroutine
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
