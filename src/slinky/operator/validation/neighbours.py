"""What is right by itself and wrong beside another object of the namespace: names in Slurm that would be the same.

Pure. Comes in: an object and the others there are. What must stay true: of two that collide, the one that comes second is told of the first, and the first is left in peace.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slinky.operator.conf.slurm import WITHOUT_CGROUPS, proctrack
from slinky.operator.conf.text import parse
from slinky.operator.kinds import Controller, LoginSet, NodeSet
from slinky.operator.kinds.reading import Problem
from slinky.operator.objects.privilege import is_privileged

__all__ = ["Neighbours", "could_meet", "neighbour_problems"]


@dataclass(frozen=True)
class Neighbours:
    """Of one namespace, as far as they can be read; the object itself may be among them."""

    controllers: Sequence[Controller] = ()
    nodesets: Sequence[NodeSet] = ()
    loginsets: Sequence[LoginSet] = ()
    heads: Sequence[Controller] = ()
    """All Controllers, also the younger ones, where `controllers` are the older ones only."""

    def older_than(self, found: Any) -> "Neighbours":
        """Those that were there first; of two of one moment, by name."""

        def is_older(other: Any) -> bool:
            then, now = other.metadata.creation_timestamp, found.metadata.creation_timestamp
            return then is None or now is None or (then, other.metadata.name) < (now, found.metadata.name)

        return Neighbours(
            [each for each in self.controllers if is_older(each)],
            [each for each in self.nodesets if is_older(each)],
            [each for each in self.loginsets if is_older(each)],
            self.heads or self.controllers,
        )

    def head(self, name: str) -> Controller | None:
        found = (each for each in self.heads or self.controllers if each.metadata.name == name)
        return next(found, None)


def neighbour_problems(found: Any, others: Neighbours) -> Iterator[Problem]:
    match found:
        case Controller():
            yield from _controller(found, others)
        case NodeSet():
            yield from _node_names(found, others.nodesets)
            yield from _own_partition(found, others.controllers)
            yield from _ssh_files(found, others.loginsets)
            yield from _cgroups(found, others)
        case LoginSet():
            for nodeset in others.nodesets:
                if nodeset.metadata.name == found.metadata.name and nodeset.spec.ssh.enabled:
                    yield Problem("metadata.name", _same_file("NodeSet", found.metadata.name))


def _controller(found: Controller, others: Neighbours) -> Iterator[Problem]:
    yield from _recorded_twice(found, others.controllers)
    yield from _mixture(found, others)
    names = {each.slurm_name: each for each in others.nodesets if each.spec.controller_ref.name == found.metadata.name}
    for key, name in _named_in(found):
        if name in names and (key == "nodeset" or names[name].spec.partition.enabled):
            yield Problem(
                "spec.extraConf",
                f"has a line for {_thing(key)} {name}, but NodeSet {names[name].metadata.name} makes that one; take the line out",
            )


def _cgroups(found: NodeSet, others: Neighbours) -> Iterator[Problem]:
    """Told of the first NodeSet of the cluster that differs. Where the Controller is not known, nothing is."""
    head = others.head(found.spec.controller_ref.name)
    if head is None or head.spec.external or proctrack(head) is not None:
        return
    ours = is_privileged(found)
    for other in others.nodesets:
        meta, same = other.metadata, other.spec.controller_ref.name == head.metadata.name
        if same and meta.name != found.metadata.name and is_privileged(other) != ours:
            yield Problem("spec.slurmd.securityContext.privileged", _unlike(meta.name, head.metadata.name, ours=ours))
            return


def _unlike(other: str, controller: str, *, ours: bool) -> str:
    what = (
        f"is true (the default), and NodeSet {other} of the same cluster has an unprivileged slurmd, so Slurm runs without cgroups there"
        if ours
        else f"is not true, and NodeSet {other} of the same cluster has a privileged slurmd, whose jobs are held to their limits by cgroups"
    )
    return (
        f"{what}; Slurm has one setting for all nodes, and an unprivileged slurmd can make no cgroups: make both alike, give this"
        f" NodeSet a Controller of its own, or choose for the whole cluster by ProctrackType in extraConf of Controller {controller}"
        f" ({WITHOUT_CGROUPS}: none has cgroups)"
    )


def _mixture(found: Controller, others: Neighbours) -> Iterator[Problem]:
    if found.spec.external or proctrack(found) is not None:
        return
    members = [each for each in others.nodesets if each.spec.controller_ref.name == found.metadata.name]
    without = [each.metadata.name for each in members if not is_privileged(each)]
    if without and len(without) < len(members):
        yield Problem(
            "spec.extraConf",
            f"names no ProctrackType, and NodeSet {without[0]} has an unprivileged slurmd and others have a privileged one:"
            f" say by ProctrackType what holds for all ({WITHOUT_CGROUPS}: none has cgroups)",
        )


def _recorded_twice(found: Controller, others: Sequence[Controller]) -> Iterator[Problem]:
    accounting = found.spec.accounting_ref
    for other in others:
        same = other.spec.accounting_ref and accounting and other.spec.accounting_ref.name == accounting.name
        if same and other.metadata.name != found.metadata.name and other.cluster_name.lower() == found.cluster_name.lower():
            yield Problem(
                "spec.clusterName",
                f"is {found.cluster_name}, as of Controller {other.metadata.name}, and Accounting {accounting.name if accounting else ''} records both: give each a name of its own",
            )


def _node_names(found: NodeSet, others: Sequence[NodeSet]) -> Iterator[Problem]:
    prefix = _prefix(found)
    for other in others:
        theirs = _prefix(other)
        if other.metadata.name == found.metadata.name or other.spec.controller_ref.name != found.spec.controller_ref.name:
            continue
        if prefix and theirs and could_meet(prefix, theirs):
            yield Problem(
                "spec.template.spec.hostname",
                f"makes Slurm nodes {prefix}0, {prefix}1 …, and NodeSet {other.metadata.name} of the same cluster {theirs}0, {theirs}1 …: some would have one name; choose another beginning",
            )
        elif found.slurm_name == other.slurm_name:
            yield Problem(
                "spec.template.spec.hostname",
                f"makes Slurm's node set, feature and partition {found.slurm_name}, and so does NodeSet {other.metadata.name} of the same cluster; choose another",
            )


def _prefix(nodeset: NodeSet) -> str:
    """Of the Slurm nodes' names; empty where they are called after Kubernetes' nodes."""
    template = nodeset.spec.template.spec
    if nodeset.spec.is_daemon_set or template.get("hostNetwork"):
        return ""
    hostname = template.get("hostname")
    return hostname if isinstance(hostname, str) and hostname else f"{nodeset.metadata.name}-"


def could_meet(one: str, other: str) -> bool:
    """`gpu-` and `gpu-1` do: each with a number behind it, gpu-10 is of both."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    rest = longer.removeprefix(shorter)
    return longer == shorter or (longer != rest and rest.isdigit())


def _own_partition(found: NodeSet, controllers: Sequence[Controller]) -> Iterator[Problem]:
    for controller in controllers:
        if controller.metadata.name == found.spec.controller_ref.name:
            for key, name in _named_in(controller):
                if name == found.slurm_name and (key == "nodeset" or found.spec.partition.enabled):
                    field = "spec.partition.enabled" if key == "partitionname" else "metadata.name"
                    yield Problem(
                        field,
                        f"makes {_thing(key)} {name}, but extraConf of Controller {controller.metadata.name} has a line for that one; take that line out first",
                    )


def _named_in(controller: Controller) -> Iterator[tuple[str, str]]:
    """The partitions and node sets that extraConf describes."""
    for line in parse(controller.spec.extra_conf):
        if line.record and line.record.key.lower() in ("partitionname", "nodeset"):
            yield line.record.key.lower(), line.record.value


def _thing(key: str) -> str:
    return "partition" if key == "partitionname" else "node set"


def _ssh_files(found: NodeSet, loginsets: Sequence[LoginSet]) -> Iterator[Problem]:
    if found.spec.ssh.enabled and any(each.metadata.name == found.metadata.name for each in loginsets):
        yield Problem("metadata.name", _same_file("LoginSet", found.metadata.name))


def _same_file(kind: str, name: str) -> str:
    return f"is {name}, and there is a {kind} {name}: both would have a ConfigMap {name}-ssh-config; choose another name"
