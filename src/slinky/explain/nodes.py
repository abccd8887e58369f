"""What keeps a node from taking pods: judged from the Node, Slurm's node of that name, and reservations.

Pure. What must stay true: what one side did because of the other is told from what somebody did, so that the advice goes to the cause.
"""

from collections.abc import Iterator, Mapping

from slinky.bridge.keys import CORDONED_FOR_SLURM, EXTERNAL_NODE
from slinky.bridge.node_reasons import OURS, is_by_others, takes_no_jobs
from slinky.bridge.settings import Settings
from slinky.explain.catalogue import entry
from slinky.explain.facts import Facts, in_slurm
from slinky.explain.findings import Finding
from slinky.kube import Node as KubeNode
from slinky.kube.quantities import QuantityError, quantity
from slinky.slurm import Node, expand
from slinky.slurm.tres import read_gres

__all__ = ["address_is_missing", "devices_in_kubernetes", "devices_in_slurm", "is_labelled", "is_ready", "node_findings", "node_lines"]


def devices_in_slurm(node: Node) -> dict[str, int]:
    """By GRES, all types together: `gpu:h100:8(S:0-1),nic:2` is 8 of gpu and 2 of nic."""
    found: dict[str, int] = {}
    for kind, count in read_gres(node.gres).items():
        found[kind.name] = found.get(kind.name, 0) + int(count)
    return found


def devices_in_kubernetes(node: KubeNode, mapped: Mapping[str, str]) -> dict[str, int]:
    """The same, as the configuration's `gres` means it."""
    found: dict[str, int] = {}
    for resource, gres in mapped.items():
        try:
            count = int(quantity(node.status.allocatable.get(resource, "0")))
        except QuantityError:
            continue
        if count:
            name = gres.partition(":")[0]
            found[name] = found.get(name, 0) + count
    return found


def is_labelled(node: KubeNode) -> bool:
    return EXTERNAL_NODE in node.metadata.labels and node.metadata.labels[EXTERNAL_NODE].lower() != "false"


def is_ready(node: KubeNode) -> bool:
    ready = node.condition("Ready")
    return ready is not None and ready.status == "True"


def address_is_missing(node: Node) -> bool:
    return node.is_external and node.address in ("", node.name)


def node_lines(facts: Facts) -> tuple[list[str], list[str]]:
    """What Kubernetes and Slurm say, as they say it."""
    node, found = facts.kube.node, _in_slurm(facts)
    kube, slurm = [], []
    if node:
        taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in node.spec.taints) or "none"
        kube.append(
            f"Node {node.metadata.name} is {'Ready' if is_ready(node) else 'not Ready'}{', cordoned' if node.spec.unschedulable else ''}; taints: {taints}"
        )
        kube += [
            f"{said.type}={said.status} ({said.reason}): {said.message}"
            for said in node.status.conditions
            if said.type.startswith("slinky")
        ]
        kube += [f"Event {event.reason}: {event.note}" for event in facts.kube.events[-3:] if event.note]
    if found:
        reason = f", reason {found.reason}" if found.reason else ""
        slurm.append(f"node {found.name} is {'+'.join(found.states)}, in {', '.join(found.partitions) or 'no partition'}{reason}")
        slurm.append(
            f"node {found.name}: {found.alloc_cpus} of {found.cpus} CPUs given away, GRES {found.gres or 'none'}, address {found.address}:{found.port}"
        )
    return kube, slurm


def node_findings(facts: Facts) -> list[Finding]:
    found = [*facts.troubles, *_findings(facts)]
    return found or [entry("node-fine").found(f"node {facts.name}", "nothing is wrong with it on either side")]


def _in_slurm(facts: Facts) -> Node | None:
    wanted = in_slurm(facts.kube.node) if facts.kube.node else facts.name
    return next((node for node in facts.slurm.nodes if node.name == wanted), None)


def _findings(facts: Facts) -> Iterator[Finding]:
    node, found = facts.kube.node, _in_slurm(facts)
    about = f"node {facts.name}"
    if node is None and found is None:
        if facts.kube.knows("nodes") and facts.slurm.knows("nodes"):
            yield entry("node-not-found").found(about, "neither Kubernetes nor Slurm has it")
        return
    if node is None and facts.kube.knows("nodes"):
        yield entry("node-not-in-kubernetes").found(about, "Kubernetes has no Node of that name", node=facts.name)
    if found is None and node is not None and facts.slurm.knows("nodes"):
        yield entry("node-not-registered").found(about, f"Slurm has no node {in_slurm(node)}", advice=_registration(node, facts.settings))
    if node is not None:
        yield from _kubernetes(node, about)
    if found is not None:
        yield from _slurm(found, facts, about)
    if node is not None and found is not None:
        yield from _both(node, found, facts.settings, about)


def _registration(node: KubeNode, settings: Settings) -> str:
    name = node.metadata.name
    if not settings.nodes.register:
        return (
            f"the configuration says nodes.register: false: add it in slurm.conf, or set nodes.register and label it {EXTERNAL_NODE}=true"
        )
    if not is_labelled(node):
        return f"kubectl label node {name} {EXTERNAL_NODE}=true"
    return f"kubectl get events -A --field-selector involvedObject.name={name}: the bridge says there what Slurm refuses; is a bridge running (`slinky doctor`)?"


def _kubernetes(node: KubeNode, about: str) -> Iterator[Finding]:
    name = node.metadata.name
    if not is_ready(node):
        ready = node.condition("Ready")
        yield entry("node-not-ready").found(about, f"Ready is {ready.status}: {ready.message}" if ready else "it has no condition Ready")
    if node.spec.unschedulable and CORDONED_FOR_SLURM in node.metadata.annotations:
        yield entry("node-cordoned-for-slurm").found(about, "the bridge cordoned it, for what Slurm says", node=in_slurm(node))
    elif node.spec.unschedulable:
        yield entry("node-cordoned").found(about, "somebody cordoned it in Kubernetes", node=name)


def _slurm(found: Node, facts: Facts, about: str) -> Iterator[Finding]:
    reason = found.reason or "none given"
    by = f", by {found.reason_set_by_user}" if found.reason_set_by_user else ""
    if not found.is_responding:
        advice = (
            "start a sink and set nodes.sink (docs/bridge.md, The sink); then take the Node's label scheduler.slinky.slurm.net/external-node off, and put it on again when it is empty"
            if found.is_external
            else f"start slurmd on {found.name} (systemctl status slurmd), and check that slurmctld reaches {found.address}:{found.port or 6818}"
        )
        yield entry("node-not-responding").found(about, f"Slurm's states are {'+'.join(found.states)}", advice=advice)
    if takes_no_jobs(found) and not is_by_others(found) and found.reason.startswith(OURS):
        yield entry("node-drained-by-bridge").found(about, f"reason: {reason}")
    elif found.is_down:
        yield entry("node-down").found(about, f"Slurm's states are {'+'.join(found.states)}; reason: {reason}{by}", node=found.name)
    elif takes_no_jobs(found):
        yield entry("node-drained").found(about, f"Slurm's states are {'+'.join(found.states)}; reason: {reason}{by}", node=found.name)
    if not found.partitions:
        yield entry("node-without-partition").found(
            about, f"no partition has it; its features are {','.join(found.features) or 'none'}", node=found.name
        )
    now = facts.now.timestamp()
    for reservation in facts.slurm.reservations:
        begun = isinstance(reservation.start_time, int) and reservation.start_time <= now
        if begun and found.name in expand(reservation.node_list or ""):
            yield entry("node-reserved").found(about, f"reservation {reservation.name} has it", reservation=reservation.name)
    if found.cpus and found.alloc_cpus >= found.cpus:
        yield entry("node-full").found(about, f"all its {found.cpus} CPUs are given to jobs")


def _both(node: KubeNode, found: Node, settings: Settings, about: str) -> Iterator[Finding]:
    if address_is_missing(found):
        internal = next((each.address for each in node.status.addresses if each.type == "InternalIP"), "ADDRESS")
        yield entry("node-address-missing").found(about, f"its NodeAddr is {found.address or 'empty'}", address=internal)
    counted, told = devices_in_kubernetes(node, settings.gres), devices_in_slurm(found)
    for gres in sorted({*counted, *(name for name in told if name in {said.partition(":")[0] for said in settings.gres.values()})}):
        here, there = counted.get(gres, 0), told.get(gres, 0)
        if here != there:
            advice = (
                "take the Node's label scheduler.slinky.slurm.net/external-node off and put it on again when it is empty; if Kubernetes has too few, restart the device plugin"
                if found.is_external
                else f"correct `NodeName={found.name} Gres={gres}:{here}` in slurm.conf and `NodeName={found.name} Name={gres} File=…` in gres.conf, and restart slurmctld and its slurmd"
            )
            yield entry("node-gres-mismatch").found(about, f"{gres}: {here} allocatable in Kubernetes, {there} in Slurm", advice=advice)
