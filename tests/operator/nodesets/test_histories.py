"""Random histories: whatever happens, and however late the operator hears of it, no job is killed that nobody allowed to be, no admin's drain is undone, and in the end all is as written."""

import datetime as dt

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slinky.operator.nodesets import marks
from tests.operator.nodesets.world import World

NUMBERS = st.integers(0, 3)


class Histories(RuleBasedStateMachine):
    @initialize(deadline=st.sampled_from([None, None, 60]))
    def begins(self, deadline: int | None) -> None:
        self.world = World()
        self.world.spec["drainDeadlineSeconds"] = deadline
        self.settle()

    @rule()
    def the_operator_has_a_turn(self) -> None:
        self.world.turn()

    @rule()
    def pods_are_seen(self) -> None:
        self.world.see_pods()

    @rule()
    def slurm_is_heard(self) -> None:
        self.world.hear()

    @rule()
    def pods_go_on(self) -> None:
        self.world.kubelets()

    @rule(number=NUMBERS)
    def a_job_starts(self, number: int) -> None:
        self.world.start_job(f"workers-{number}")

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def a_job_ends(self, data: st.DataObject) -> None:
        self.world.end_job(data.draw(st.sampled_from(sorted(self.world.jobs))))

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def a_job_is_suspended(self, data: st.DataObject) -> None:
        self.world.suspend(data.draw(st.sampled_from(sorted(self.world.jobs))))

    @rule(replicas=NUMBERS)
    def it_is_scaled(self, replicas: int) -> None:
        self.world.spec["replicas"] = replicas

    @rule(revision=st.sampled_from(["r0", "r1", "r2"]))
    def its_template_changes(self, revision: str) -> None:
        self.world.revision = revision

    @rule(answers=st.booleans())
    def slurm_answers_or_not(self, answers: bool) -> None:
        self.world.answers = answers

    @rule(number=NUMBERS)
    def slurm_forgets_a_node(self, number: int) -> None:
        self.world.slurm_forgets(f"workers-{number}")

    @rule()
    def the_operator_is_restarted(self) -> None:
        self.world.restart()

    @rule(number=NUMBERS, drains=st.booleans())
    def an_admin_drains_or_resumes(self, number: int, drains: bool) -> None:
        (self.world.admin_drains if drains else self.world.admin_resumes)(f"workers-{number}")

    @rule(number=NUMBERS)
    def a_kubernetes_node_is_cordoned_or_not(self, number: int) -> None:
        self.world.cordoned ^= {f"k{number}"}

    @rule(number=NUMBERS)
    def somebody_deletes_a_pod(self, number: int) -> None:
        pod = self.world.pods.get(f"workers-{number}")
        if pod is not None:
            pod.leaving, pod.version = True, pod.version + 1
            for job in [job for job in self.world.jobs.values() if job.uid == pod.uid]:
                self.world.end_job(job.id)

    @rule(seconds=st.sampled_from([1, 40, 90]))
    def time_goes_by(self, seconds: int) -> None:
        self.world.now += dt.timedelta(seconds=seconds)

    @rule()
    def it_is_deleted(self) -> None:
        self.world.deleted = True

    @invariant()
    def no_job_was_killed_that_nobody_allowed_to_be(self) -> None:
        assert not self.world.killed, self.world.killed

    @invariant()
    def what_an_admin_drained_is_drained(self) -> None:
        for name in self.world.admin_drained:
            assert "DRAIN" in self.world.slurm[name].states, name

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.calm()

    def settle(self) -> None:
        world = self.world
        quiet = 0
        for _ in range(80):
            world.now += dt.timedelta(seconds=40)
            world.kubelets()
            for pod in world.pods.values():
                if pod.running and pod.name not in world.slurm:
                    world.register(pod)
            world.see_pods()
            world.hear()
            quiet = 0 if world.turn() or any(not pod.running for pod in world.pods.values()) else quiet + 1
            if quiet > 1:
                return

    def calm(self) -> None:
        """Slurm answers, jobs end, and the operator sees everything: then all becomes as it is written."""
        world = self.world
        world.answers = True
        world.spec["drainDeadlineSeconds"] = None
        for job in list(world.jobs):
            world.end_job(job)
        self.settle()
        assert not world.killed, world.killed
        if world.deleted:
            assert world.let_go, world.pods
            assert not world.slurm
            return
        assert len(world.pods) == world.spec["replicas"], world.pods
        for pod in world.pods.values():
            node = world.slurm[pod.name]
            wanted = pod.name in world.admin_drained or pod.node in world.cordoned
            assert pod.revision == world.revision
            assert ("DRAIN" in node.states) == wanted, (pod, node)
            assert (pod.annotations.get(marks.CORDON) == "true") == (pod.node in world.cordoned), pod
        assert not world.turn(), "it does not come to rest"


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
