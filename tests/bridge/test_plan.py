"""The plan, tried on generated histories: pods come, run, end and are deleted, jobs are started, cancelled, preempted and forgotten, actions are lost half-way and done twice; at no moment
may a rule be broken, and when nothing more happens everything must come to rest with nothing left over."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slinky.bridge.placement import Placement, Slot, assign
from slinky.bridge.plan import (
    Action,
    Bind,
    EndJob,
    Evict,
    JobView,
    Label,
    Outcome,
    PodView,
    Release,
    Remember,
    SetApart,
    Snapshot,
    Submit,
    outcomes,
    plan,
)


@dataclass
class APod:
    uid: str
    state: str = "waiting"
    deleting: bool = False
    job_id: int = 0
    finalizer: bool = True
    exit_code: int = 0
    node: str = ""
    rank: int = -1
    born: int = 0


@dataclass
class AJob:
    job_id: int
    uids: tuple[str, ...]
    state: str = "pending"
    slots: list[Slot] = field(default_factory=list)
    why: str = ""
    reason: str = ""
    failed: dict[int, Outcome] = field(default_factory=dict)
    last: dict[int, str] = field(default_factory=dict)  # the pod that was last bound to each slot


class History(RuleBasedStateMachine):
    """One workload in a world that does as it likes. `known` is the job that the bridge knows of; `unknown` tells that an answer to a submit was lost."""

    @initialize(size=st.integers(1, 4), elastic=st.booleans())
    def begin(self, size: int, elastic: bool) -> None:
        self.size = size
        self.elastic = elastic
        self.awaited = False
        self.completed = False
        self.outcomes: dict[int, Outcome] = {}
        self.remembered: dict[int, Outcome] = {}
        self.pods = {f"p{i}": APod(f"p{i}", born=i) for i in range(size)}
        self.jobs: dict[int, AJob] = {}
        self.known = 0
        self.unknown = False
        self.broken = False
        self.made = size

    # What the world does

    @rule(data=st.data())
    @precondition(lambda self: self.live("pending"))
    def slurm_starts_the_job(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.live("pending")))
        job.state = "running"
        job.slots = [Slot(node=f"n{index % 2}", rank=index, local_rank=index // 2) for index in range(len(job.uids))]

    @rule(data=st.data(), state=st.sampled_from(["ending", "over"]), reason=st.sampled_from(["SlurmCancelled", "SlurmPreempted"]))
    @precondition(lambda self: self.live("pending", "running", "ending"))
    def slurm_ends_the_job(self, data: st.DataObject, state: str, reason: str) -> None:
        job = data.draw(st.sampled_from(self.live("pending", "running", "ending")))
        job.state, job.why, job.reason = state, "preempted", job.reason or reason

    @rule(data=st.data())
    @precondition(lambda self: self.live("pending", "running"))
    def slurm_forgets_the_job(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.live("pending", "running"))).state = "lost"

    @rule(data=st.data(), code=st.integers(0, 3))
    @precondition(lambda self: self.in_state("bound"))
    def a_pod_ends(self, data: st.DataObject, code: int) -> None:
        pod = data.draw(st.sampled_from(self.in_state("bound")))
        pod.state, pod.exit_code = "over", code

    @rule(data=st.data())
    @precondition(lambda self: self.pods)
    def a_pod_is_deleted(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(sorted(self.pods.values(), key=lambda pod: pod.uid)))
        pod.deleting = True
        if not pod.finalizer:
            del self.pods[pod.uid]

    @rule()
    @precondition(lambda self: self.made < 8)
    def a_replacement_comes(self) -> None:
        uid = f"p{self.made}"
        self.pods[uid] = APod(uid, born=self.made)
        self.made += 1

    @rule(awaited=st.booleans(), completed=st.booleans())
    def whoever_made_the_pods_changes_its_mind(self, awaited: bool, completed: bool) -> None:
        self.awaited, self.completed = awaited, completed

    @rule(broken=st.booleans())
    def members_are_missing_for_long(self, broken: bool) -> None:
        self.broken = broken

    @rule()
    def the_bridge_restarts(self) -> None:
        """It knows what the labels say; a submit whose label was not written is unknown until it was looked for."""
        labelled = {pod.job_id for pod in self.pods.values() if pod.job_id}
        if self.known and self.known not in labelled:
            self.unknown = True
            self.known = 0
        self.recall()

    def recall(self) -> None:
        job = self.jobs.get(self.known)
        self.remembered = dict(job.failed) if job else {}
        self.outcomes = dict(self.remembered)

    # What the bridge does

    @rule(data=st.data())
    def the_bridge_acts_and_is_cut_off(self, data: st.DataObject) -> None:
        actions = plan(self.snapshot())
        done = data.draw(st.integers(0, len(actions)))
        for action in actions[:done]:
            self.carry_out(action, data.draw(st.sampled_from(["done", "done", "lost"])))

    def carry_out(self, action: Action, how: str) -> None:
        match action:
            case Submit(uids):
                self.submit(uids, how)
            case Label(uid, job_id):
                if uid in self.pods:
                    self.pods[uid].job_id = job_id
                    given_up = self.jobs.get(self.known)
                    if not job_id and given_up and given_up.state == "lost":
                        self.known = 0  # a job that lives is not forgotten before it has been ended
            case Bind(placement):
                pod, job = self.pods[placement.uid], self.jobs[self.known]
                assert pod.state == "waiting", "a pod is bound once"
                assert not pod.deleting
                assert pod.job_id == job.job_id, "only the job that the label names binds"
                assert job.state == "running"
                assert placement.slot in job.slots
                there = [p for p in self.pods.values() if p.state == "bound" and p.job_id == job.job_id and p.rank == placement.slot.rank]
                assert not there, "a slot holds one pod"
                pod.state, pod.node, pod.rank = "bound", placement.node, placement.slot.rank
                job.last[pod.rank] = pod.uid
            case Remember(job_id, failures):
                assert job_id == self.known
                self.jobs[job_id].failed = dict(failures)
                if how == "done":
                    self.remembered = dict(failures)
            case Evict(uid):
                pod = self.pods[uid]
                owner = self.jobs.get(self.known)
                assert owner is not None
                assert owner.state in ("ending", "over"), "a pod is evicted only when its own job is over or ending"
                began = any(p.state != "waiting" and p.job_id == owner.job_id for p in self.pods.values())
                assert began or owner.reason == "SlurmCancelled", "who has not begun is queued again"
                pod.deleting = True
            case SetApart(uid):
                job = self.jobs[self.known]
                alive = [p for p in self.pods.values() if p.state != "over" and not p.deleting]
                assert self.elastic
                assert not self.pods[uid].job_id, "who has a job is not set apart"
                assert len(alive) > len(job.uids), "nor one who comes in the stead of another"
                del self.pods[uid]
            case EndJob(job_id, code, why):
                job = self.jobs[job_id]
                failed = [said.exit_code for rank, said in job.failed.items() if job.last[rank] == said.uid]
                assert not failed or why != "all pods have ended" or (code or 0) >= max(failed), "a failure is not forgotten"
                assert not self.awaited or self.broken or job.state == "ending", "a job is kept while others are awaited"
                running = [p for p in self.pods.values() if p.state == "bound" and p.job_id == job_id]
                assert not running, "a job ends when none of its pods runs"
                job.state, job.why = "over", f"ended with {code}"
            case Release(uid):
                pod = self.pods[uid]
                assert pod.state != "bound", "a finalizer goes when the containers are gone"
                goes_on = self.jobs.get(self.known) if self.live("pending", "running") else None
                said = [outcome for outcome in self.outcomes.values() if outcome.uid == uid and outcome.exit_code]
                assert not said or goes_on is None or pod.job_id != goes_on.job_id or said[0] in goes_on.failed.values()
                pod.finalizer = False
                if pod.deleting:
                    del self.pods[uid]

    def submit(self, uids: tuple[str, ...], how: str) -> None:
        if self.unknown:
            self.unknown = False
            found = [job for job in self.jobs.values() if job.state in ("pending", "running", "ending") and job.job_id != self.known]
            if found:
                self.known = found[-1].job_id
                self.recall()
            return
        if not uids:
            return
        assert not self.live("pending", "running", "ending"), "no second job while one may exist"
        job = AJob(len(self.jobs) + 1, uids)
        self.jobs[job.job_id] = job
        if how == "done":
            self.known = job.job_id
        else:
            self.unknown = True

    # What is looked at

    def live(self, *states: str) -> list[AJob]:
        return [job for job in self.jobs.values() if job.state in states]

    def in_state(self, state: str) -> list[APod]:
        return [pod for pod in self.pods.values() if pod.state == state]

    def snapshot(self) -> Snapshot:
        job = self.jobs.get(self.known)
        if job and job.state in ("over", "lost") and not any(pod.job_id == job.job_id for pod in self.pods.values()):
            self.known, job = 0, None
        view = JobView(job_id=job.job_id, state=job.state, why=job.why, reason=job.reason, tasks=len(job.uids)) if job else None  # type: ignore[arg-type]
        pods = [
            PodView(
                uid=p.uid,
                state=p.state,  # type: ignore[arg-type]
                deleting=p.deleting,
                job_id=p.job_id,
                finalizer=p.finalizer,
                exit_code=p.exit_code,
                rank=p.rank,
                born=p.born,
            )
            for p in self.pods.values()
        ]
        self.outcomes = outcomes(self.outcomes, pods, job.job_id) if job else {}
        self.remembered = self.remembered if job else {}
        own = [p for p in self.pods.values() if job and p.job_id == job.job_id]
        held = {p.uid: p.rank for p in own if p.state == "bound"}
        places = assign(job.slots, held, [p.uid for p in own if p.state == "waiting" and not p.deleting]) if job else []
        return Snapshot(
            pods=pods,
            size=self.size,
            job=view,
            placements=places,
            submit_unknown=self.unknown,
            broken=self.broken,
            awaited=self.awaited,
            completed=self.completed,
            elastic=self.elastic,
            outcomes=self.outcomes,
            remembered=self.remembered,
        )

    @invariant()
    def a_running_pod_was_placed_by_its_own_job(self) -> None:
        for pod in getattr(self, "pods", {}).values():
            if pod.state == "bound":
                assert self.jobs[pod.job_id].slots[pod.rank].node == pod.node

    def teardown(self) -> None:
        """Nothing more happens but that evicted pods stop: all comes to rest, and then nothing is left over."""
        if not hasattr(self, "pods"):
            return
        self.broken = self.awaited = False
        for _ in range(40):
            for pod in self.in_state("bound"):
                if pod.deleting:
                    pod.state = "over"
            for action in plan(self.snapshot()):
                self.carry_out(action, "done")
        assert all(not pod.finalizer or pod.state != "over" for pod in self.pods.values()), "no finalizer is left on a pod that is over"
        assert not [pod for pod in self.pods.values() if pod.deleting and pod.state != "bound"], "nothing deleted is held back"
        for job in self.live("pending", "running"):
            assert [p for p in self.pods.values() if p.state != "over"], f"job {job.job_id} is left over"
        assert len(self.live("pending", "running", "ending")) <= 1


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)

WAITING = PodView(uid="a", state="waiting")
WAITING_C = PodView(uid="c", state="waiting")
PLACE = Placement(uid="a", slot=Slot(node="n1", rank=0, local_rank=0))


def test_a_pods_plain_way() -> None:
    alone = Snapshot(pods=[WAITING], size=1)
    assert plan(alone) == [Submit(("a",))]
    pending = but(alone, job=JobView(job_id=7, state="pending"))
    assert plan(pending) == [Label("a", 7)]
    labelled = PodView(uid="a", state="waiting", job_id=7)
    assert plan(but(pending, pods=[labelled])) == []
    running = Snapshot(pods=[labelled], size=1, job=JobView(job_id=7, state="running"), placements=[PLACE])
    assert plan(running) == [Bind(PLACE)]
    over = PodView(uid="a", state="over", job_id=7, exit_code=3)
    assert plan(but(running, pods=[over])) == [EndJob(7, 3, "all pods have ended")]
    assert plan(but(running, pods=[over], job=JobView(job_id=7, state="over"))) == [Release("a")]


def test_a_gang_waits_for_all_and_binds_all_at_once() -> None:
    pods = [PodView(uid=uid, state="waiting", job_id=7) for uid in "ab"]
    assert plan(Snapshot(pods=[WAITING], size=2)) == []
    half = Snapshot(pods=pods, size=2, job=JobView(job_id=7, state="running", tasks=2), placements=[PLACE])
    assert plan(half) == []
    other = Placement(uid="b", slot=Slot(node="n2", rank=1, local_rank=0))
    assert plan(but(half, placements=[PLACE, other])) == [Bind(PLACE), Bind(other)]


def test_a_pod_that_comes_too_late_is_not_waited_for() -> None:
    """The job has room for two; the third is for a later one."""
    pods = [PodView(uid="a", state="waiting", job_id=7), PodView(uid="b", state="bound", job_id=7), PodView(uid="c", state="waiting")]
    job = JobView(job_id=7, state="running", tasks=2)
    assert plan(Snapshot(pods=pods, size=2, job=job, placements=[PLACE])) == [Bind(PLACE)]


def test_a_replacement_takes_the_room_of_one_that_is_gone() -> None:
    pods = [
        PodView(uid="a", state="over", job_id=7, finalizer=False),
        PodView(uid="b", state="bound", job_id=7),
        PodView(uid="c", state="waiting"),
    ]
    assert plan(Snapshot(pods=pods, size=2, job=JobView(job_id=7, state="running", tasks=2))) == [Label("c", 7)]


def test_an_incomplete_gang_does_not_begin_and_gives_its_job_back_in_the_end() -> None:
    now = Snapshot(
        pods=[PodView(uid="a", state="waiting", job_id=7)], size=2, job=JobView(job_id=7, state="running", tasks=2), placements=[PLACE]
    )
    assert plan(now) == []
    assert plan(but(now, broken=True)) == [Label("a", 0), EndJob(7, None, "members of the gang are missing")]


def test_a_member_that_ended_first_is_let_go_while_the_others_run() -> None:
    pods = [PodView(uid="a", state="over", job_id=7), PodView(uid="b", state="bound", job_id=7)]
    assert plan(Snapshot(pods=pods, size=2, job=JobView(job_id=7, state="running"))) == [Release("a")]


def test_a_failure_is_told_also_where_the_others_were_deleted_for_it() -> None:
    job = JobView(job_id=7, state="running", tasks=2)
    failed, deleted = (
        PodView(uid="a", state="over", job_id=7, exit_code=3),
        PodView(uid="b", state="over", job_id=7, exit_code=143, deleting=True),
    )
    assert plan(Snapshot(pods=[failed, deleted], size=2, job=job)) == [EndJob(7, 3, "all pods have ended")]
    assert plan(Snapshot(pods=[deleted], size=2, job=job)) == [EndJob(7, None, "no pod is left that could run")]


def test_a_job_that_is_ending_is_ended_when_its_containers_are_gone_and_not_before() -> None:
    ending = JobView(job_id=7, state="ending", why="preempted", reason="SlurmPreempted", until=9.0, tasks=2)
    pods = [PodView(uid="a", state="bound", job_id=7), PodView(uid="b", state="over", job_id=7, deleting=True), WAITING_C]
    now = Snapshot(pods=pods, size=2, job=ending, awaited=True)
    assert plan(now) == [Release("b"), Evict("a", "SlurmPreempted", "preempted", 9.0)]
    going = msgspec.structs.replace(pods[0], deleting=True)
    assert plan(but(now, pods=[going, *pods[1:]])) == [Release("b")]
    gone = msgspec.structs.replace(going, state="over")
    assert plan(but(now, pods=[gone])) == [EndJob(7, None, "preempted")], "whoever is awaited gets another job"
    assert plan(but(now, pods=[PodView(uid="a", state="waiting", job_id=7, deleting=True)])) == [EndJob(7, None, "preempted")]
    by_itself = PodView(uid="a", state="over", job_id=7, exit_code=0)
    assert plan(but(now, pods=[by_itself])) == [EndJob(7, 0, "all pods have ended")]


def test_who_had_not_begun_is_queued_again_unless_somebody_cancelled_it() -> None:
    waits = PodView(uid="a", state="waiting", job_id=7)
    over = JobView(job_id=7, state="over", why="preempted", reason="SlurmPreempted", tasks=2)
    now = Snapshot(pods=[waits], size=1, job=over)
    assert plan(now) == [Label("a", 0)]
    ending = msgspec.structs.replace(over, state="ending")
    assert plan(but(now, job=ending)) == [Label("a", 0), EndJob(7, None, "preempted")]
    cancelled = msgspec.structs.replace(over, reason="SlurmCancelled")
    assert plan(but(now, job=cancelled)) == [Evict("a", "SlurmCancelled", "preempted")]
    began = PodView(uid="b", state="bound", job_id=7)
    assert plan(but(now, pods=[waits, began])) == [Evict("a", "SlurmPreempted", "preempted"), Evict("b", "SlurmPreempted", "preempted")]


def test_who_had_begun_is_not_let_go_before_those_of_its_gang_who_had_not_are_told_to_go() -> None:
    """Alone, they would be taken for a gang that had not begun, and queued again."""
    over = JobView(job_id=7, state="over", why="node failed", reason="SlurmNodeFail", tasks=2)
    began, waits = PodView(uid="a", state="over", job_id=7), PodView(uid="b", state="waiting", job_id=7)
    now = Snapshot(pods=[began, waits], size=2, job=over)
    assert plan(now) == [Evict("b", "SlurmNodeFail", "node failed")]
    assert plan(but(now, pods=[began, msgspec.structs.replace(waits, deleting=True)])) == [Release("a"), Release("b")]


def test_what_runs_is_left_running_when_slurm_forgets() -> None:
    pods = [PodView(uid="a", state="bound", job_id=7), PodView(uid="b", state="waiting", job_id=7)]
    assert plan(Snapshot(pods=pods, size=2, job=JobView(job_id=7, state="lost"))) == [Label("b", 0)]


def test_a_job_without_pods_is_kept_while_others_are_awaited_and_its_pods_are_let_go() -> None:
    """Many of those who make pods make the next only when the last is gone."""
    over = PodView(uid="a", state="over", job_id=7, exit_code=3, rank=0)
    now = Snapshot(pods=[over], size=1, job=JobView(job_id=7, state="running"), awaited=True)
    assert plan(now) == [Release("a")]
    assert plan(but(now, pods=[])) == []
    assert plan(but(now, pods=[], awaited=False)) == [EndJob(7, None, "no pod is left that could run")]
    gone = {0: Outcome("a", 3)}
    assert plan(but(now, pods=[], awaited=False, outcomes=gone)) == [EndJob(7, 3, "all pods have ended")]


def test_how_a_pod_failed_is_kept_with_the_job_before_it_is_let_go() -> None:
    job, said = JobView(job_id=7, state="running", tasks=2), {0: Outcome("a", 3)}
    failed, runs = PodView(uid="a", state="over", job_id=7, exit_code=3, rank=0), PodView(uid="b", state="bound", job_id=7, rank=1)
    now = Snapshot(pods=[failed, runs], size=2, job=job, outcomes=said)
    assert plan(now) == [Remember(7, said), Release("a")]
    assert plan(but(now, remembered=said)) == [Release("a")]
    assert plan(but(now, pods=[runs], remembered=said)) == []
    another = PodView(uid="c", state="bound", job_id=7, rank=0)
    assert plan(but(now, pods=[another, runs], outcomes={}, remembered=said)) == [Remember(7, {})], "who was replaced does not count"
    well = msgspec.structs.replace(failed, exit_code=0)
    assert plan(but(now, pods=[well, runs], outcomes={0: Outcome("a", 0)})) == [Release("a")], "what went well costs no call"


def test_the_last_pod_in_each_slot_speaks_for_the_job() -> None:
    job = JobView(job_id=7, state="running", tasks=2)
    first, second = (
        PodView(uid=uid, state="over", job_id=7, rank=0, born=born, exit_code=code) for uid, born, code in (("a", 1, 3), ("b", 2, 0))
    )
    other = PodView(uid="c", state="over", job_id=7, rank=1, born=1)
    assert plan(Snapshot(pods=[second, first, other], size=2, job=job)) == [EndJob(7, 0, "all pods have ended")]
    assert outcomes({}, [first], 7) == {0: Outcome("a", 3)}
    running = PodView(uid="b", state="bound", job_id=7, rank=0, born=2)
    assert outcomes({0: Outcome("a", 3)}, [running], 7) == {}
    deleted = msgspec.structs.replace(first, deleting=True)
    assert outcomes({0: Outcome("a", 3)}, [deleted], 7) == {0: Outcome("a", 3)}, "it had ended before it was deleted"
    assert outcomes({}, [deleted], 7) == {}


def test_what_is_stopped_after_a_success_does_not_spoil_it() -> None:
    """A JobSet's success policy: the driver is done, and the workers are deleted."""
    job = JobView(job_id=7, state="running", tasks=2)
    driver = PodView(uid="a", state="over", job_id=7, rank=0)
    worker = PodView(uid="b", state="over", job_id=7, rank=1, exit_code=143, deleting=True)
    now = Snapshot(pods=[driver, worker], size=2, job=job)
    assert plan(now) == [EndJob(7, None, "no pod is left that could run")]
    assert plan(but(now, completed=True)) == [EndJob(7, 0, "all pods have ended")]


def test_a_pod_with_a_gate_is_neither_given_a_place_nor_bound() -> None:
    gated = PodView(uid="b", state="waiting", gated=True)
    pods = [PodView(uid="a", state="bound", job_id=7), gated]
    now = Snapshot(pods=pods, size=2, job=JobView(job_id=7, state="running", tasks=2))
    assert plan(now) == []
    assert plan(but(now, pods=[pods[0], msgspec.structs.replace(gated, gated=False)])) == [Label("b", 7)]


def test_who_comes_too_late_is_set_apart_where_any_number_may_come() -> None:
    pods = [PodView(uid=uid, state="waiting", job_id=7) for uid in "ab"] + [PodView(uid="c", state="waiting")]
    now = Snapshot(pods=pods, size=2, job=JobView(job_id=7, state="pending", tasks=2))
    assert plan(now) == []
    assert plan(but(now, elastic=True)) == [SetApart("c")]
    dying = [pods[0], PodView(uid="b", state="bound", deleting=True, job_id=7), pods[2]]
    assert plan(but(now, pods=dying, elastic=True)) == [], "it comes in the stead of one whose containers are not gone yet"


def but(snapshot: Snapshot, **changes: object) -> Snapshot:

    return msgspec.structs.replace(snapshot, **changes)
