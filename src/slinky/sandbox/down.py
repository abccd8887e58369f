"""Take a sandbox down, whatever state it is in: the keeper's end takes processes and mounts with it; then the cable, cgroups and files.

What must stay true: only the process that was written down as this sandbox's keeper is signalled; nothing outside the
sandbox's own folder, lock and cgroups is removed; doing it twice is doing it once.
"""

import shutil
import time
from contextlib import suppress
from pathlib import Path

from slinky.sandbox.cache import lock, sandbox_folder
from slinky.sandbox.cgroups import cgroup_name, roots
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.identity import end_process, read_keeper_file
from slinky.sandbox.kernel import delete_interface
from slinky.sandbox.network import interface

__all__ = ["down", "remove"]


def down(name: str, keep_logs: Path | None = None) -> bool:
    """True where there was one. With `keep_logs` its logs are copied there first."""
    folder = sandbox_folder(name)
    if not folder.exists():
        return False
    place = folder.with_name(f"{name}.lock")
    with lock(place):
        if keep_logs and (folder / "logs").exists():
            shutil.copytree(folder / "logs", keep_logs, dirs_exist_ok=True)
        remove(name)
        place.unlink(missing_ok=True)
    return True


def remove(name: str) -> None:
    """The same, for someone who holds the sandbox's lock."""
    folder = sandbox_folder(name)
    if kept := read_keeper_file(folder):
        end_process(kept.keeper)
        delete_interface(interface(kept.identity))  # the kernel would, but in its own time
        _remove_cgroups(cgroup_name(kept.identity))
    if folder.exists():
        shutil.rmtree(folder)


def _remove_cgroups(name: str) -> None:
    """Deepest first, in every hierarchy (v1 has many, v2 one)."""
    deadline = time.monotonic() + 10
    for root in (hierarchy / name for hierarchy in roots()):
        while root.exists():
            for folder in sorted((p for p in root.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):
                root.rmdir()
            if root.exists() and time.monotonic() > deadline:
                raise SandboxError(f"cgroup {root} cannot be removed: a process is still in it")
            if root.exists():
                time.sleep(0.05)
