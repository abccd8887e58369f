"""Nodes, as slurmctld tells them."""

from typing import ClassVar

import msgspec

from slinky.slurm.models.states import NodeStates
from slinky.slurm.numbers import Envelope, Number, Triplet

__all__ = ["Node"]

_TRIPLETS = ["boot_time", "free_mem", "last_busy", "reason_changed_at", "resume_after", "slurmd_start_time"]


class Node(NodeStates, msgspec.Struct, gc=False, rename={f"_{name}": name for name in _TRIPLETS} | {"node_states": "state"}):
    """One node. Memory is MiB, times are seconds since 1970."""

    SCHEMA: ClassVar = "node"

    name: str
    node_states: list[str] = []
    hostname: str = ""
    address: str = ""
    port: int = 0
    reason: str = ""
    reason_set_by_user: str = ""
    comment: str = ""
    extra: str = ""
    cpus: int = 0
    effective_cpus: int = 0
    alloc_cpus: int = 0
    alloc_idle_cpus: int = 0
    cpu_load: int = 0
    boards: int = 0
    sockets: int = 0
    cores: int = 0
    threads: int = 0
    real_memory: int = 0
    specialized_memory: int = 0
    alloc_memory: int = 0
    temporary_disk: int = 0
    weight: int = 0
    features: list[str] = []
    active_features: list[str] = []
    partitions: list[str] = []
    gres: str = ""
    gres_used: str = ""
    gres_drained: str = ""
    tres: str = ""
    tres_used: str = ""
    topology: str = ""
    reservation: str = ""
    mcs_label: str = ""
    owner: str = ""
    architecture: str = ""
    operating_system: str = ""
    version: str = ""
    instance_id: str = ""
    instance_type: str = ""
    cluster_name: str = ""

    _boot_time: Triplet | None = None
    _free_mem: Triplet | None = None
    _last_busy: Triplet | None = None
    _reason_changed_at: Triplet | None = None
    _resume_after: Triplet | None = None
    _slurmd_start_time: Triplet | None = None

    boot_time = Number[int]("_boot_time")
    free_mem = Number[int]("_free_mem")
    last_busy = Number[int]("_last_busy")
    reason_changed_at = Number[int]("_reason_changed_at")
    resume_after = Number[int]("_resume_after")
    slurmd_start_time = Number[int]("_slurmd_start_time")

    @property
    def states(self) -> list[str]:
        return self.node_states


class NodeList(Envelope, kw_only=True, rename={"_last_update": "last_update"}):
    nodes: list[Node] | None = None
    _last_update: Triplet | None = None
    last_update = Number[int]("_last_update")
