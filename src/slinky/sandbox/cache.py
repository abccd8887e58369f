"""What was built or downloaded, kept outside the checkout and shared by all of them.

An entry is a folder whose name holds its version and a hash of what it was made from. It appears by a rename when it is complete, so
an interrupted build leaves nothing that could be taken for one; a lock makes a second process wait for the first
instead of building beside it.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slinky.sandbox.errors import CircumstanceError, UsageError

__all__ = ["cache_root", "digest", "entry", "lock", "require_room", "sandbox_folder", "sandboxes"]


def cache_root() -> Path:
    """`~/.cache/slinky`, or what SLINKY_CACHE says."""
    return Path(os.environ.get("SLINKY_CACHE") or Path.home() / ".cache" / "slinky")


def sandboxes() -> Path:
    return cache_root() / "sandboxes"


def sandbox_folder(name: str) -> Path:
    """The one place where a name becomes a path: what is not a plain name is refused, as folders are removed by it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}", name):
        raise UsageError(f"sandbox name {name!r}: letters, digits and dashes, at most 40")
    return sandboxes() / name


def digest(*parts: str | bytes) -> str:
    """Eight characters that change when any of the parts does."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.hexdigest()[:8]


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold `path` as a lock file; the kernel lets go of it when the holder dies. Who holds it may remove the file: whoever waited for it then waits for the one that is there now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file.fileno(), path):
                yield
                return


def _is_at(number: int, path: Path) -> bool:
    """Whether an open file is the one of that name: it may have been removed since, and made anew by another."""
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except FileNotFoundError:
        return False


def entry(name: str, build: Callable[[Path], None]) -> Path:
    """The cached folder `name`; where it is missing, `build` fills an empty folder that then becomes it."""
    final = cache_root() / name
    if final.exists():
        return final
    with lock(final.with_name(final.name + ".lock")):
        if final.exists():
            return final
        for stale in final.parent.glob(final.name + ".partial-*"):
            shutil.rmtree(stale)
        partial = final.with_name(f"{final.name}.partial-{os.getpid()}")
        partial.mkdir()
        try:
            build(partial)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        partial.rename(final)
    return final


def require_room(gigabytes: float, purpose: str) -> None:
    """Refuse to start what would fill the disk half-way through."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free / 1e9
    if free < gigabytes:
        raise CircumstanceError(
            f"{purpose} needs {gigabytes:g} GB in {root}, and {free:.1f} GB are free: make room, or set SLINKY_CACHE to a larger disk"
        )
