"""Jobs, as slurmctld tells them: the full record, its state alone, its allocation, and what came of a request about it."""

from typing import ClassVar

import msgspec

from slinky.slurm.hostlists import expand
from slinky.slurm.models.states import JobStates
from slinky.slurm.numbers import Envelope, Number, Triplet

__all__ = ["Allocation", "CancelResult", "ExitCode", "Gres", "Job", "JobStatus", "NodeAllocation", "Signal", "Submitted", "Update"]


class Signal(msgspec.Struct, frozen=True, gc=False, rename={"_id": "id"}):
    """The signal that ended a job; `number` None where none did."""

    SCHEMA: ClassVar = "process_exit_code_verbose.signal"
    name: str = ""
    _id: Triplet | None = None
    number = Number[int]("_id")


class ExitCode(msgspec.Struct, frozen=True, gc=False, rename={"_return_code": "return_code"}):
    """How a job ended. Slurm says 0 also before it did: ask `is_finished` first."""

    SCHEMA: ClassVar = "process_exit_code_verbose"
    status: list[str] = []
    signal: Signal | None = None
    _return_code: Triplet | None = None
    code = Number[int]("_return_code")


_TRIPLETS = [
    "array_job_id",
    "array_task_id",
    "cpus",
    "cpus_per_task",
    "eligible_time",
    "end_time",
    "het_job_id",
    "het_job_offset",
    "memory_per_cpu",
    "memory_per_node",
    "node_count",
    "preempt_time",
    "priority",
    "start_time",
    "submit_time",
    "tasks",
    "tasks_per_node",
    "time_limit",
]


class Job(JobStates, msgspec.Struct, gc=False, rename={f"_{name}": name for name in _TRIPLETS} | {"job_states": "job_state"}):
    """One job. Times are seconds since 1970, `time_limit` is minutes, memory is MiB; an unset number is None, an unlimited one INFINITE."""

    SCHEMA: ClassVar = "job_info"

    job_id: int
    name: str = ""
    job_states: list[str] = []
    state_reason: str = ""
    state_description: str = ""
    user_name: str = ""
    user_id: int = 0
    group_name: str = ""
    group_id: int = 0
    account: str = ""
    partition: str = ""
    qos: str = ""
    cluster: str = ""
    nodes: str = ""
    batch_host: str = ""
    scheduled_nodes: str = ""
    excluded_nodes: str = ""
    required_nodes: str = ""
    features: str = ""
    dependency: str = ""
    licenses: str = ""
    resv_name: str = ""
    mcs_label: str = ""
    wckey: str = ""
    shared: list[str] = []
    flags: list[str] = []
    hold: bool = False
    requeue: bool = False
    restart_cnt: int = 0
    nice: int = 0
    comment: str = ""
    admin_comment: str = ""
    system_comment: str = ""
    extra: str = ""
    command: str = ""
    current_working_directory: str = ""
    standard_input: str = ""
    standard_output: str = ""
    standard_error: str = ""
    array_task_string: str = ""
    het_job_id_set: str = ""
    tres_req_str: str = ""
    tres_alloc_str: str = ""
    tres_per_job: str = ""
    tres_per_node: str = ""
    tres_per_task: str = ""
    gres_detail: list[str] = []
    exit_code: ExitCode | None = None
    derived_exit_code: ExitCode | None = None

    _array_job_id: Triplet | None = None
    _array_task_id: Triplet | None = None
    _cpus: Triplet | None = None
    _cpus_per_task: Triplet | None = None
    _eligible_time: Triplet | None = None
    _end_time: Triplet | None = None
    _het_job_id: Triplet | None = None
    _het_job_offset: Triplet | None = None
    _memory_per_cpu: Triplet | None = None
    _memory_per_node: Triplet | None = None
    _node_count: Triplet | None = None
    _preempt_time: Triplet | None = None
    _priority: Triplet | None = None
    _start_time: Triplet | None = None
    _submit_time: Triplet | None = None
    _tasks: Triplet | None = None
    _tasks_per_node: Triplet | None = None
    _time_limit: Triplet | None = None

    array_job_id = Number[int]("_array_job_id")
    array_task_id = Number[int]("_array_task_id")
    cpus = Number[int]("_cpus")
    cpus_per_task = Number[int]("_cpus_per_task")
    eligible_time = Number[int]("_eligible_time")
    end_time = Number[int]("_end_time")
    het_job_id = Number[int]("_het_job_id")
    het_job_offset = Number[int]("_het_job_offset")
    memory_per_cpu = Number[int]("_memory_per_cpu")
    memory_per_node = Number[int]("_memory_per_node")
    node_count = Number[int]("_node_count")
    preempt_time = Number[int]("_preempt_time")
    priority = Number[int]("_priority")
    start_time = Number[int]("_start_time")
    submit_time = Number[int]("_submit_time")
    tasks = Number[int]("_tasks")
    tasks_per_node = Number[int]("_tasks_per_node")
    time_limit = Number[int]("_time_limit")

    @property
    def states(self) -> list[str]:
        return self.job_states

    @property
    def is_external(self) -> bool:
        return "EXTERNAL_JOB" in self.flags

    @property
    def hetjob_id(self) -> int:
        """The id of the hetjob that it is a part of, which is its leader's; 0 where it is none."""
        return self.het_job_id if isinstance(self.het_job_id, int) else 0

    @property
    def hetjob_ids(self) -> list[int]:
        """The ids of all parts of that hetjob."""
        return [int(part) for part in expand(f"[{self.het_job_id_set.strip('[]')}]")] if self.hetjob_id else []

    @property
    def is_held(self) -> bool:
        return self.is_pending and (self.hold or self.priority == 0)


class JobStatus(JobStates, msgspec.Struct, frozen=True, gc=False, rename={"label": "job_id", "job_states": "state"}):
    """A job's state and no more: 80 bytes on the wire. `label` is how Slurm writes the id: `7`, `5_3` (array task), `3+1` (part of a hetjob)."""

    label: str
    job_states: list[str] = []

    @property
    def states(self) -> list[str]:
        return self.job_states

    @property
    def job_id(self) -> int:
        """The number before `_` or `+`: the job, the array, or the hetjob's part."""
        return int(self.label.partition("_")[0].partition("+")[0])


class Gres(msgspec.Struct, frozen=True, gc=False):
    """Generic resources given to a job on one node; `index` says which ones, as a range list (`0-1,4`).

    Where a job has several types, each of its nodes has an entry for every type: `count` 0 and no `index` where it has none.
    """

    SCHEMA: ClassVar = "node_gres_layout"
    name: str = ""
    type: str = ""
    count: int = 0
    index: str | None = ""


class NodeAllocation(msgspec.Struct, frozen=True, gc=False, rename={"cpus_bitmap": "core_bitmap", "memory": "mem_alloc"}):
    """What a job has on one node; memory in MiB."""

    SCHEMA: ClassVar = "node_resource_layout"
    node: str
    sockets_per_node: int = 0
    cores_per_socket: int = 0
    memory: int = 0
    cpus_bitmap: str = ""
    gres: list[Gres] = []

    @property
    def cores(self) -> list[int]:
        """The indices of the cores given to the job."""
        bits = int(self.cpus_bitmap or "0", 16)
        return [index for index in range(bits.bit_length()) if bits >> index & 1]

    @property
    def is_whole(self) -> bool:
        """Whether the job has all cores of the node: nobody else can have any."""
        return 0 < self.sockets_per_node * self.cores_per_socket == int(self.cpus_bitmap or "0", 16).bit_count()


class Allocation(msgspec.Struct, frozen=True):
    """What a running job has, node by node, in Slurm's order."""

    job_id: int
    nodes: list[NodeAllocation]


class CancelError(msgspec.Struct, frozen=True, gc=False):
    SCHEMA: ClassVar = "kill_jobs_resp_job.error"
    string: str = ""
    code: int = 0
    message: str = ""


class CancelResult(msgspec.Struct, frozen=True, gc=False, rename={"label": "step_id"}):
    """What came of one job in a request to cancel many. Slurm tells only those about which there is something to tell."""

    SCHEMA: ClassVar = "kill_jobs_resp_job"
    label: str = ""
    error: CancelError = CancelError()


class Submitted(Envelope, kw_only=True, rename={"message": "job_submit_user_msg"}):
    """A job that was accepted. `notes` are Slurm's warnings, such as that it is held; `found` tells that it existed already (see `submit`)."""

    SCHEMA: ClassVar = "openapi_job_submit_response"
    job_id: int
    message: str = ""

    @property
    def found(self) -> bool:
        return False

    @property
    def notes(self) -> list[str]:
        return [warning.description for warning in self.warnings or ()]


class FoundAgain(Submitted, kw_only=True):
    """A job that existed already: it carries the marker of what was to be submitted once."""

    @property
    def found(self) -> bool:
        return True


class Update(msgspec.Struct, frozen=True, gc=False):
    """What came of an update or requeue for one job or array task."""

    SCHEMA: ClassVar = "job_array_response_msg_entry"
    job_id: int = 0
    step_id: str = ""
    error: str = ""
    error_code: int = 0
    why: str = ""


class JobList(Envelope, kw_only=True):
    jobs: list[Job] | None = None


class StatusList(Envelope, kw_only=True):
    jobs: list[JobStatus] | None = None


class Layout(Envelope, kw_only=True):
    nodes: list[NodeAllocation] | None = None


class CancelResults(Envelope, kw_only=True):
    status: list[CancelResult] | None = None


class Updates(Envelope, kw_only=True):
    results: list[Update] | None = None


class Requeued(Envelope, kw_only=True):
    status: list[Update] | None = None


class RequeuedMany(Envelope, kw_only=True):
    status: list[list[Update] | None] | None = None
