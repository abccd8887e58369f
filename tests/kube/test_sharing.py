"""Pods made smaller say the same."""

import msgspec

from slinky.kube import Pod
from slinky.kube.objects.sharing import Pool, compact_pod

DOCUMENT = {
    "metadata": {
        "name": "a",
        "namespace": "n",
        "generateName": "a-",
        "labels": {"a.very.long.domain.example/with-a-long-name": "1"},
        "annotations": {"k": "v"},
        "finalizers": ["f"],
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": True}],
    },
    "spec": {
        "nodeName": "n1",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "volumes": [
            {"name": "token"},
            {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        ],
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"} for kind in ("Ready", "PodScheduled")
        ],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}],
    },
}


def decoded() -> Pod:
    return msgspec.json.decode(msgspec.json.encode(DOCUMENT), type=Pod)


def test_the_same_but_for_volumes_without_a_claim() -> None:
    small = compact_pod(decoded(), Pool())
    assert [volume.name for volume in small.spec.volumes] == ["data", "scratch"]
    msgspec.structs.force_setattr(small.spec, "volumes", decoded().spec.volumes)
    assert small == decoded()


def test_equal_parts_of_two_pods_are_one() -> None:
    pool = Pool()
    one, two = compact_pod(decoded(), pool), compact_pod(decoded(), pool)
    assert one.spec.containers is two.spec.containers
    assert one.spec.tolerations is two.spec.tolerations
    assert one.metadata.owner_references is two.metadata.owner_references
    assert one.status.conditions[0].type is two.status.conditions[0].type
    assert one.status.conditions[0].last_transition_time is one.status.conditions[1].last_transition_time


def test_a_full_pool_begins_anew() -> None:
    pool = Pool(limit=10)
    assert [pool.share(f"word {number}") for number in range(100)] == [f"word {number}" for number in range(100)]
    assert len(pool) <= 10
