"""The site's policy as it stands in the configuration file: what the namespaces' jobs are in Slurm, and what their users may say about them.

Types only; what they mean is in `policy`. None is what a rule does not say.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from slinky.kube.objects import LabelSelector
from slinky.settings import Help, Section

__all__ = ["MOST_GRACE_SECONDS", "NAMED", "UNLIMITED", "PolicyGrant", "PolicyRule", "PolicySettings", "PriorityClass", "mistakes"]

# What has a default, a list of what may be named, and a label: key → key of the list.
NAMED = {
    "user": "users",
    "group": "groups",
    "account": "accounts",
    "qos": "qoses",
    "partition": "partitions",
    "reservation": "reservations",
    "wckey": "wckeys",
}


MOST_GRACE_SECONDS = 3600


class PolicyGrant(Section, frozen=True):
    """What holds where no rule says otherwise. In lists, `"*"` is any name; what is the namespace's own by default may be named always."""

    user: Annotated[str | None, Help("Slurm user whose jobs these are; where none is named, whoever the bridge's token belongs to.")] = None
    group: Annotated[
        str | None,
        Help(
            "Group of that user; without `user`, the group of the user named by annotation. A user without a group is refused, because Slurm would use group 0."
        ),
    ] = None
    account: Annotated[str | None, Help("Account of workloads that name none; else Slurm's default for the user.")] = None
    qos: Annotated[str | None, Help("QoS of workloads that name none.")] = None
    partition: Annotated[str | None, Help("Partition of workloads that name none; else `partition` at the top.")] = None
    reservation: Annotated[str | None, Help("Reservation of workloads that name none.")] = None
    wckey: Annotated[str | None, Help("Workload characterization key of workloads that name none.")] = None
    time_limit: Annotated[
        int | None, Help("Minutes for workloads that say nothing of time; else `maxTimeLimit`, else the partition's default.")
    ] = None

    users: Annotated[tuple[str, ...] | None, Help("Users that may be named by annotation. Unless said: none.")] = None
    groups: Annotated[tuple[str, ...] | None, Help("The same for groups.")] = None
    accounts: Annotated[tuple[str, ...] | None, Help("The same for accounts.")] = None
    qoses: Annotated[tuple[str, ...] | None, Help("The same for QoS.")] = None
    partitions: Annotated[tuple[str, ...] | None, Help("The same for partitions.")] = None
    reservations: Annotated[tuple[str, ...] | None, Help("The same for reservations.")] = None
    wckeys: Annotated[tuple[str, ...] | None, Help("The same for workload characterization keys.")] = None
    licenses: Annotated[tuple[str, ...] | None, Help("Licences that may be asked for. Unless said: all.")] = None

    max_priority: Annotated[int | None, Help("Highest priority that may be set. Unless said, or with 0: none may be.")] = None
    hold: Annotated[bool | None, Help("Whether a job may be held (priority 0). Unless said: yes.")] = None
    min_nice: Annotated[int | None, Help("Lowest nice value. Unless said: 0, as below it one goes before others.")] = None
    exclusive: Annotated[bool | None, Help("Whether nodes may be asked for that are not shared with everybody. Unless said: yes.")] = None
    dependency: Annotated[bool | None, Help("Whether dependencies on jobs may be named. Unless said: yes.")] = None
    cross_namespace_affinity: Annotated[
        bool | None,
        Help(
            "Whether required affinity and anti-affinity between pods may reach into other namespaces. Default: yes, as in Kubernetes. A running pod with such anti-affinity keeps other tenants' pods off its node, or its zone."
        ),
    ] = None
    max_time_limit: Annotated[int | None, Help("Most minutes that may be asked for. Unless said, or with 0: what Slurm allows.")] = None
    max_grace_seconds: Annotated[
        int | None,
        Help(
            f"Longest grace period that a pod may have: for that long it keeps what Slurm has taken from its job. Unless said: {MOST_GRACE_SECONDS}. With 0: any."
        ),
    ] = None
    window: Annotated[int | None, Help("Pending jobs that the namespace may have in Slurm, instead of `windows.namespace`.")] = None
    from_labels: Annotated[
        tuple[str, ...] | None,
        Help(
            "Of `user`, `group`, `account`, `qos`, `partition`, `reservation` and `wckey` those that a label `policy.slinky.slurm.net/KEY` of the namespace may give instead. Unless said: none. Only where users cannot change the labels of their namespaces."
        ),
    ] = None


class PolicyRule(PolicyGrant, frozen=True):
    """The first rule that a namespace matches holds for it; what it does not say is as `policy.default` says. The other keys are those of `policy.default`."""

    namespaces: Annotated[tuple[str, ...], Help("Namespaces by name.")] = ()
    selector: Annotated[LabelSelector | None, Help("Namespaces by label: whoever may label namespaces decides then.")] = None


class PolicySettings(Section, frozen=True):
    """What the namespaces' jobs are in Slurm, and what may be said about them by annotation. Without any of it nobody becomes another user, spends another's account, or goes before others."""

    default: Annotated[PolicyGrant, Help("What holds where no rule says otherwise.")] = PolicyGrant()
    rules: Annotated[tuple[PolicyRule, ...], Help("By namespace.")] = ()


# Where nobody has decided anything, as before a configuration is written: all may be said.
UNLIMITED = PolicySettings(
    default=PolicyGrant(**dict.fromkeys(NAMED.values(), ("*",)), max_priority=2**32, min_nice=-(2**31), max_grace_seconds=0)  # type: ignore[arg-type]
)


class PriorityClass(Section, frozen=True):
    """A Kubernetes PriorityClass as Slurm is to understand it: as a priority, a nice value or a QoS. Classes that are not listed mean nothing to Slurm. An annotation goes before it, and the policy holds for it too."""

    name: Annotated[str, Help("Name of the PriorityClass.")] = ""
    priority: Annotated[int | None, Help("Priority of the job.")] = None
    nice: Annotated[int | None, Help("Or its nice value.")] = None
    qos: Annotated[str | None, Help("Or its QoS.")] = None


def mistakes(policy: PolicySettings, classes: Sequence[PriorityClass]) -> Iterator[str]:
    """What is wrong, and what would be right, each with its key."""
    for place, grant in [
        ("policy.default", policy.default),
        *((f"policy.rules[{index}]", rule) for index, rule in enumerate(policy.rules)),
    ]:
        for key in grant.from_labels or ():
            if key not in NAMED:
                yield f"{place}.fromLabels has {key!r}; a label can give {', '.join(NAMED)}"
        for key, number, least in (
            ("timeLimit", grant.time_limit, 1),
            ("window", grant.window, 1),
            ("maxTimeLimit", grant.max_time_limit, 0),
            ("maxPriority", grant.max_priority, 0),
        ):
            if number is not None and number < least:
                yield f"{place}.{key} is {number}; it must be {least} or more"
        group = grant.group if grant.group is not None else policy.default.group
        if grant.user and not group:
            yield f"{place}.user is {grant.user!r} and no group is named: Slurm would take root's; name one in {place}.group"
    for index, rule in enumerate(policy.rules):
        if not rule.namespaces and rule.selector is None:
            yield f"policy.rules[{index}] is for no namespace; name some in namespaces, or give a selector (policy.default is for all)"
    seen: set[str] = set()
    for index, each in enumerate(classes):
        if not each.name or each.name in seen:
            yield f"priorityClasses[{index}].name is {each.name!r}; it must be that of a PriorityClass, and each can be there once"
        if sum(value is not None for value in (each.priority, each.nice, each.qos)) != 1:
            yield f"priorityClasses[{index}] must have one of priority, nice and qos"
        seen.add(each.name)
