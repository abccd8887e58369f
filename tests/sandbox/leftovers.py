"""What a sandbox can leave on a machine: looked for from outside, by other means than those that remove it."""

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["HeldNamespace", "leftovers"]


def leftovers(identity: str, folder: Path, inside: "HeldNamespace") -> list[str]:
    """Everything that still belongs to the sandbox; empty where nothing does."""
    found = [f"process {pid} in {inside.number}" for pid in _processes(inside.number)]
    found += [f"interface {path.name}" for path in Path("/sys/class/net").glob(f"*{identity}*")]
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"**/*{identity}*")]
    found += [f"mount {line.split()[1]}" for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    if folder.exists():
        found.append(f"folder {folder}")
    return found


class HeldNamespace:
    """The PID namespace that a keeper is the first process of, held open: the kernel gives the number of one that is gone to the next."""

    def __init__(self, pid: int) -> None:
        self._handle = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
        self.number = str(Path(f"/proc/self/fd/{self._handle}").readlink())

    def close(self) -> None:
        os.close(self._handle)


def _processes(namespace: str) -> list[int]:
    """A zombie is left out: it holds nothing, and goes when the machine's own first process gets round to it."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if str((folder / "ns/pid").readlink()) == namespace and state != "Z":
                    found.append(int(folder.name))
    return found
