"""Slurm's own daemons as judges of what was made for them: each run has a host of its own (names, network, processes), with the sandbox's Debian root, the files in /etc/slurm, and a script that starts daemons and asks.

Owners and modes are those that a pod's projected volume gives: root's, keys readable for slurm's group, everything else executable.
"""

import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slinky.sandbox.debian import build_root
from slinky.sandbox.progress import Progress

SECONDS = 90

_ENTER = r"""
hostname "$3"
ip link set lo up
ip address add 10.99.0.1/24 dev lo
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
for folder in run tmp var/spool; do mount -t tmpfs tmpfs "$1/$folder"; done
mkdir -p "$1/tmp/out" "$1/run/slurm" "$1/run/slurmctld" "$1/var/spool/slurmd"
mount --bind "$2/etc" "$1/etc/slurm"
mount --bind "$2/hosts" "$1/etc/hosts"
mount --bind "$2/out" "$1/tmp/out"
state=$([ ! -e "$2/etc/slurm.conf" ] || sed -n 's/^StateSaveLocation=//p' "$2/etc/slurm.conf")
mkdir -p "$1/var/spool/slurmctld" "$1$state"
chroot "$1" sh -c 'chown root:slurm /etc/slurm/*.key && chmod 640 /etc/slurm/*.key && chown -R slurm /run/slurmctld /var/spool/slurmctld'
exec chroot "$1" /bin/bash -eu /tmp/out/script
"""

TOOLS = r"""
as() { local user=$1; shift; setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups -- "$@"; }
until_told() { for _ in $(seq 300); do grep -q "$2" "/tmp/out/$1" 2>/dev/null && return 0; sleep 0.1; done; echo "$1 never said: $2"; return 1; }
ask() { (exec 5<>"/dev/tcp/127.0.0.1/$1"; shift; printf 'GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n' "$1" >&5; shift; printf '%s\r\n' "$@" '' >&5; timeout 10 cat <&5); }
"""
SLURMCTLD = r"""
as slurm slurmctld -D > /tmp/out/slurmctld 2>&1 &
slurmctld=$!
until_told slurmctld "Running as primary controller\|fatal"
"""


@dataclass(frozen=True)
class Verdict:
    told: str
    logs: Mapping[str, str]

    @property
    def config(self) -> dict[str, str]:
        """Of `scontrol show config`, where the script asked for it."""
        pairs = (line.split("=", 1) for line in self.told.splitlines() if " = " in line)
        return {key.strip(): value.strip() for key, value in pairs}


class Run:
    """One host, running."""

    def __init__(
        self, folder: Path, files: Mapping[str, str], script: str, *, host: str, names: Sequence[str] = (), start: str = SLURMCTLD
    ) -> None:
        self.out = folder / "out"
        for part in (folder / "etc", self.out):
            part.mkdir(parents=True)
        for name, text in files.items():
            (folder / "etc" / name).write_text(text)
            (folder / "etc" / name).chmod(0o755)
        for key in ("slurm.key", "jwt.key"):
            (folder / "etc" / key).write_bytes(secrets.token_bytes(1024))
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n127.0.0.1 {' '.join([host, *names])}\n")
        (self.out / "script").write_text(TOOLS + start + script)
        root = build_root(Progress())
        enter = [
            "unshare",
            "--mount",
            "--net",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "bash",
            "-euc",
            _ENTER,
            "enter",
            str(root),
            str(folder),
            host,
        ]
        with (self.out / "told").open("wb") as told:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *enter],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                env=dict(os.environ),
            )

    def verdict(self) -> Verdict:
        try:
            self.process.wait(SECONDS)
        finally:
            self.process.kill()
        logs = {path.name: path.read_text() for path in self.out.iterdir() if path.name not in ("script", "told")}
        return Verdict((self.out / "told").read_text(), logs)


def words(arguments: Sequence[str]) -> str:
    """Arguments as an image's entry point hands them on: joined, and read by a shell."""
    return " ".join(arguments)
