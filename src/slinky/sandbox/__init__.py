"""The whole real system on one machine, with no container engine: a Kubernetes and a Slurm that know each other's nodes.

A sandbox is a few *machines* (mount, network and host name of their own) under one *keeper*, the first process of a PID namespace.
When the keeper ends, however it ends, the kernel ends every process, mount and interface of the sandbox with it; what remains
are files under the cache and cgroups, which the next `up` or `down` removes.
"""

from slinky.sandbox.errors import SandboxError
from slinky.sandbox.shape import Shape

__all__ = ["SandboxError", "Shape"]
