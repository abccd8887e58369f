"""Mode DaemonSet: workers follow nodes."""

from typing import Any

import msgspec
import pytest

from slinky.kube import Pod
from slinky.operator.kinds import NodeSet
from slinky.operator.labels import CLUSTER
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import CreateClaim, CreatePod, DeletePod, DeleteSlurmNode, Drain
from slinky.operator.nodesets.daemons import names_of_others
from slinky.operator.nodesets.plan import choose, plan
from slinky.operator.nodesets.status import standing
from slinky.operator.objects.worker_names import host_name, pod_name
from slinky.operator.objects.worker_pod import worker_claims
from tests.operator.nodesets.scene import a_node, a_nodeset, a_pod, ago, in_slurm, names, only, scene


def daemons(**spec: Any) -> NodeSet:
    return a_nodeset(scalingMode="DaemonSet", **spec)


def daemon(node: str, *, hostname: str = "", **more: Any) -> Pod:
    name = more.pop("name", "") or pod_name(daemons(), None, a_node(node))
    labels = {marks.SCALING_MODE: "DaemonSet", marks.INDEX: ""}
    return a_pod(name=name, node=more.pop("on", node), labels=labels, spec={"hostname": hostname or node, **more.pop("spec", {})}, **more)


def test_each_node_that_fits_gets_one_worker() -> None:
    nodes = [a_node("a", labels={"pool": "hpc"}), a_node("b", labels={"pool": "hpc"}), a_node("c")]
    acts = plan(scene(daemons(template={"spec": {"nodeSelector": {"pool": "hpc"}}}), [daemon("a")], nodes=nodes))
    assert [act.node for act in only(acts, CreatePod)] == ["b"]


def affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("template", "node", "fits"),
    [
        ({}, {}, True),
        (affinity({"key": "gpu", "operator": "Exists"}), {"labels": {"gpu": "1"}}, True),
        (affinity({"key": "gpu", "operator": "Exists"}), {}, False),
        (affinity({"key": "gpus", "operator": "Gt", "values": ["3"]}), {"labels": {"gpus": "4"}}, True),
        (affinity({"key": "gpus", "operator": "Gt", "values": ["4"]}), {"labels": {"gpus": "4"}}, False),
        (affinity({"key": "zone", "operator": "NotIn", "values": ["x"]}), {"labels": {"zone": "x"}}, False),
        (affinity({"key": "zone", "operator": "Odd", "values": ["x"]}), {"labels": {"zone": "x"}}, False),
        ({}, {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}, False),
        ({"tolerations": [{"key": "dedicated", "operator": "Exists"}]}, {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}, True),
        ({"tolerations": [{"key": "a", "value": "b"}]}, {"taints": [{"key": "a", "value": "c", "effect": "NoSchedule"}]}, False),
        ({}, {"taints": [{"key": "dedicated", "effect": "PreferNoSchedule"}]}, True),
        ({}, {"cordoned": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}, True),
        ({}, {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}, True),
        ({}, {"taints": [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]}, False),
        ({"hostNetwork": True}, {"taints": [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]}, True),
    ],
)
def test_a_node_fits_as_kubernetes_own_daemons_judge_it(template: dict[str, Any], node: dict[str, Any], fits: bool) -> None:
    acts = plan(scene(daemons(template={"spec": template}), nodes=[a_node("a", **node)]))
    assert bool(only(acts, CreatePod)) is fits


def test_a_taint_that_keeps_new_workers_out_lets_those_there_stay() -> None:
    tainted = a_node("a", taints=[{"key": "full", "effect": "NoSchedule"}])
    assert names(plan(scene(daemons(), [daemon("a")], [in_slurm("a")], nodes=[tainted])), Drain) == []


def test_a_node_that_no_longer_fits_has_its_worker_drained_before_it_goes() -> None:
    nodes, nodeset = [a_node("a", labels={"pool": "other"})], daemons(template={"spec": {"nodeSelector": {"pool": "hpc"}}})
    acts = plan(scene(nodeset, [daemon("a")], [in_slurm("a", "ALLOCATED")], nodes=nodes))
    assert names(acts, Drain) == ["a"]
    assert names(acts, DeletePod) == []
    free = plan(scene(nodeset, [daemon("a")], [in_slurm("a", "IDLE", "DRAIN", reason="slurm-operator: x")], nodes=nodes))
    assert len(only(free, DeletePod)) == 1


def test_a_node_that_is_gone_takes_its_worker_once_slurm_has_no_job_there() -> None:
    busy = plan(scene(daemons(), [daemon("a")], [in_slurm("a", "ALLOCATED", "NOT_RESPONDING")], nodes=[]))
    assert (names(busy, Drain), names(busy, DeletePod)) == (["a"], [])
    [deleted] = only(
        plan(scene(daemons(), [daemon("a")], [in_slurm("a", "DOWN", "DRAIN", reason="slurm-operator: x")], nodes=[])), DeletePod
    )
    assert deleted.at_once


def test_of_two_workers_on_a_node_the_oldest_stays() -> None:
    old, young = daemon("a", name="workers-x", created=ago(hours=2)), daemon("a", created=ago(hours=1))
    acts = plan(scene(daemons(), [young, old], [in_slurm("a", "IDLE", "DRAIN", reason="slurm-operator: x")], nodes=[a_node("a")]))
    assert names(acts, DeletePod) == [young.metadata.name]


def test_another_name_for_the_node_makes_another_worker_after_the_old_one_is_drained() -> None:
    node = a_node("a", annotations={"nodeset.slinky.slurm.net/hostname-override": "gpu-1"})
    acts = plan(scene(daemons(), [daemon("a")], [in_slurm("a")], nodes=[node]))
    assert names(acts, Drain) == ["a"]
    assert only(acts, CreatePod) == []
    assert len(only(plan(scene(daemons(), nodes=[node])), CreatePod)) == 1


def test_a_pod_that_waits_for_its_node_counts_as_that_nodes() -> None:
    terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    waiting = daemon("a", on="", phase="Pending", ready=False, spec=spec)
    assert plan(scene(daemons(), [waiting], nodes=[a_node("a")])) == []


def test_two_nodes_of_one_name_in_slurm_get_one_worker() -> None:
    assert len(only(plan(scene(daemons(), nodes=[a_node("a.east"), a_node("a.west")])), CreatePod)) == 1


def test_a_template_that_cannot_be_read_moves_nobody() -> None:
    assert plan(scene(daemons(template={"spec": {"nodeSelector": "x"}}), [daemon("a")], nodes=[a_node("b")], current=False)) == []


def test_another_scaling_mode_replaces_all_workers_each_drained_first() -> None:
    acts = plan(scene(daemons(), [a_pod(0, node="a")], [in_slurm("workers-0")], nodes=[a_node("a")]))
    assert names(acts, Drain) == ["workers-0"]
    assert only(acts, CreatePod) == []


def test_a_record_whose_node_is_gone_is_deleted_where_that_is_asked_for() -> None:
    info = '{"namespace":"hpc","podName":"p","node":"gone","nodeSetName":"workers","nodeSetUID":"nodeset"}'
    lost = in_slurm("gone", "DOWN", "NOT_RESPONDING", comment=info)
    others = in_slurm("other", "DOWN", "NOT_RESPONDING", comment=info.replace('"nodeset"', '"another"'))
    assert names(plan(scene(daemons(), [], [lost, others], nodes=[])), DeleteSlurmNode) == []
    assert names(plan(scene(daemons(pruneSlurmNodeRecords="NodeNotFound"), [], [lost, others], nodes=[])), DeleteSlurmNode) == ["gone"]
    back = plan(scene(daemons(pruneSlurmNodeRecords="NodeNotFound"), [], [lost], nodes=[a_node("gone")]))
    assert [act.renewed for act in only(back, DeleteSlurmNode)] == [True]


def another(name: str, created: int, **spec: Any) -> NodeSet:
    found = daemons(**spec)
    meta = msgspec.structs.replace(found.metadata, name=name, uid=f"uid-{name}", creation_timestamp=ago(minutes=created))
    return msgspec.structs.replace(found, metadata=meta)


def test_of_two_nodesets_that_fit_one_node_the_older_has_it_unless_the_younger_has_a_worker_there() -> None:
    older, younger, nodes = another("older", 9), another("younger", 3), [a_node("a.example.org"), a_node("b")]
    assert names_of_others(younger, [older, younger], nodes, []) == {"a": "older", "b": "older"}
    assert names_of_others(older, [older, younger], nodes, []) == {}
    owner = {"apiVersion": "x", "kind": "NodeSet", "name": "younger", "uid": "uid-younger", "controller": True}
    theirs = msgspec.convert(
        {
            "metadata": {"name": "p", "labels": {CLUSTER: "c"}, "ownerReferences": [owner]},
            "spec": {"hostname": "b", "nodeName": "b"},
        },
        Pod,
    )
    assert names_of_others(older, [older, younger], nodes, [theirs]) == {"b": "younger"}
    elsewhere = another("other", 20, controllerRef={"name": "d"})
    assert names_of_others(younger, [elsewhere, younger], nodes, []) == {}


def test_a_name_that_another_nodeset_has_is_not_used_twice_and_the_nodeset_says_so() -> None:
    snapshot = scene(daemons(), nodes=[a_node("a"), a_node("b")], taken={"a": "older"})
    assert [act.node for act in only(plan(snapshot), CreatePod)] == ["b"]
    said = standing(snapshot, choose(snapshot))["Degraded"]
    assert (said.status, said.reason) == (True, "NameTaken")
    assert "Slurm node a is a worker of NodeSet older" in said.message


def test_on_the_hosts_network_a_slurm_node_has_the_hosts_name_up_to_its_first_dot() -> None:
    nodeset = daemons(template={"spec": {"hostNetwork": True}})
    node = a_node("a.example.org", annotations={"nodeset.slinky.slurm.net/hostname-override": "no"})
    pod = a_pod(
        name=pod_name(nodeset, None, node), node="a.example.org", labels={marks.SCALING_MODE: "DaemonSet"}, spec={"hostNetwork": True}
    )
    snapshot = scene(nodeset, [pod], [in_slurm("a")], nodes=[node])
    assert host_name(nodeset, None, node) == snapshot.workers[0].hostname == "a"
    assert snapshot.workers[0].slurm is not None
    assert only(plan(snapshot), Drain) == []


ONE, OTHER = "node-008396", "node-061626"


def test_two_nodes_whose_workers_would_have_one_pod_name_both_get_one() -> None:
    """8 digits of a hash: among 5,000 nodes it happens in 3 of 1,000 clusters, and the second node never had a worker."""
    assert pod_name(daemons(), None, a_node(ONE)) == pod_name(daemons(), None, a_node(OTHER))
    nodes = [a_node(OTHER), a_node(ONE)]
    first = only(plan(scene(daemons(), nodes=nodes)), CreatePod)
    assert [act.node for act in first] == [ONE, OTHER]
    assert len({act.name for act in first}) == 2
    assert first[0].name == pod_name(daemons(), None, a_node(ONE))
    again = only(plan(scene(daemons(), [daemon(ONE)], nodes=nodes)), CreatePod)
    assert again == first[1:], "the same name each time"
    swapped = [daemon(OTHER, name=first[0].name)]
    assert [act.node for act in only(plan(scene(daemons(), swapped, nodes=nodes)), CreatePod)] == [ONE]
    assert not only(plan(scene(daemons(), [daemon(ONE), daemon(OTHER, name=first[1].name)], nodes=nodes)), CreatePod)


def test_claims_of_such_a_worker_are_called_after_its_pod() -> None:
    templates = [{"metadata": {"name": "scratch"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    acts = plan(scene(daemons(volumeClaimTemplates=templates), nodes=[a_node(ONE), a_node(OTHER)]))
    pods = [act.name for act in only(acts, CreatePod)]
    assert [act.name for act in only(acts, CreateClaim)] == [f"scratch-{name}" for name in pods]
    claims = [worker_claims(daemons(volumeClaimTemplates=templates), act.pod)[act.template] for act in only(acts, CreateClaim)]
    assert [claim["metadata"]["name"] for claim in claims] == [f"scratch-{name}" for name in pods]
