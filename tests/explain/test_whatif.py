"""When would this start: words read, Slurm's own answer read, and the estimate where Slurm cannot be asked."""

import datetime as dt
from typing import Any

import pytest

from slinky.explain.facts import SlurmFacts
from slinky.explain.whatif import (
    Answer,
    Ask,
    AskError,
    answer_lines,
    checked,
    estimate,
    is_doubtful,
    parse,
    read_test,
    sbatch_words,
)
from slinky.slurm import Job
from tests.explain.worlds import NOW, STAMP, job, node, number, partition


@pytest.mark.parametrize(
    ("text", "ask"),
    [
        ("8 gpu 4h", Ask(gpus=8, minutes=240)),
        ("8gpus, 1.5h", Ask(gpus=8, minutes=90)),
        ("2 nodes 64 cpu 128G 30m", Ask(nodes=2, cpus=64, memory=131072, minutes=30)),
        ("16 cores 512M 2d", Ask(cpus=16, memory=512, minutes=2880)),
        ("1 node", Ask(nodes=1)),
    ],
)
def test_words(text: str, ask: Ask) -> None:
    assert parse(text) == ask


@pytest.mark.parametrize("text", ["", "4h", "8 bananas", "gpu", "8 gpu please", "lots"])
def test_what_cannot_be_understood_is_told_with_what_would_be_right(text: str) -> None:
    with pytest.raises(AskError, match="8 gpu 4h"):
        parse(text)


def test_the_command_that_asks_slurm() -> None:
    assert sbatch_words(parse("8 gpu 16 cpu 32G 4h"), "bridge", "physics", "high") == [
        "--external", "--test-only", "--ntasks=8", "--cpus-per-task=2", "--mem-per-cpu=2048", "--partition=bridge", "--gpus-per-task=1", "--time=240", "--account=physics", "--qos=high",
    ]  # fmt: skip
    assert "--mem-per-cpu=256" in sbatch_words(parse("1 cpu"), "p", memory=256)


def test_slurms_answer_is_read() -> None:
    yes = read_test("sbatch: Job 2 to start at 2026-11-16T01:44:59 a using 4 processors on nodes kwok-[0-3] in partition bridge\n")
    assert (yes.start, yes.nodes) == (dt.datetime(2026, 11, 16, 1, 44, 59, tzinfo=dt.UTC), "kwok-[0-3]")
    no = read_test("sbatch: error: invalid partition specified: nosuch\nallocation failure: Invalid partition name specified\n")
    assert (no.start, no.why) == (None, "invalid partition specified: nosuch; allocation failure: Invalid partition name specified")


def running(job_id: int, ends: int, nodes: str, tres: str, **more: Any) -> Job:
    return job(job_id, "RUNNING", "None", nodes=nodes, end_time=number(STAMP + ends), tres_alloc_str=tres, **more)


def cluster(*queue: Job, **used: Any) -> SlurmFacts:
    """Two nodes of 8 CPUs, 16 GiB and 4 GPUs."""
    nodes = tuple(node(name, gres="gpu:4", real_memory=16384, **used) for name in ("w1", "w2"))
    return SlurmFacts(partitions=(partition(),), nodes=nodes, queue=queue)


FULL = {"alloc_cpus": 8, "alloc_memory": 16384, "gres_used": "gpu:4(IDX:0-3)"}


def test_on_empty_nodes_at_once() -> None:
    found = estimate(parse("8 gpu 4h"), cluster(), "bridge", NOW)
    assert (found.start, found.nodes, found.first) == (NOW, "w1,w2", 0)
    assert answer_lines(found, NOW)[0] == "it would start at once (2026-11-15 12:00 UTC) on w1,w2"


def test_when_the_last_job_that_is_in_the_way_ends() -> None:
    queue = (
        running(1, 3600, "w1", "cpu=8,mem=16G,node=1,billing=8,gres/gpu=4"),
        running(2, 7200, "w2", "cpu=8,mem=16G,node=1,gres/gpu=4"),
        job(3),
    )
    half = estimate(parse("4 gpu"), cluster(*queue, **FULL), "bridge", NOW)
    assert (half.start, half.nodes, half.first) == (NOW + dt.timedelta(hours=1), "w1", 1)
    whole = estimate(parse("8 gpu"), cluster(*queue, **FULL), "bridge", NOW)
    assert whole.start == NOW + dt.timedelta(hours=2)
    assert answer_lines(whole, NOW)[0].startswith("it would start in 2 h 0 min (2026-11-15 14:00 UTC)")
    assert "estimate" in answer_lines(whole, NOW)[1]


@pytest.mark.parametrize("text", ["9 gpu", "3 nodes", "17 cpu", "1 cpu 17G", "1 node 9 cpu"])
def test_what_no_node_could_hold_never(text: str) -> None:
    found = estimate(parse(text), cluster(), "bridge", NOW)
    assert found.start is None and "could not hold it" in found.why
    assert answer_lines(found, NOW)[0].startswith("it would not start")


@pytest.mark.parametrize("limit", [{"set": False, "infinite": True, "number": 0}, number(525600)])
def test_an_estimate_does_not_count_on_the_end_of_jobs_without_a_limit(limit: dict[str, Any]) -> None:
    endless = (running(n, 365 * 86400, f"w{n}", "cpu=8,mem=16G,gres/gpu=4", time_limit=limit) for n in (1, 2))
    found = estimate(parse("8 gpu"), cluster(*endless, **FULL), "bridge", NOW)
    assert found.start is None
    assert answer_lines(found, NOW)[0] == "the start time is unknown: jobs without a time limit hold the resources it needs"


def slurms_own(days: float) -> Answer:
    return read_test(
        f"sbatch: Job 2 to start at {NOW + dt.timedelta(days=days):%Y-%m-%dT%H:%M:%S} a using 4 processors on nodes w1 in partition b"
    )


@pytest.mark.parametrize("days", [365, 295, 25, 2])
def test_slurms_answer_behind_a_job_without_a_limit_is_unknown_however_long_that_one_has_run(days: int) -> None:
    endless = running(1, days * 86400, "w1", "cpu=8", time_limit=number(525600))
    answer = slurms_own(days)
    assert is_doubtful(answer, NOW)
    assert answer_lines(checked(answer, (endless,), NOW), NOW)[0] == "the start time is unknown: jobs without a time limit are ahead of it"
    limited = running(1, days * 86400, "w1", "cpu=8")
    assert (checked(answer, (limited,), NOW).start is None) == (days > 30)
    assert (checked(answer, None, NOW).start is None) == (days > 30), "where the queue is not known"


@pytest.mark.parametrize(
    ("hours", "words"), [(0, "at once"), (0.5, "in 30 min"), (47.5, "in 47 h 30 min"), (48, "in 2 d 0 h"), (290, "in 12 d 2 h")]
)
def test_a_long_wait_is_told_in_days(hours: float, words: str) -> None:
    assert answer_lines(slurms_own(hours / 24), NOW)[0].startswith(f"it would start {words} (")


def test_drained_nodes_do_not_count() -> None:
    slurm = SlurmFacts(nodes=(node("w1", "IDLE+DRAIN", gres="gpu:8", real_memory=99999),), queue=())
    assert estimate(parse("1 gpu"), slurm, "bridge", NOW).start is None
