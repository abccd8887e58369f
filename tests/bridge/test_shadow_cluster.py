"""The cluster as it would be: whose pods, where, with what, while the real ones are only read."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from slinky.bridge.keys import APART, JOB_ID, MANAGED_NODE
from slinky.bridge.settings import Settings
from slinky.bridge.shadow_cluster import ShadowCluster, Watcher
from slinky.kube import Cache, Key, Meta, Namespace, Pod
from slinky.kube.objects import LabelSelector

SETTINGS = Settings(managed_namespace_selector=LabelSelector(match_labels={"slurm": "yes"}))
KEY = Key("team", "a")


class Witness(Watcher):
    def __init__(self) -> None:
        self.told: list[str] = []

    def refused(self, pod: Pod, why: str) -> None:
        self.told.append(f"refused {pod.key}: {why}")

    def gone(self, uid: str) -> None:
        self.told.append(f"gone {uid}")


def pod(name: str = "a", namespace: str = "team", **changes: Any) -> Pod:
    meta = {"name": name, "namespace": namespace, "uid": f"{name}-uid", **changes.pop("metadata", {})}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": "n1", **changes.pop("spec", {})}, **changes}, Pod)


@pytest.fixture
def real() -> Cache[Pod]:
    return Cache()


@pytest.fixture
def namespaces() -> Cache[Namespace]:
    found: Cache[Namespace] = Cache()
    found.put(Namespace(metadata=Meta(name="team", labels={"slurm": "yes"})))
    found.put(Namespace(metadata=Meta(name="else")))
    return found


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def cluster(real: Cache[Pod], namespaces: Cache[Namespace], witness: Witness) -> ShadowCluster:
    found = ShadowCluster(real, namespaces, SETTINGS, lambda pod: pod)
    found.begin(witness, set())
    return found


def test_a_pod_that_runs_waits_here_with_what_admission_adds(real: Cache[Pod], cluster: ShadowCluster) -> None:
    real.put(pod(spec={"tolerations": [{"key": "x", "operator": "Exists"}], "containers": [{"name": "c"}]}))
    [found] = cluster.pods.list()
    assert found.spec.node_name == ""
    assert found.spec.scheduler_name == SETTINGS.scheduler_name
    assert [toleration.key for toleration in found.spec.tolerations] == ["x", MANAGED_NODE]
    assert found.metadata.finalizers == ()
    assert len(cluster.others) == 0


@pytest.mark.parametrize(
    "other",
    [
        pod(namespace="else"),
        pod(spec={"schedulerName": "volcano"}),
        pod(spec={"schedulerName": SETTINGS.scheduler_name}),
        pod(metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]}),
        pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
    ],
)
def test_everybody_elses_are_where_they_are(real: Cache[Pod], cluster: ShadowCluster, other: Pod) -> None:
    real.put(other)
    assert len(cluster.pods) == 0
    assert [found.spec.node_name for found in cluster.others.list()] == ["n1"]
    real.remove(other.key)
    assert len(cluster.others) == 0


def test_what_would_be_written_stays_through_what_a_kubelet_says(real: Cache[Pod], cluster: ShadowCluster) -> None:
    before = pod()
    real.put(before)
    cluster.label("a-uid", KEY, 7)
    assert cluster.pods.by_key(KEY).metadata.labels[JOB_ID] == "7"  # type: ignore[union-attr]
    assert cluster.bind("a-uid", KEY, "n2", {"x": "y"}, 7)
    real.put(pod(status={"phase": "Succeeded"}))
    found = cluster.pods.by_key(KEY)
    assert found is not None
    assert (found.spec.node_name, found.metadata.annotations, found.is_over) == ("n2", {"x": "y"}, True)
    assert real.by_key(KEY).metadata.labels == {}  # type: ignore[union-attr]


def test_a_pod_that_would_be_set_apart_stays_so_when_it_would_be_bound(real: Cache[Pod], cluster: ShadowCluster) -> None:
    real.put(pod())
    cluster.set_apart("a-uid", KEY)
    assert cluster.bind("a-uid", KEY, "n1", {"task": "0"}, 7)
    played = cluster.pods.by_key(KEY)
    assert played is not None
    assert played.metadata.annotations.items() >= {APART: "true", "task": "0"}.items()


def test_another_pod_of_the_name_begins_anew(real: Cache[Pod], cluster: ShadowCluster, witness: Witness) -> None:
    real.put(pod())
    cluster.bind("a-uid", KEY, "n2", {}, 7)
    real.put(pod(metadata={"uid": "new"}))
    assert witness.told == ["gone a-uid"]
    assert cluster.pods.by_key(KEY).spec.node_name == ""  # type: ignore[union-attr]
    assert not cluster.bind("a-uid", KEY, "n2", {}, 7)


def test_a_pod_that_is_set_apart_stays_so_when_it_is_bound(real: Cache[Pod], cluster: ShadowCluster) -> None:
    real.put(pod())
    cluster.set_apart("a-uid", KEY)
    cluster.bind("a-uid", KEY, "n2", {"x": "y"}, 7)
    assert cluster.pods.by_key(KEY).metadata.annotations == {APART: "true", "x": "y"}  # type: ignore[union-attr]


def test_what_would_be_evicted_is_gone_though_it_runs(real: Cache[Pod], cluster: ShadowCluster) -> None:
    real.put(pod())
    cluster.evict("a-uid", KEY)
    real.put(pod(status={"phase": "Running"}))
    assert len(cluster.pods) == len(cluster.others) == 0


def test_what_was_evicted_before_stays_so_for_the_next_leader(real: Cache[Pod], cluster: ShadowCluster) -> None:
    real.put(pod())
    real.put(pod("b"))
    cluster.label("b-uid", Key("team", "b"), 3)
    cluster.begin(Watcher(), {"a-uid"})
    assert [(found.metadata.name, dict(found.metadata.labels)) for found in cluster.pods.list()] == [("b", {})]


def test_what_admission_would_refuse_is_told_and_would_not_be(real: Cache[Pod], cluster: ShadowCluster, witness: Witness) -> None:
    real.put(pod(metadata={"annotations": {"slurmjob.slinky.slurm.net/acount": "x"}}))
    assert len(cluster.pods) == len(cluster.others) == 0
    assert "did you mean" in witness.told[0]
    real.put(pod("claims", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}))
    assert "spec.resourceClaims" in witness.told[1]


def test_a_namespace_that_becomes_managed_brings_its_pods(real: Cache[Pod], namespaces: Cache[Namespace], cluster: ShadowCluster) -> None:
    real.put(pod(namespace="else"))
    namespaces.put(Namespace(metadata=Meta(name="else", labels={"slurm": "yes"})))
    assert (len(cluster.pods), len(cluster.others)) == (1, 0)
    namespaces.put(Namespace(metadata=Meta(name="else")))
    assert (len(cluster.pods), len(cluster.others)) == (0, 1)


def test_a_pod_with_times_is_read_as_it_is(real: Cache[Pod], cluster: ShadowCluster) -> None:
    made = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    real.put(pod(metadata={"creationTimestamp": made}, spec={"affinity": {"podAntiAffinity": {}}}))
    found = cluster.pods.by_key(KEY)
    assert found is not None
    assert found.metadata.creation_timestamp == made
    assert found.spec.affinity is not None
