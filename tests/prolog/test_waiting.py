"""The prolog on a node: what it looks at, how long it waits, and what it does at the limit."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slinky.prolog import waiting
from slinky.prolog.decision import Awaited, PodHere, Starters
from slinky.prolog.grpc import RuntimeSilentError
from slinky.prolog.node import lingering, starting
from slinky.prolog.slurm import SlurmSilentError, jobs_here

UID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
HELD = [Awaited("team/p", "its containers are not gone")]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waited(monkeypatch: pytest.MonkeyPatch, gone_after: float, *options: str, is_over: bool = False) -> tuple[int, float, list[str]]:
    """The exit code, how long it took, and how the node was drained."""
    clock, drained = Clock(), list[str]()
    monkeypatch.setattr(waiting, "jobs_here", lambda ids, _: {} if is_over else dict.fromkeys(ids, ""))
    monkeypatch.setattr(waiting, "drain", lambda node, reason: drained.append(f"{node}: {reason}"))
    said = waiting.parsed(["--node=n1", "--job=7", *options])
    code = waiting.wait(said, lambda: HELD if clock() < gone_after else [], clock, clock.sleep)
    return code, clock(), drained


def test_with_nobody_to_wait_for_the_job_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, 0.0) == (0, 0.0, [])


def test_the_job_begins_within_a_second_of_the_containers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    code, took, drained = waited(monkeypatch, 60.0)
    assert (code, drained) == (0, [])
    assert 60 <= took <= 61


def test_at_the_limit_the_node_is_drained_with_a_reason_and_the_job_given_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, took, drained = waited(monkeypatch, 999.0, "--limit=20")
    reason = "slinky prolog: job 7 waited 20 s for team/p (its containers are not gone)"
    assert (code, took, drained) == (1, 20.0, [f"n1: {reason}"])
    assert reason in capsys.readouterr().err


def test_or_it_begins_all_the_same_where_the_site_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, 999.0, "--limit=20", "--then=go") == (0, 20.0, [])


def test_a_job_that_is_cancelled_meanwhile_holds_the_node_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    code, took, drained = waited(monkeypatch, 999.0, is_over=True)
    assert (code, drained) == (0, [])
    assert took < 1


# One look


def looked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pods: list[PodHere] | None, running: Any, *options: str) -> list[str]:
    asked: list[int] = []

    def told(*_: object) -> list[PodHere]:
        if pods is None:
            raise RuntimeSilentError("it is being restarted")
        return pods

    def here(ids: set[int], _: str) -> dict[int, str]:
        asked.extend(ids)
        if isinstance(running, Exception):
            raise running
        return {job_id: comment for job_id, comment in running.items() if job_id in ids}

    monkeypatch.setattr(waiting, "pods_of", told)
    monkeypatch.setattr(waiting, "jobs_here", here)
    socket = tmp_path / "runtime"
    socket.touch()
    said = waiting.parsed([f"--runtime={socket}", f"--kubelet={tmp_path}", f"--cgroups={tmp_path / 'cgroups'}", "--job=7", *options])
    return [found.who for found in waiting.look(said)] + [f"asked {job_id}" for job_id in asked]


def test_slurm_is_asked_only_about_jobs_of_pods_that_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    daemon, sharing, dying = PodHere("d", "kube/d", 0, True), PodHere("s", "team/s", 5, True), PodHere("x", "team/x", 6, True)
    gone = PodHere("g", "team/g", 4, False)
    assert looked(monkeypatch, tmp_path, [daemon, gone], {}) == []
    assert looked(monkeypatch, tmp_path, [daemon, sharing, dying], {5: '{"slinky":1,'}) == ["team/x", "asked 5", "asked 6"]


def test_a_running_job_that_is_no_pods_job_does_not_excuse_a_pod_with_its_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert looked(monkeypatch, tmp_path, [PodHere("s", "team/s", 5, True)], {5: ""})[0] == "team/s"


def test_who_cannot_be_asked_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert looked(monkeypatch, tmp_path, None, {}) == ["the container runtime"]
    assert looked(monkeypatch, tmp_path, [PodHere("s", "team/s", 5, True)], SlurmSilentError("no answer"))[0] == "Slurm"


def test_a_node_without_a_runtime_is_waited_on_only_where_a_kubelet_has_pods(tmp_path: Path) -> None:
    said = waiting.parsed([f"--runtime={tmp_path}/none", f"--kubelet={tmp_path}"])
    assert waiting.look(said) == []
    (tmp_path / "pods" / UID).mkdir(parents=True)
    assert [found.who for found in waiting.look(said)] == ["the container runtime"]


def test_a_stream_of_starting_pods_does_not_hold_the_job_nor_drain_the_node(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A tenant creates a pod every 4 s that can never start; each look finds one that is young."""
    clock, drained = Clock(), list[str]()
    monkeypatch.setattr(waiting, "pods_of", lambda *_: [])
    monkeypatch.setattr(waiting, "jobs_here", lambda ids, _: dict.fromkeys(ids, ""))
    monkeypatch.setattr(waiting, "drain", lambda node, reason: drained.append(f"{node}: {reason}"))
    monkeypatch.setattr(waiting, "starting", lambda *_: {f"pod-{int(clock()) // 4}"})
    socket = tmp_path / "runtime"
    socket.touch()
    said = waiting.parsed([f"--runtime={socket}", f"--kubelet={tmp_path}", "--node=n1", "--job=7"])
    starters = Starters(said.settle)
    assert waiting.wait(said, lambda: waiting.look(said, starters, clock), clock, clock.sleep) == 0
    assert drained == []
    assert clock() <= said.settle + 1


# The node's files


def test_a_pod_that_was_just_taken_up_counts_for_moments(tmp_path: Path) -> None:
    young, old, ran = (tmp_path / "pods" / name for name in ("young", "old", "ran"))
    for folder in (young, old, ran / "containers" / "main"):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    assert starting(tmp_path, set(), 5) == {"young"}
    assert starting(tmp_path, {"young"}, 5) == set()


@pytest.mark.parametrize(
    "group",
    [
        f"kubepods/burstable/pod{UID}",
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
        f"site/node-0/kubepods/pod{UID}",
    ],
)
@pytest.mark.parametrize("controller", ["", "pids"])  # version 2, version 1
def test_processes_of_a_pod_are_found_in_its_control_groups(tmp_path: Path, group: str, controller: str) -> None:
    pod = tmp_path / controller / group
    inner = pod / "container"
    inner.mkdir(parents=True)
    if not controller:
        (tmp_path / "cgroup.controllers").touch()
    for place in (pod, inner):
        (place / "cgroup.procs").write_text("")
    assert lingering(tmp_path, {UID}) == set()
    (inner / "cgroup.procs").write_text("4711\n")
    assert lingering(tmp_path, {UID}) == {UID}
    assert lingering(tmp_path, {"another"}) == set()


# Slurm's commands


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "squeue"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return file


def program(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_jobs_are_asked_about_one_by_one_and_those_that_slurm_does_not_know_are_over(squeue: Path) -> None:
    program(
        squeue,
        'case "$*" in *--jobs=5*) printf "%-16s%-32s\\n" 5 "{slinky";; *--jobs=6*) ;; *) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1;; esac',
    )
    assert jobs_here([5, 6, 7], "n1") == {5: "{slinky"}


def test_a_slurm_that_does_not_answer_is_an_error_and_no_answer(squeue: Path) -> None:
    program(squeue, 'echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1')
    with pytest.raises(SlurmSilentError, match="Unable to contact"):
        jobs_here([5], "n1")
    program(squeue, "exec sleep 60")
    with pytest.raises(SlurmSilentError, match="in time"):
        jobs_here([5], "n1", seconds=0.2)


def test_one_file_is_all_that_a_node_needs(tmp_path: Path) -> None:
    file = tmp_path / "slinky-prolog"
    assert waiting.main([f"--write={file}"]) == 0
    options = [f"--runtime={tmp_path}/none", f"--kubelet={tmp_path}", "--look"]
    done = subprocess.run([file, *options], env={}, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "nobody: a job may begin\n", "")
