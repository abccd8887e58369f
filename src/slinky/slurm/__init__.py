"""A Slurm client: async first, typed, safe when slurmrestd misbehaves. The only place in the project that knows how slurmrestd speaks.

`SlurmClient` is the way in; `slinky.slurm.sync.SlurmClient` is the same for scripts and notebooks. docs/slurm-client.md is the guide.
"""

from slinky.slurm.address import TLS
from slinky.slurm.client import SlurmClient
from slinky.slurm.completion import JobCompletion
from slinky.slurm.credentials import Credentials, EnvironmentToken, FixedToken, MintedToken, TokenFile
from slinky.slurm.descriptions import JobDescription, NodeChange, NodeDescription, NodeGres
from slinky.slurm.errors import (
    AlreadyDoneError,
    AuthenticationError,
    BadAnswerError,
    CircuitOpenError,
    ConfigurationError,
    DeadlineError,
    ForbiddenError,
    NotFoundError,
    Outcome,
    OutcomeUnknownError,
    RefusedError,
    SlurmError,
    UnavailableError,
    UnsupportedError,
)
from slinky.slurm.hostlists import compress, expand, shorten
from slinky.slurm.lanes import Lane
from slinky.slurm.metrics import RequestMetrics
from slinky.slurm.models.accounting import Account, AccountedJob, Association, Cluster, Qos, Tres, User, Wckey
from slinky.slurm.models.cluster import Configuration, Diagnostics, License, Partition, Ping, Reservation, Share
from slinky.slurm.models.jobs import Allocation, CancelResult, ExitCode, Gres, Job, JobStatus, NodeAllocation, Submitted, Update
from slinky.slurm.models.nodes import Node
from slinky.slurm.models.states import JobFlag, JobState, JobStates, NodeFlag, NodeState
from slinky.slurm.numbers import INFINITE, Infinite
from slinky.slurm.pace import Pace
from slinky.slurm.requests import Attempt, Limits, Observer
from slinky.slurm.watch import JobTransition, NodeTransition

__all__ = [
    "INFINITE",
    "TLS",
    "Account",
    "AccountedJob",
    "Allocation",
    "AlreadyDoneError",
    "Association",
    "Attempt",
    "AuthenticationError",
    "BadAnswerError",
    "CancelResult",
    "CircuitOpenError",
    "Cluster",
    "Configuration",
    "ConfigurationError",
    "Credentials",
    "DeadlineError",
    "Diagnostics",
    "EnvironmentToken",
    "ExitCode",
    "FixedToken",
    "ForbiddenError",
    "Gres",
    "Infinite",
    "Job",
    "JobCompletion",
    "JobDescription",
    "JobFlag",
    "JobState",
    "JobStates",
    "JobStatus",
    "JobTransition",
    "Lane",
    "License",
    "Limits",
    "MintedToken",
    "Node",
    "NodeAllocation",
    "NodeChange",
    "NodeDescription",
    "NodeFlag",
    "NodeGres",
    "NodeState",
    "NodeTransition",
    "NotFoundError",
    "Observer",
    "Outcome",
    "OutcomeUnknownError",
    "Pace",
    "Partition",
    "Ping",
    "Qos",
    "RefusedError",
    "RequestMetrics",
    "Reservation",
    "Share",
    "SlurmClient",
    "SlurmError",
    "Submitted",
    "TokenFile",
    "Tres",
    "UnavailableError",
    "UnsupportedError",
    "Update",
    "User",
    "Wckey",
    "compress",
    "expand",
    "shorten",
]
