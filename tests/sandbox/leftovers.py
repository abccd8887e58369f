"""What a sandbox can leave on a machine: looked for from outside, by other means than those that remove it."""

from contextlib import suppress
from pathlib import Path

__all__ = ["leftovers", "namespaces_of"]


def leftovers(identity: str, folder: Path, namespaces: set[str]) -> list[str]:
    """Everything that still belongs to the sandbox; empty where nothing does."""
    found = [f"process {pid} in {kind}" for pid, kind in _inside(namespaces)]
    found += [f"interface {path.name}" for path in Path("/sys/class/net").glob(f"*{identity}*")]
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"**/*{identity}*")]
    found += [f"mount {line.split()[1]}" for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    if folder.exists():
        found.append(f"folder {folder}")
    return found


def namespaces_of(pid: int) -> set[str]:
    """The PID namespace that a keeper is the first process of."""
    return {str(Path(f"/proc/{pid}/ns/pid").readlink())}


def _inside(namespaces: set[str]) -> list[tuple[int, str]]:
    """A zombie is left out: it holds nothing, and goes when the machine's own first process gets round to it."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if (kind := str((folder / "ns/pid").readlink())) in namespaces and state != "Z":
                    found.append((int(folder.name), kind))
    return found
