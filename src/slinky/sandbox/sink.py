"""The sandbox's sink: one slurmd on the head that answers for the external nodes, and `slinky sink` before it.

Comes in: a sandbox whose Slurm is up. Goes out: two parts more, and a node `sink` in Slurm that takes no jobs. What must stay true: the nodes that are registered with its address are answered for; nothing is ever run there.
"""

import shutil

from slinky.bridge import sink
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.keeper import Part

__all__ = ["ADDRESS", "start_sink", "stop_sink"]

NODE = "sink"
ADDRESS = (
    "127.0.0.2"  # on the head, where slurmctld is: with Slurm's own port for nodes, so that an address is all that a node needs to be told
)
PORT = 6818
SLURMD_PORT = 6838


async def start_sink(sandbox: Sandbox, delay: float = 5.0) -> None:
    link = sandbox.link
    shutil.copyfile(sink.__file__, sandbox.head / "var/lib/sink.py")
    slurmd = f"exec slurmd -D -Z -N{NODE} '--conf=Port={SLURMD_PORT} Features={NODE}'"
    own_run = f"mount -t tmpfs -o mode=755 none /run && {slurmd}"  # slurmd wants /run/slurm to be root's; on the head it is slurm's
    await link.start(Part("slurmd-sink", "head", ["unshare", "--mount", "sh", "-euc", own_run]))
    await sandbox.until("slurmd-sink", "its node was there", lambda: link.run("head", "scontrol", "show", "node", NODE))
    await link.run("head", "scontrol", "update", f"NodeName={NODE}", "State=DRAIN", "Reason=answers for external nodes, takes no jobs")
    listen, slurmd = f"{ADDRESS}:{PORT}", f"127.0.0.1:{SLURMD_PORT}"
    words = ["python3", "-I", "/var/lib/sink.py", "--listen", listen, "--slurmd", slurmd, "--delay", f"{delay:g}"]
    await link.start(Part("sink", "head", words))
    await sandbox.until("sink", "it listened", lambda: link.run("head", "bash", "-c", f"exec 3<>/dev/tcp/{ADDRESS}/{PORT} && echo it does"))


async def stop_sink(sandbox: Sandbox) -> None:
    for part in ("sink", "slurmd-sink"):
        await sandbox.stop(part)
        await sandbox.link.forget(part)
    await sandbox.link.run("head", "scontrol", "delete", f"NodeName={NODE}")
