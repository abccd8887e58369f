"""Whose owner is gone, as a real API server tells it. Kubernetes' garbage collector, which would delete such pods within a moment, is held for this."""

import asyncio
import signal
import time
import uuid
from typing import Any

import pytest

from slinky.kube import JOBS, PODS, Client, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from tests.chaos.observer import pod_seen
from tests.chaos.orphans import orphans

pytestmark = pytest.mark.sandbox

POD = {"schedulerName": "nobody", "restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}


def owned(name: str, kind: str, version: str, owner: str, uid: str, spec: dict[str, Any]) -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": kind, "name": owner, "uid": uid, "controller": True}
    return {"metadata": {"name": name, "ownerReferences": [reference]}, "spec": spec}


async def test_only_those_are_orphans_whose_owner_or_its_owner_is_not_there(sandbox: Sandbox, namespace: str) -> None:
    job = {"suspend": True, "template": {"spec": POD}}
    await sandbox.link.signal("kube-controller-manager", signal.SIGSTOP)
    try:
        async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
            there = await kube.create(JOBS, {"metadata": {"name": "there"}, "spec": job}, namespace)
            lost = owned("lost", "JobSet", "jobset.x-k8s.io/v1alpha2", "nosuch", str(uuid.uuid4()), job)
            below = await kube.create(JOBS, lost, namespace)
            pods = [
                owned("of-nobody", "Job", "batch/v1", "nosuch", str(uuid.uuid4()), POD),
                owned("of-another", "Job", "batch/v1", "there", str(uuid.uuid4()), POD),
                owned("of-the-lost", "Job", "batch/v1", "lost", below.metadata.uid, POD),
                owned("of-one", "Job", "batch/v1", "there", there.metadata.uid, POD),
                {"metadata": {"name": "bare"}, "spec": POD},
            ]
            made = await asyncio.gather(*(kube.create(PODS.untyped, pod, namespace) for pod in pods))
            seen = [pod_seen(pod, time.time()) for pod in made]
            found = await orphans(kube, seen)
            names = {pod.name: found[pod.uid] for pod in seen if pod.uid in found}
            for pod in pods:
                await kube.delete(PODS, pod["metadata"]["name"], namespace)
    finally:
        await sandbox.link.signal("kube-controller-manager", signal.SIGCONT)
    assert set(names) == {"of-nobody", "of-another", "of-the-lost"}
    assert names["of-the-lost"].startswith("JobSet nosuch (")
