"""Ending a job where Slurm does not take all that is said of it; and submitting where an id means another job than it did, or nobody answers."""

import asyncio
import datetime as dt
from typing import Any

import msgspec
import pytest

from slinky.bridge.annotations import JobSettings
from slinky.bridge.executor import Executor, is_refused
from slinky.bridge.keys import FINALIZER
from slinky.bridge.marker import Failure, comment_for
from slinky.bridge.translate import Site
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import ApiError, ConflictError, ConnectionFailedError, Meta, PatchKind, Pod
from slinky.kube import NotFoundError as KubeNotFoundError
from slinky.kube import OutcomeUnknownError as LostAnswerError
from slinky.kube.errors import Status
from slinky.kube.objects import PodSpec
from slinky.slurm import (
    AlreadyDoneError,
    AuthenticationError,
    ForbiddenError,
    Job,
    JobDescription,
    NotFoundError,
    OutcomeUnknownError,
    RefusedError,
    SlurmError,
)
from slinky.slurm.models.jobs import FoundAgain
from tests.kube.virtual_time import run_in_virtual_time


class Jobs:
    """In the stead of Slurm's: each update fails with `refusal`."""

    def __init__(self, refusal: SlurmError | None) -> None:
        self.jobs = self
        self.comments: list[str | None] = []
        self.cancelled: list[int] = []
        self._refusal = refusal

    async def update(self, _: int, change: JobDescription) -> None:
        if self._refusal:
            raise self._refusal
        self.comments.append(change.comment)

    async def get(self, job_id: int) -> Job:
        return Job(job_id=job_id, admin_comment=comment_for("c1", "Pod ns/u", [("ns", "p")], ["u"]))

    async def cancel(self, job_id: int) -> None:
        self.cancelled.append(job_id)


class Confused(Jobs):
    """Says that it has the job already, by a marker that it read before Slurm lost its state."""

    def __init__(self, comment: str) -> None:
        super().__init__(None)
        self.comment = comment
        self.distrusted = 0
        self.silent = False

    async def submit_external(self, *_: Any, **__: Any) -> FoundAgain:
        if self.silent:
            await asyncio.Event().wait()
        return FoundAgain(job_id=7)

    async def find_all(self, *_: Any, **__: Any) -> list[int]:
        return [7]

    async def parts(self, job_id: int) -> list[Job]:
        return [Job(job_id=job_id, job_states=["RUNNING"], flags=["EXTERNAL_JOB"], admin_comment=self.comment)]

    async def distrust_markers(self) -> None:
        self.distrusted += 1


POD = Pod(metadata=Meta(name="p", namespace="ns", uid="u"))
WORKLOAD = Workload(key=WorkloadKey("Pod", "ns", "u"), name="p", pods=(POD,), size=1, settings=JobSettings())


@pytest.mark.parametrize("comment", ["", "somebody's", comment_for("c1", "Pod ns/other", [("ns", "other")], ["other"])])
async def test_a_job_that_was_found_by_its_marker_and_does_not_carry_it_any_more_is_another(comment: str) -> None:
    slurm = Confused(comment)
    with pytest.raises(OutcomeUnknownError, match="to another"):
        await executor(slurm).submit(WORKLOAD)
    assert slurm.distrusted == 1
    assert await executor(slurm).find(WORKLOAD) is None
    slurm.comment = comment_for("c1", "Pod ns/u", [("ns", "p")], ["u"])
    assert (await executor(slurm).submit(WORKLOAD)).job_id == 7


def test_a_submit_that_nobody_answers_is_given_up_and_its_outcome_unknown() -> None:
    async def story() -> None:
        slurm = Confused("")
        slurm.silent = True
        with pytest.raises(OutcomeUnknownError, match="no answer") as caught:
            await executor(slurm).submit(WORKLOAD)
        assert not caught.value.outcome_known

    run_in_virtual_time(story())


def executor(slurm: Jobs) -> Executor:
    kube: Any = None
    return Executor(kube, slurm, Site(cluster="c1", partition="bridge"))  # type: ignore[arg-type]


async def test_without_libslurm_a_job_is_cancelled_with_its_outcome_in_its_comment() -> None:
    slurm = Jobs(None)
    await executor(slurm).end_job(7, 3, "the pod failed", running=True)
    assert (slurm.comments, slurm.cancelled) == (["the pod failed, exit code 3"], [7])


async def test_a_job_that_cannot_be_changed_any_more_is_cancelled_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    slurm = Jobs(RefusedError("Invalid node name specified", number=2018))
    await executor(slurm).end_job(7, 0, "all its pods succeeded", running=True)
    assert slurm.cancelled == [7]
    assert "job 7 ends without its outcome in its comment" in caplog.text


@pytest.mark.parametrize("error", [AuthenticationError("token expired", number=1007), ForbiddenError("Invalid user id", number=2010)])
async def test_a_bad_token_is_not_taken_for_a_refusal_of_the_change(error: SlurmError) -> None:
    """The outcome of a job would be lost, and so would the failures of pods that are gone."""
    slurm = Jobs(error)
    with pytest.raises(type(error)):
        await executor(slurm).end_job(7, 3, "the pod failed", running=True)
    assert slurm.cancelled == []
    with pytest.raises(type(error)):
        await executor(slurm).remember(7, [Failure(0, "u", 3)])


@pytest.mark.parametrize("over", [NotFoundError("no such job"), AlreadyDoneError("it is over")])
async def test_a_job_that_is_over_is_left_alone(over: SlurmError) -> None:
    slurm = Jobs(over)
    await executor(slurm).end_job(7, 0, "all its pods succeeded", running=True)
    assert slurm.cancelled == []


class Refusing:
    """In place of the API server: every write is a conflict. `there` is the pod as it has it."""

    def __init__(self, there: Pod | None) -> None:
        self.there = there

    async def bind(self, name: str, *_: Any, **__: Any) -> None:
        raise ConflictError("POST", name, Status(code=409, message="try again"))

    async def patch(self, _: Any, name: str, *__: Any, **___: Any) -> None:
        raise ConflictError("PATCH", name, Status(code=409, message="try again"))

    async def evict(self, name: str, *_: Any, **__: Any) -> None:
        raise ConflictError("POST", name, Status(code=409, message="try again"))

    async def delete(self, _: Any, name: str, *__: Any, **___: Any) -> None:
        raise ConflictError("DELETE", name, Status(code=409, message="try again"))

    async def get(self, _: Any, name: str, __: str) -> Pod:
        if self.there is None:
            raise KubeNotFoundError("GET", name, Status(code=404))
        return self.there


def on(node: str, **more: Any) -> Pod:
    return Pod(metadata=msgspec.structs.replace(POD.metadata, **more), spec=PodSpec(node_name=node))


@pytest.mark.parametrize(
    ("there", "bound"),
    [
        (None, False),
        (on("", uid="another"), False),
        (on("n"), True),
        (on("m"), False),
        (on("", deletion_timestamp=dt.datetime.now(dt.UTC)), False),
    ],
)
async def test_a_binding_that_conflicts_is_judged_by_where_the_pod_is(there: Pod | None, bound: bool) -> None:
    kube: Any = Refusing(there)
    assert await Executor(kube, Jobs(None), Site(cluster="c1", partition="bridge")).bind(POD, "n", {}, 7) is bound  # type: ignore[arg-type]


async def test_a_pod_without_the_finalizer_gets_it_before_it_gets_a_node() -> None:
    """Its owner could delete it by force else, and its containers would go on uncounted."""
    done: list[Any] = []
    kube: Any = Refusing(None)

    async def patch(_: Any, name: str, change: Any, namespace: str, **how: Any) -> None:
        done.append((name, namespace, change["metadata"], how["kind"]))

    async def bind(name: str, *_: Any, **__: Any) -> None:
        done.append(name)

    kube.patch, kube.bind = patch, bind
    acts = Executor(kube, Jobs(None), Site(cluster="c1", partition="bridge"))  # type: ignore[arg-type]
    assert await acts.bind(POD, "n", {}, 7)
    held = {"uid": POD.metadata.uid, "finalizers": [FINALIZER]}
    assert done == [("p", "ns", held, PatchKind.STRATEGIC), "p"]
    done.clear()
    assert await acts.bind(on("", finalizers=["example.com/other", FINALIZER]), "n", {}, 7)
    assert done == ["p"]


async def test_a_write_that_conflicts_with_nothing_is_tried_again() -> None:
    kube: Any = Refusing(on(""))
    acts = Executor(kube, Jobs(None), Site(cluster="c1", partition="bridge"))  # type: ignore[arg-type]
    with pytest.raises(ConflictError):
        await acts.bind(POD, "n", {}, 7)
    with pytest.raises(ConflictError):
        await acts.label(POD, 7)
    with pytest.raises(ConflictError):
        await acts.evict(POD, "SlurmPreempted", "job 7 is PREEMPTED")
    with pytest.raises(ConflictError):
        await acts.remove(POD, "SlurmPreempted", "job 7 is PREEMPTED")
    kube.there = on("", uid="another")
    await acts.label(POD, 7)
    assert await acts.evict(POD, "SlurmPreempted", "job 7 is PREEMPTED") == ""
    await acts.remove(POD, "SlurmPreempted", "job 7 is PREEMPTED")


async def test_a_label_is_taken_off_only_of_the_pod_as_it_was_seen() -> None:
    """A Binding whose answer was lost may have been done: the job that it names is the pod's then, and has to be found."""
    sent: list[Any] = []
    kube: Any = Refusing(None)

    async def patch(_: Any, __: str, change: Any, *___: Any) -> None:
        sent.append(change["metadata"])

    kube.patch = patch
    acts = Executor(kube, Jobs(None), Site(cluster="c1", partition="bridge"))  # type: ignore[arg-type]
    seen = on("", resource_version="41")
    await acts.label(seen, 7)
    await acts.label(seen, 0)
    assert [meta.get("resourceVersion") for meta in sent] == [None, "41"]


def test_only_what_was_not_sent_or_was_refused_is_certainly_not_done() -> None:
    assert is_refused(ConflictError("POST", "/binding", Status(code=409)))
    assert is_refused(ConnectionFailedError("POST", "/binding", "refused"))
    assert not is_refused(LostAnswerError("POST", "/binding", "the connection broke"))
    assert not is_refused(ApiError("POST", "/binding", Status(code=500)))
    assert not is_refused(asyncio.CancelledError())


async def test_a_binding_that_conflicts_while_nobody_says_where_the_pod_is_may_have_been_done() -> None:
    class Silent(Refusing):
        async def get(self, *_: Any) -> Pod:
            raise ConnectionFailedError("GET", "/pods/p", "refused")

    kube: Any = Silent(None)
    with pytest.raises(LostAnswerError) as caught:
        await Executor(kube, Jobs(None), Site(cluster="c1", partition="bridge")).bind(POD, "n", {}, 7)  # type: ignore[arg-type]
    assert not is_refused(caught.value)
