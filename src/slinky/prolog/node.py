"""What can be seen on the node itself, besides its container runtime: the kubelet's folders of pods, and the control groups.

Comes in: paths. Goes out: whether a kubelet runs pods here at all; pods that it took up a moment ago and has not started; pods of which processes are left. What must stay true: read only; control groups of both versions, whoever made them (systemd or the kubelet itself), below
whatever group the kubelet was told to use.
"""

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

__all__ = ["RUNTIMES", "has_pods", "lingering", "starting"]

RUNTIMES = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/cri-dockerd.sock",
)
DEEPEST, OPEN_LEVELS = 6, 3  # how far pods' groups are looked for, and how far before anything is called kubepods
CONTROLLERS = ("pids", "memory", "cpu", "cpu,cpuacct", "cpuset", "devices", "systemd")


def has_pods(kubelet: Path) -> bool:
    """Whether a kubelet has, or had, pods here."""
    return next(_folders(kubelet / "pods"), None) is not None


def starting(kubelet: Path, known: Collection[str], settle: float) -> set[str]:
    """UIDs of pods that are `settle` seconds old at most, that the runtime does not know and of which no container was ever made."""
    newest = time.time() - settle
    return {
        folder.name
        for folder in _folders(kubelet / "pods")
        if folder.name not in known and _changed(folder) > newest and next(_folders(folder / "containers"), None) is None
    }


def _folders(place: Path) -> Iterator[Path]:
    try:
        with os.scandir(place) as entries:
            yield from (Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def lingering(cgroups: Path, uids: Collection[str]) -> set[str]:
    """Those of whose control groups some process is a member."""
    names = {written: uid for uid in uids for written in (f"pod{uid}", f"pod{uid.replace('-', '_')}")}
    roots = (
        [cgroups] if (cgroups / "cgroup.controllers").exists() else [cgroups / name for name in CONTROLLERS if (cgroups / name).is_dir()]
    )
    return {uid for root in roots[:1] for group, uid in _groups(root, names, 0) if _has_processes(group)} if uids else set()


def _groups(place: Path, names: dict[str, str], depth: int) -> Iterator[tuple[Path, str]]:
    for folder in _folders(place):
        uid = next((uid for name, uid in names.items() if name in folder.name), None)
        if uid is not None:
            yield folder, uid
        elif depth < (DEEPEST if "kubepods" in str(folder) else OPEN_LEVELS):
            yield from _groups(folder, names, depth + 1)


def _has_processes(group: Path) -> bool:
    try:
        if (group / "cgroup.procs").read_text().strip():
            return True
    except OSError:
        return False
    return any(_has_processes(inner) for inner in _folders(group))
