"""The operator's configuration: one typed file, read once at start.

Every option's help stands where the option is defined; docs/operator-configuration.md is made from it. What must stay true: a file that is let pass can be worked with; all of it may be left out.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from slinky.settings import Help, LeaderSection, Section, SettingsError, WebhookSection, load

__all__ = [
    "AdmissionSettings",
    "ImageSettings",
    "LeaderSettings",
    "Settings",
    "SettingsError",
    "SlurmSettings",
    "load_settings",
]

DOCUMENTED = "docs/operator-configuration.md"
PRIVILEGED = frozenset({"root", "slurm"})  # to whom Slurm obeys in everything


class _Section(Section, msgspec.Struct, frozen=True):
    """One of this file's; that lists may be defaults here is a Struct's doing."""


class ImageSettings(_Section, frozen=True):
    """Images of containers that name none of their own in their object."""

    slurmctld: Annotated[str, Help("Of Controllers.")] = "slinky/slurmctld:26.05"
    slurmdbd: Annotated[str, Help("Of Accountings.")] = "slinky/slurmdbd:26.05"
    slurmrestd: Annotated[str, Help("Of RestApis.")] = "slinky/slurmrestd:26.05"
    slurmd: Annotated[str, Help("Of NodeSets.")] = "slinky/slurmd:26.05"
    login: Annotated[str, Help("Of LoginSets.")] = "slinky/login:26.05"
    pull_policy: Annotated[str, Help("Their imagePullPolicy; Kubernetes' own rule where it is empty.")] = ""


class SlurmSettings(_Section, frozen=True):
    """How the clusters' slurmrestd are spoken to."""

    address: Annotated[
        str,
        Help(
            "Where a RestApi's slurmrestd is reached, with `{service}`, `{namespace}`, `{port}`, `{controller}` and `{cluster_ip}` (the Service's) in place of what differs: for an operator that runs where the cluster's DNS does not reach."
        ),
    ] = "http://{service}.{namespace}:{port}"
    user: Annotated[str, Help("The Slurm user that the operator is.")] = "slurm"
    request_seconds: Annotated[
        float, Help("How long Slurm may take to answer. No answer means: nothing is known, and nothing is deleted.")
    ] = 10.0
    token_seconds: Annotated[float, Help("How long the operator's own tokens are good; a new one is made in time.")] = 900.0
    fastest_poll: Annotated[float, Help("Seconds between two looks at a cluster's nodes while something changes.")] = 0.5
    slowest_poll: Annotated[float, Help("The same while nothing does.")] = 5.0
    current_seconds: Annotated[float, Help("For how long what was seen counts as current; on older knowledge no worker is deleted.")] = 30.0
    reconfigure_seconds: Annotated[
        float,
        Help("How long the daemons may take to run a new configuration before the Controller says Degraded; the operator goes on trying."),
    ] = 180.0


class AdmissionSettings(WebhookSection, msgspec.Struct, frozen=True):
    """The admission webhook, `slinky operator admission`."""

    secret: Annotated[str, Help("Secret for the certificate that is made.")] = "slurm-operator-admission"  # noqa: S105
    service: Annotated[str, Help("Service by which the API server reaches the webhook.")] = "slurm-operator-admission"
    configuration: Annotated[str, Help("Name of the webhook configuration.")] = "slurm-operator"
    fail_open: Annotated[
        bool,
        Help(
            "While the webhook is down, let objects through unjudged instead of refusing them. The operator itself judges each again, and says Degraded where it is wrong."
        ),
    ] = False
    timeout_seconds: Annotated[
        int,
        Help("How many seconds the API server waits for the webhook's answer: from 2 to 30."),
    ] = 5
    match_policy: Annotated[
        Literal["Equivalent", "Exact"],
        Help("The webhook configuration's matchPolicy."),
    ] = "Equivalent"
    match_conditions: Annotated[
        list[dict[str, str]],
        Help("The webhook configuration's matchConditions: name and CEL expression of each."),
    ] = []
    namespace_selector: Annotated[
        dict[str, Any],
        Help("The webhook configuration's namespaceSelector; without one, `namespaces` or all."),
    ] = {}


class LeaderSettings(LeaderSection, frozen=True):
    """One operator acts at a time; others wait."""

    name: Annotated[str, Help("Name of the Lease.")] = "slurm-operator"


class Settings(_Section, frozen=True):
    """All of it."""

    namespaces: Annotated[
        list[str],
        Help(
            "Namespaces whose objects are worked on; all where it is empty. With a list, the operator needs rights in these namespaces only."
        ),
    ] = []
    cluster_domain: Annotated[
        str, Help("The Kubernetes cluster's DNS domain; taken from the pod's resolv.conf where it is empty, else `cluster.local`.")
    ] = ""
    allowed_token_users: Annotated[
        dict[str, list[str]],
        Help(
            "Slurm users that Tokens may be for: namespace → users, both with `*` as in file names; what several lines allow is allowed. root and slurm are never meant by a `*`: they have to be named."
        ),
    ] = msgspec.field(default_factory=lambda: {"*": ["*"]})
    keep_keys: Annotated[bool, Help("Keys that the operator made (slurm.key, jwt.key, host keys) stay when their object is deleted.")] = (
        False
    )
    network_policies: Annotated[
        bool, Help("Make NetworkPolicies that let each daemon be reached by those that have to, and by no others.")
    ] = False
    propagated_node_conditions: Annotated[
        list[str],
        Help(
            "Conditions of Kubernetes nodes that, while they are true, are named as the reason when a worker on a cordoned node is drained."
        ),
    ] = []
    images: Annotated[ImageSettings, Help("Images where an object names none.")] = ImageSettings()
    slurm: Annotated[SlurmSettings, Help("How the clusters are spoken to.")] = SlurmSettings()
    admission: Annotated[AdmissionSettings, Help("The admission webhook.")] = AdmissionSettings()
    leader: Annotated[LeaderSettings, Help("Leader election.")] = LeaderSettings()
    concurrency: Annotated[int, Help("How many objects are worked on at once; one of a slow cluster never keeps another waiting.")] = 16
    creates_at_once: Annotated[int, Help("How many worker pods of one NodeSet are created or deleted side by side.")] = 64
    namespace: Annotated[
        str, Help("Namespace of the operator itself, for its Lease, Secret and Service; the pod's own where it is empty, else `slinky`.")
    ] = ""
    health_port: Annotated[int, Help("Port of /livez, /readyz and /metrics.")] = 8081
    metrics_port: Annotated[
        int | None,
        Help("Port of /metrics, if it is not to be healthPort; 0 serves no metrics."),
    ] = None

    def allows_token(self, namespace: str, user: str) -> bool:
        """May a Token in this namespace be for this user?"""
        for where, users in self.allowed_token_users.items():
            if fnmatchcase(namespace, where):
                if user in users:
                    return True
                if user not in PRIVILEGED and any(fnmatchcase(user, each) for each in users):
                    return True
        return False


def load_settings(path: Path) -> Settings:
    """Raises SettingsError."""
    settings = load(path, Settings, documented=DOCUMENTED)
    if wrong := next(_wrong(settings), None):
        raise SettingsError(f"{path}: {wrong}")
    return settings


def _wrong(settings: Settings) -> Iterator[str]:
    ours, slurm = settings.admission, settings.slurm
    if bool(ours.certificate_file) != bool(ours.key_file):
        yield "admission.certificateFile and admission.keyFile go together; give both, or none to have one made"
    if ours.url and not ours.url.startswith("https://"):
        yield f"admission.url is {ours.url!r}; the API server calls https only: https://HOST:PORT"
    if not 2 <= ours.timeout_seconds <= 30:
        yield (
            f"admission.timeoutSeconds is {ours.timeout_seconds}; it must be from 2 to 30: "
            "Kubernetes allows 30 seconds, and the webhook answers one second before the end"
        )
    if settings.leader.seconds < 3:
        yield f"leader.seconds is {settings.leader.seconds:g}; it must be 3 or more, or a slow API server would cost the lead"
    try:
        slurm.address.format(service="s", namespace="n", port=1, controller="c", cluster_ip="i")
    except (LookupError, ValueError):
        yield f"slurm.address is {slurm.address!r}; in braces it may have service, namespace, port, controller and cluster_ip only"
    for name, number in {
        "slurm.requestSeconds": slurm.request_seconds,
        "slurm.fastestPoll": slurm.fastest_poll,
        "slurm.currentSeconds": slurm.current_seconds,
        "slurm.reconfigureSeconds": slurm.reconfigure_seconds,
    }.items():
        if number <= 0:
            yield f"{name} is {number:g}; it must be more than 0"
    if slurm.token_seconds < 60:
        yield f"slurm.tokenSeconds is {slurm.token_seconds:g}; it must be 60 or more, or a token would be over before it is used"
    if slurm.slowest_poll < slurm.fastest_poll:
        yield f"slurm.slowestPoll is {slurm.slowest_poll:g}, less than slurm.fastestPoll ({slurm.fastest_poll:g}); it must not be"
    if slurm.current_seconds < slurm.slowest_poll:
        yield f"slurm.currentSeconds is {slurm.current_seconds:g}, less than slurm.slowestPoll ({slurm.slowest_poll:g}): nothing would ever be current; make it longer"
    for name, count in {"concurrency": settings.concurrency, "createsAtOnce": settings.creates_at_once}.items():
        if count < 1:
            yield f"{name} is {count}; it must be 1 or more, or nothing would ever be done"
    if any(not each for each in settings.namespaces):
        yield "namespaces has an empty name; leave the list empty to mean all"
