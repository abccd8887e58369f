"""What is right by itself and wrong beside another object of the namespace."""

import datetime as dt
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slinky.operator.kinds import NodeSet
from slinky.operator.validation import Neighbours
from slinky.operator.validation.neighbours import could_meet
from tests.operator.validation.things import made, told


def test_two_nodesets_whose_nodes_would_have_one_name_are_refused() -> None:
    first = made("NodeSet", "a", template={"spec": {"hostname": "gpu-"}})
    second = made("NodeSet", "b", template={"spec": {"hostname": "gpu-"}})
    (found,) = told(second, Neighbours(nodesets=[first, second]))
    assert found.startswith("spec.template.spec.hostname: makes Slurm nodes gpu-0, gpu-1 …, and NodeSet a of the same cluster")


def test_a_hostname_may_meet_another_nodesets_own_name() -> None:
    first, second = made("NodeSet", "gpu"), made("NodeSet", "b", template={"spec": {"hostname": "gpu-1"}})
    assert told(second, Neighbours(nodesets=[first]))
    assert told(made("NodeSet", "gpu-1"), Neighbours(nodesets=[first])) == []


def test_nodesets_of_other_clusters_and_those_called_after_their_hosts_do_not_meet() -> None:
    mine = made("NodeSet", "a", template={"spec": {"hostname": "gpu-"}})
    elsewhere = made("NodeSet", "b", controllerRef={"name": "other"}, template={"spec": {"hostname": "gpu-"}})
    daemons = made("NodeSet", "c", scalingMode="DaemonSet", template={"spec": {"hostname": "gpu-1"}})
    hosts = made("NodeSet", "d", template={"spec": {"hostname": "gpu-2", "hostNetwork": True}})
    assert told(mine, Neighbours(nodesets=[elsewhere, daemons, hosts])) == []


def test_nodesets_of_one_name_in_slurm_are_refused_though_their_nodes_never_meet() -> None:
    mine = made("NodeSet", "a", template={"spec": {"hostname": "gpu-"}})
    daemons = made("NodeSet", "c", scalingMode="DaemonSet", template={"spec": {"hostname": "gpu-"}})
    [said] = told(mine, Neighbours(nodesets=[daemons]))
    assert "node set, feature and partition gpu, and so does NodeSet c" in said
    [said] = told(made("NodeSet", "gpu", scalingMode="DaemonSet"), Neighbours(nodesets=[mine]))
    assert "NodeSet a" in said


letters = st.text("a-01", min_size=1, max_size=4)


@given(letters, letters, st.integers(0, 2), st.integers(0, 2))
def test_names_that_meet_are_foreseen(one: str, other: str, pad: int, other_pad: int) -> None:
    mine = {f"{one}{str(number).zfill(pad)}" for number in range(120)}
    theirs = {f"{other}{str(number).zfill(other_pad)}" for number in range(120)}
    if mine & theirs:
        assert could_meet(one, other)


def test_two_clusters_of_one_name_in_one_accounting_are_refused() -> None:
    first = made("Controller", "a", clusterName="hpc", accountingRef={"name": "db"})
    second = made("Controller", "b", clusterName="HPC", accountingRef={"name": "db"})
    assert "as of Controller a, and Accounting db records both" in told(second, Neighbours(controllers=[first]))[0]
    assert told(made("Controller", "b", clusterName="hpc", accountingRef={"name": "other"}), Neighbours(controllers=[first])) == []
    assert told(first, Neighbours(controllers=[first])) == []


def test_a_partition_is_made_by_a_nodeset_or_by_extra_conf_and_not_by_both() -> None:
    controller = made("Controller", "slurm", extraConf="PartitionName=gpu Nodes=gpu\nNodeSet=cpu Feature=cpu")
    gpu, cpu = made("NodeSet", "gpu", partition={"enabled": True}), made("NodeSet", "cpu")
    (found,) = told(gpu, Neighbours(controllers=[controller]))
    assert found.startswith("spec.partition.enabled: makes partition gpu, but extraConf of Controller slurm has a line for that one")
    assert told(made("NodeSet", "gpu"), Neighbours(controllers=[controller])) == []
    assert "makes node set cpu" in told(cpu, Neighbours(controllers=[controller]))[0]
    assert len(told(controller, Neighbours(nodesets=[gpu, cpu]))) == 2


def test_a_loginset_and_a_nodeset_with_ssh_have_different_names() -> None:
    login, workers = made("LoginSet", "same"), made("NodeSet", "same", ssh={"enabled": True})
    assert "both would have a ConfigMap same-ssh-config" in told(workers, Neighbours(loginsets=[login]))[0]
    assert "both would have a ConfigMap same-ssh-config" in told(login, Neighbours(nodesets=[workers]))[0]
    assert told(made("NodeSet", "same"), Neighbours(loginsets=[login])) == []


def test_the_operator_blames_the_one_that_came_second() -> None:
    def at(name: str, second: int) -> NodeSet:
        found: NodeSet = made("NodeSet", name, template={"spec": {"hostname": "gpu-"}})
        moment = dt.datetime(2026, 1, 1, 0, 0, second, tzinfo=dt.UTC)
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, creation_timestamp=moment))

    first, second, twin = at("b", 1), at("a", 2), at("c", 1)
    assert told(first, Neighbours(nodesets=[first, second])) == []
    assert told(second, Neighbours(nodesets=[first, second]))
    assert told(twin, Neighbours(nodesets=[first, twin]))
    assert told(first, Neighbours(nodesets=[first, twin])) == []


UNPRIVILEGED = {"securityContext": {"privileged": False}}
FIELD = "spec.slurmd.securityContext.privileged"


def test_an_unprivileged_nodeset_beside_privileged_ones_is_refused() -> None:
    """Its slurmd can make no cgroups, and Slurm has one setting for all nodes."""
    head, plain = made("Controller", "slurm"), made("NodeSet", "compute")
    small = made("NodeSet", "small", slurmd=UNPRIVILEGED)
    [said] = told(small, Neighbours(controllers=[head], nodesets=[plain, small]))
    assert said.startswith(f"{FIELD}: is not true, and NodeSet compute of the same cluster has a privileged slurmd")
    assert "ProctrackType in extraConf of Controller slurm (proctrack/linuxproc: none has cgroups)" in said
    [said] = told(plain, Neighbours(controllers=[head], nodesets=[small]))
    assert said.startswith(f"{FIELD}: is true (the default), and NodeSet small of the same cluster")
    again = made("NodeSet", "tiny", slurmd=UNPRIVILEGED)
    assert told(again, Neighbours(controllers=[head], nodesets=[small])) == []
    elsewhere = made("NodeSet", "far", controllerRef={"name": "other"})
    assert told(small, Neighbours(controllers=[head], nodesets=[elsewhere])) == []


def test_a_proctrack_type_of_the_controllers_allows_both_kinds() -> None:
    plain, small = made("NodeSet", "compute"), made("NodeSet", "small", slurmd=UNPRIVILEGED)
    chosen = made("Controller", "slurm", extraConf="ProctrackType=proctrack/linuxproc")
    assert told(small, Neighbours(controllers=[chosen], nodesets=[plain])) == []
    assert told(chosen, Neighbours(nodesets=[plain, small])) == []
    [said] = told(made("Controller", "slurm"), Neighbours(nodesets=[plain, small]))
    assert said.startswith("spec.extraConf: names no ProctrackType, and NodeSet small has an unprivileged slurmd")


def test_a_controller_that_came_after_its_nodesets_is_asked_all_the_same() -> None:
    """The operator looks at the older neighbours only; what the Controller says holds whenever it came."""

    def at(found: Any, day: int) -> Any:
        meta = msgspec.structs.replace(found.metadata, creation_timestamp=dt.datetime(2026, 1, day, tzinfo=dt.UTC))
        return msgspec.structs.replace(found, metadata=meta)

    plain, small = at(made("NodeSet", "compute"), 1), at(made("NodeSet", "small", slurmd=UNPRIVILEGED), 2)
    for extra, count in (("", 1), ("ProctrackType=proctrack/linuxproc", 0)):
        head = at(made("Controller", "slurm", extraConf=extra), 3)
        assert len(told(small, Neighbours(controllers=[head], nodesets=[plain, small]))) == count
        assert told(plain, Neighbours(controllers=[head], nodesets=[plain, small])) == []
