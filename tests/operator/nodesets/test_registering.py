"""Which workers Slurm has forgotten, and when they are asked to register again."""

import msgspec

from slinky.kube import Pod
from slinky.operator.nodesets.registering import PREFIX, Tries, forgotten, left_behind
from tests.operator.nodesets.scene import NOW, a_pod, ago, in_slurm

LONG_AGO = ago(minutes=5)


def at(address: str, pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, pod_ip=address))


def asked(*pods: Pod, known: tuple[str, ...] = ()) -> dict[str, str]:
    return forgotten(pods, {name: in_slurm(name) for name in known}, NOW)


def test_a_ready_slurmd_that_slurm_does_not_know_is_forgotten() -> None:
    pods = [at(f"10.0.0.{number}", a_pod(number, ready_since=LONG_AGO)) for number in range(2)]
    assert asked(*pods, known=("workers-1",)) == {"workers-0": "10.0.0.0"}


def test_one_that_begins_leaves_or_does_not_answer_is_not() -> None:
    assert asked(at("10.0.0.1", a_pod(0, ready_since=ago(seconds=29)))) == {}
    assert asked(at("10.0.0.1", a_pod(0, ready=False, ready_since=LONG_AGO))) == {}
    assert asked(at("10.0.0.1", a_pod(0, ready_since=LONG_AGO, leaving=True))) == {}
    assert asked(a_pod(0, ready_since=LONG_AGO)) == {}


def test_nobody_is_asked_while_some_come_by_themselves() -> None:
    tries, both = Tries(), frozenset({"workers-0", "workers-1"})
    assert tries.wait(both, 100.0) == 10.0
    assert tries.wait(both, 109.0) == 1.0
    assert tries.wait(frozenset({"workers-1"}), 110.0) == 10.0
    assert tries.wait(frozenset({"workers-1"}), 120.0) == 0.0


def test_who_stays_away_is_asked_ever_more_rarely() -> None:
    tries, one, now = Tries(), frozenset({"workers-0"}), 100.0
    waits = []
    for _ in range(6):
        tries.wait(one, now)
        now += 10.0
        now += tries.wait(one, now)
        tries.asked(now)
        waits.append(tries.not_before - now)
    assert waits == [60.0, 180.0, 540.0, 1620.0, 3600.0, 3600.0]


def test_only_records_of_ours_are_left_behind() -> None:
    ours = in_slurm(f"{PREFIX}0", "DOWN", "DRAIN", reason="slurm-operator: a worker is asked")
    theirs = in_slurm(f"{PREFIX}1", "DOWN", reason="broken fan")
    found = {node.name: node for node in (ours, theirs, in_slurm("workers-0"))}
    assert left_behind(found) == [f"{PREFIX}0"]
