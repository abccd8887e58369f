"""The states of jobs and nodes: as words, as enums, and as the questions that people ask of them.

A state in Slurm is one base state and any number of flags, told as one list of words. A word that is not known here (from a newer Slurm) is kept in
`states` and left out of the enums: nothing breaks.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["FINISHED", "JobFlag", "JobState", "JobStates", "NodeFlag", "NodeState", "NodeStates"]


class JobState(enum.StrEnum):
    """Base states; every job is in one of them. UNKNOWN is ours: a word that this version does not know, or nothing at all."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    UNKNOWN = "UNKNOWN"


class JobFlag(enum.StrEnum):
    """What a job may be besides its base state."""

    LAUNCH_FAILED = "LAUNCH_FAILED"
    REQUEUED = "REQUEUED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    RESIZING = "RESIZING"
    CONFIGURING = "CONFIGURING"
    COMPLETING = "COMPLETING"
    STOPPED = "STOPPED"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    POWER_UP_NODE = "POWER_UP_NODE"
    REVOKED = "REVOKED"
    REQUEUE_FED = "REQUEUE_FED"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    SIGNALING = "SIGNALING"
    STAGE_OUT = "STAGE_OUT"
    EXPEDITING = "EXPEDITING"


class NodeState(enum.StrEnum):
    """Base states of nodes; UNKNOWN also where the word is new to us."""

    DOWN = "DOWN"
    IDLE = "IDLE"
    ALLOCATED = "ALLOCATED"
    MIXED = "MIXED"
    ERROR = "ERROR"
    FUTURE = "FUTURE"
    UNKNOWN = "UNKNOWN"


class NodeFlag(enum.StrEnum):
    """What a node may be besides its base state."""

    EXTERNAL = "EXTERNAL"
    RESERVED = "RESERVED"
    UNDRAIN = "UNDRAIN"
    CLOUD = "CLOUD"
    RESUME = "RESUME"
    DRAIN = "DRAIN"
    COMPLETING = "COMPLETING"
    NOT_RESPONDING = "NOT_RESPONDING"
    POWERED_DOWN = "POWERED_DOWN"
    FAIL = "FAIL"
    POWERING_UP = "POWERING_UP"
    MAINTENANCE = "MAINTENANCE"
    REBOOT_REQUESTED = "REBOOT_REQUESTED"
    REBOOT_CANCELED = "REBOOT_CANCELED"
    REBOOT_ISSUED = "REBOOT_ISSUED"
    POWERING_DOWN = "POWERING_DOWN"
    DYNAMIC_FUTURE = "DYNAMIC_FUTURE"
    DYNAMIC_NORM = "DYNAMIC_NORM"
    PLANNED = "PLANNED"
    INVALID_REG = "INVALID_REG"
    POWER_DOWN = "POWER_DOWN"
    POWER_UP = "POWER_UP"
    POWER_DRAIN = "POWER_DRAIN"
    POWER_DOWN_ASAP = "POWER_DOWN_ASAP"
    POWER_DOWN_FORCE = "POWER_DOWN_FORCE"
    BLOCKED = "BLOCKED"
    INVALID = "INVALID"


S = TypeVar("S")

FINISHED = frozenset(JobState) - {JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED, JobState.UNKNOWN}
_JOB_STATES = {str(state): state for state in JobState}
_JOB_FLAGS = {str(flag): flag for flag in JobFlag}
_NODE_STATES = {str(state): state for state in NodeState}
_NODE_FLAGS = {str(flag): flag for flag in NodeFlag}


class JobStates:
    """For whatever has `states`, a list of words of Slurm's about a job."""

    __slots__ = ()

    @property
    def states(self) -> Sequence[str]:
        raise NotImplementedError

    @property
    def state(self) -> JobState:
        """The base state."""
        return _first(self.states, _JOB_STATES, JobState.UNKNOWN)

    @property
    def state_flags(self) -> frozenset[JobFlag]:
        return frozenset(_JOB_FLAGS[word] for word in self.states if word in _JOB_FLAGS)

    @property
    def is_pending(self) -> bool:
        return "PENDING" in self.states

    @property
    def is_running(self) -> bool:
        """It holds its resources and its work goes on (also while it is being configured or signalled)."""
        return "RUNNING" in self.states

    @property
    def is_suspended(self) -> bool:
        return "SUSPENDED" in self.states

    @property
    def is_finished(self) -> bool:
        """It has ended and will not run again; it may still be COMPLETING."""
        return self.state in FINISHED

    @property
    def is_completing(self) -> bool:
        return "COMPLETING" in self.states

    @property
    def is_signaling(self) -> bool:
        """Slurm is telling it to end: a grace time or a kill warning runs."""
        return "SIGNALING" in self.states

    @property
    def has_succeeded(self) -> bool:
        return "COMPLETED" in self.states


class NodeStates:
    """For whatever has `states`, a list of words of Slurm's about a node."""

    __slots__ = ()

    @property
    def states(self) -> Sequence[str]:
        raise NotImplementedError

    @property
    def base_state(self) -> NodeState:
        return _first(self.states, _NODE_STATES, NodeState.UNKNOWN)

    @property
    def state_flags(self) -> frozenset[NodeFlag]:
        return frozenset(_NODE_FLAGS[word] for word in self.states if word in _NODE_FLAGS)

    @property
    def is_external(self) -> bool:
        """It has no slurmd. Told from v0.0.44 on."""
        return "EXTERNAL" in self.states

    @property
    def is_idle(self) -> bool:
        return "IDLE" in self.states

    @property
    def is_busy(self) -> bool:
        """Some job holds something there, or is still being cleaned up."""
        return not {"ALLOCATED", "MIXED", "COMPLETING"}.isdisjoint(self.states)

    @property
    def is_down(self) -> bool:
        return "DOWN" in self.states

    @property
    def is_draining(self) -> bool:
        """It takes no new jobs, and has some left."""
        return "DRAIN" in self.states and self.is_busy

    @property
    def is_drained(self) -> bool:
        """It takes no new jobs, and has none left."""
        return "DRAIN" in self.states and not self.is_busy

    @property
    def is_responding(self) -> bool:
        return "NOT_RESPONDING" not in self.states

    @property
    def takes_jobs(self) -> bool:
        """Up, not drained, not silent: Slurm may start a job there."""
        out = {
            "DRAIN",
            "FAIL",
            "NOT_RESPONDING",
            "MAINTENANCE",
            "INVALID_REG",
            "POWERING_DOWN",
            "POWERED_DOWN",
            "DOWN",
            "FUTURE",
            "ERROR",
            "UNKNOWN",
            "BLOCKED",
        }
        return bool(self.states) and out.isdisjoint(self.states)


def _first(words: Iterable[str], known: dict[str, S], otherwise: S) -> S:
    return next((known[word] for word in words if word in known), otherwise)
