"""What people ask of Slurm: the description of a job, of a node, and of a change to nodes. Typed, and turned into what slurmrestd reads.

What is left None is not sent: Slurm's default holds, and in a change nothing changes. `other` takes any field of the served OpenAPI document by its own name.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from slinky.slurm.errors import ConfigurationError
from slinky.slurm.hostlists import expand
from slinky.slurm.numbers import Infinite, encode_infinite

__all__ = ["JobDescription", "NodeChange", "NodeDescription", "NodeGres", "encode"]

_encoder = msgspec.json.Encoder(enc_hook=encode_infinite)

EXTERNAL = "EXTERNAL_JOB"
ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin:/bin"]  # Slurm refuses a job without any


class JobDescription(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job to be, or (in `update`) what should change about one. `time_limit` in minutes, memory in MiB.

    >>> JobDescription(name="train", tasks=4, cpus_per_task=8, tres_per_task="gres/gpu:1", time_limit=60).tasks
    4
    """

    SCHEMA: ClassVar = "job_desc_msg"

    name: str | None = None
    script: str | None = None
    flags: list[str] | None = None
    account: str | None = None
    qos: str | None = None
    partition: str | None = None
    reservation: str | None = None
    user_id: str | None = None
    group_id: str | None = None
    current_working_directory: str | None = None
    environment: list[str] | None = None
    argv: list[str] | None = None
    array: str | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    minimum_nodes: int | None = None
    maximum_nodes: int | None = None
    nodes: str | None = None
    memory_per_node: int | Infinite | None = None
    memory_per_cpu: int | Infinite | None = None
    tres_per_job: str | None = None
    tres_per_node: str | None = None
    tres_per_task: str | None = None
    constraints: str | None = None
    prefer: str | None = None
    excluded_nodes: list[str] | None = None
    required_nodes: list[str] | None = None
    contiguous: bool | None = None
    required_switches: int | Infinite | None = None
    wait_for_switch: int | None = None
    segment_size: int | Infinite | None = None
    shared: list[str] | None = None
    licenses: str | None = None
    time_limit: int | Infinite | None = None
    time_minimum: int | Infinite | None = None
    begin_time: int | Infinite | None = None
    deadline: int | None = None
    dependency: str | None = None
    priority: int | Infinite | None = None
    nice: int | None = None
    hold: bool | None = None
    requeue: bool | None = None
    kill_on_node_fail: bool | None = None
    kill_warning_signal: str | None = None
    kill_warning_delay: int | Infinite | None = None
    comment: str | None = None
    admin_comment: str | None = None
    extra: str | None = None
    mcs_label: str | None = None
    wckey: str | None = None
    standard_input: str | None = None
    standard_output: str | None = None
    standard_error: str | None = None
    job_id: int | None = None
    other: dict[str, Any] | None = None

    def to_submit(self, *, external: bool = False) -> "JobDescription":
        """With what Slurm insists on filled in."""
        if external and self.script:
            raise ConfigurationError("an external job has no script: nothing of it runs under Slurm")
        if not external and not self.script and EXTERNAL not in (self.flags or ()):
            raise ConfigurationError("a job needs a script (or submit_external, for one whose work runs elsewhere)")
        flags = [*(self.flags or ()), EXTERNAL] if external and EXTERNAL not in (self.flags or ()) else self.flags
        return msgspec.structs.replace(
            self,
            flags=flags,
            environment=self.environment or ENVIRONMENT,
            current_working_directory=self.current_working_directory or "/",
        )


class NodeGres(msgspec.Struct, frozen=True, kw_only=True):
    """Generic resources of one node, told with the node (`GresConf`), so that no gres.conf is needed. The files need not exist.

    Several of different names, or of one name and different types, may be told of one node; slurmctld 26.05 takes at most 1024 of a name, either all with a type or none, and drops a name that is not in GresTypes without a word.
    """

    name: str
    count: int
    type: str = ""
    files: str = ""

    def words(self, first: int = 0) -> tuple[str, str]:
        """What goes into Gres= and into GresConf=. `first` is the number of its first device, where there are others of the name."""
        gres = ":".join(part for part in (self.name, self.type, str(self.count)) if part)
        files = self.files or (f"{self.name}-[{first}-{first + self.count - 1}]" if self.count > 1 else f"{self.name}-{first}")
        parts = {"count": str(self.count), "name": self.name, "type": self.type, "file": files}
        return gres, ",".join(f"{key}={value}" for key, value in parts.items() if value)


class NodeDescription(msgspec.Struct, kw_only=True):
    """A node to be, or several of one shape: `name` and `address` may be hostlists of the same length.

    `external` is a node without a slurmd; its address must resolve, or slurmctld stalls. Sockets, cores and threads make Slurm twice as fast as bare `cpus`.
    """

    name: str
    external: bool = True
    address: str = ""
    port: int | None = None
    cpus: int | None = None
    boards: int | None = None
    sockets_per_board: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    real_memory: int | None = None
    features: list[str] = []
    gres: list[NodeGres] = []
    topology: str = ""
    weight: int | None = None
    other: dict[str, str] = {}

    def calls(self) -> Iterator[str]:
        """The node_conf of each request needed: one, or one per node where there are GRES, as slurmctld takes GresConf for a single node only."""
        names, addresses = expand(self.name), expand(self.address) if self.address else []
        if addresses and len(addresses) not in (1, len(names)):
            raise ConfigurationError(
                f"{len(names)} nodes ({self.name}) have {len(addresses)} addresses ({self.address}); there must be as many, or one for all"
            )
        if not self.gres or len(names) == 1:
            yield self.node_conf(self.name, self.address)
            return
        for index, name in enumerate(names):
            yield self.node_conf(name, addresses[index % len(addresses)] if addresses else "")

    def node_conf(self, name: str, address: str) -> str:
        words: dict[str, object] = {
            "NodeName": name,
            "State": "EXTERNAL" if self.external else None,
            "NodeAddr": address,
            "Port": self.port,
            "CPUs": self.cpus,
            "Boards": self.boards,
            "SocketsPerBoard": self.sockets_per_board,
            "CoresPerSocket": self.cores_per_socket,
            "ThreadsPerCore": self.threads_per_core,
            "RealMemory": self.real_memory,
            "Features": ",".join(self.features),
            "Topology": self.topology,
            "Weight": self.weight,
            **self.other,
        }
        if self.gres:
            first: dict[str, int] = {}
            told: list[tuple[str, str]] = []
            for item in self.gres:
                told.append(item.words(first.get(item.name, 0)))
                first[item.name] = first.get(item.name, 0) + item.count
            words |= {"Gres": ",".join(gres for gres, _ in told), "GresConf": "+".join(configuration for _, configuration in told)}
        return " ".join(f"{key}={_quoted(key, str(value))}" for key, value in words.items() if value not in (None, ""))


class NodeChange(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What should change about nodes."""

    SCHEMA: ClassVar = "update_node_msg"

    state: list[str] | None = None
    reason: str | None = None
    comment: str | None = None
    extra: str | None = None
    features: list[str] | None = None
    features_act: list[str] | None = None
    gres: str | None = None
    address: list[str] | None = None
    hostname: list[str] | None = None
    topology_str: str | None = None
    weight: int | Infinite | None = None
    resume_after: int | Infinite | None = None
    other: dict[str, Any] | None = None


def encode(value: object) -> bytes:
    """As JSON for slurmrestd. `other` of a description, or of those inside a list or dict, is merged into it."""
    try:
        return _encoder.encode(_merged(value))
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{error.object[:80]!r} holds what is no text (bytes that are not UTF-8)") from None


def _merged(value: object) -> object:
    if isinstance(value, JobDescription | NodeChange):
        if not value.other:
            return value
        fields = {
            name: _merged(field) for name in value.__struct_fields__ if name != "other" and (field := getattr(value, name)) is not None
        }
        return fields | value.other
    if isinstance(value, dict):
        return {key: _merged(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_merged(item) for item in value]
    return value


def _quoted(key: str, value: str) -> str:
    if '"' in value or "\n" in value:
        raise ConfigurationError(f"{key} of a node can hold neither quotes nor line breaks: {value!r}")
    return f'"{value}"' if any(mark in value for mark in " =;#") or key == "GresConf" else value
