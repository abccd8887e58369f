"""Kubernetes for controllers: a client, cached watches, and what a controller needs around them.

In: an `Access` (from a kubeconfig or a pod's ServiceAccount). Out: typed objects, caches that follow the server, and errors that say what happened.
Knows nothing of Slurm. `docs/kube.md` shows how the parts are used together.
"""

from slinky.kube.access import Access, ExecPlugin, Identity, in_cluster
from slinky.kube.admission import (
    AdmissionRequest,
    AdmissionResponse,
    AdmissionServer,
    CertificateFiles,
    OnFailure,
    SelfMadeCertificate,
)
from slinky.kube.backoff import Backoff
from slinky.kube.cache import Cache, Change, Changes, ChangeType
from slinky.kube.client import Client, Listing, PatchKind, Propagation
from slinky.kube.errors import (
    AlreadyExistsError,
    ApiError,
    BadAnswerError,
    BadRequestError,
    ConfigurationError,
    ConflictError,
    ConnectionFailedError,
    CredentialsError,
    DeadlineError,
    ExpiredError,
    ForbiddenError,
    InterruptedReadError,
    InvalidError,
    KubeError,
    NotFoundError,
    OutcomeUnknownError,
    RequestError,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
)
from slinky.kube.exec import ExecResult
from slinky.kube.health import HealthServer
from slinky.kube.kubeconfig import from_kubeconfig, load_access
from slinky.kube.leader import LeaderElector
from slinky.kube.leases import ElectionTimes
from slinky.kube.metrics import KubeMetrics
from slinky.kube.objects import Event, Job, Key, KubeObject, Lease, Meta, Namespace, Node, ObjectReference, PersistentVolumeClaim, Pod
from slinky.kube.recorder import EventRecorder, reference
from slinky.kube.reflector import Reflector, WatchHealth
from slinky.kube.resources import CLAIMS, EVENTS, JOBS, LEASES, NAMESPACES, NODES, PODS, Resource
from slinky.kube.retries import Retries
from slinky.kube.transport import Attempt, Observer
from slinky.kube.workqueue import QueueClosedError, WorkQueue

__all__ = [
    "CLAIMS",
    "EVENTS",
    "JOBS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "Access",
    "AdmissionRequest",
    "AdmissionResponse",
    "AdmissionServer",
    "AlreadyExistsError",
    "ApiError",
    "Attempt",
    "Backoff",
    "BadAnswerError",
    "BadRequestError",
    "Cache",
    "CertificateFiles",
    "Change",
    "ChangeType",
    "Changes",
    "Client",
    "ConfigurationError",
    "ConflictError",
    "ConnectionFailedError",
    "CredentialsError",
    "DeadlineError",
    "ElectionTimes",
    "Event",
    "EventRecorder",
    "ExecPlugin",
    "ExecResult",
    "ExpiredError",
    "ForbiddenError",
    "HealthServer",
    "Identity",
    "InterruptedReadError",
    "InvalidError",
    "Job",
    "Key",
    "KubeError",
    "KubeMetrics",
    "KubeObject",
    "LeaderElector",
    "Lease",
    "Listing",
    "Meta",
    "Namespace",
    "Node",
    "NotFoundError",
    "ObjectReference",
    "Observer",
    "OnFailure",
    "OutcomeUnknownError",
    "PatchKind",
    "PersistentVolumeClaim",
    "Pod",
    "Propagation",
    "QueueClosedError",
    "Reflector",
    "RequestError",
    "Resource",
    "Retries",
    "SelfMadeCertificate",
    "TooLargeError",
    "TooManyRequestsError",
    "UnauthorizedError",
    "UnavailableError",
    "WatchHealth",
    "WorkQueue",
    "from_kubeconfig",
    "in_cluster",
    "load_access",
    "reference",
]
