"""Jobs as samples: how many in which state, what they have or ask for, why and how long they wait, and which pods are theirs.

Pure. What must stay true: the sum of a metric over all labels is the sum over all jobs, whatever the limits are; jobs that are over are told as long as slurmctld remembers them (MinJobAge).
"""

from collections.abc import Iterator, Sequence

from slinky.exporter.families import Family, gauge
from slinky.exporter.labels import OTHER, Sums, add, bounded, clean, top, weights, within
from slinky.exporter.settings import Limits
from slinky.exporter.snapshot import JobFacts
from slinky.slurm import JobState

__all__ = ["DESCRIBED", "job_families"]

WHOSE = ("state", "partition", "account", "user", "qos")
JOBS = gauge("slurm_queue_jobs", "Jobs that slurmctld knows, by state and by whose they are", *WHOSE)
CPUS = gauge("slurm_queue_cpus", "CPUs that jobs have, or ask for while they are pending", *WHOSE)
MEMORY = gauge("slurm_queue_memory_bytes", "Memory that jobs have, or ask for while they are pending", *WHOSE)
GRES = gauge("slurm_queue_gres", "Generic resources (GPUs and others) that jobs have, or ask for while they are pending", *WHOSE, "gres")
FLAGGED = gauge("slurm_queue_jobs_flagged", "Jobs with a flag besides their state; held counts as one", "flag")
WAITING = gauge("slurm_queue_pending_jobs", "Pending jobs by the reason that Slurm gives", "reason", "partition")
LONGEST = gauge("slurm_queue_longest_wait_seconds", "How long the pending job that waits longest has been eligible", "partition")
BRIDGE_JOBS = gauge(
    "slurm_bridge_jobs", "Jobs of a bridge, by the Kubernetes cluster that it is of", "kubernetes_cluster", "namespace", "state"
)
BRIDGE_PODS = gauge("slurm_bridge_pods", "Pods whose jobs these are", "kubernetes_cluster", "namespace", "state")
POD_JOB = gauge(
    "slurm_bridge_pod_job",
    "Always 1: a pod of a bridge, and its job that is not over",
    "kubernetes_cluster",
    "namespace",
    "pod",
    "job_id",
    "state",
)

DESCRIBED = (JOBS, CPUS, MEMORY, GRES, FLAGGED, WAITING, LONGEST, BRIDGE_JOBS, BRIDGE_PODS, POD_JOB)
_ALIVE = frozenset({JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED})
STATES = tuple(state.lower() for state in JobState)


def job_families(jobs: Sequence[JobFacts], now: float, limits: Limits) -> Iterator[Family]:
    yield from _by_whom(jobs, limits)
    yield _flagged(jobs)
    yield from _waiting(jobs, now, limits)
    yield from _of_bridges(jobs, limits)


def _by_whom(jobs: Sequence[JobFacts], limits: Limits) -> Iterator[Family]:
    numbers, cpus, memory, gres = Sums(), Sums(), Sums(), Sums()
    weighed: dict[int, dict[str, float]] = {place: {} for place in range(1, 5)}
    words = {state: state.lower() for state in JobState}
    for job in jobs:
        labels = (words[job.state], clean(job.partition), clean(job.account), clean(job.user), clean(job.qos))
        add(numbers, labels, 1)
        weight = 0.001
        if job.state in _ALIVE:
            weight = 1 + job.resources.cpus
            add(cpus, labels, job.resources.cpus)
            add(memory, labels, job.resources.memory)
            for name, number in job.resources.gres.items():
                add(gres, (*labels, clean(name)), number)
        for place, of in weighed.items():
            of[labels[place]] = of.get(labels[place], 0.0) + weight
    keep = [(3, limits.users), (2, limits.accounts), (4, limits.qos), (1, limits.partitions)]
    numbers, cpus, memory, gres = bounded([numbers, cpus, memory, gres], keep, weighed.__getitem__, limits.job_series)
    for state in STATES:  # that there are none is told too
        if not any(labels[0] == state for labels in numbers):
            numbers[(state, "", "", "", "")] = 0.0
    yield Family(JOBS, numbers)
    yield Family(CPUS, cpus)
    yield Family(MEMORY, memory)
    yield Family(GRES, within(gres, 5, top({labels[5]: value for labels, value in gres.items()}, limits.others)))


def _flagged(jobs: Sequence[JobFacts]) -> Family:
    found: Sums = {(flag,): 0.0 for flag in ("completing", "configuring", "held")}
    for job in jobs:
        for flag in job.flags:
            add(found, (flag.lower(),), 1)
        if job.is_held:
            add(found, ("held",), 1)
    return Family(FLAGGED, found)


def _waiting(jobs: Sequence[JobFacts], now: float, limits: Limits) -> Iterator[Family]:
    waiting: Sums = {}
    longest: dict[str, float] = {}
    for job in jobs:
        if job.state is not JobState.PENDING:
            continue
        partition = clean(job.partition)
        add(waiting, (clean(job.reason), partition), 1)
        wait = max(0.0, now - job.eligible_at) if job.eligible_at and not job.is_held else 0.0
        longest[partition] = max(longest.get(partition, 0.0), wait)
    kept = top(weights(waiting, 1), limits.partitions)
    reasons = top(weights(waiting, 0), limits.reasons)
    yield Family(WAITING, within(within(waiting, 0, reasons), 1, kept))
    told: Sums = {}
    for partition, wait in longest.items():
        labels = (partition if partition in kept else OTHER,)
        told[labels] = max(told.get(labels, 0.0), wait)
    yield Family(LONGEST, told)


def _of_bridges(jobs: Sequence[JobFacts], limits: Limits) -> Iterator[Family]:
    numbers, pods, names = Sums(), Sums(), Sums()
    for job in jobs:
        if job.pods is None:
            continue
        cluster, state = clean(job.pods.cluster), job.state.lower()
        labels = (cluster, clean(job.pods.namespace), state)
        add(numbers, labels, 1)
        add(pods, labels, job.pods.count)
        if job.state in _ALIVE:
            for name in job.pods.names[: max(0, limits.pods - len(names))]:
                namespace, _, pod = name.partition("/")
                names[(cluster, clean(namespace), clean(pod), str(job.job_id), state)] = 1.0
    clusters = top(weights(pods, 0), limits.others)
    namespaces = top(weights(pods, 1), limits.namespaces)
    yield Family(BRIDGE_JOBS, within(within(numbers, 0, clusters), 1, namespaces))
    yield Family(BRIDGE_PODS, within(within(pods, 0, clusters), 1, namespaces))
    yield Family(POD_JOB, names)
