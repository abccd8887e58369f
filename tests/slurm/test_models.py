"""Numbers, states and descriptions: what goes out and what comes in."""

import json
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.slurm import (
    INFINITE,
    ConfigurationError,
    Job,
    JobDescription,
    JobFlag,
    JobState,
    JobStatus,
    Node,
    NodeChange,
    NodeDescription,
    NodeGres,
    NodeState,
)
from slinky.slurm.descriptions import encode


@pytest.mark.parametrize(
    ("triplet", "value"),
    [
        ({"set": True, "infinite": False, "number": 5}, 5),
        ({"set": True, "infinite": False, "number": 0}, 0),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 0}, INFINITE),
        ({"set": False, "infinite": True, "number": 0}, INFINITE),
        (None, None),
    ],
)
def test_a_triplet_is_one_python_value(triplet: object, value: object) -> None:
    job = msgspec.convert({"job_id": 1, "time_limit": triplet}, Job)
    assert job.time_limit == value
    assert msgspec.convert({"job_id": 1}, Job).time_limit is None


@given(st.integers() | st.floats(allow_nan=False))
def test_infinite_is_more_than_any_number(number: float) -> None:
    assert number < INFINITE
    assert number <= INFINITE
    assert not number > INFINITE
    assert number != INFINITE


def test_infinite_is_one() -> None:
    assert pickle.loads(pickle.dumps(INFINITE)) is INFINITE
    assert repr(INFINITE) == "INFINITE"


def test_what_is_not_known_is_tolerated() -> None:
    job = msgspec.convert({"job_id": 1, "job_state": ["RUNNING", "SOMETHING_NEW"], "from_the_future": {"a": 1}}, Job)
    assert job.state is JobState.RUNNING
    assert job.states == ["RUNNING", "SOMETHING_NEW"]
    assert JobStatus("1", ["ALL_NEW"]).state is JobState.UNKNOWN


@pytest.mark.parametrize(("label", "job_id"), [("7", 7), ("5_3", 5), ("3+1", 3), ("5_[1-4]", 5)])
def test_ids_as_slurm_writes_them(label: str, job_id: int) -> None:
    assert JobStatus(label).job_id == job_id


def test_states_of_jobs() -> None:
    job = JobStatus("1", ["COMPLETED", "COMPLETING"])
    assert (job.is_finished, job.is_completing, job.has_succeeded, job.is_running) == (True, True, True, False)
    assert job.state_flags == {JobFlag.COMPLETING}
    assert all(
        JobStatus("1", [state]).is_finished for state in ("FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "CANCELLED", "OUT_OF_MEMORY")
    )
    assert not any(JobStatus("1", [state]).is_finished for state in ("PENDING", "RUNNING", "SUSPENDED", "NEW_WORD"))


@pytest.mark.parametrize(
    ("states", "true"),
    [
        (["IDLE", "EXTERNAL"], {"is_idle", "is_external", "is_responding", "takes_jobs"}),
        (["IDLE", "DRAIN"], {"is_idle", "is_drained", "is_responding"}),
        (["MIXED", "DRAIN"], {"is_busy", "is_draining", "is_responding"}),
        (["DOWN", "NOT_RESPONDING"], {"is_down"}),
        (["IDLE", "DRAIN", "COMPLETING"], {"is_idle", "is_busy", "is_draining", "is_responding"}),
    ],
)
def test_states_of_nodes(states: list[str], true: set[str]) -> None:
    node = Node("n", states)
    questions = ["is_idle", "is_external", "is_responding", "takes_jobs", "is_drained", "is_draining", "is_busy", "is_down"]
    assert {question for question in questions if getattr(node, question)} == true
    assert Node("n", ["SOMETHING"]).base_state is NodeState.UNKNOWN


def test_a_description_sends_what_was_said_and_no_more() -> None:
    sent = json.loads(encode({"job": JobDescription(name="a", time_limit=INFINITE, nice=0, other={"new_field": [1]})}))
    assert sent == {"job": {"name": "a", "time_limit": {"set": True, "infinite": True}, "nice": 0, "new_field": [1]}}
    assert json.loads(encode(NodeChange(state=["DRAIN"]))) == {"state": ["DRAIN"]}


def test_a_job_needs_a_script_and_an_external_one_has_none() -> None:
    with pytest.raises(ConfigurationError, match="needs a script"):
        JobDescription(name="a").to_submit()
    with pytest.raises(ConfigurationError, match="no script"):
        JobDescription(script="#!/bin/sh").to_submit(external=True)
    external = JobDescription(flags=["SPREAD_JOB"]).to_submit(external=True)
    assert external.flags == ["SPREAD_JOB", "EXTERNAL_JOB"]
    assert external.environment
    assert external.current_working_directory


def test_a_node_in_slurms_words() -> None:
    node = NodeDescription(
        name="n[1-2]", address="127.0.0.[1-2]", cpus=4, real_memory=100, features=["a", "b"], other={"Comment": "two words"}
    )
    assert list(node.calls()) == [
        'NodeName=n[1-2] State=EXTERNAL NodeAddr=127.0.0.[1-2] CPUs=4 RealMemory=100 Features=a,b Comment="two words"'
    ]


def test_nodes_with_gres_are_made_one_by_one() -> None:
    node = NodeDescription(name="n[1-2]", address="127.0.0.[1-2]", gres=[NodeGres(name="gpu", type="h100", count=2)])
    assert list(node.calls()) == [
        f'NodeName=n{i} State=EXTERNAL NodeAddr=127.0.0.{i} Gres=gpu:h100:2 GresConf="count=2,name=gpu,type=h100,file=gpu-[0-1]"'
        for i in (1, 2)
    ]


@pytest.mark.parametrize(
    "node", [NodeDescription(name="n[1-3]", address="a[1-2]"), NodeDescription(name="n", other={"Comment": 'a " quote'})]
)
def test_a_node_that_cannot_be_said_is_refused(node: NodeDescription) -> None:
    with pytest.raises(ConfigurationError):
        list(node.calls())
