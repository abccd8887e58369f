"""The bridge's configuration: one typed file, read once at start. What the original's file says is understood as it stands.

Every option's help stands where the option is defined; the reference in the docs is made from it. A key that is not known is refused by its name: a typing mistake must not become a default.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from slinky.bridge.eviction_settings import EvictionSettings
from slinky.bridge.hybrid_settings import HybridSettings
from slinky.bridge.node_settings import NodeSettings
from slinky.bridge.policy_settings import PolicySettings, PriorityClass
from slinky.kube.objects import LabelSelector
from slinky.settings import Help, LeaderSection, Section, SettingsError, SlurmSection, WebhookSection

__all__ = [
    "AbsenceSettings",
    "AdmissionSettings",
    "GangSettings",
    "Help",
    "LeaderSettings",
    "NodeSettings",
    "Settings",
    "SettingsError",
    "SlurmSettings",
    "StatusSettings",
    "VolumeSettings",
    "Windows",
    "matches",
]


class AbsenceSettings(Section, frozen=True):
    """Jobs that Slurm does not know any more."""

    share: Annotated[
        float,
        Help(
            "Alarm where this share of the jobs that have pods on nodes is absent from Slurm at once: until it is over nothing is evicted or let go on that ground, and no job without pods is ended."
        ),
    ] = 0.2
    jobs: Annotated[int, Help("But not where fewer jobs than this are absent.")] = 5
    sweep_seconds: Annotated[
        float,
        Help(
            "Seconds between two searches for jobs of the bridge that have no pods. A search reads each live job of Slurm once, a few at a time. A job without pods is ended 15 s after it was found."
        ),
    ] = 20.0


class _Section(Section, msgspec.Struct, frozen=True):
    """One of this file's; that lists may be defaults here is a Struct's doing."""


class Windows(_Section, frozen=True):
    """How many jobs may wait in Slurm at once, so that one Job of 100,000 pods cannot fill its job table."""

    namespace: Annotated[
        int, Help("Pending jobs a namespace may have in Slurm; the rest waits in the bridge, and moves up as jobs start.")
    ] = 1000
    total: Annotated[int, Help("Pending jobs of all namespaces together.")] = 10000


class GangSettings(_Section, frozen=True):
    """Pods that start together: of PodGroups, Jobs, JobSets, LeaderWorkerSets."""

    replacement_seconds: Annotated[
        float,
        Help(
            "How long the allocation of a gang whose pods are all gone is kept, if whoever made them is about to make others: a JobSet that restarts, a Job that tries again, a group that is made anew."
        ),
    ] = 60.0
    write_status: Annotated[
        bool,
        Help("Write the status of PodGroups, as their APIs ask; not where another controller writes it (that of scheduler-plugins, say)."),
    ] = True
    max_pods: Annotated[
        int,
        Help(
            "Maximum number of pods in a gang. A larger gang is refused when it is applied; if the webhook does not see it, its pods' condition gives the reason."
        ),
    ] = 20000
    hetjobs: Annotated[
        Literal["auto", "never"],
        Help(
            "A gang whose pods differ is a hetjob where Slurm has them for external jobs (26.05.3 and later), else one job with the largest needs for all; `never`: always the latter."
        ),
    ] = "auto"


class SlurmSettings(SlurmSection, _Section, frozen=True):
    """How slurmrestd is reached."""

    token_file: Annotated[str, Help("File with a token of an administrator of Slurm, read again when it changes.")] = (
        "/etc/slurm-bridge/token/auth-token"  # noqa: S105
    )
    completion: Annotated[
        bool,
        Help(
            "End jobs with their pods' exit code through libslurm where it is installed; else they end as cancelled, with the outcome in the comment."
        ),
    ] = True
    completion_command: Annotated[
        list[str], Help("Command that runs Python where libslurm is, if not here: the words before the script's name.")
    ] = []
    namespaces: Annotated[
        list[str],
        Help(
            "Kubernetes namespaces that Slurm itself runs in, where it does: never managed, as Slurm cannot schedule what it needs to run. Nor are kube-system and the bridge's own."
        ),
    ] = msgspec.field(default_factory=lambda: ["slurm"])
    fastest_poll: Annotated[float, Help("Seconds between two looks at the jobs' states while something changes.")] = 0.03
    slowest_poll: Annotated[float, Help("The same while nothing does.")] = 1.0


class AdmissionSettings(WebhookSection, msgspec.Struct, frozen=True):
    """The admission webhook, `slinky bridge admission`."""

    secret: Annotated[str, Help("Secret for the certificate that is made.")] = "slurm-bridge-admission"  # noqa: S105
    service: Annotated[str, Help("Service by which the API server reaches the webhook.")] = "slurm-bridge-admission"
    configuration: Annotated[str, Help("Name of the webhook configurations.")] = "slurm-bridge"
    fail_open: Annotated[
        bool,
        Help(
            "While the webhook is down, let pods of managed namespaces through as they are (to the default scheduler) instead of refusing them."
        ),
    ] = False
    bridge_users: Annotated[
        list[str], Help("Users who may change the bridge's own keys on pods; the webhook's own where it is empty.")
    ] = []


class LeaderSettings(LeaderSection, frozen=True):
    """One bridge acts at a time; others wait."""

    name: Annotated[str, Help("Name of the Lease.")] = "slurm-bridge"


class StatusSettings(_Section, frozen=True):
    """What is written on pods for people."""

    seconds: Annotated[float, Help("A waiting pod's condition is written at most once in this many seconds, if its state is the same.")] = (
        30.0
    )
    rate: Annotated[float, Help("Conditions written per second, all pods together.")] = 20.0


class VolumeSettings(_Section, frozen=True):
    """Pods with volume claims."""

    bind_seconds: Annotated[
        float,
        Help(
            "How long the volumes of a workload that Slurm has started may take to be bound or made; then what was begun is undone, and its node counts as refused. kube-scheduler's bindTimeoutSeconds."
        ),
    ] = 600.0


class Settings(_Section, frozen=True):
    """All of it. The first six are the original's."""

    scheduler_name: Annotated[str, Help("`schedulerName` of the pods that the bridge takes in.")] = "slurm-bridge-scheduler"
    slurm_rest_api: Annotated[str, Help("Address of slurmrestd.")] = "http://localhost:6820"
    managed_namespaces: Annotated[list[str], Help("Namespaces whose pods Slurm schedules.")] = []
    managed_namespace_selector: Annotated[LabelSelector | None, Help("The same by label; where it is given, the list does not count.")] = (
        None
    )
    mcs_label: Annotated[str, Help("MCS label of the jobs.")] = "kubernetes"
    partition: Annotated[str, Help("Partition of workloads that name none.")] = "slurm-bridge"

    cluster: Annotated[
        str, Help("Name of this Kubernetes cluster in the jobs' admin_comment; the UID of namespace kube-system where it is empty.")
    ] = ""
    exclusive: Annotated[bool, Help("Whole nodes for workloads that do not say otherwise.")] = False
    task_environment: Annotated[
        Literal["auto", "all", "none"] | bool,
        Help(
            "Which pods get the whole environment of a Slurm task (SLURM_PROCID, SLURM_NTASKS and the rest). auto: pods with a Slurm annotation, in a group, or of a batch controller, and pods that mention a SLURM variable; other pods get SLURM_JOB_ID and SLURM_CPUS_PER_TASK. all or true: every pod. none or false: no pod gets any variable. Each variable costs the API server CPU at each change of the pod."
        ),
    ] = "auto"
    default_cpus: Annotated[int, Help("CPUs of a pod that asks for none.")] = 1
    default_memory_mib: Annotated[int, Help("Memory, in MiB, of a pod that asks for none: to Slurm, none means all.")] = 256
    gres: Annotated[
        dict[str, str],
        Help(
            "Kubernetes resource → GRES, with a type where wanted: `nvidia.com/gpu: gpu:h100`, `nvidia.com/mig-1g.10gb: mig:1g.10gb`, `rdma/hca: hca`. Every GRES must be in GresTypes of slurm.conf. What is not named here, Slurm does not count; Kubernetes does."
        ),
    ] = msgspec.field(default_factory=lambda: {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"})
    checkpoint_signals: Annotated[
        bool,
        Help(
            "Deliver the signal of annotation `signal` to containers before their job ends, by a command in the container: needs the right to pods/exec. Where it is off, the annotation is refused."
        ),
    ] = True
    windows: Annotated[Windows, Help("Limits on jobs that wait.")] = Windows()
    gangs: Annotated[GangSettings, Help("Pods that start together.")] = GangSettings()
    eviction: Annotated[EvictionSettings, Help("Pods whose job ends in Slurm.")] = EvictionSettings()
    policy: Annotated[PolicySettings, Help("What namespaces may say about their jobs.")] = PolicySettings()
    priority_classes: Annotated[tuple[PriorityClass, ...], Help("What PriorityClasses mean to Slurm.")] = ()
    slurm: Annotated[SlurmSettings, Help("How slurmrestd is reached.")] = SlurmSettings()
    nodes: Annotated[NodeSettings, Help("Nodes that Slurm gets to know.")] = NodeSettings()
    absence: Annotated[AbsenceSettings, Help("Jobs that Slurm does not know any more.")] = AbsenceSettings()
    admission: Annotated[AdmissionSettings, Help("The admission webhook.")] = AdmissionSettings()
    leader: Annotated[LeaderSettings, Help("Leader election.")] = LeaderSettings()
    status: Annotated[StatusSettings, Help("What is written on pods for people.")] = StatusSettings()
    shadow: Annotated[
        bool,
        Help(
            "Shadow mode: pods are left to their own scheduler and nothing is written on them; Slurm gets their jobs all the same, and what it would have done is reported (docs/shadow.md)."
        ),
    ] = False
    shadow_report_seconds: Annotated[float, Help("How often shadow mode writes its report, the ConfigMap `slurm-bridge-shadow`.")] = 60.0
    volumes: Annotated[VolumeSettings, Help("Pods with volume claims.")] = VolumeSettings()
    hybrid: Annotated[HybridSettings, Help("Nodes with a slurmd beside the kubelet.")] = HybridSettings()
    namespace: Annotated[
        str, Help("Namespace of the bridge itself, for its Lease, Secret and Service; the pod's own where it is empty, else `slinky`.")
    ] = ""
    health_port: Annotated[int, Help("Port of /livez, /readyz and /metrics.")] = 8081

    @property
    def fails_open(self) -> bool:
        """Whether pods pass where the webhook does not answer; a shadow is never in the way."""
        return self.admission.fail_open or self.shadow

    @property
    def never_managed(self) -> frozenset[str]:
        """What Slurm and the bridge run on cannot wait for them."""
        return frozenset({"kube-system", *self.slurm.namespaces, self.namespace} - {""})

    def manages(self, namespace: str, labels: dict[str, str]) -> bool:
        """Does Slurm schedule the pods of this namespace?"""
        if namespace in self.never_managed:
            return False
        if self.managed_namespace_selector is not None:
            return matches(self.managed_namespace_selector, labels)
        return namespace in self.managed_namespaces


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Does the selector mean an object with these labels?"""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    for wanted in selector.match_expressions:
        value = labels.get(wanted.key)
        if not {
            "In": value in wanted.values,
            "NotIn": value not in wanted.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }.get(wanted.operator, False):
            return False
    return True
