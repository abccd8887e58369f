"""What shadow mode keeps in mind: workload by workload, what Slurm would have done and what Kubernetes did.

Comes in: what the bridge saw and would have done. Goes out: a `Report`. What must stay true: what is kept of workloads that are over is bounded; each workload counts once, also when the bridge was started anew in the
middle: what happened before the last report was written is in it already, and what happened after it is counted when its job is found again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from slinky.bridge.plan import Snapshot
from slinky.bridge.shadow_cluster import Watcher
from slinky.bridge.shadow_report import Case, Report, Tally, total_of
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod
from slinky.slurm import compress

__all__ = ["MOST_CASES", "ShadowRecord"]

MOST_CASES = 50  # of each sort
MOST_NAMESPACES = 300  # in the report
MOST_TALLIES = 2000
MOST_EVICTED = 500
MOST_TEXT = 300
OTHERS = "(others)"

Clock = Callable[[], float]


class _Facts(msgspec.Struct):
    """Of a pod: where it is, and where it would be."""

    name: str
    key: WorkloadKey | None = None
    kube_node: str = ""
    kube_wait: float | None = None
    slurm_node: str = ""


class ShadowRecord(Watcher):
    """Kept while this process leads. `before` is the last report that was written, by whomever. `clock` tells the time of day."""

    def __init__(self, clock: Clock, before: Report | None = None) -> None:
        self._clock = clock
        self._before = before or Report(since=clock(), written=0.0)
        self._tallies: dict[str, Tally] = dict(self._before.namespaces)
        self._facts: dict[str, _Facts] = {}
        self._live: dict[WorkloadKey, Case] = {}
        self._members: dict[WorkloadKey, dict[str, None]] = {}
        self._of_job: dict[int, WorkloadKey] = {}
        self._parked: dict[str, str] = {}
        self._refused_pods: set[str] = set()
        self._over: set[WorkloadKey] = set()
        self._known_refused = {case.workload for case in self._before.refused}
        self.evicted_uids = list(self._before.evicted_uids)
        self._refused = {case.workload: case for case in self._before.refused}
        self._evicted, self._latest = list(self._before.evicted), list(self._before.latest)
        self._longest = list(self._before.longest)

    # Pods, as they are

    def saw(self, pod: Pod) -> None:
        facts = self._facts.setdefault(pod.metadata.uid, _Facts(str(pod.key)))
        if pod.spec.node_name and facts.kube_wait is None:
            facts.kube_node, facts.kube_wait = pod.spec.node_name, _waited(pod)

    def refused(self, pod: Pod, why: str) -> None:
        if pod.is_over or pod.metadata.uid in self._refused_pods:
            return
        self._refused_pods.add(pod.metadata.uid)
        self._refuse(Case(workload=f"Pod {pod.key}", namespace=pod.metadata.namespace, pods=1, seen=self._clock()), why)

    def gone(self, uid: str) -> None:
        self._refused_pods.discard(uid)
        self._parked.pop(uid, None)
        facts = self._facts.get(uid)
        if facts is not None and facts.key is None:
            del self._facts[uid]

    # Workloads, as they would be

    def adopted(self, key: WorkloadKey, job_id: int, submitted: float, started: float) -> None:
        """A job of an earlier leader's. What happened after its last report was counted by nobody."""
        case = self._case(key)
        case.job, case.submitted = job_id, submitted
        self._of_job[job_id] = key
        if submitted > self._before.written:
            self._tally(key.namespace).submitted += 1
        if started and started <= self._before.written:
            case.started, case.state, case.slurm_wait = started, "running", max(started - submitted, 0.0)

    def submitted(self, key: WorkloadKey, job_id: int) -> None:
        case = self._case(key)
        case.job, case.submitted, case.state, case.reason = job_id, self._clock(), "waiting", ""
        self._of_job[job_id] = key
        self._refused.pop(case.workload, None)
        self._tally(key.namespace).submitted += 1

    def started(self, job_id: int, submitted: float, started: float) -> None:
        """By Slurm's own clock."""
        key = self._of_job.get(job_id)
        case = self._live.get(key) if key else None
        if key is None or case is None or case.started:
            return
        case.submitted, case.started, case.state = submitted, started, "running"
        case.slurm_wait = max(started - submitted, 0.0)
        tally = self._tally(key.namespace)
        tally.started += 1
        tally.slurm_wait += case.slurm_wait
        tally.slurm_wait_most = max(tally.slurm_wait_most, case.slurm_wait)

    def bound(self, uid: str, node: str) -> None:
        if facts := self._facts.get(uid):
            facts.slurm_node = node

    def parked(self, pods: Iterable[Pod], why: str) -> None:
        self._parked |= {pod.metadata.uid: why for pod in pods}

    def looked(self, key: WorkloadKey, now: Snapshot, pods: Sequence[Pod]) -> None:
        if pods and all(pod.state == "over" for pod in now.pods):
            if key in self._live:
                self._end(key)
            self._over.add(key)
            return
        if not pods or key in self._over:
            return
        case = self._case(key, pods)
        why = next((self._parked[pod.metadata.uid] for pod in pods if pod.metadata.uid in self._parked), "")
        if now.job is None and now.parked and why:
            self._refuse(case, why)
        elif now.job is not None and now.job.state == "pending":
            case.state = "waiting"
            for pod in pods:
                self._parked.pop(pod.metadata.uid, None)

    def evicted(self, pod: Pod, why: str) -> None:
        uid = pod.metadata.uid
        self.evicted_uids = [*self.evicted_uids[-MOST_EVICTED + 1 :], uid]
        key = self._facts[uid].key if uid in self._facts else None
        case = self._live.get(key) if key else None
        if key is None or case is None or case.state == "evicted":
            return
        case.state, case.reason, case.ended = "evicted", why[:MOST_TEXT], self._clock()
        self._tally(key.namespace).evicted += 1

    def forgotten(self, key: WorkloadKey) -> None:
        if key in self._live:
            self._end(key)
        self._over.discard(key)

    # What is told

    def live(self, state: str) -> list[tuple[WorkloadKey, Case]]:
        """Those in this state, the oldest first."""
        found = [(key, case) for key, case in self._live.items() if case.state == state]
        return sorted(found, key=lambda pair: pair[1].submitted or pair[1].seen)

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for case in self._live.values():
            found[case.state] = found.get(case.state, 0) + 1
        return found

    def total(self) -> Tally:
        """Of what has happened; who waits and who runs is not in it."""
        return total_of(self._tallies.values())

    def report(self, reasons: Mapping[WorkloadKey, str]) -> Report:
        """`reasons` is why those that wait do, as far as it is known."""
        now = self._clock()
        tallies = {name: msgspec.structs.replace(tally, waiting=0, running=0) for name, tally in self._tallies.items()}
        for key, case in self._live.items():
            tally = tallies.setdefault(key.namespace, Tally())
            tally.waiting += case.state in ("gathering", "waiting")
            tally.running += case.state == "running"
        waiting = [*self.live("waiting"), *self.live("gathering")][:MOST_CASES]
        shown = [self._shown(key, case, reasons.get(key, ""), now) for key, case in waiting]
        slowest = sorted(self.live("running"), key=lambda pair: pair[1].slurm_wait or 0.0, reverse=True)[:MOST_CASES]
        running = [self._shown(key, case, "", now) for key, case in slowest]
        named = sorted(tallies.items(), key=lambda pair: pair[1].submitted + pair[1].refused, reverse=True)
        kept = dict(named[:MOST_NAMESPACES])
        for _, tally in named[MOST_NAMESPACES:]:
            kept[OTHERS] = kept.get(OTHERS, Tally()).plus(tally)
        return Report(
            since=self._before.since,
            written=now,
            total=total_of(tallies.values()),
            namespaces=kept,
            refused=list(self._refused.values())[-MOST_CASES:],
            evicted=self._evicted[-MOST_CASES:],
            longest=_longest([*self._longest, *running]),
            waiting=shown,
            latest=self._latest[-MOST_CASES:],
            evicted_uids=self.evicted_uids[-MOST_EVICTED:],
        )

    # Within

    def _case(self, key: WorkloadKey, pods: Sequence[Pod] = ()) -> Case:
        case = self._live.get(key)
        if case is None:
            case = self._live[key] = Case(workload=str(key), namespace=key.namespace, seen=self._clock())
        members = self._members.setdefault(key, {})
        for pod in pods:
            members[pod.metadata.uid] = None
            self._facts.setdefault(pod.metadata.uid, _Facts(str(pod.key))).key = key
        if key.kind == "Pod" and pods:
            case.workload = f"Pod {pods[0].key}"
        case.pods = max(case.pods, len(members))
        return case

    def _refuse(self, case: Case, why: str) -> None:
        case.state, case.reason = "refused", why[:MOST_TEXT]
        if case.workload not in self._refused and case.workload not in self._known_refused:
            self._tally(case.namespace).refused += 1
        self._known_refused.discard(case.workload)
        self._refused.pop(case.workload, None)
        self._refused[case.workload] = case
        while len(self._refused) > MOST_CASES * 4:
            del self._refused[next(iter(self._refused))]

    def _end(self, key: WorkloadKey) -> None:
        case = self._live.pop(key)
        case = self._shown(key, case, case.reason, self._clock())
        tally = self._tally(key.namespace)
        members = self._members.pop(key, {})
        facts = [self._facts[uid] for uid in members if uid in self._facts]
        if case.started:
            both = [pod for pod in facts if pod.slurm_node and pod.kube_node]
            tally.pods_placed += len(both)
            tally.pods_same_node += sum(pod.slurm_node == pod.kube_node for pod in both)
            tally.kube_wait += case.kube_wait or 0.0
            tally.kube_wait_most = max(tally.kube_wait_most, case.kube_wait or 0.0)
        for uid in members:
            self._facts.pop(uid, None)
            self._parked.pop(uid, None)
        self._of_job.pop(case.job, None)
        if case.state == "evicted":
            self._evicted = [*self._evicted, case][-MOST_CASES:]
        elif case.state == "refused" or not case.job:
            return
        else:
            case.ended = self._clock()
            case.state = "ended" if case.started else "missed"
            tally.ended += bool(case.started)
            tally.missed += not case.started
        self._latest = [*self._latest, case][-MOST_CASES:]
        self._longest = _longest([*self._longest, case])

    def _shown(self, key: WorkloadKey, case: Case, reason: str, now: float) -> Case:
        facts = [self._facts[uid] for uid in self._members.get(key, ()) if uid in self._facts]
        waits = [pod.kube_wait for pod in facts if pod.kube_wait is not None]
        started = case.slurm_wait if case.started else now - case.submitted if case.submitted else None
        return msgspec.structs.replace(
            case,
            reason=(reason or case.reason)[:MOST_TEXT],
            slurm_wait=started,
            kube_wait=max(waits) if waits else None,
            slurm_nodes=_nodes(pod.slurm_node for pod in facts),
            kube_nodes=_nodes(pod.kube_node for pod in facts),
            same_node=sum(bool(pod.slurm_node) and pod.slurm_node == pod.kube_node for pod in facts),
        )

    def _tally(self, namespace: str) -> Tally:
        if namespace not in self._tallies and len(self._tallies) >= MOST_TALLIES:
            namespace = OTHERS
        return self._tallies.setdefault(namespace, Tally())


def _longest(cases: Iterable[Case]) -> list[Case]:
    return sorted((case for case in cases if case.slurm_wait), key=lambda case: case.slurm_wait or 0.0, reverse=True)[:MOST_CASES]


def _nodes(names: Iterable[str]) -> str:
    return compress(sorted({name for name in names if name}))[:MOST_TEXT]


def _waited(pod: Pod) -> float | None:
    """From its creation until Kubernetes' scheduler had placed it."""
    placed, made = pod.condition("PodScheduled"), pod.metadata.creation_timestamp
    if placed is None or placed.status != "True" or placed.last_transition_time is None or made is None:
        return None
    return max((placed.last_transition_time - made).total_seconds(), 0.0)
