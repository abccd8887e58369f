"""What the bridge must be allowed in Kubernetes, as a list to ask the API server about, one verb at a time.

Pure. What must stay true: it is examples/bridge-rbac.yaml, of which a test sees to it.
"""

from collections.abc import Iterator

import msgspec

from slinky.bridge.settings import Settings

__all__ = ["Right", "review_of", "rights_of"]


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """`optional` is what it is for, where the bridge can do without; `name` the one object that it is about."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""
    optional: str = ""

    @property
    def rule(self) -> str:
        """As it stands in a ClusterRole."""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f'{{apiGroups: ["{self.group}"], resources: [{self.resource}], verbs: [{self.verb}]}}{where}'


READ = ("get", "list", "watch")
NEEDED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "pods", (*READ, "patch")),
    ("", "pods/status", ("patch",)),
    ("", "pods/binding", ("create",)),
    ("", "pods/eviction", ("create",)),
    ("", "namespaces", READ),
    ("", "nodes", READ),
    ("batch", "jobs", READ),
    ("scheduling.k8s.io", "podgroups", READ),
    ("scheduling.k8s.io", "workloads", READ),
    ("scheduling.x-k8s.io", "podgroups", READ),
    ("scheduling.k8s.io", "podgroups/status", ("patch",)),
    ("scheduling.x-k8s.io", "podgroups/status", ("patch",)),
    ("jobset.x-k8s.io", "jobsets", READ),
    ("leaderworkerset.x-k8s.io", "leaderworkersets", READ),
    ("", "persistentvolumeclaims", (*READ, "patch")),
    ("", "persistentvolumes", (*READ, "patch")),
    ("storage.k8s.io", "storageclasses", ("list", "watch")),
    ("storage.k8s.io", "csinodes", ("list", "watch")),
    ("storage.k8s.io", "csidrivers", ("list", "watch")),
    ("storage.k8s.io", "csistoragecapacities", ("list", "watch")),
    ("storage.k8s.io", "volumeattachments", ("list", "watch")),
    ("events.k8s.io", "events", ("create", "patch")),
)
CRDS = "it learns at once of the CRDs of PodGroup, JobSet and LeaderWorkerSet; without it, after a while"
EXEC = "it delivers checkpoint signals; without it set checkpointSignals: false"


def rights_of(settings: Settings) -> Iterator[Right]:
    """What this configuration needs."""
    for group, resource, verbs in NEEDED:
        yield from (Right(group=group, resource=resource, verb=verb) for verb in verbs)
    if settings.nodes.register:
        yield Right(group="", resource="nodes", verb="patch")
        yield Right(group="", resource="nodes/status", verb="patch")
    if settings.eviction.budgets != "honour":
        yield Right(group="", resource="pods", verb="delete")
    if settings.leader.elect:
        yield Right(group="coordination.k8s.io", resource="leases", verb="create", namespace=settings.namespace)
        for verb in ("get", "update", "patch"):
            yield Right(group="coordination.k8s.io", resource="leases", verb=verb, namespace=settings.namespace, name=settings.leader.name)
    yield from (
        Right(group="apiextensions.k8s.io", resource="customresourcedefinitions", verb=verb, optional=CRDS) for verb in ("list", "watch")
    )
    if settings.checkpoint_signals:
        yield from (Right(group="", resource="pods/exec", verb=verb, optional=EXEC) for verb in ("get", "create"))


def review_of(right: Right, user: str) -> tuple[str, dict[str, object]]:
    """Path and body of the question. Without a user, of whoever asks."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verb,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec: dict[str, object] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    if user:
        spec["user"] = user
        parts = user.split(":")
        if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
            spec["groups"] = ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}", "system:authenticated"]
    api = "authorization.k8s.io/v1"
    return f"/apis/{api}/{kind.lower()}s", {"apiVersion": api, "kind": kind, "spec": spec}
