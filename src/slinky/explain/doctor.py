"""Whether an installation is sound: every check, area by area, and what came of them.

Pure. Comes in: an `Installation`. Goes out: a `Diagnosis`. What must stay true: a check whose facts could not be read finds nothing, and its area is told as not looked at; no area is called fine on no grounds.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from slinky.explain import doctor_clusters, doctor_exporter, doctor_kubernetes, doctor_operator, doctor_slurm, doctor_webhooks
from slinky.explain.catalogue import AREAS, entry
from slinky.explain.findings import Finding, Severity, worst
from slinky.explain.installation import Installation
from slinky.explain.report import finding_lines

__all__ = ["CHECKS", "PARTS", "Diagnosis", "diagnose", "text"]

Check = Callable[[Installation], Iterator[Finding]]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """`fine` are the areas in which nothing was found, `unseen` those that could not be looked at, with what was missing."""

    findings: tuple[Finding, ...]
    fine: tuple[str, ...] = ()
    unseen: Mapping[str, str] = msgspec.field(default_factory=dict)

    def is_sound(self, *, strict: bool = False) -> bool:
        found = worst(self.findings)
        return found is Severity.NOTE or (found is Severity.WARNING and not strict)


# By area: what is looked at, and what of each side must have been read for it (`kube.nodes`, `slurm.conf`).
CHECKS: Mapping[str, tuple[tuple[Check, tuple[str, ...]], ...]] = {
    "configuration": ((doctor_kubernetes.configuration, ()), (doctor_kubernetes.namespaces, ("kube.namespaces",))),
    "versions": ((doctor_kubernetes.version, ("kube.version",)), (doctor_slurm.version, ("slurm.server",))),
    "token": ((doctor_slurm.token, ()),),
    "partition": ((doctor_slurm.partitions, ("slurm.partitions", "slurm.nodes")),),
    "nodes": (
        (doctor_kubernetes.nodes, ("kube.nodes", "slurm.nodes")),
        (doctor_slurm.nodes, ("slurm.nodes",)),
    ),
    "gres": (
        (doctor_slurm.gres_types, ("slurm.conf",)),
        (doctor_kubernetes.gres, ("kube.nodes", "slurm.nodes")),
    ),
    "scheduler": ((doctor_slurm.scheduler, ("slurm.conf",)),),
    "grace": ((doctor_slurm.grace, ("slurm.partitions", "slurm.nodes", "kube.pods")),),
    "rights": ((doctor_kubernetes.rights, ("kube.rights",)),),
    "webhooks": ((doctor_webhooks.bridges, ("kube.webhooks",)),),
    "leader": ((doctor_kubernetes.leader, ("kube.lease",)),),
    "clock": ((doctor_kubernetes.clock, ("kube.clock",)), (doctor_slurm.clock, ("slurm.clock",))),
    "operator": ((doctor_operator.configuration, ()), (doctor_operator.leader, ("kube.operator-lease",))),
    "operator-kinds": ((doctor_operator.kinds, ("kube.kinds",)),),
    "operator-webhooks": ((doctor_webhooks.operators, ("kube.operator-webhooks",)),),
    "clusters": (
        (doctor_clusters.objects, ("kube.objects",)),
        (doctor_clusters.daemons, ("kube.heads",)),
        (doctor_clusters.tokens, ("kube.objects",)),
    ),
    "exporter": ((doctor_exporter.answers, ("kube.exporters",)), (doctor_exporter.tokens, ("kube.exporter-tokens",))),
}
PARTS = {"operator": ("operator", "operator-kinds", "operator-webhooks", "clusters"), "exporter": ("exporter",)}
PARTS["bridge"] = tuple(area for area in CHECKS if not any(area in areas for areas in PARTS.values()))


def diagnose(seen: Installation) -> Diagnosis:
    findings: list[Finding] = [*seen.kube.troubles, *seen.slurm.troubles]
    if seen.wrong and seen.has_bridge:
        findings.append(entry("config-unreadable").found("configuration", seen.wrong, file=seen.config))
    fine, unseen = [], {}
    looked_at = {"bridge": seen.has_bridge, "operator": seen.operator is not None, "exporter": seen.exporters is not None}
    for area, checks in CHECKS.items():
        if not any(looked_at[part] and area in areas for part, areas in PARTS.items()):
            continue
        before, missing = len(findings), []
        for check, needs in checks:
            if absent := [need for need in needs if not _was_read(seen, need)]:
                missing += absent
            else:
                findings += check(seen)
        if missing:
            unseen[area] = ", ".join(dict.fromkeys(missing))
        elif len(findings) == before and not (area == "configuration" and seen.wrong):
            fine.append(area)
    return Diagnosis(findings=tuple(findings), fine=tuple(fine), unseen=unseen)


def _was_read(seen: Installation, need: str) -> bool:
    side, _, what = need.partition(".")
    return (seen.kube if side == "kube" else seen.slurm).knows(what)


def text(diagnosis: Diagnosis, *, strict: bool = False) -> str:
    return "\n".join(_lines(diagnosis, strict)) + "\n"


def _lines(diagnosis: Diagnosis, strict: bool) -> Iterator[str]:
    for area, title in AREAS.items():
        found = [each for each in diagnosis.findings if each.area == area]
        if found:
            yield title
            yield from finding_lines(found)
        elif area in diagnosis.fine:
            yield f"{title}: fine"
        if area in diagnosis.unseen:
            yield f"{title}: not looked at in full ({diagnosis.unseen[area]} could not be read)"
    counts = {severity: sum(each.severity is severity for each in diagnosis.findings) for severity in Severity}
    verdict = "sound" if diagnosis.is_sound(strict=strict) else "something is to be changed"
    yield f"{verdict}: {counts[Severity.ERROR]} errors, {counts[Severity.WARNING]} warnings, {counts[Severity.NOTE]} notes"
