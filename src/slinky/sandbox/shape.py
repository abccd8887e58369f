"""What a sandbox should look like: the options of `slinky sandbox up` as one value, checked."""

import re

import msgspec

from slinky.sandbox.errors import UsageError
from slinky.sandbox.versions import kubernetes_version, versions

__all__ = ["ADDONS", "WORKLOADS", "Shape", "parse_memory"]

WORKLOADS = ("jobset", "lws", "podgroup")  # kinds of gangs
ADDONS = ("cert-manager", "keda", *WORKLOADS)
MOST_NODES = 5000
MOST_REAL_NODES = 3


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Raises UsageError, with what would be right, from `checked`."""

    nodes: int = 100
    node_cpus: int = 64
    node_memory_mib: int = 256 * 1024
    node_gpus: int = 8
    real_nodes: int = 0
    addons: tuple[str, ...] = ()
    kubernetes: str = msgspec.field(default_factory=lambda: versions().kubernetes.default)
    register: bool = True
    slurmd: bool = False
    sink: bool = False
    operator: bool = False

    def checked(self) -> "Shape":
        kubernetes_version(self.kubernetes)
        for addon in self.addons:
            if addon not in ADDONS:
                raise UsageError(f"--with {addon}: unknown; there is {', '.join(ADDONS)}")
        if not 0 <= self.nodes <= MOST_NODES:
            raise UsageError(f"--nodes {self.nodes}: 0 to {MOST_NODES}")
        if not 0 <= self.real_nodes <= MOST_REAL_NODES:
            raise UsageError(f"--real-nodes {self.real_nodes}: 0 to {MOST_REAL_NODES}")
        if self.node_cpus < 1 or self.node_memory_mib < 1 or self.node_gpus < 0:
            raise UsageError("--node-cpus and --node-memory must be positive, --node-gpus zero or more")
        if self.slurmd and not self.real_nodes:
            raise UsageError("--slurmd starts a slurmd on each real node: give --real-nodes 1 to 3 too")
        if self.operator and not self.real_nodes:
            raise UsageError("--operator prepares real nodes for the operator's clusters: give --real-nodes 1 to 3 too")
        return self


def parse_memory(text: str) -> int:
    """`256G` → MiB, in Slurm's and Kubernetes' binary units."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if not found:
        raise UsageError(f"memory {text!r}: a number with M, G or T, such as 256G")
    mib = float(found.group(1)) * {"": 1 / 1048576, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1048576}[found.group(2).upper()]
    if mib < 1:
        raise UsageError(f"memory {text!r} is below 1 MiB; did you mean {found.group(1)}G?")
    return int(mib)
