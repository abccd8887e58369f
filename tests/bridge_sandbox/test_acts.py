"""Single acts against the real API server, at the awkward moment: the pod is being deleted, is another one by now, or has changed."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from slinky.bridge.executor import Executor
from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.bridge.translate import Site
from slinky.kube import PODS, Client, Pod, from_kubeconfig
from slinky.sandbox.handle import Sandbox

pytestmark = pytest.mark.sandbox


class Acts:
    def __init__(self, kube: Client, executor: Executor, namespace: str) -> None:
        self.kube, self.executor, self.namespace = kube, executor, namespace

    async def pod(self, name: str, *finalizers: str) -> Pod:
        spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none"}]}
        meta = {"name": name, "finalizers": list(finalizers)}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await self.kube.raw("POST", PODS.path(self.namespace, ""), body=body)
        return await self.get(name)

    async def get(self, name: str) -> Pod:
        return await self.kube.get(PODS, name, self.namespace)

    async def change(self, name: str, metadata: dict[str, Any]) -> None:
        await self.kube.patch(PODS, name, {"metadata": metadata}, self.namespace)


@pytest.fixture
async def acts(sandbox: Sandbox, namespace: str) -> AsyncIterator[Acts]:
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube, sandbox.slurm_client() as slurm:
        yield Acts(kube, Executor(kube, slurm, Site(cluster="c", partition="p")), namespace)


def another(pod: Pod) -> Pod:
    """As a cache has it that has not seen yet that the pod was made anew."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="00000000-0000-0000-0000-000000000000"))


async def test_a_pod_that_is_being_deleted_is_not_bound_and_its_finalizer_goes(acts: Acts) -> None:
    pod = await acts.pod("p", FINALIZER)
    await acts.kube.delete(PODS, "p", acts.namespace)
    assert not await acts.executor.bind(pod, "kwok-00", {}, 7)
    assert not (await acts.get("p")).spec.node_name
    assert await acts.executor.release(pod)
    assert await acts.executor.release(pod), "it is gone"
    assert not await acts.executor.bind(pod, "kwok-00", {}, 7)


async def test_what_was_bound_before_is_told_by_where_it_is(acts: Acts) -> None:
    pod = await acts.pod("p")
    assert await acts.executor.bind(pod, "kwok-00", {}, 7)
    assert await acts.executor.bind(pod, "kwok-00", {}, 7), "the first answer may have been lost"
    assert not await acts.executor.bind(pod, "kwok-01", {}, 7)


async def test_a_pod_that_admission_missed_is_bound_with_the_finalizer(acts: Acts) -> None:
    """And keeps the finalizers that it has."""
    pod = await acts.pod("p", "example.com/first")
    await acts.change("p", {"finalizers": ["example.com/first", "example.com/second"]})
    assert not await acts.executor.bind(another(pod), "kwok-00", {}, 7)
    assert await acts.executor.bind(pod, "kwok-00", {}, 7)
    now = await acts.get("p")
    assert set(now.metadata.finalizers) == {"example.com/first", "example.com/second", FINALIZER}
    await acts.change("p", {"finalizers": None})


async def test_nothing_is_done_to_another_pod_of_that_name(acts: Acts) -> None:
    pod = await acts.pod("p", FINALIZER)
    await acts.executor.label(another(pod), 7)
    assert not await acts.executor.bind(another(pod), "kwok-00", {}, 7)
    assert not await acts.executor.release(another(pod))
    await acts.executor.evict(another(pod), "SlurmCancelled", "never")
    await acts.executor.remove(another(pod), "SlurmCancelled", "never")
    now = await acts.get("p")
    assert JOB_ID not in now.metadata.labels
    assert FINALIZER in now.metadata.finalizers
    assert now.metadata.deletion_timestamp is None
    assert await acts.executor.release(now)


async def test_only_our_own_finalizer_is_taken_off_whatever_changed_meanwhile(acts: Acts) -> None:
    pod = await acts.pod("p", FINALIZER)
    await acts.change("p", {"finalizers": ["example.com/first", FINALIZER]})
    assert not await acts.executor.release(pod), "they are others by now"
    assert await acts.executor.release(await acts.get("p"))
    assert (await acts.get("p")).metadata.finalizers == ("example.com/first",)
    await acts.change("p", {"finalizers": None})
