"""What the doctor looks at in Kubernetes: configuration, version, nodes beside Slurm's, GRES beside Slurm's, rights, the Lease, the clock; `doctor_webhooks` has the webhooks. Pure.

What must stay true: each check reads what it was promised (see `doctor.CHECKS`) and says only what follows from it.
"""

import re
from collections.abc import Iterator

from slinky.explain.catalogue import entry
from slinky.explain.facts import in_slurm
from slinky.explain.findings import Finding
from slinky.explain.installation import Installation
from slinky.explain.leader import claim_finding, leader_findings
from slinky.explain.nodes import devices_in_kubernetes, devices_in_slurm, is_labelled
from slinky.slurm import compress

__all__ = ["clock", "configuration", "gres", "leader", "namespaces", "nodes", "rights", "version"]

OLDEST = (1, 35)
SKEW = 10.0


def configuration(seen: Installation) -> Iterator[Finding]:
    settings = seen.settings
    if not seen.wrong and settings.managed_namespace_selector is None and not settings.managed_namespaces:
        yield entry("config-manages-nothing").found("configuration", "managedNamespaces is empty, and there is no managedNamespaceSelector")


def namespaces(seen: Installation) -> Iterator[Finding]:
    settings, there = seen.settings, {found.metadata.name for found in seen.kube.namespaces}
    if settings.managed_namespace_selector is not None:
        if seen.kube.namespaces and not any(
            settings.manages(found.metadata.name, dict(found.metadata.labels)) for found in seen.kube.namespaces
        ):
            yield entry("config-manages-nothing").found("configuration", "managedNamespaceSelector matches no namespace")
        return
    for name in settings.managed_namespaces:
        if name not in there:
            yield entry("config-namespace-missing").found(
                f"namespace {name}", "managedNamespaces names it, and it does not exist", namespace=name
            )


def version(seen: Installation) -> Iterator[Finding]:
    found = re.search(r"(\d+)\.(\d+)", seen.kube.version)
    if found and tuple(map(int, found.groups())) < OLDEST:
        yield entry("kubernetes-version").found("Kubernetes", f"the API server is {seen.kube.version}")


def nodes(seen: Installation) -> Iterator[Finding]:
    known = {node.name for node in seen.slurm.nodes}
    labelled = [node for node in seen.kube.nodes if is_labelled(node)]
    if seen.settings.nodes.register and not labelled and not any(in_slurm(node) in known for node in seen.kube.nodes):
        yield entry("nodes-none-labelled").found(
            "Nodes", f"none of {len(seen.kube.nodes)} has label scheduler.slinky.slurm.net/external-node, and Slurm knows none of them"
        )
    missing = [in_slurm(node) for node in labelled if in_slurm(node) not in known]
    if missing:
        advice = (
            "start `slinky bridge run`, which registers them; where it runs, an Event on the Node says what Slurm refuses"
            if seen.settings.nodes.register
            else "nodes.register is false: set it to true, or add the nodes to slurm.conf (NodeName=… State=EXTERNAL …)"
        )
        yield entry("nodes-unregistered").found(
            f"nodes {compress(missing)}", f"{len(missing)} labelled Nodes are not in Slurm", advice=advice
        )


def gres(seen: Installation) -> Iterator[Finding]:
    """Once for each difference that some nodes have in common."""
    told = {node.name: node for node in seen.slurm.nodes}
    mapped = {name.partition(":")[0] for name in seen.settings.gres.values()}
    differing: dict[tuple[str, int, int], list[str]] = {}
    for node in seen.kube.nodes:
        found = told.get(in_slurm(node))
        if found is None:
            continue
        here, there = devices_in_kubernetes(node, seen.settings.gres), devices_in_slurm(found)
        for name in sorted({*here, *(mapped & set(there))}):
            if here.get(name, 0) != there.get(name, 0):
                differing.setdefault((name, here.get(name, 0), there.get(name, 0)), []).append(found.name)
    for (name, here_count, there_count), names in differing.items():
        seen_words = f"{name}: {here_count} allocatable in Kubernetes, {there_count} in Slurm"
        yield entry("gres-mismatch").found(f"nodes {compress(names)}", seen_words, node=compress(names), gres=name)


def rights(seen: Installation) -> Iterator[Finding]:
    about = f"user {seen.kube.bridge_user or 'whoever asks'}"
    for right in seen.kube.denied:
        if (right.resource, right.verb) == ("leases", "create") and seen.kube.lease is not None:
            continue  # the chart made it
        where = f" in namespace {right.namespace}" if right.namespace else ""
        words = f"may not {right.verb} {right.resource}{f'.{right.group}' if right.group else ''}{where}"
        if right.optional:
            yield entry("rights-missing-optional").found(about, words, advice=f"with it {right.optional}")
        else:
            yield entry("rights-missing").found(about, words, rule=right.rule)


def leader(seen: Installation) -> Iterator[Finding]:
    settings = seen.settings
    yield from leader_findings("", seen.kube.lease, settings.namespace, settings.leader.name, seen.now)
    if conflict := claim_finding(seen.kube.lease, seen.kube.claim, seen.now):
        yield conflict


def clock(seen: Installation) -> Iterator[Finding]:
    if seen.kube.ahead is not None and abs(seen.kube.ahead) > SKEW:
        words = f"its clock is {abs(seen.kube.ahead):.0f} s {'ahead of' if seen.kube.ahead > 0 else 'behind'} the one here"
        yield entry("clock-kubernetes").found("API server", words)
