"""slurm.conf, where what it says depends on what there is."""

from typing import Any

import msgspec
import pytest

from slinky.operator.conf import slurm_conf
from slinky.operator.conf.slurm import LEAST_NODES, MOST_NODES, gres_types, max_node_count
from slinky.operator.conf.text import pairs_of, parse
from slinky.operator.kinds import Controller, NodeSet
from slinky.operator.objects.privilege import is_privileged
from slinky.operator.objects.view import ClusterView
from slinky.operator.objects.worker_pod import worker_base


def controller(**spec: Any) -> Controller:
    return msgspec.convert({"metadata": {"name": "c", "namespace": "ns"}, "spec": spec}, Controller)


def nodeset(name: str = "w", status: dict[str, Any] | None = None, **spec: Any) -> NodeSet:
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status or {}}, NodeSet)


def said(view: ClusterView) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs_of(parse(slurm_conf(view)["slurm.conf"]))}


@pytest.mark.parametrize(
    ("nodesets", "records", "count"),
    [
        pytest.param([], 0, LEAST_NODES, id="none"),
        pytest.param([nodeset(replicas=LEAST_NODES // 2)], 0, LEAST_NODES, id="as many as fit twice"),
        pytest.param([nodeset(replicas=LEAST_NODES // 2), nodeset("x", replicas=1)], 0, 2 * LEAST_NODES, id="one more"),
        pytest.param([nodeset(replicas=1, status={"replicas": 20000})], 0, 65536, id="scaled in, and still there"),
        pytest.param([nodeset(scalingMode="DaemonSet", status={"desired": 9000})], 0, 32768, id="one on each node"),
        pytest.param([nodeset(replicas=0)], 20000, 32768, id="records of workers that are gone"),
        pytest.param([nodeset(replicas=10**6)], 0, MOST_NODES, id="more than Slurm can have"),
    ],
)
def test_there_is_room_for_all_workers_twice_and_none_that_is_there_is_lost(nodesets: list[NodeSet], records: int, count: int) -> None:
    assert max_node_count(ClusterView(controller=controller(), nodesets=tuple(nodesets), slurm_nodes=records)) == count


def test_generic_resources_are_those_of_workers_and_of_gres_conf() -> None:
    nodesets = (
        nodeset("a", extraConf="Gres=gpu:h100:8(S:0-1),shard:16 Weight=1"),
        nodeset("b", slurmd={"resources": {"limits": {"amd.com/gpu": 1}}}),
        nodeset("c", extraConf="gres=hca"),
    )
    files = {"f": {"gres.conf": "AutoDetect=nvml\nNodeName=a-[0-9] Name=nic Count=2\n"}}
    view = ClusterView(controller=controller(configFileRefs=[{"name": "f"}]), nodesets=nodesets, files=files)
    assert gres_types(view) == ["gpu", "hca", "nic", "shard"]
    assert said(view)["GresTypes"] == "gpu,hca,nic,shard"
    assert "GresTypes" not in said(ClusterView(controller=controller()))


def test_people_who_log_in_to_workers_are_put_with_their_jobs() -> None:
    view = ClusterView(controller=controller(extraConf="PrologFlags=X11"), nodesets=(nodeset(ssh={"enabled": True}),))
    assert said(view)["PrologFlags"] == "Contain,X11"


def test_the_same_goes_in_in_any_order_and_the_same_comes_out() -> None:
    a, b = nodeset("a", partition={"enabled": True}), nodeset("b", extraConf="Gres=gpu:1")
    assert slurm_conf(ClusterView(controller=controller(), nodesets=(a, b))) == slurm_conf(
        ClusterView(controller=controller(), nodesets=(b, a))
    )


UNPRIVILEGED = {"securityContext": {"privileged": False}}


def cgroups(view: ClusterView) -> tuple[str, str]:
    """What slurm.conf and cgroup.conf say of them."""
    return said(view).get("ProctrackType", ""), slurm_conf(view)["cgroup.conf"].split()[0].removeprefix("CgroupPlugin=")


ON, OFF = ("", "cgroup/v2"), ("proctrack/linuxproc", "disabled")


def test_cgroups_are_off_where_no_slurmd_may_make_any() -> None:
    plain, small = nodeset("plain"), nodeset("small", slurmd=UNPRIVILEGED)
    assert cgroups(ClusterView(controller=controller())) == ON
    assert cgroups(ClusterView(controller=controller(), nodesets=(plain,))) == ON
    assert cgroups(ClusterView(controller=controller(), nodesets=(small, nodeset("b", slurmd=UNPRIVILEGED)))) == OFF


@pytest.mark.parametrize("runs", [True, False])
def test_one_unprivileged_nodeset_changes_nothing_for_the_others(runs: bool) -> None:
    """Validation refuses the mixture; where it is there all the same, the cluster goes on as it is."""
    nodesets = (nodeset("plain"), nodeset("small", slurmd=UNPRIVILEGED))
    mixed = ClusterView(controller=controller(), nodesets=nodesets, runs_without_cgroups=runs)
    assert cgroups(mixed) == (OFF if runs else ON)


@pytest.mark.parametrize(("first", "wanted"), [("plain", ON), ("small", OFF)])
def test_of_a_mixture_in_a_new_cluster_the_oldest_decides(first: str, wanted: tuple[str, str]) -> None:
    def at(name: str, **spec: Any) -> NodeSet:
        moment = "2026-01-01T00:00:00Z" if name == first else "2026-01-02T00:00:00Z"
        meta = {"name": name, "namespace": "ns", "creationTimestamp": moment}
        return msgspec.convert({"metadata": meta, "spec": spec}, NodeSet)

    nodesets = (at("plain"), at("small", slurmd=UNPRIVILEGED))
    assert cgroups(ClusterView(controller=controller(), nodesets=nodesets)) == wanted


def test_a_proctrack_type_of_the_administrators_holds_for_all() -> None:
    nodesets = (nodeset("plain"), nodeset("small", slurmd=UNPRIVILEGED))
    off = controller(extraConf="ProctrackType=proctrack/pgid")
    assert cgroups(ClusterView(controller=off, nodesets=nodesets)) == ("proctrack/pgid", "disabled")
    on = controller(extraConf="proctracktype=proctrack/cgroup")
    found = ClusterView(controller=on, nodesets=(nodesets[1],))
    assert slurm_conf(found)["cgroup.conf"].startswith("CgroupPlugin=cgroup/v2")


@pytest.mark.parametrize(
    ("spec", "privileged"),
    [
        ({}, True),
        ({"slurmd": UNPRIVILEGED}, False),
        ({"slurmd": {"securityContext": {"privileged": None}}}, False),
        ({"slurmd": {"securityContext": None}}, False),
        ({"slurmd": {"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}}, True),
        ({"template": {"spec": {"containers": [{"name": "slurmd", **UNPRIVILEGED}]}}}, False),
        ({"template": {"spec": {"containers": [{"name": "sidecar", **UNPRIVILEGED}]}}}, True),
    ],
)
def test_a_slurmd_is_as_privileged_as_its_pods_are_made(spec: dict[str, Any], privileged: bool) -> None:
    made = nodeset(**spec)
    assert is_privileged(made) is privileged
    pod = worker_base(made, ClusterView(controller=controller())).spec["containers"]
    slurmd = next(one for one in pod if one["name"] == "slurmd")
    assert ((slurmd.get("securityContext") or {}).get("privileged") is True) is privileged
