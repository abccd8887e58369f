"""Each invariant of the operator's, on made-up histories: it is content with what is right, and finds what it is for."""

from collections import Counter

import msgspec
import pytest

from tests.chaos.history import JobRecord, PodSeen
from tests.chaos.operator_history import NodeSample, OperatorAct, OperatorHistory, WorkerLeft
from tests.chaos.operator_invariants import OPERATOR_INVARIANTS, check_operator
from tests.chaos.operator_plan import DEEDS, DELETED, DRAINED, KINDS, OperatorPlan
from tests.chaos.schedule import REQUEST_KINDS

WORKER, JOB, LEFT, OTHERS = OPERATOR_INVARIANTS
RUNNING = PodSeen(revision=1, at=100, uid="u", namespace="chaos", name="a-0", node="k", phase="Running")
LEAVING = msgspec.structs.replace(RUNNING, revision=2, at=150, deleting=True)
GONE = msgspec.structs.replace(LEAVING, revision=3, at=152, gone=True)
DONE = JobRecord(job_id=7, name="work", state="CANCELLED by 0", submit=100, start=110, end=140, nodes=("a-0",))
CANCELLED = OperatorAct(at=139.5, kind="cancelled", subject="7")
IDLE = NodeSample(asked=200, at=200, name="a-0", states=("IDLE",))


def history(**more: object) -> OperatorHistory:
    fields: dict[str, object] = {
        "pods": [RUNNING, LEAVING, GONE],
        "jobs": [DONE],
        "acts": [CANCELLED],
        "wanted": {"a": (1, "r1")},
        "left": [WorkerLeft(name="a-0", nodeset="a", release="r1")],
        "nodes_left": [IDLE],
        "nodesets_left": ["a"],
        "last_fault": 190,
        "settled_at": 200,
    }
    return OperatorHistory(**{**fields, **more})  # type: ignore[arg-type]


def violations(found: OperatorHistory) -> dict[str, tuple[str, ...]]:
    return {one.name: one.violations for one in check_operator(found) if one.violations}


def job(**more: object) -> JobRecord:
    return msgspec.structs.replace(DONE, **more)


def drained(*samples: NodeSample) -> OperatorHistory:
    acts = [
        CANCELLED,
        OperatorAct(at=120, kind="drained", subject="a-0", detail="bad disk"),
        OperatorAct(at=130, kind="undrained", subject="a-0", detail="bad disk"),
    ]
    return history(acts=acts, samples=list(samples))


def sample(at: float, *states: str, reason: str = "", gone: bool = False) -> NodeSample:
    return NodeSample(asked=at - 0.1, at=at, name="a-0", states=states, reason=reason, gone=gone)


def test_what_is_right_is_found_right_and_looked_at() -> None:
    found = check_operator(drained(sample(121, "IDLE", "DRAIN", reason="bad disk")))
    assert not [one.violations for one in found if one.violations]
    assert all(one.looked_at for one in found)


@pytest.mark.parametrize(
    ("wrong", "name", "text"),
    [
        (history(jobs=[job(end=160)], acts=[msgspec.structs.replace(CANCELLED, at=159)]), WORKER, "with job 7"),
        (history(jobs=[job(end=0)]), WORKER, "110 to now"),
        (history(pods=[RUNNING, msgspec.structs.replace(GONE, deleting=False)], jobs=[job(end=0)]), WORKER, "went from 152"),
        (history(pods=[RUNNING, LEAVING], jobs=[job(start=170, end=0)]), WORKER, "with job 7"),
        (history(acts=[]), JOB, "nobody had cancelled it"),
        (history(acts=[msgspec.structs.replace(CANCELLED, at=150)]), JOB, "nobody had cancelled it"),
        (history(jobs=[job(state="NODE_FAIL")]), JOB, "ended as NODE_FAIL"),
        (history(settled_at=400), LEFT, "210 s after the last fault"),
        (history(left=[]), LEFT, "has 0 workers, not 1"),
        (history(left=[WorkerLeft(name="a-0", nodeset="a", release="r0")]), LEFT, "not as they should be"),
        (history(left=[WorkerLeft(name="a-0", nodeset="a", release="r1", ready=False)]), LEFT, "not as they should be"),
        (history(nodesets_left=["a", "b"]), LEFT, "NodeSet b: is still there"),
        (history(wanted={}, nodesets_left=[]), LEFT, "is left of NodeSet a, which is gone"),
        (history(nodes_left=[]), LEFT, "is not there, though its pod is"),
        (history(nodes_left=[sample(200, "IDLE", "DRAIN", reason="slurm-operator: scaled in")]), LEFT, "is left drained"),
        (drained(sample(125, "IDLE")), OTHERS, "had it drained"),
        (drained(sample(125, "IDLE", "DRAIN", reason="slurm-operator: scaled in")), OTHERS, "had it drained"),
    ],
)
def test_what_is_wrong_is_found(wrong: OperatorHistory, name: str, text: str) -> None:
    found = violations(wrong)
    assert text in " ".join(found[name])


@pytest.mark.parametrize(
    "right",
    [
        history(jobs=[job(end=150)], acts=[msgspec.structs.replace(CANCELLED, at=149)]),  # it ended in the second of the deletion
        history(jobs=[job(nodes=("a-1",), end=0)]),
        history(pods=[msgspec.structs.replace(LEAVING, node="")], jobs=[job(end=0)]),  # it was never anywhere
        history(nodes_left=[sample(200, "IDLE", "DRAIN", reason="bad disk")]),
        drained(sample(119, "IDLE"), sample(131, "IDLE"), sample(125, gone=True)),
    ],
)
def test_what_looks_wrong_and_is_not_is_let_pass(right: OperatorHistory) -> None:
    assert violations(right) == {}


def test_a_plan_follows_from_its_seed_and_has_everything_in_it() -> None:
    plan, again = OperatorPlan(seed=7, seconds=600), OperatorPlan(seed=7, seconds=600)
    assert (plan.faults, plan.deeds, plan.jobs) == (again.faults, again.deeds, again.jobs)
    assert OperatorPlan(seed=8, seconds=600).deeds != plan.deeds
    assert {fault.kind for fault in plan.faults} == REQUEST_KINDS.keys() | KINDS.keys()
    assert Counter(deed.kind for deed in plan.deeds).keys() == DEEDS.keys()
    assert {deed.nodeset for deed in plan.deeds if deed.kind == "delete"} == {DELETED} != {DRAINED}
