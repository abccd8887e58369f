"""The few Linux calls that Python 3.11 has no name for: namespaces, mounts, a change of root, the end of an interface. Errors are OSError with the call's name."""

import ctypes
import errno
import os
import socket
import struct
from pathlib import Path

__all__ = [
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUTS",
    "MS_BIND",
    "MS_PRIVATE",
    "MS_RDONLY",
    "MS_REC",
    "MS_SHARED",
    "MS_SLAVE",
    "bind",
    "delete_interface",
    "mount",
    "pivot_root",
    "sethostname",
    "unshare",
]

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MS_SHARED = 1 << 20
MNT_DETACH = 2
OLD_ROOT = ".old-root"

_RTM_DELLINK = 17
_NLM_F_REQUEST, _NLM_F_ACK = 1, 4
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    done = _libc.mount(source.encode(), str(target).encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None)
    _check(done, f"mount {kind or source} on {target}")


def bind(source: Path, target: Path, *, read_only: bool = False, recursive: bool = False) -> None:
    """Show `source` at `target` as well; changes of mounts come through from outside, never the other way."""
    deep = MS_REC if recursive else 0
    mount(str(source), target, flags=MS_BIND | deep)
    mount("none", target, flags=MS_SLAVE | deep)
    if read_only:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def pivot_root(new_root: Path) -> None:
    """Make `new_root` (a mount point) the root of this mount namespace, and let go of the old one."""
    old = new_root / OLD_ROOT
    old.mkdir(exist_ok=True)
    number = _SYS_PIVOT_ROOT[os.uname().machine]
    _check(_libc.syscall(number, str(new_root).encode(), str(old).encode()), "pivot_root")
    os.chdir("/")
    _check(_libc.umount2(f"/{OLD_ROOT}".encode(), MNT_DETACH), "umount of the old root")
    os.rmdir(f"/{OLD_ROOT}")  # noqa: PTH106


def sethostname(name: str) -> None:
    _check(_libc.sethostname(name.encode(), len(name)), "sethostname")


def delete_interface(name: str) -> bool:
    """Remove a network interface (and so the other end of its cable). False where there is none of that name."""
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        return False
    about = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0)
    header = struct.pack("=IHHII", 16 + len(about), _RTM_DELLINK, _NLM_F_REQUEST | _NLM_F_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(10)
        kernel.bind((0, 0))
        kernel.send(header + about)
        (number,) = struct.unpack_from("=i", kernel.recv(4096), 16)
    if number not in (0, -errno.ENODEV):
        raise OSError(-number, f"removal of interface {name}: {os.strerror(-number)}")
    return True
