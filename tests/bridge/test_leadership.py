"""What a new leader finds: jobs that pods have, jobs that pods had, and jobs that nobody has a use for."""

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from slinky.bridge.keys import FINALIZER, GANG, JOB_ID
from slinky.bridge.leadership import Leadership
from slinky.bridge.lines import FRONT, PROBE
from slinky.bridge.marker import comment_for
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.poller import JobPoller
from slinky.bridge.standing import Standing
from slinky.bridge.strays import STRAY_SECONDS
from slinky.bridge.whereabouts import EVERYWHERE
from slinky.bridge.windows import Window
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Job as KubeJob
from slinky.kube import Key, Meta, Pod
from slinky.kube.objects import Container, ContainerPort, JobSpec, PodSpec, PodStatus
from slinky.slurm import Job, RefusedError
from tests.bridge.both_sides import GRANTS, OWNER, Silent, World
from tests.kube.virtual_time import run_in_virtual_time


class Quiet(Silent):
    async def run(self) -> None:
        await asyncio.Event().wait()


class Succession:
    """A world that an earlier leader left, and its successor."""

    def __init__(self) -> None:
        self.world = World()
        self.window = Window(10, 10)
        self.then: Callable[[], None] = lambda: None  # once the successor has read the jobs that pods name
        self.noted = 0.0  # by the earlier leader: up to when each job has its label
        self.noted_by: Callable[[float], None] = lambda _: None
        self.answers = asyncio.Event()  # to what is asked about other jobs than those
        self.answers.set()

    async def as_noted(self) -> tuple[float, int]:
        await self.answers.wait()
        return self.noted, 0

    async def records(self, job_ids: Iterable[int], *, learn: bool = False) -> list[Job]:
        found = await World.records(self.world, job_ids, learn=learn)
        self.then()
        return found

    def foreign(self, count: int, submitted: float) -> None:
        """Jobs of others, after those that are there."""
        first = max(self.world.held, default=0) + 1
        for job_id in range(first, first + count):
            record = {"job_id": job_id, "job_state": ["PENDING"], "submit_time": {"set": True, "number": int(submitted)}}
            self.world.held[job_id] = msgspec.convert(record, Job)

    def gang(self, *uids: str, state: str = "RUNNING") -> None:
        """A Job that is a gang, and its job 1."""
        meta = Meta(name="train", namespace="ns", uid="train-uid", annotations={GANG: "true"})
        self.world.kube_jobs.put(KubeJob(metadata=meta, spec=JobSpec(parallelism=len(uids))))
        self.job(1, "Job ns/train", *uids, state=state, submit_time={"set": True, "number": 5})

    def job(self, job_id: int, workload: str, *uids: str, state: str = "RUNNING", **more: Any) -> None:
        comment = comment_for("c1", workload, [("ns", uid.removesuffix("-uid")) for uid in uids], uids)
        record = {"job_id": job_id, "job_state": [state], "flags": ["EXTERNAL_JOB"], "admin_comment": comment, **more}
        self.world.held[job_id] = msgspec.convert(record, Job)

    def pod(
        self,
        name: str,
        job_id: int = 0,
        *,
        node: str = "n",
        gang: bool = False,
        phase: str = "Running",
        finalizer: bool = True,
        born: int = 1,
    ) -> None:
        meta = Meta(
            creation_timestamp=dt.datetime.fromtimestamp(born, dt.UTC),
            name=name,
            namespace="ns",
            uid=f"{name}-uid",
            labels={JOB_ID: str(job_id)} if job_id else {},
            finalizers=(FINALIZER,) if finalizer else (),
            owner_references=(OWNER,) if gang else (),
        )
        self.world.pods.put(Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(phase=phase)))

    async def lead(self, seconds: float, holds_back: Callable[[], bool] = lambda: False, *, endings: bool = False) -> Leadership:
        me: Any = self.world
        me.records = self.records
        quiet: Any = Quiet()
        leadership = Leadership(
            me,
            me,
            self.world.membership,
            lambda _: None,
            self.world.ledger,
            quiet,
            me,
            self.window,
            quiet,
            BridgeMetrics(CollectorRegistry()),
            lambda told: JobPoller(me, told),
            GRANTS,
            noted=self.as_noted,
            note=lambda moment, _: self.noted_by(moment),
        )
        self.world.loop = leadership.reconciler
        leadership._strays.holds_back = holds_back
        if endings:
            leadership.also_endings(None)
        task = asyncio.create_task(leadership.run())
        await asyncio.sleep(seconds)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return leadership


def test_pods_keep_their_jobs_and_jobs_without_pods_are_ended() -> None:
    async def story() -> None:
        left = Succession()
        left.pod("a", 1)
        left.job(1, "Pod ns/a-uid", "a-uid")
        left.job(2, "Pod ns/gone-uid", "gone-uid")
        left.job(3, "Pod ns/past-uid", "past-uid", state="COMPLETED")
        leadership = await left.lead(3 * STRAY_SECONDS)
        assert left.world.acts == ["end 2 None"]
        assert leadership.reconciler.known[WorkloadKey("Pod", "ns", "a-uid")].job_id == 1
        assert not len(leadership._strays._queue)

    run_in_virtual_time(story())


def test_pods_whose_job_object_is_gone_run_on_in_the_job_that_their_label_names() -> None:
    """It was deleted, and they have not gone yet: whether it was a gang, nobody can say any more. The same goes for a group."""

    async def story() -> None:
        left = Succession()
        left.pod("a", 1, gang=True)
        left.pod("b", 1, gang=True)
        left.pod("c", 2, gang=True)
        left.job(1, "Job ns/train", "a-uid", "b-uid")
        left.job(2, "Pod ns/c-uid", "c-uid")
        leadership = await left.lead(3 * STRAY_SECONDS)
        assert left.world.acts == []
        assert {(known.job_id, known.lost) for known in leadership.reconciler.known.values()} == {(1, False), (2, False)}

    run_in_virtual_time(story())


def test_a_pod_whose_label_was_changed_goes_with_the_job_that_bound_it() -> None:
    """It was to be evicted, its label was edited, and the leader changed: it does not stay on a node that Slurm has given to others."""

    async def story() -> None:
        left = Succession()
        left.job(
            1,
            "Pod ns/a-uid",
            "a-uid",
            state="PREEMPTED",
            start_time={"set": True, "number": 5},
            end_time={"set": True, "number": 60},
            nodes="n",
        )
        left.pod("a", 999)
        await left.lead(30)
        assert "evict a" in left.world.acts
        assert left.world.pod("a").metadata.labels[JOB_ID] == "1"

    run_in_virtual_time(story())


def test_a_gang_whose_job_was_cancelled_before_all_had_its_label_goes_whole() -> None:
    """But for a pod that came later, in the stead of one of them."""

    async def story() -> None:
        left = Succession()
        left.gang("a-uid", "b-uid", state="CANCELLED")
        left.pod("a", 1, gang=True, node="", phase="Pending")
        left.pod("b", gang=True, node="", phase="Pending")
        left.pod("c", gang=True, node="", phase="Pending", born=9)
        await left.lead(30)
        assert sorted(act for act in left.world.acts if act.startswith("evict")) == ["evict a", "evict b"]

    run_in_virtual_time(story())


def test_those_of_a_gang_whose_job_was_given_back_are_not_evicted_by_the_next_leader() -> None:
    """One of it had run to its end; Slurm says that the job was cancelled, and not that it was us."""

    async def story() -> None:
        left = Succession()
        left.gang("a-uid", "b-uid", state="CANCELLED")
        left.pod("a", 1, gang=True, phase="Succeeded", finalizer=False)
        left.pod("b", gang=True, node="", phase="Pending")
        await left.lead(30)
        assert not [act for act in left.world.acts if act.startswith("evict")]

    run_in_virtual_time(story())


def test_who_is_left_of_a_gang_that_an_earlier_leader_was_evicting_goes_too() -> None:
    """All had the label before the first of them went."""

    async def story() -> None:
        left = Succession()
        left.gang("a-uid", "b-uid", state="CANCELLED")
        left.pod("b", 1, gang=True, node="", phase="Pending")
        await left.lead(30)
        assert [act for act in left.world.acts if act.startswith("evict")] == ["evict b"]

    run_in_virtual_time(story())


def test_a_job_that_ends_right_after_it_was_taken_over_is_that_of_all_its_pods_also_of_those_without_its_label() -> None:
    async def story() -> None:
        left = Succession()
        left.gang("a-uid", "b-uid")
        left.pod("a", 1, gang=True)
        left.pod("b", gang=True, node="", phase="Pending")
        left.then = lambda: left.gang("a-uid", "b-uid", state="PREEMPTED")
        await left.lead(30)
        assert sorted(act for act in left.world.acts if act.startswith("evict")) == ["evict a", "evict b"]

    run_in_virtual_time(story())


def test_a_job_whose_pods_ended_meanwhile_is_ended_with_their_exit_code() -> None:
    async def story() -> None:
        left = Succession()
        left.pod("a", 1, phase="Failed")
        left.pod("b", 2, phase="Failed", finalizer=False)
        left.job(1, "Pod ns/a-uid", "a-uid")
        left.job(2, "Pod ns/b-uid", "b-uid")
        await left.lead(3 * STRAY_SECONDS)
        assert sorted(left.world.acts) == ["end 1 1", "end 2 1"]

    run_in_virtual_time(story())


def test_a_submit_that_the_last_leader_did_not_get_to_label_is_taken_over() -> None:
    async def story() -> None:
        left = Succession()
        left.pod("a", node="", phase="Pending")
        left.job(1, "Pod ns/a-uid", "a-uid", state="PENDING")
        await left.lead(3 * STRAY_SECONDS)
        assert left.world.acts == []
        assert left.world.pod("a").metadata.labels == {JOB_ID: "1"}
        assert left.window.inside == 1

    run_in_virtual_time(story())


def test_only_jobs_whose_place_depends_on_pods_are_looked_at_again_when_pods_change() -> None:
    """Also those that were taken over: thousands of others wait beside them."""

    async def story() -> None:
        left = Succession()
        for name in ("plain", "port"):
            left.pod(name, node="", phase="Pending")
        pod = left.world.pod("port")
        container = Container(ports=(ContainerPort(container_port=80, host_port=80),))
        left.world.pods.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=(container,))))
        left.job(1, "Pod ns/plain-uid", "plain-uid", state="PENDING")
        left.job(2, "Pod ns/port-uid", "port-uid", state="PENDING")
        leadership = await left.lead(1)
        depends = {key.name: known.depends_on_pods for key, known in leadership.reconciler.known.items()}
        assert depends == {"plain-uid": False, "port-uid": True}

    run_in_virtual_time(story())


def test_a_job_that_was_told_of_no_node_is_not_read_again_to_know_that() -> None:
    async def story() -> None:
        left = Succession()
        for number, more in enumerate(({}, {"excluded_nodes": "n[1-3]"}), 1):
            left.pod(f"p{number}", node="", phase="Pending")
            left.job(number, f"Pod ns/p{number}-uid", f"p{number}-uid", state="PENDING", **more)
        leadership = await left.lead(1)
        where = {key.name: known.where for key, known in leadership.reconciler.known.items()}
        assert where == {"p1-uid": [EVERYWHERE], "p2-uid": None}

    run_in_virtual_time(story())


def test_a_stray_that_slurm_forgets_first_is_forgotten_too() -> None:
    async def story() -> None:
        left = Succession()
        left.job(2, "Pod ns/gone-uid", "gone-uid")
        task = asyncio.create_task(left.lead(3 * STRAY_SECONDS))
        await asyncio.sleep(STRAY_SECONDS / 2)
        left.world.held.clear()
        assert not len((await task)._strays._queue)
        assert Key("ns", "gone") not in left.world.pods

    run_in_virtual_time(story())


def test_a_job_of_ours_that_appears_while_we_lead_and_has_no_pods_is_ended_but_not_before_it_was_seen_twice() -> None:
    async def story() -> None:
        left = Succession()
        left.pod("a", 1)
        left.job(1, "Pod ns/a-uid", "a-uid")
        task = asyncio.create_task(left.lead(120))
        await asyncio.sleep(40)
        left.job(5, "Pod ns/late-uid", "late-uid")
        left.job(6, "Pod ns/a-uid", "a-uid", state="PENDING")
        comment = comment_for("c2", "Pod ns/other-uid", [("ns", "other")], ["other-uid"])
        record = {"job_id": 7, "job_state": ["RUNNING"], "flags": ["EXTERNAL_JOB"], "admin_comment": comment}
        left.world.held[7] = msgspec.convert(record, Job)
        left.world.held[8] = msgspec.convert(record | {"job_id": 8, "flags": [], "admin_comment": left.world.held[5].admin_comment}, Job)
        await asyncio.sleep(10)
        assert left.world.acts == []
        await task
        assert sorted(left.world.acts) == ["end 5 None", "end 6 None"]
        assert left.world.held[7].is_running, "another cluster's"
        assert left.world.held[8].is_running, "no external job, whatever its comment says"

    run_in_virtual_time(story())


def test_while_many_jobs_are_absent_no_job_without_pods_is_ended() -> None:
    async def story() -> None:
        left = Succession()
        left.job(5, "Pod ns/late-uid", "late-uid")
        held = True
        task = asyncio.create_task(left.lead(200, lambda: held))
        await asyncio.sleep(100)
        assert left.world.acts == []
        held = False
        await task
        assert left.world.acts == ["end 5 None"]

    run_in_virtual_time(story())


def test_pods_in_line_are_told_what_for_and_where_they_stand() -> None:
    async def story() -> None:
        left = Succession()
        for number in range(FRONT + 3):
            left.pod(f"p{number:03}", node="", phase="Pending", born=number + 1)
        refusal = RefusedError("Job violates accounting/QOS policy (job submit limit, ...)", number=2050)
        left.world.refuse_submit = refusal
        leadership = await left.lead(PROBE.most)
        said = {pods[0].metadata.name: words for key in leadership.reconciler.known for pods, words in leadership._standing(key)}
        first, third, last = (said[f"p{number:03}"] for number in (0, 2, FRONT + 2))
        assert isinstance(first, Standing)
        assert isinstance(third, Standing)
        assert isinstance(last, Standing)
        assert (first.reason, first.scheduled, first.lasting) == ("SubmitLimit", "WaitingForSlurm", False)
        assert "MaxSubmitJobs" in first.message
        assert first.message.endswith("it is the first in line")
        assert third.message.endswith("it is number 3 in line")
        assert last.message.endswith(f"more than {FRONT} pods or gangs are ahead of it in line")
        assert last.lasting

    run_in_virtual_time(story())


def test_a_node_from_which_a_pod_is_gone_is_judged_again() -> None:
    async def story() -> None:
        left = Succession()
        leadership = await left.lead(1)
        for changed in (leadership.node_freed, leadership.nodes_changed):
            avoided = {"n": leadership._directions.avoid("n", "its port is taken")}
            changed("m")
            assert leadership._directions._still_avoided(avoided)
            changed("n")
            assert not leadership._directions._still_avoided(avoided)

    run_in_virtual_time(story())


def test_a_job_that_waits_from_an_earlier_leader_is_in_flight() -> None:
    async def story() -> None:
        left = Succession()
        left.pod("a", 1, node="", phase="Pending")
        left.pod("b", 2, phase="Running")
        left.job(1, "Pod ns/a-uid", "a-uid", state="PENDING")
        left.job(2, "Pod ns/b-uid", "b-uid")
        leadership = await left.lead(1)
        assert leadership._siblings.in_flight == 1
        assert leadership._siblings.knows(WorkloadKey("Pod", "ns", "a-uid"))

    run_in_virtual_time(story())


def test_a_job_that_is_being_preempted_when_a_leader_takes_over_is_seen_to_before_all_others() -> None:
    """Its state shows nothing of it (any more): the record that was read with all others does."""

    async def story() -> None:
        left, asked = Succession(), list[int]()
        for number in range(1, 301):
            left.pod(f"p{number}", number)
            left.job(number, f"Pod ns/p{number}-uid", f"p{number}-uid", start_time={"set": True, "number": 5})
        moment = {"set": True, "number": 100}
        left.job(250, "Pod ns/p250-uid", "p250-uid", start_time=moment, preempt_time=moment, end_time=moment)
        parts = left.world.parts

        async def noted(job_id: int, **_: bool) -> list[Job]:
            asked.append(job_id)
            return await parts(job_id)

        left.world.parts = noted  # type: ignore[method-assign]
        await left.lead(2, endings=True)
        assert set(asked) == {250}
        assert left.world.acts == ["evict p250"]
        assert left.world.reasons == {"p250": "SlurmPreempted"}

    run_in_virtual_time(story())


OLD = 1_000_000


def test_a_takeover_reads_the_jobs_that_pods_name_and_the_newest_not_those_of_others() -> None:
    """However many others have: the work of a start does not grow with them."""

    async def story() -> None:
        now = time.time()
        left = Succession()
        left.noted = now - 5
        left.foreign(5000, OLD)
        left.pod("a", 5001)
        left.job(5001, "Pod ns/a-uid", "a-uid", submit_time={"set": True, "number": OLD})
        left.foreign(5000, OLD)
        left.pod("b", node="", phase="Pending", born=OLD)
        left.pod("c", node="", phase="Pending", born=OLD)
        left.job(10_002, "Pod ns/b-uid", "b-uid", state="PENDING", submit_time={"set": True, "number": int(now - 3)})
        left.foreign(100, now)
        leadership = await left.lead(10)
        asked = [request for request in left.world.requests if request.startswith("job ")]
        assert len(asked) < 400, "pods' own, those submitted lately, and a few to see that they are not"
        known = leadership.reconciler.known
        assert known[WorkloadKey("Pod", "ns", "a-uid")].job_id == 5001
        assert known[WorkloadKey("Pod", "ns", "b-uid")].job_id == 10_002, "submitted by the last leader, and not labelled"
        assert left.world.acts == ["submit 10103 x1"], "for c"

    run_in_virtual_time(story())


def test_a_pod_that_comes_after_the_start_is_submitted_while_older_ones_wait_for_evidence() -> None:
    async def story() -> None:
        left = Succession()
        left.pod("old", node="", phase="Pending")
        left.answers.clear()
        task = asyncio.create_task(left.lead(60))
        await asyncio.sleep(5)
        left.pod("new", node="", phase="Pending", born=int(time.time()) + 1)
        await asyncio.sleep(5)
        assert left.world.acts == ["submit 1 x1"]
        assert left.world.held[1].admin_comment.count("ns/new")
        left.job(7, "Pod ns/old-uid", "old-uid", state="PENDING", submit_time={"set": True, "number": int(time.time())})
        left.answers.set()
        leadership = await task
        assert left.world.acts == ["submit 1 x1"], "no second one for the old pod"
        assert leadership.reconciler.known[WorkloadKey("Pod", "ns", "old-uid")].job_id == 7

    run_in_virtual_time(story())


def test_without_a_note_of_the_last_leader_a_pod_waits_until_all_jobs_as_young_as_it_were_read() -> None:
    async def story() -> None:
        left = Succession()
        left.pod("a", node="", phase="Pending", born=OLD)
        left.foreign(200, OLD - 100)
        left.job(201, "Pod ns/a-uid", "a-uid", state="PENDING", submit_time={"set": True, "number": OLD + 1})
        left.foreign(1000, OLD + 50)
        leadership = await left.lead(10)
        assert left.world.acts == []
        assert leadership.reconciler.known[WorkloadKey("Pod", "ns", "a-uid")].job_id == 201
        assert "job 1" not in left.world.requests

    run_in_virtual_time(story())


def test_an_orphan_among_many_jobs_of_others_is_found_in_time_and_ended() -> None:
    """Older than all that a start looks at."""

    async def story() -> None:
        left = Succession()
        left.noted = time.time() - 5
        left.job(1, "Pod ns/gone-uid", "gone-uid", submit_time={"set": True, "number": OLD})
        left.foreign(3000, OLD + 5)
        await left.lead(20 * STRAY_SECONDS)
        assert left.world.acts == ["end 1 None"]
        asked = [request for request in left.world.requests if request.startswith("job ")]
        assert len(asked) == len(set(asked)), "each is read once"

    run_in_virtual_time(story())


def test_a_job_that_is_found_late_is_taken_by_pods_that_wait_without_one() -> None:
    """Its label could not be written, and the note says that it was."""

    async def story() -> None:
        left = Succession()
        left.window = Window(1, 1)
        left.noted = time.time() - 5
        left.pod("b", node="", phase="Pending", born=OLD)
        left.pod("a", node="", phase="Pending", born=OLD + 1)
        left.job(1, "Pod ns/a-uid", "a-uid", state="PENDING", submit_time={"set": True, "number": OLD + 2})
        left.foreign(300, OLD + 5)
        leadership = await left.lead(20 * STRAY_SECONDS)
        assert left.world.acts == ["submit 302 x1"], "for b, which has the only place in the window"
        assert leadership.reconciler.known[WorkloadKey("Pod", "ns", "a-uid")].job_id == 1

    run_in_virtual_time(story())


def test_a_leader_notes_the_moment_up_to_which_its_jobs_have_their_labels() -> None:
    async def story() -> None:
        left, noted = Succession(), list[float]()
        left.noted_by = noted.append
        left.world.labels_go_along = False
        left.pod("a", node="", phase="Pending", born=OLD)
        left.world.out_of_reach.add("a")
        began = time.time()
        task = asyncio.create_task(left.lead(60))
        await asyncio.sleep(30)
        assert noted
        assert max(noted) <= time.time()
        assert left.world.acts[:1] == ["submit 1 x1"]
        held = noted[-1]
        assert began - 1 <= held
        await asyncio.sleep(10)
        assert noted[-1] == held, "the job's label is not written"
        left.world.out_of_reach.clear()
        await task
        assert noted[-1] >= held

    run_in_virtual_time(story())
