"""What the leading process remembers of a workload beyond its pods and its job: shortcuts only. Its loss (a restart) costs a few questions and changes nothing else."""

from collections.abc import Iterable
from typing import Any

import msgspec

from slinky.bridge.annotations import JobSettings
from slinky.bridge.directions import Asked, Avoided, Basis, Directed
from slinky.bridge.ends import Ending
from slinky.bridge.lines import Scope
from slinky.bridge.placement import Slot
from slinky.bridge.plan import Outcome, PodView
from slinky.bridge.submission import Layout, Submission
from slinky.bridge.whereabouts import Whereabouts
from slinky.bridge.workload import Workload, WorkloadKey

__all__ = ["SETS", "SETTLE_SECONDS", "Known", "Refusal", "Workloads", "Written"]

SETS = ("JobSet", "LeaderWorkerSet")
SETTLE_SECONDS = 10.0  # how long a job must be unknown to an answering Slurm before it is settled what became of it


class Written(msgspec.Struct, gc=False):
    """What we wrote on pods, or know to be ours, by UID. What the watch does not show yet is not written twice; what it showed and shows otherwise now was written by somebody else, and does not count."""

    labels: dict[str, int] = {}
    seen: set[str] = set()  # of those, the watch has shown it
    ranks: dict[str, int] = {}  # of pods that were bound
    released: set[str] = set()
    apart: set[str] = set()

    def over(self, pod: PodView) -> PodView:
        """The pod as it is, given what we did."""
        uid = pod.uid
        if uid in self.labels:
            if self.labels[uid] == pod.job_id:
                self.seen.add(uid)
            else:
                pod = msgspec.structs.replace(pod, job_id=self.labels[uid])
        if uid in self.ranks:
            state: Any = "bound" if pod.state == "waiting" else pod.state
            pod = msgspec.structs.replace(pod, state=state, rank=self.ranks[uid])
        if uid in self.released:
            if pod.finalizer:
                pod = msgspec.structs.replace(pod, finalizer=False)
            else:
                self.released.discard(uid)
        return pod

    def label(self, uid: str, job_id: int) -> None:
        """It was written just now."""
        self.labels[uid] = job_id
        self.seen.discard(uid)

    def learn(self, pod: PodView) -> None:
        """The pod is known to be its job's: what it says from now on, we say."""
        if pod.uid not in self.labels:
            self.labels[pod.uid] = pod.job_id
            self.seen.add(pod.uid)
        if pod.state == "bound" and pod.rank >= 0:
            self.ranks.setdefault(pod.uid, pod.rank)

    def is_changed(self, uid: str, job_id: int) -> bool:
        """Whether somebody else has changed its label to this."""
        return uid in self.seen and self.labels.get(uid, job_id) != job_id

    def keep_only(self, uids: set[str]) -> None:
        for uid in (self.labels.keys() | self.ranks.keys() | self.released | self.apart) - uids:
            self.labels.pop(uid, None)
            self.seen.discard(uid)
            self.ranks.pop(uid, None)
            self.released.discard(uid)
            self.apart.discard(uid)


class Evicted(msgspec.Struct):
    """Why, and how often it was seen to say something else since."""

    reason: str
    why: str
    looks: int = 0


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A disruption budget does not let a pod go: since when, after how many tries, when the next is due, and in whose words."""

    since: float
    tries: int
    again: float
    words: str


class Known(msgspec.Struct, gc=False):
    """`verified` is the poller's epoch in which the job was last known to be this workload's own (or lost); `over` that it was seen to be over, by its own record. Times are the loop's."""

    job_id: int = 0
    submission: Submission | None = None
    slots: list[Slot] = []
    layout: Layout | None = None  # of those slots, for what their pods are told
    components: dict[str, int] = {}  # of a hetjob, the one that each pod was submitted for
    verified: int = -1
    over: bool = False
    why: str = ""  # it is over
    reason: str = ""  # the same in a word
    rest: tuple[int, ...] = ()  # of a hetjob that is over: those of its jobs that are not
    lost: bool = False
    parked_until: float = 0.0
    parked: str = ""  # why
    parked_for: JobSettings | None = None  # what was said then, where something else is to be judged at once
    unknown_nodes: frozenset[str] = frozenset()  # that it is to leave out, and that Slurm was not told of, as it does not know them
    parkings: int = 0  # in a row
    too_large: bool = False  # parked because no node could hold it, not for what Slurm said
    missing_since: float = 0.0
    given_up: bool = False  # an administrator has confirmed that it will not come back
    holds: bool = False  # some of its pods are on nodes, or were and have not been let go
    incomplete_since: float = 0.0
    vacant_since: float = 0.0  # its job has no pods (left), and others are awaited
    lineage: str = ""  # the UID of the object that its job's pods were made by
    outcomes: dict[int, Outcome] = {}  # of its job's pods, by rank
    remembered: dict[int, Outcome] = {}  # of those, failures that Slurm keeps
    obstacle: str = ""
    obstacle_since: float = 0.0
    waits: str = ""  # for its volumes, before it is submitted or before it is bound
    waits_since: float = 0.0
    waits_until: float = 0.0
    waits_told: bool = False
    submitting: bool = False
    unsettled: Workload | None = None  # what was sent to Slurm, and nobody knows whether it arrived
    sent_at: float = 0.0  # when it was last submitted, in seconds since 1970
    submitted_at: float = 0.0
    started_at: float = 0.0
    ending_since: float = 0.0
    end: Ending | None = None  # it is about to end, and it is time for its pods to go
    vacated_at: float = 0.0  # slots of its running job have no pods, and none will come
    shrunk_to: int = 0  # pods that were left when it was last tried to give nodes back
    given_back: int = 0  # slots that its job has no more
    refusals: dict[str, Refusal] = {}  # pods that a disruption budget does not let go, by UID
    evicted: dict[str, "Evicted"] = {}  # pods that were evicted, by UID, and why
    phase: str = ""
    pods: int = 0
    looked_at: float = 0.0  # when the last look at it began, or ended
    written: Written = msgspec.field(default_factory=Written)
    where: list[Whereabouts] | None = None  # what its job was told about where it may go, each of a hetjob's
    asked: Asked | None = None  # by which that is judged again; None where it takes the whole workload
    basis: Basis | None = None  # all that `where` rests on; None where that takes a look
    names_version: int = -1  # of Slurm's nodes, when it was looked which of those that it leaves out Slurm knows
    said: JobSettings | None = None  # what its annotations say, as they were last read
    depends_on_pods: bool = False  # where it may go depends on the pods that are there
    avoided: dict[str, Avoided] = {}  # nodes, by Slurm's names, that did not work out
    arrived: int = 0  # the number of its arrival, by which it stands in lines
    scope: Scope | None = None  # whose submit limits its job counts for, while it has one
    rejected: str = ""  # why the nodes that its job was given did not
    unplaceable: str = ""  # why its pods have no places in what its job was given
    doubts: int = 0  # submits in a row that Slurm refused for what may only be known wrongly here
    too_much: bool = False  # an accounting limit refuses the job for what it asks for itself
    requeues: int = 0  # for that reason, since it was last bound
    priority: int = 0  # of the job that was given back, for the next one not to begin at the end of the queue
    place: tuple[object, ...] = ()  # for what kind of job it had that priority
    unwritten: set[str] = (
        set()
    )  # pods of the job whose label is not on the server yet: it goes along with their Binding, or by itself if that takes long

    @property
    def job_ids(self) -> tuple[int, ...]:
        """All of Slurm's jobs that its job is: one, unless it is a hetjob."""
        return self.submission.job_ids if self.submission else (self.job_id,)

    def keep_place(self, priority: object) -> None:
        """Its job is given back: the next one has the same priority, if it asks for the same."""
        self.priority, self.place = priority if isinstance(priority, int) else 0, self._kind_of_job()

    def has_place(self) -> bool:
        """Whether its job may have the priority of the one before it. A job that asks for something else has none to keep."""
        if self.priority and self.place != self._kind_of_job():
            self.priority = 0
        return bool(self.priority)

    def _kind_of_job(self) -> tuple[object, ...]:
        """All that a priority is made of, but for the age."""
        job = self.submission
        return (self.said, job.partition, job.account, job.qos, job.tasks, job.task, len(job.components)) if job else ()

    def take(self, submission: Submission, epoch: int) -> None:
        """This is its job from now on."""
        self.job_id, self.submission, self.verified, self.unsettled = submission.job_id, submission, epoch, None
        self.slots, self.over, self.lost, self.missing_since, self.incomplete_since = [], False, False, 0.0, 0.0
        self.given_up, self.components = False, {}
        self.parked, self.parked_for, self.parked_until, self.started_at, self.submitted_at, self.obstacle = "", None, 0.0, 0.0, 0.0, ""
        self.too_much = False
        self.parkings, self.ending_since, self.rejected, self.rest, self.waits = 0, 0.0, "", (), ""
        self.vacant_since, self.lineage, self.outcomes, self.remembered, self.end, self.refusals = 0.0, "", {}, {}, None, {}
        self.evicted = {}
        self.vacated_at, self.shrunk_to, self.given_back = 0.0, 0, 0
        self.too_large, self.where, self.unplaceable, self.doubts, self.obstacle_since = False, None, "", 0, 0.0
        self.asked = None
        self.recall(submission)

    def recall(self, submission: Submission) -> None:
        """How those of its pods have failed that were gone before anybody here knew of it."""
        self.remembered = {failure.rank: Outcome(failure.uid, failure.exit_code) for failure in submission.failures}
        self.outcomes = dict(self.remembered)

    def was_directed(self, directed: Directed) -> None:
        """What it was told about where it may go, or that there is no such place; and what that rests on."""
        self.where, self.asked, self.basis = directed.where, directed.asked, directed.basis

    def is_for(self, uids: Iterable[str]) -> None:
        """Its job was just submitted for these pods: they are its own, though their labels are yet to be written."""
        self.unwritten = set(uids)
        for uid in self.unwritten:
            self.written.label(uid, self.job_id)

    def drop_job(self) -> None:
        self.job_id, self.submission, self.slots, self.layout = 0, None, [], None
        self.over = self.lost = self.given_up = False
        self.missing_since = self.incomplete_since = self.started_at = self.ending_since = 0.0
        self.obstacle, self.rejected, self.unplaceable, self.obstacle_since, self.rest, self.waits = "", "", "", 0.0, (), ""
        self.vacant_since, self.lineage, self.outcomes, self.remembered, self.end, self.refusals = 0.0, "", {}, {}, None, {}
        self.evicted = {}
        self.vacated_at, self.shrunk_to, self.given_back = 0.0, 0, 0
        for uid in self.unwritten:
            self.written.labels.pop(uid, None)
            self.written.seen.discard(uid)
        self.unwritten = set()


class Workloads(dict[WorkloadKey, Known]):
    """All that are known. Those of one set (a JobSet, say) are found without a look at all others."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[tuple[str, str, str], dict[WorkloadKey, None]] = {}

    def parts(self, key: WorkloadKey) -> list[WorkloadKey]:
        """Those that are of the set which the key names."""
        return list(self._parts.get((key.kind, key.namespace, key.name), ()))

    def __setitem__(self, key: WorkloadKey, known: Known) -> None:
        if key.kind in SETS:
            self._parts.setdefault((key.kind, key.namespace, key.object_name), {})[key] = None
        super().__setitem__(key, known)

    def setdefault(self, key: WorkloadKey, known: Known) -> Known:
        found = self.get(key)
        if found is None:
            found = self[key] = known
        return found

    def forget(self, key: WorkloadKey) -> None:
        """If it is known."""
        if self.pop(key, None) is not None and key.kind in SETS:
            own = (key.kind, key.namespace, key.object_name)
            del self._parts[own][key]
            if not self._parts[own]:
                del self._parts[own]
