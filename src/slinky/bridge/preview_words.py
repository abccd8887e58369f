"""A workload that is described, in words for people: what Slurm looks for, what a node must be, what is said and is not in the job. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from slinky.bridge.needs import needs_of
from slinky.bridge.node_rules import preferences_of, rules_of
from slinky.bridge.sbatch import sbatch_line, untold
from slinky.bridge.translate import Site, one_for_all
from slinky.bridge.workload import Workload
from slinky.slurm import JobDescription

__all__ = ["Preview", "described"]

COUNTED = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class Preview(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One workload. `more` others differ from it in nothing but names. `jobs` are the components of its job, one as a rule, none where it has none (yet): `refusals` and `warnings` say why."""

    workload: str
    made_by: str = ""
    pods: tuple[str, ...] = ()
    more: int = 0
    jobs: tuple[JobDescription, ...] = ()
    nodes: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()
    sbatch: str = ""
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def described(workload: Workload, jobs: tuple[JobDescription, ...], site: Site, told_of: Mapping[str, Any], warnings: list[str]) -> Preview:
    rules = [_room(job) for job in jobs]
    rules += _of_all([(pod.metadata.name, rules_of(pod)) for pod in workload.everyone])
    warnings += [
        f"resource {name} is not known to Slurm (setting gres): it counts when the pod is bound, not before"
        for name in _uncounted(workload, site)
    ]
    if why := one_for_all(workload, site):
        warnings.append(f"its pods differ and are one job with the largest needs for all: {why}")
    warnings += _later(workload)
    if not workload.is_complete:
        warnings.append(f"{len(workload.pods)} pods are there of the {workload.size} that it waits for: it is submitted when all are")
    if any(pod.spec.scheduling_gates for pod in workload.everyone):
        gates = sorted({gate.name for pod in workload.everyone for gate in pod.spec.scheduling_gates})
        warnings.append(f"it waits until its scheduling gates are gone: {', '.join(gates)}")
    return Preview(
        **told_of,
        jobs=tuple(msgspec.structs.replace(job, admin_comment=None) for job in jobs),
        nodes=tuple(rules),
        preferences=tuple(_of_all([(pod.metadata.name, preferences_of(pod)) for pod in workload.everyone])),
        sbatch=" ".join([sbatch_line(jobs), *_from_now(workload)]),
        warnings=(*warnings, *(f"sbatch cannot say {text}" for text in untold(jobs) if not text.startswith("admin_comment"))),
    )


def _from_now(workload: Workload) -> list[str]:
    """What counts from the pods' creation, which has not been: to sbatch, from the moment that it is typed."""
    moments = {"begin": workload.settings.begin, "deadline": workload.settings.deadline}
    return [f"--{name}=now+{said.seconds}" for name, said in moments.items() if said and said.relative]


def _later(workload: Workload) -> list[str]:
    """What is said and is not in the job's description."""
    said = workload.settings
    found = [f"its {word.removeprefix('--').replace('=now+', ' is ')} s after its creation" for word in _from_now(workload)]
    if said.signal:
        found.append(
            f"signal {said.signal.name} goes to its containers {said.signal.seconds} s before the job ends: the bridge sends it, not Slurm"
        )
    return found


def _room(job: JobDescription) -> str:
    """What Slurm looks for."""
    cpus = job.cpus_per_task or 1
    each = [f"{cpus} CPU{'s' if cpus > 1 else ''}"]
    each += [f"{job.memory_per_cpu * cpus} MiB"] if isinstance(job.memory_per_cpu, int) else []
    each += [job.tres_per_task] if job.tres_per_task else []
    node = [f"{job.memory_per_node} MiB"] if isinstance(job.memory_per_node, int) else []
    node += [job.tres_per_node] if job.tres_per_node else []
    if (job.tasks or 1) == 1:
        text = f"in partition {job.partition}, with {', '.join([*each, *node])} free"
    else:
        text = f"in partition {job.partition}, with {', '.join(each)} free for each of its pods there"
        text += f", and {', '.join(node)} on the node" if node else ""
    text += f", with features {job.constraints}" if job.constraints else ""
    text += ", and nobody else's job on it" if job.shared == ["none"] else ""
    return text + (f", and not {', '.join(job.excluded_nodes)}" if job.excluded_nodes else "")


def _of_all(found: list[tuple[str, list[str]]]) -> list[str]:
    """What holds for all pods once; what holds for some with the first one's name."""
    common = [rule for rule in found[0][1] if all(rule in rules for _, rules in found)]
    own: dict[str, list[str]] = {}
    for name, rules in found:
        for rule in rules:
            if rule not in common:
                own.setdefault(rule, []).append(name)
    return common + [f"for {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {rule}" for rule, names in own.items()]


def _uncounted(workload: Workload, site: Site) -> list[str]:
    names = {name for pod in workload.everyone for name in needs_of(pod).amounts}
    return sorted(name for name in names - COUNTED - set(site.gres) if not name.startswith("hugepages-"))
