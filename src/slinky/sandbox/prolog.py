"""The prolog on a sandbox's hybrid nodes, as docs/bridge-hybrid.md says it is set up.

Comes in: a sandbox whose real nodes have a slurmd. Goes out: `slinky-prolog` on each of them, called by Slurm before the first step of a job, with a limit that can be changed while it runs. What must stay true: what it says
is found in each node's /var/tmp/prolog.log.
"""

from slinky.prolog.file import write
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.realnodes import node_name

__all__ = ["install_prolog", "set_limit"]

LIMIT = "etc/slurm/prolog-limit"
PROLOG = """#!/bin/sh
exec /etc/slurm/slinky-prolog --limit "$(cat /etc/slurm/prolog-limit)" 2>> /var/tmp/prolog.log
"""
SLURM_CONF = "Prolog=/etc/slurm/prolog\nPrologFlags=Alloc\n"


async def install_prolog(sandbox: Sandbox, limit: int = 300) -> None:
    for index in range(sandbox.record.shape.real_nodes):
        home = sandbox.folder / node_name(index) / "etc/slurm"
        write(home / "slinky-prolog")
        (home / "prolog").write_text(PROLOG)
        (home / "prolog").chmod(0o755)
    set_limit(sandbox, limit)
    conf = sandbox.head / "etc/slurm/slurm.conf"
    conf.write_text(SLURM_CONF + conf.read_text())
    await sandbox.link.run("head", "scontrol", "reconfigure")


def set_limit(sandbox: Sandbox, seconds: int) -> None:
    """How long a job waits for the pods before it."""
    for index in range(sandbox.record.shape.real_nodes):
        (sandbox.folder / node_name(index) / LIMIT).write_text(f"{seconds}\n")
