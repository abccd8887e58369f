"""The APIs that tell of groups of pods: which of them a server offers, and what their objects say.

Comes in: the server's discovery documents, and the objects of each version as they are. Goes out: the sources to be watched, and a `PodGroup`, the same whichever API it came from. Pure.

There are two APIs for groups, and two for sets that make their pods themselves, JobSet and LeaderWorkerSet. The coscheduling CRD has not changed in years. The built-in API changes with every release of Kubernetes: 1.35 has Workloads with groups within (`v1alpha1`), 1.36
(`v1alpha2`) and 1.37 (`v1alpha3`, `v1beta1`) have PodGroups that may refer to the Workload they were made from. What must stay true: of the built-in API one version is watched, the newest
that is known here; a policy that is not known here is never taken for another: its pods wait. A field of a built-in PodGroup that the bridge does not honour, or does not know, is
refused by its name: the pods do not start, and their condition and the group's say why.
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
    "not_honoured",
    "workload_behind",
]

BUILTIN: Final = "scheduling.k8s.io"
COSCHEDULING: Final = "scheduling.x-k8s.io"
GROUPS, WORKLOADS = "podgroups", "workloads"
# Of spec. `priority` is filled in by the API server from the class, which means to Slurm what `priorityClasses` says.
BUILTIN_FIELDS = frozenset(
    {
        "schedulingPolicy",
        "schedulingConstraints",
        "podGroupTemplateRef",
        "workloadRef",
        "disruptionMode",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    }
)
# A gang is one Slurm job, and is preempted as a whole: that honours both. The first names are those of v1alpha2.
DISRUPTED_TOGETHER, DISRUPTED_ALONE = frozenset({"PodGroup", "all"}), frozenset({"Pod", "single"})
PREEMPTS = "PreemptLowerPriority"


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


class _TopologyConstraint(Record, frozen=True):
    key: str = ""


class _Constraints(Record, frozen=True):
    topology: tuple[_TopologyConstraint, ...] = ()


class _BuiltinSpec(Record, frozen=True):
    """The reference to the Workload is called `podGroupTemplateRef` in v1alpha2 and `workloadRef` since."""

    scheduling_policy: _Policy = _Policy()
    scheduling_constraints: _Constraints | None = None
    priority_class_name: str = ""
    pod_group_template_ref: _TemplateReference | None = None
    workload_ref: _WorkloadName | None = None


class _BuiltinStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class BuiltinGroup(KubeObject, frozen=True):
    """`spec` is kept as it came, so that fields of later releases are seen too."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: _BuiltinStatus = _BuiltinStatus()

    @property
    def said(self) -> _BuiltinSpec:
        return msgspec.convert(self.spec, _BuiltinSpec)


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
            policy = found.said.scheduling_policy
            own = found.metadata.annotations
            overriding = behind.annotations if behind else {}
    if policy.basic is None and policy.gang is None and not isinstance(found, BuiltinGroup):
        return None
    spec = found.said if isinstance(found, BuiltinGroup) else _BuiltinSpec()
    topology = spec.scheduling_constraints.topology if spec.scheduling_constraints else ()
    return PodGroup(
        metadata=found.metadata,
        min_count=max(policy.gang.min_count, 1) if policy.gang else 1,
        builtin=True,
        gang=policy.basic is None,
        annotations={**own, **owner.annotations} if owner else own,
        overriding=overriding,
        refusal=_refusal(found) if isinstance(found, BuiltinGroup) else "",
        same_domain=topology[0].key if topology else "",
        priority_class=spec.priority_class_name,
    )


def _refusal(group: BuiltinGroup) -> str:
    problems = [f"{field} {why}" for field, why in not_honoured(group.spec).items()]
    return f"PodGroup {group.key} uses fields that the bridge does not support: {'; '.join(problems)}" if problems else ""


def not_honoured(spec: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a built-in PodGroup that the bridge does not honour, by name, and why. What is empty asks for nothing."""
    found: dict[str, str] = {}
    policy = spec.get("schedulingPolicy") or {}
    is_gang = policy.get("gang") is not None
    if not is_gang and policy.get("basic") is None:
        found["spec.schedulingPolicy"] = f"is {', '.join(policy) or 'empty'}; supported: gang, basic"
    constraints = spec.get("schedulingConstraints") or {}
    topology = constraints.get("topology") or ()
    for place, part, known in (
        ("spec", spec, BUILTIN_FIELDS),
        ("spec.schedulingPolicy", policy, {"gang", "basic"}),
        ("spec.schedulingPolicy.gang", policy.get("gang") or {}, {"minCount"}),
        ("spec.schedulingPolicy.basic", policy.get("basic") or {}, frozenset[str]()),
        ("spec.schedulingConstraints", constraints, {"topology"}),
        *((f"spec.schedulingConstraints.topology[{index}]", each, {"key"}) for index, each in enumerate(topology)),
    ):
        found |= {f"{place}.{name}": "is not supported: remove it" for name, value in part.items() if value and name not in known}
    if len(topology) > 1:
        found["spec.schedulingConstraints.topology"] = f"has {len(topology)} entries; the bridge supports one"
    elif topology and not is_gang:
        found["spec.schedulingConstraints.topology"] = "needs the policy gang: without it each pod is a separate Slurm job"
    mode = spec.get("disruptionMode")
    modes = {mode} if isinstance(mode, str) else set(mode or ())
    if modes - DISRUPTED_TOGETHER - DISRUPTED_ALONE:
        found["spec.disruptionMode"] = (
            f"is {', '.join(sorted(modes))}; supported: {', '.join(sorted(DISRUPTED_TOGETHER | DISRUPTED_ALONE))}"
        )
    elif modes & DISRUPTED_TOGETHER and not is_gang:
        found["spec.disruptionMode"] = "needs the policy gang: Slurm preempts the jobs of single pods one by one"
    if (preemption := spec.get("preemptionPolicy") or PREEMPTS) != PREEMPTS:
        found["spec.preemptionPolicy"] = (
            f"is {preemption}: Slurm decides which jobs are preempted; use a partition or QoS that preempts no others"
        )
    return found


def workload_behind(found: KubeObject) -> str:
    """The name of the Workload that a PodGroup was made from, if it was."""
    if not isinstance(found, BuiltinGroup):
        return ""
    spec = found.said
    reference = spec.workload_ref or (spec.pod_group_template_ref.workload if spec.pod_group_template_ref else None)
    return reference.workload_name if reference else ""
