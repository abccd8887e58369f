"""A machine of the sandbox: a mount, network and host name of its own, its files those of the Debian root.

Comes in: a `Machine`. Goes out: one process, the machine's holder (`sleep`), whose namespaces are the machine; parts and people enter them
through it. Inside, `/usr` is the cached root's, read-only and shared by all sandboxes; `/etc` and `/var` are the machine's own
folders in the sandbox's folder; folders of the host appear at the same path where asked for, so that `sbatch job.sh` finds the script.
"""

import os
import shutil
import sys
from pathlib import Path

import msgspec

from slinky.sandbox import kernel

__all__ = ["Machine", "furnish", "hold"]

# What every machine has of its own; everything else at the top of the host's file system may be shown inside.
OWN = {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "lost+found", "opt", "proc", "run", "sbin", "sys", "usr", "var"}
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


class Machine(msgspec.Struct, frozen=True):
    """`folder` holds its `etc` and `var`; `programs` are shown below /opt/slinky by their names; `shares` at their own path."""

    name: str
    root: str
    folder: str
    hostname: str
    programs: dict[str, str] = {}
    shares: list[str] = []


def furnish(folder: Path, root: Path) -> None:
    """Give a machine its own copy of what it may write: /etc and /var of the Debian root."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "etc").exists():
        return
    shutil.copytree(root / "etc", folder / "etc", symlinks=True)
    shutil.copytree(root / "var", folder / "var", symlinks=True, ignore=shutil.ignore_patterns("dpkg", "apt", "debconf"))
    (folder / "root").mkdir()


def host_folders() -> list[str]:
    """The host's own top-level folders (/home, /root, /tmp, /work …): where people keep their scripts."""
    own = (entry for entry in os.scandir("/") if entry.is_dir(follow_symlinks=False))
    return [f"/{entry.name}" for entry in own if entry.name not in OWN and not entry.name.startswith(".")]


def hold(machine: Machine) -> None:
    """In a process of its own: become the machine's holder. Never returns."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS)
    kernel.mount("none", Path("/"), flags=kernel.MS_SLAVE | kernel.MS_REC)
    kernel.pivot_root(_build_root(machine))
    kernel.mount("none", Path("/"), flags=kernel.MS_SHARED | kernel.MS_REC)  # kubelet hands mounts on to its pods
    kernel.sethostname(machine.hostname)
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    os.execv("/bin/sh", ["sh", "-c", "ip link set lo up && touch /run/up && exec sleep infinity"])  # noqa: S606


def _build_root(machine: Machine) -> Path:
    folder, base = Path(machine.folder), Path(machine.root)
    root = folder / "root"
    kernel.mount("tmpfs", root, "tmpfs", options="mode=755,size=16m")
    for name in ("usr", "etc", "var", "run", "proc", "sys", "dev", "opt/slinky", "tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, place in LINKS.items():
        (root / name).symlink_to(place)
    kernel.bind(base / "usr", root / "usr", read_only=True)
    kernel.bind(folder / "etc", root / "etc")
    kernel.bind(folder / "var", root / "var")
    kernel.mount("tmpfs", root / "run", "tmpfs", options="mode=755")
    kernel.mount("proc", root / "proc", "proc")
    kernel.mount("sysfs", root / "sys", "sysfs")
    kernel.bind(Path("/sys/fs/cgroup"), root / "sys/fs/cgroup", recursive=True)
    kernel.bind(Path("/dev"), root / "dev", recursive=True)
    for name, program in machine.programs.items():
        target = root / "opt/slinky" / name
        if Path(program).is_dir():
            target.mkdir()
        else:
            target.touch()
        kernel.bind(Path(program), target, read_only=True)
    if "/tmp" not in machine.shares:  # noqa: S108
        (root / "tmp").chmod(0o1777)
    for share in machine.shares:
        shown = root / share.lstrip("/")
        shown.mkdir(parents=True, exist_ok=True)
        kernel.bind(Path(share), shown, recursive=True)
    return root


if __name__ == "__main__":
    hold(msgspec.json.decode(sys.argv[1], type=Machine))
