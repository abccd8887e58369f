"""The cgroups of a sandbox's real nodes, in whichever version the machine has. `down` removes them by name."""

from contextlib import suppress
from pathlib import Path

from slinky.sandbox.errors import CircumstanceError

__all__ = ["CGROUPS", "cgroup_name", "check_cgroups", "make_cgroup", "roots"]

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def cgroup_name(identity: str) -> str:
    return f"slinky-{identity}"


def roots() -> list[Path]:
    """One folder a hierarchy: v2 has one, v1 one a controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    if not CGROUPS.exists():
        return []
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink() and (path / "cgroup.procs").exists()]


def make_cgroup(name: str) -> None:
    """`a/b` in every hierarchy, ready for a kubelet to make its own below it."""
    for root in roots():
        folder = root
        for part in name.split("/"):
            _enable_controllers(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
            _copy_cpuset(folder)
        _enable_controllers(folder)


def check_cgroups() -> None:
    """Real nodes need cgroups that can be divided."""
    if not roots():
        raise CircumstanceError("real nodes need cgroups, and none are mounted at /sys/fs/cgroup")
    control = CGROUPS / "cgroup.subtree_control"
    if control.exists():
        _enable_controllers(CGROUPS)
        missing = {"cpu", "memory", "pids"} - set(control.read_text().split())
        if missing:
            raise CircumstanceError(
                f"real nodes need the cgroup controllers {', '.join(sorted(missing))} below the root cgroup, and the kernel does not give them: "
                "in a container, run on the machine itself"
            )


def _enable_controllers(folder: Path) -> None:
    """v2: children get only what their parent passes on."""
    control = folder / "cgroup.subtree_control"
    if control.exists():
        for controller in CONTROLLERS:
            with suppress(OSError):  # one that the kernel lacks, or that the parent was not given
                control.write_text(f"+{controller}")


def _copy_cpuset(folder: Path) -> None:
    """v1: a new cpuset is empty, and nothing can run in it."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        own = folder / file
        if own.exists() and not own.read_text().strip():
            with suppress(OSError):
                own.write_text((folder.parent / file).read_text())
