"""The APIs that tell of groups of pods: which of them a server offers, and what their objects say.

Comes in: the server's discovery documents, and the objects of each version as they are. Goes out: the sources to be watched, and a `PodGroup`, the same whichever API it came from. Pure.

There are two APIs for groups, and two for sets that make their pods themselves, JobSet and LeaderWorkerSet. The coscheduling CRD has not changed in years. The built-in API changes with every release of Kubernetes: 1.35 has Workloads with groups within (`v1alpha1`), 1.36
(`v1alpha2`) and 1.37 (`v1alpha3`, `v1beta1`) have PodGroups that may refer to the Workload they were made from. What must stay true: of the built-in API one version is watched, the newest
that is known here; a policy that is not known here is never taken for another: its pods wait.
"""

import datetime as dt
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from slinky.bridge.jobsets import JOBSET_GROUP, JobSet
from slinky.bridge.leaderworkersets import LWS_GROUP, LeaderWorkerSet
from slinky.bridge.workload import Kind, PodGroup
from slinky.kube import KubeObject, Meta, Resource
from slinky.kube.objects import Condition, Record

__all__ = [
    "BUILTIN",
    "COSCHEDULING",
    "CRDS",
    "KNOWN",
    "BuiltinGroup",
    "Choice",
    "CoschedulingGroup",
    "CoschedulingStatus",
    "GroupWorkload",
    "Source",
    "choose",
    "group_from",
    "workload_behind",
]

BUILTIN: Final = "scheduling.k8s.io"
COSCHEDULING: Final = "scheduling.x-k8s.io"
GROUPS, WORKLOADS = "podgroups", "workloads"


class _Basic(Record, frozen=True):
    """Says by being there that the pods are scheduled one by one."""


class _Gang(Record, frozen=True):
    min_count: int = 1


class _Policy(Record, frozen=True):
    """One of the two; neither where it is a policy of a later release."""

    basic: _Basic | None = None
    gang: _Gang | None = None


class _WorkloadName(Record, frozen=True):
    workload_name: str = ""


class _TemplateReference(Record, frozen=True):
    workload: _WorkloadName | None = None


class _BuiltinSpec(Record, frozen=True):
    """The reference to the Workload is called `podGroupTemplateRef` in v1alpha2 and `workloadRef` since."""

    scheduling_policy: _Policy = _Policy()
    pod_group_template_ref: _TemplateReference | None = None
    workload_ref: _WorkloadName | None = None


class _BuiltinStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class BuiltinGroup(KubeObject, frozen=True):
    spec: _BuiltinSpec = _BuiltinSpec()
    status: _BuiltinStatus = _BuiltinStatus()


class _Part(Record, frozen=True):
    name: str = ""
    policy: _Policy = _Policy()


class _WorkloadSpec(Record, frozen=True):
    pod_groups: tuple[_Part, ...] = ()


class GroupWorkload(KubeObject, frozen=True):
    """A Workload; its groups are within in v1alpha1 only. Later ones hold templates, which are of no concern: the groups made from them say it all."""

    spec: _WorkloadSpec = _WorkloadSpec()


class _CoschedulingSpec(Record, frozen=True):
    min_member: int = 1


class CoschedulingStatus(Record, frozen=True):
    phase: str = ""
    occupied_by: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: dt.datetime | None = None


class CoschedulingGroup(KubeObject, frozen=True):
    spec: _CoschedulingSpec = _CoschedulingSpec()
    status: CoschedulingStatus = CoschedulingStatus()


GroupObject = BuiltinGroup | GroupWorkload | CoschedulingGroup


class Source(msgspec.Struct, frozen=True, order=True):
    """Something to be watched: objects of which a workload of `kind` is made, or (`kind` None) the Workloads that PodGroups refer to."""

    kind: Kind | None
    group: str
    version: str
    plural: str

    @property
    def resource(self) -> Resource[Any]:
        types: dict[Kind | None, type[KubeObject]] = {
            "PodGroup": BuiltinGroup,
            "Workload": GroupWorkload,
            "CoschedulingPodGroup": CoschedulingGroup,
            "JobSet": JobSet,
            "LeaderWorkerSet": LeaderWorkerSet,
        }
        return Resource(self.group, self.version, self.plural, types.get(self.kind, KubeObject))

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}/{self.version}"


# Newest first.
KNOWN: Final[Mapping[str, tuple[Source, ...]]] = {
    BUILTIN: (
        *(Source("PodGroup", BUILTIN, version, GROUPS) for version in ("v1beta1", "v1alpha3", "v1alpha2")),
        Source("Workload", BUILTIN, "v1alpha1", WORKLOADS),
    ),
    COSCHEDULING: (Source("CoschedulingPodGroup", COSCHEDULING, "v1alpha1", GROUPS),),
    JOBSET_GROUP: (Source("JobSet", JOBSET_GROUP, "v1alpha2", "jobsets"),),
    LWS_GROUP: (Source("LeaderWorkerSet", LWS_GROUP, "v1", "leaderworkersets"),),
}
# API groups that may be installed at any time, and the name of the CRD that does it.
CRDS: Final[Mapping[str, str]] = {group: f"{KNOWN[group][0].plural}.{group}" for group in (COSCHEDULING, JOBSET_GROUP, LWS_GROUP)}


class Choice(msgspec.Struct, frozen=True):
    """What to watch of one API group; a `problem` where there are groups of pods that we cannot read."""

    sources: tuple[Source, ...] = ()
    problem: str = ""


def choose(group: str, served: Mapping[str, Collection[str]]) -> Choice:
    """`served` are the resources (plurals) of each version that the server has of this API group; empty where it does not have it."""
    found = next((source for source in KNOWN[group] if source.plural in served.get(source.version, ())), None)
    if found is None:
        plural = KNOWN[group][0].plural
        strange = sorted(version for version, plurals in served.items() if plural in plurals)
        known = ", ".join(f"{source.version} ({source.plural})" for source in KNOWN[group])
        problem = f"the server has {plural}.{group} as {', '.join(strange)} only; known here are {known}" if strange else ""
        return Choice(problem=problem)
    behind = found.kind == "PodGroup" and WORKLOADS in served[found.version]
    return Choice((found, Source(None, BUILTIN, found.version, WORKLOADS)) if behind else (found,))


def group_from(found: GroupObject, part: str = "", behind: Meta | None = None, owner: Meta | None = None) -> PodGroup | None:
    """What an object says; `part` is the group within a Workload. None where it has no such group, or a policy that is not known here.

    `behind` is the Workload that a PodGroup was made from, `owner` the Job that owns it: its annotations go before the group's own.
    """
    match found:
        case CoschedulingGroup():
            said = found.metadata.annotations
            return PodGroup(metadata=found.metadata, min_count=max(found.spec.min_member, 1), builtin=False, annotations=said)
        case GroupWorkload():
            policy = next((within.policy for within in found.spec.pod_groups if within.name == part), _Policy())
            own: Mapping[str, str] = {}
            overriding = found.metadata.annotations
        case BuiltinGroup():
            policy = found.spec.scheduling_policy
            own = found.metadata.annotations
            overriding = behind.annotations if behind else {}
    if policy.basic is None and policy.gang is None:
        return None
    return PodGroup(
        metadata=found.metadata,
        min_count=max(policy.gang.min_count, 1) if policy.gang else 1,
        builtin=True,
        gang=policy.gang is not None,
        annotations={**own, **owner.annotations} if owner else own,
        overriding=overriding,
    )


def workload_behind(found: KubeObject) -> str:
    """The name of the Workload that a PodGroup was made from, if it was."""
    if not isinstance(found, BuiltinGroup):
        return ""
    spec = found.spec
    reference = spec.workload_ref or (spec.pod_group_template_ref.workload if spec.pod_group_template_ref else None)
    return reference.workload_name if reference else ""
