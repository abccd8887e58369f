"""The commands that a sandbox gives a shell, as far as they need no server."""

import os
import subprocess
import time
from pathlib import Path

from slinky import __version__
from slinky.sandbox.handle import Record, Sandbox
from slinky.sandbox.identity import Identity
from slinky.sandbox.network import Addresses
from slinky.sandbox.shape import Shape


def test_slinky_and_its_kubectl_plugin_are_in_bin(tmp_path: Path) -> None:
    folder = tmp_path / "of mine"
    folder.mkdir()
    record = Record(
        name="x",
        identity="x",
        keeper=Identity(os.getpid(), 0, ""),
        shape=Shape(),
        addresses=Addresses("10.0.0.0/24"),
        root="/",
        kubernetes="/k",
        helm="/h",
        created=time.time(),
    )
    Sandbox(folder, record).write_commands(os.getpid())
    trap = tmp_path / "slinky.py"
    trap.write_text("raise SystemExit(1)")
    env = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    for name in ("slinky", "kubectl-slurm"):
        words = [name, "--version"]
        said = subprocess.check_output(words, env=env, cwd=tmp_path, text=True, timeout=60)
        assert __version__ in said
