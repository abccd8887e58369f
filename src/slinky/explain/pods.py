"""Why a pod waits: judged from the pod, its namespace, the bridge's Lease, what the bridge wrote on the pod, and its job in Slurm.

Pure. What must stay true: the pod's way through the bridge is gone along step by step, and the first step that it has not passed speaks; what Slurm says of its job is asked only where it has one.
"""

import datetime as dt
import re
from collections.abc import Iterator

from slinky.bridge.admission import DEVICE_CLASS
from slinky.bridge.keys import CONDITION, JOB_ID, SETTINGS
from slinky.explain.catalogue import entry
from slinky.explain.facts import Facts
from slinky.explain.findings import Finding
from slinky.explain.jobs import job_findings, job_lines
from slinky.explain.leader import claim_finding, is_held
from slinky.kube import Pod

__all__ = ["job_of", "pod_findings", "pod_lines", "requested"]

DEFAULT_SCHEDULER = "default-scheduler"
KUEUE = "kueue.x-k8s.io/"
PATIENCE = dt.timedelta(seconds=20)  # before a pod about which nothing is said is worth a word
MOST_EVENTS = 5

# By the reason of the bridge's condition, of pods without a job that counts.
STANDINGS = {
    "Window": "pod-window",
    "SubmitLimit": "pod-submit-limit",
    "PlacedInTurn": "pod-placed-in-turn",
    "Gathering": "pod-gathering",
    "GroupMissing": "pod-group-missing",
    "WaitingForVolumes": "pod-waits-for-volumes",
    "BindingVolumes": "pod-waits-for-volumes",
    "NodeNotFree": "pod-node-not-free",
    "Surplus": "pod-surplus",
    "Absent": "job-unknown",
    "Lost": "pod-lost",
}

TOO_LARGE = r"in total, but the pod requests|offers no .*, but the pod requests"
# What a refusal is about, by Slurm's error names and the bridge's own words.
REFUSALS = (
    (re.compile(r", and (jobs of )?namespace |is the (highest|lowest) that namespace|the site delivers no signals"), "pod-not-allowed", ""),
    (re.compile(r"INVALID_ACCOUNT|\b2045\b|[Ii]nvalid account"), "pod-account-unknown", "account"),
    (re.compile(r"INVALID_QOS|\b2066\b|[Ii]nvalid qos"), "pod-qos-refused", "qos"),
    (re.compile(r"accounting/QOS policy|\b2050\b"), "pod-over-limit", ""),
    (re.compile(r"INVALID_PARTITION|\b2000\b|[Ii]nvalid partition"), "pod-partition-unknown", "partition"),
    (re.compile(r"resourceClaims|devices of a DeviceClass"), "pod-devices-unsupported", ""),
    (re.compile(TOO_LARGE), "pod-too-large", ""),
    (re.compile(r"none of the \d+ nodes|of one .*: say it|anti-affinity|affinity|label .* is not"), "pod-nowhere", ""),
    (re.compile(r"no node of partition|could hold \d+ of|has no nodes|NODE_CONFIG_UNAVAILABLE|\b2014\b"), "pod-too-large", ""),
)


def job_of(pod: Pod | None) -> int:
    """Its job's id, 0 where it has none."""
    said = pod.metadata.labels.get(JOB_ID, "") if pod else ""
    return int(said) if said.isdecimal() else 0


def requested(pod: Pod) -> set[str]:
    """The names of the resources that its containers request."""
    return {name for container in (*pod.spec.init_containers, *pod.spec.containers) for name in container.resources.requests}


def pod_lines(facts: Facts) -> Iterator[str]:
    """What Kubernetes says, as it says it."""
    pod = facts.kube.pod
    if pod is None:
        return
    where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    yield f"pod {pod.metadata.key} is {pod.status.phase or 'without a phase'}{where}, scheduler {pod.spec.scheduler_name}"
    for kind in ("PodScheduled", CONDITION):
        if (said := pod.condition(kind)) and said.message:
            yield f"{kind}={said.status} ({said.reason}): {said.message}"
    for event in facts.kube.events[-MOST_EVENTS:]:
        if event.note:
            yield f"Event {event.reason}: {event.note}"


def pod_findings(facts: Facts) -> list[Finding]:
    return [*facts.troubles, *_findings(facts)]


def slurm_lines(facts: Facts) -> Iterator[str]:
    yield from job_lines(facts.slurm.jobs, facts.now, facts.slurm.queue)


def _findings(facts: Facts) -> Iterator[Finding]:
    pod = facts.kube.pod
    about = f"pod {facts.namespace}/{facts.name}"
    if pod is None:
        if facts.kube.knows("pod"):
            yield entry("pod-not-found").found(about, "there is no such pod", namespace=facts.namespace)
        return
    if pod.is_over:
        why = f": {pod.status.reason} {pod.status.message}".rstrip() if pod.status.reason else ""
        yield entry("pod-over").found(about, f"it has {pod.status.phase.lower()}{why}")
        yield from job_findings(facts) if facts.slurm.jobs else ()
        return
    if pod.metadata.deletion_timestamp:
        yield entry("pod-leaving").found(about, f"it is being deleted; finalizers: {', '.join(pod.metadata.finalizers) or 'none'}")
    if pod.spec.scheduler_name != facts.settings.scheduler_name:
        yield from _of_others(pod, facts, about)
    elif pod.spec.node_name:
        yield from _on_its_node(pod, facts, about)
    else:
        yield from _waiting(pod, facts, about)


def _of_others(pod: Pod, facts: Facts, about: str) -> Iterator[Finding]:
    settings, namespace = facts.settings, facts.kube.namespace
    labels = dict(namespace.metadata.labels) if namespace else {}
    owner = pod.metadata.controller
    seen = f"its scheduler is {pod.spec.scheduler_name}, not {settings.scheduler_name}"
    if owner and owner.kind == "DaemonSet":
        yield entry("pod-of-daemonset").found(about, f"it is of DaemonSet {owner.name}; {seen}")
    elif pod.spec.scheduler_name != DEFAULT_SCHEDULER:
        ours = settings.scheduler_name
        how = (
            f"remove spec.schedulerName, or set it to {ours}"
            if settings.manages(facts.namespace, labels)
            else f"set spec.schedulerName to {ours}"
        )
        yield entry("pod-other-scheduler").found(about, seen, how=how)
    elif settings.manages(facts.namespace, labels):
        yield entry("pod-missed-by-webhook").found(about, f"{seen}, though namespace {facts.namespace} is managed")
    else:
        selector = settings.managed_namespace_selector
        wanted = ", ".join(f"{key}={value}" for key, value in selector.match_labels.items()) if selector else ""
        managed = (
            f"label it {wanted}"
            if wanted
            else f"managedNamespaceSelector or managedNamespaces of the configuration; now {', '.join(settings.managed_namespaces) or 'none'}"
        )
        yield entry("pod-not-ours").found(about, seen, scheduler=settings.scheduler_name, namespace=facts.namespace, managed=managed)
    if pod.spec.node_name:
        yield from _containers(pod, about)


def _on_its_node(pod: Pod, facts: Facts, about: str) -> Iterator[Finding]:
    said = pod.condition(CONDITION)
    job = job_of(pod)
    yield entry("pod-running").found(about, f"it is on node {pod.spec.node_name}{f', by Slurm job {job}' if job else ''}")
    if said and said.reason == "Lost":
        yield entry("pod-lost").found(about, said.message or said.reason)
    elif job and not facts.slurm.jobs and facts.slurm.knows("job"):
        yield entry("pod-lost").found(about, f"Slurm does not know job {job}")
    yield from _containers(pod, about)
    if any(not part.is_running for part in facts.slurm.jobs):
        yield from job_findings(facts)


def _containers(pod: Pod, about: str) -> Iterator[Finding]:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting and waiting.reason not in ("", "PodInitializing", "ContainerCreating"):
            seen = f"container {status.name} waits: {waiting.reason} {waiting.message}".rstrip()
            yield entry("pod-container-waiting").found(about, seen, pod=pod.metadata.name, namespace=pod.metadata.namespace)


def _waiting(pod: Pod, facts: Facts, about: str) -> Iterator[Finding]:
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if gates:
        kueue = [gate for gate in gates if gate.startswith(KUEUE)]
        code = "pod-gated-by-kueue" if kueue else "pod-gated"
        seen = f"its spec.schedulingGates are {', '.join(gates)}"
        yield entry(code).found(about, seen, namespace=facts.namespace, gate=(kueue or gates)[0])
        return
    leaderless = facts.kube.knows("lease") and not is_held(facts.kube.lease, facts.now)
    if leaderless:
        holder = facts.kube.lease.spec.holder_identity if facts.kube.lease else ""
        seen = f"Lease {facts.settings.namespace}/{facts.settings.leader.name} " + (
            f"was last renewed by {holder}, too long ago" if holder else "has no holder" if facts.kube.lease else "does not exist"
        )
        yield entry("bridge-not-running").found(about, seen, namespace=facts.settings.namespace)
    conflict = claim_finding(facts.kube.lease, facts.kube.claim, facts.now)
    if conflict:
        yield conflict
    said, job = pod.condition(CONDITION), job_of(pod)
    if said and said.reason in ("NodeNotFree", "BindingVolumes"):
        yield _standing(said.reason, said.message, facts, about)
    elif job and facts.slurm.jobs:
        yield from _by_job(facts, about)
    elif job and facts.slurm.knows("job"):
        yield entry("job-unknown").found(about, f"its label says job {job}, which Slurm does not know")
    elif job:
        return
    elif facts.kube.orphan and pod.metadata.controller:
        seen = f"it was made by Job {pod.metadata.controller.name}, which is gone"
        yield entry("pod-owner-gone").found(about, seen, pod=pod.metadata.name, namespace=facts.namespace)
    elif said and said.reason == "Parked":
        yield _refused(said.message or "the bridge does not say why", facts, about)
    elif said and said.reason in STANDINGS:
        yield _standing(said.reason, said.message, facts, about)
    elif not leaderless and not conflict and facts.kube.knows("lease"):
        born = pod.metadata.creation_timestamp
        late = born is not None and facts.now - born > PATIENCE
        seen = "it has no job, and no condition of the bridge's" + ("" if late else ": it was made a moment ago")
        yield entry("pod-unheeded" if late else "pod-just-arrived").found(about, seen, pod=f"{facts.namespace}/{facts.name}")


def _by_job(facts: Facts, about: str) -> Iterator[Finding]:
    leader = facts.slurm.jobs[0]
    if leader.is_finished:
        yield entry("pod-job-over").found(about, f"its job {leader.job_id} has ended as {leader.state}")
    yield from job_findings(facts, end=f"kubectl delete pod {facts.name} -n {facts.namespace}")


def _standing(reason: str, message: str, facts: Facts, about: str) -> Finding:
    windows = facts.settings.windows
    group = message.partition(" does not exist")[0] if reason == "GroupMissing" else ""
    return entry(STANDINGS[reason]).found(
        about, message or reason, namespace=facts.namespace, window=windows.namespace, total=windows.total, group=group
    )


def _refused(message: str, facts: Facts, about: str) -> Finding:
    pod = facts.kube.pod
    for name in sorted(requested(pod)) if pod else ():
        device_class = facts.kube.device_resources.get(name) or name.partition(DEVICE_CLASS)[2]
        if device_class:
            seen = f"resource {name} is served by DeviceClass {device_class}, which the bridge does not support"
            return entry("pod-devices-unsupported").found(about, seen)
    for pattern, code, key in REFUSALS:
        if pattern.search(message):
            partitions = ", ".join(found.name for found in facts.slurm.partitions) or "none that the token sees"
            seen = message + (_unread_classes(facts) if code == "pod-too-large" else "")
            return entry(code).found(about, seen, key=SETTINGS + key, partitions=partitions, namespace=facts.namespace)
    return entry("pod-parked").found(about, message)


def _unread_classes(facts: Facts) -> str:
    """A sentence for resources that a DeviceClass may serve, if the classes cannot be listed."""
    names = sorted(name for name in requested(facts.kube.pod) if "/" in name) if facts.kube.pod else []
    if facts.kube.knows("deviceclasses") or not names:
        return ""
    return f". You may not list deviceclasses.resource.k8s.io, so explain cannot tell whether a DeviceClass serves {', '.join(names)}"
