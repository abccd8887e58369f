"""NodeSets on real servers: the operator as a process, kube-apiserver and kwok, slurmctld and slurmrestd; slurmd's part is played by nodes registered through REST, jobs are external ones."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from slinky.kube import CLAIMS, EVENTS, NODES, PODS, NotFoundError, Resource, TooManyRequestsError
from slinky.operator.departing import ABANDON
from slinky.operator.kinds import GROUP, VERSION
from slinky.operator.nodesets.revisions import REVISIONS
from slinky.sandbox.handle import Sandbox
from tests.faults.proxy import FaultProxy
from tests.operator_sandbox.kwok_site import CORDON, NODESETS, OWN_NODES, Site, a_site

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

OURS = "slurm-operator: "


async def scaled_to_zero_and_back_with_a_job(site: Site) -> None:
    await site.nodeset("sc", replicas=3)
    await site.until_pods("sc", "sc-0", "sc-1", "sc-2")
    for number in range(3):
        await site.until_states(f"sc-{number}", "IDLE")
    job = await site.job_on("sc-1")
    await site.change("sc", replicas=0)
    await site.until_pods("sc", "sc-1")
    await site.until_states("sc-1", "DRAIN")
    assert await site.is_running(job)

    async def named() -> bool:
        return f"job {job} is on node sc-1" in (await site.condition("sc", "Progressing"))[1]

    await site.until("the NodeSet named the job that it waits for", named)
    await held_by_the_budget(site, "sc-1")
    await site.slurm.jobs.cancel(job)
    await site.until_pods("sc")
    await site.change("sc", replicas=2)
    await site.until_pods("sc", "sc-0", "sc-1")
    await site.until_states("sc-0", "IDLE", without=("DRAIN",))
    await site.until_states("sc-1", "IDLE", without=("DRAIN",))
    await site.until_ready("sc")


async def updated_under_a_job_and_then_deleted(site: Site) -> None:
    await site.nodeset("up", replicas=2, updateStrategy={"rollingUpdate": {"maxUnavailable": 1}})
    await site.until_pods("up", "up-0", "up-1")
    await site.until_states("up-0", "IDLE")
    await site.until_states("up-1", "IDLE")
    job = await site.job_on("up-1")
    before = await site.pods("up")
    await site.change("up", template={"metadata": {"labels": {"release": "2"}}})

    async def renewed(name: str) -> bool:
        pod = (await site.pods("up")).get(name)
        return pod is not None and pod.metadata.uid != before[name].metadata.uid and pod.metadata.labels.get("release") == "2"

    await site.until("up-0 was renewed", lambda: renewed("up-0"))
    await site.until_states("up-1", "DRAIN")
    assert await site.is_running(job)
    assert (await site.pods("up"))["up-1"].metadata.uid == before["up-1"].metadata.uid
    await site.slurm.jobs.cancel(job)
    await site.until("up-1 was renewed", lambda: renewed("up-1"))
    await site.until_states("up-1", "IDLE", without=("DRAIN",))
    await deleted_with_a_job(site)


async def deleted_with_a_job(site: Site) -> None:
    job = await site.job_on("up-0")
    await site.kube.delete(NODESETS, "up", site.namespace)
    await site.until_pods("up", "up-0")
    await site.until_states("up-0", "DRAIN")
    assert await site.is_running(job)
    await site.kube.get(NODESETS, "up", site.namespace)  # its finalizer holds it, and its partition with it
    await site.slurm.jobs.cancel(job)

    async def gone() -> bool:
        try:
            await site.kube.get(NODESETS, "up", site.namespace)
        except NotFoundError:
            return await site.node("up-0") is None and await site.node("up-1") is None
        return False

    await site.until("NodeSet up and its Slurm nodes were gone", gone)


async def cordoned_both_ways(site: Site) -> None:
    await site.nodeset("co", replicas=2)
    await site.until_pods("co", "co-0", "co-1")
    await site.until_states("co-0", "IDLE")
    await site.until_states("co-1", "IDLE")
    await with_the_features_of_its_node(site, "co-0", "co")
    await site.slurm.nodes.drain(["co-0"], "bad disk")

    async def shown() -> bool:
        condition = (await site.pod("co-0")).condition("SlurmNodeStateDrain")
        return condition is not None and condition.message == "bad disk"

    await site.until("the admin's drain stood on the pod", shown)
    assert CORDON not in (await site.pod("co-0")).metadata.annotations
    job = await site.job_on("co-1")
    host = (await site.pod("co-1")).spec.node_name
    await site.cordon(host, True)
    await site.until_states("co-1", "DRAIN")
    node = await site.node("co-1")
    assert node is not None
    assert node.reason == f"{OURS}Node ({host}) is cordoned"
    await held_by_the_budget(site, "co-1")
    assert await site.is_running(job)
    await site.cordon(host, False)
    await site.until_states("co-1", without=("DRAIN",))
    resumed = await site.node("co-1")
    assert resumed is not None
    assert not resumed.reason.startswith(OURS)
    assert "DRAIN" in await site.states("co-0")
    await site.slurm.jobs.cancel(job)
    await site.cordon(host, True)
    await evicted_once_it_is_free(site, "co-1")
    await site.cordon(host, False)


async def with_the_features_of_its_node(site: Site, name: str, nodeset: str) -> None:
    host = (await site.pod(name)).spec.node_name
    for said, wanted in (("nvme,ib", {"k8s/nvme", "k8s/ib", nodeset}), (None, {nodeset})):
        await site.kube.patch(NODES, host, {"metadata": {"annotations": {"features.slinky.slurm.net/spec": said}}})

        async def told(wanted: set[str] = wanted) -> bool:
            node = await site.node(name)
            return node is not None and set(node.features) == set(node.active_features) == wanted

        await site.until(f"Slurm node {name} had features {wanted}", told)


async def held_by_the_budget(site: Site, name: str) -> None:
    before = await site.pod(name)
    try:
        await site.kube.evict(name, site.namespace)
    except TooManyRequestsError:
        return
    raise AssertionError(f"{name} was evicted: {before}\n{await site.situation()}")


async def evicted_once_it_is_free(site: Site, name: str) -> None:
    uid = (await site.pod(name)).metadata.uid

    async def evicted() -> bool:
        try:
            await site.kube.evict(name, site.namespace)
        except TooManyRequestsError:
            return False
        return True

    await site.until(f"{name} could be evicted", evicted)

    async def anew() -> bool:
        return (await site.pod(name)).metadata.uid != uid

    await site.until(f"{name} was made anew", anew)


async def following_nodes(site: Site) -> None:
    for name in ("fa", "fb"):
        await site.a_kubernetes_node(name, pool="follow")
    await site.nodeset(
        "fo",
        scalingMode="DaemonSet",
        template={"spec": {"nodeSelector": {"pool": "follow"}, "tolerations": [{"key": OWN_NODES, "operator": "Exists"}]}},
    )
    await site.until_states("fa", "IDLE")
    await site.until_states("fb", "IDLE")
    await site.a_kubernetes_node("fc", pool="follow")
    await site.until_states("fc", "IDLE")
    job = await site.job_on("fa")
    await site.kube.patch(NODES, "fa", {"metadata": {"labels": {"pool": "other"}}})
    await site.until_states("fa", "DRAIN")
    await site.kube.patch(NODES, "fb", {"metadata": {"labels": {"pool": "other"}}})

    async def on() -> set[str]:
        return {pod.spec.node_name for pod in (await site.pods("fo")).values()}

    async def only_a_and_c() -> bool:
        return await on() == {"fa", "fc"}

    await site.until("fb's worker was gone, and fa's not", only_a_and_c)
    assert await site.is_running(job)
    await site.slurm.jobs.cancel(job)

    async def only_c() -> bool:
        return await on() == {"fc"}

    await site.until("fa's worker was gone too", only_c)
    for name in ("fa", "fb", "fc"):
        await site.kube.delete(NODES, name)


async def given_a_deadline(site: Site) -> None:
    await site.nodeset("dl", replicas=1, drainDeadlineSeconds=4, revisionHistoryLimit=2)
    await site.until_states("dl-0", "IDLE")
    first = (await site.pod("dl-0")).metadata.uid
    await site.kube.delete(PODS, "dl-0", site.namespace)

    async def anew() -> bool:
        pod = await site.pod("dl-0")
        return pod.metadata.uid != first and "SlurmNodeStateIdle" in {one.type for one in pod.status.conditions}

    await site.until("a pod that somebody deleted was made anew", anew)
    job = await site.job_on("dl-0")
    await site.change("dl", replicas=0)
    await site.until_pods("dl")

    async def told() -> bool:
        events = (await site.kube.list(EVENTS, site.namespace)).items
        return any(event.reason == "DrainDeadlineExceeded" and f"job {job} is" in event.note for event in events)

    await site.until("an Event named the job", told)
    kept = (await site.kube.list(REVISIONS, site.namespace)).items
    assert [one.revision for one in kept] == [1]
    await site.slurm.jobs.cancel(job)


async def with_claims(site: Site) -> None:
    templates = [
        {"metadata": {"name": "scratch"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    ]
    policy = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    await site.nodeset("cl", replicas=2, volumeClaimTemplates=templates, persistentVolumeClaimRetentionPolicy=policy)
    await site.until_states("cl-0", "IDLE")
    await site.until_states("cl-1", "IDLE")

    async def claims() -> set[str]:
        listed = await site.kube.list(CLAIMS, site.namespace, labels="app.kubernetes.io/instance=cl")
        return {claim.metadata.name for claim in listed.items if claim.metadata.deletion_timestamp is None}

    assert await claims() == {"scratch-cl-0", "scratch-cl-1"}
    await site.change("cl", replicas=1)
    await site.until_pods("cl", "cl-0")

    async def one_is_left() -> bool:
        return await claims() == {"scratch-cl-0"}

    await site.until("the claim of the worker that was scaled away was gone", one_is_left)
    before = (await site.kube.get(CLAIMS, "scratch-cl-0", site.namespace)).metadata.uid
    await site.change("cl", replicas=0)
    await site.until_pods("cl")
    await site.change("cl", replicas=2)  # at once: the claim may be there still
    for name in ("cl-0", "cl-1"):
        await site.until_states(name, "IDLE")
    await site.until_ready("cl")
    after = await site.kube.get(CLAIMS, "scratch-cl-0", site.namespace)
    assert (after.metadata.uid != before, after.metadata.deletion_timestamp, after.metadata.owner_references) == (True, None, ())
    await site.kube.delete(NODESETS, "cl", site.namespace)
    await site.until_gone("NodeSet", "cl")
    assert await claims() == {"scratch-cl-0", "scratch-cl-1"}, "what is retained stays"


async def with_nobody_to_ask(site: Site) -> None:
    """A cluster without a RestApi: its workers come, and none goes before one is there that can be asked about jobs."""
    head = {"host": site.sandbox.record.addresses.head, "port": 6817}
    keys = {f"{short}KeyRef": {"name": "keys", "key": f"{short}.key"} for short in ("slurm", "jwt")}
    await site.create("Controller", "mute", external=True, externalConfig=head, **keys)
    await site.create("NodeSet", "mu", controllerRef={"name": "mute"}, slurmd={"image": "sandbox/slurmd:1"}, replicas=1)
    await site.until_pods("mu", "mu-0")
    await site.until_states("mu-0", "IDLE")
    await site.change("mu", replicas=0)

    async def told() -> bool:
        return "NoRestApi" in " ".join([(await site.condition("mu", kind))[1] for kind in ("Progressing", "Degraded")])

    await site.until("the NodeSet said that nobody can be asked", told)
    assert set(await site.pods("mu")) == {"mu-0"}
    await site.create("RestApi", "mute", controllerRef={"name": "mute"}, replicas=0)
    await site.until_pods("mu")


async def test_workers_come_go_and_follow_and_no_job_is_lost(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    async with a_site(sandbox, namespace, tmp_path) as site:
        await asyncio.gather(
            scaled_to_zero_and_back_with_a_job(site),
            updated_under_a_job_and_then_deleted(site),
            cordoned_both_ways(site),
            following_nodes(site),
            given_a_deadline(site),
            with_claims(site),
            with_nobody_to_ask(site),
        )


async def test_a_cluster_that_is_deleted_whole_waits_for_its_jobs_and_an_admin_may_give_them_up(
    sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    async with a_site(sandbox, namespace, tmp_path) as site:
        await deleted_whole(site)
        await site.cluster()
        await deleted_after_its_controller_was_torn_away(site)


async def deleted_whole(site: Site) -> None:
    """The slurmrestd first, as `kubectl delete -f` may do; the operator is restarted meanwhile."""
    await site.nodeset("de", replicas=2)
    for name in ("de-0", "de-1"):
        await site.until_states(name, "IDLE")
    await site.until_ready("de")
    job = await site.job_on("de-0")
    for kind, name in (("RestApi", "c"), ("Controller", "c"), ("NodeSet", "de")):
        await site.delete(kind, name)
    await site.until_pods("de", "de-0")

    async def said() -> bool:
        head, asked = await site.said("Controller", "c"), await site.said("RestApi", "c")
        return head.startswith("Deleting slurmctld stays until NodeSet de is gone") and "NodeSet de is not gone yet" in asked

    await site.until("the Controller and the RestApi said what they wait for", said)
    await site.until_event("Controller", "DeletionWaits")
    await site.operator.stop("run")
    await site.start_operator()

    async def named() -> bool:
        return f"job {job} is on node de-0" in (await site.condition("de", "Progressing"))[1]

    await site.until("the NodeSet named the job that it waits for, after a restart too", named)
    assert await site.is_running(job)
    await site.slurm.jobs.cancel(job)
    for kind, name in (("NodeSet", "de"), ("Controller", "c"), ("RestApi", "c")):
        await site.until_gone(kind, name)
    assert await site.node("de-0") is None


async def deleted_after_its_controller_was_torn_away(site: Site) -> None:
    """Nobody can be asked any more: it stays, says so, and goes when an administrator gives its jobs up."""
    await site.nodeset("or", replicas=1)
    await site.until_states("or-0", "IDLE")
    await site.until_ready("or")
    job = await site.job_on("or-0")
    await site.delete("Controller", "c")
    await site.until("the Controller waited", lambda: _starts(site.said("Controller", "c"), "Deleting"))
    await site.kube.patch(Resource(GROUP, VERSION, "controllers", dict), "c", {"metadata": {"finalizers": None}}, site.namespace)
    await site.until_gone("Controller", "c")
    await site.delete("NodeSet", "or")

    async def told() -> bool:
        status, message = await site.condition("or", "Degraded")
        return status == "True" and message.startswith("ControllerGone 1 worker is left, and Controller c is gone")

    await site.until("the NodeSet said why it stays", told)
    assert set(await site.pods("or")) == {"or-0"}
    assert await site.is_running(job)
    await site.kube.patch(NODESETS, "or", {"metadata": {"annotations": {ABANDON: "true"}}}, site.namespace)
    await site.until_gone("NodeSet", "or")
    await site.until_event("NodeSet", "JobsAbandoned")
    await site.slurm.jobs.cancel(job)


async def _starts(told: Awaitable[str], with_: str) -> bool:
    return (await told).startswith(with_)


async def test_while_slurm_is_silent_and_after_a_restart_nothing_goes_and_afterwards_all_does(
    sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    async with FaultProxy(sandbox.slurm_server) as proxy, a_site(sandbox, namespace, tmp_path, slurm_url=proxy.url) as site:
        await site.nodeset("si", replicas=2)
        await site.until_pods("si", "si-0", "si-1")
        await site.until_states("si-0", "IDLE")
        await site.until_states("si-1", "IDLE")
        await site.until_ready("si")
        job = await site.job_on("si-0")
        async with proxy.refusing():
            await said_silent(site, "si")
            await site.change("si", replicas=0, template={"metadata": {"labels": {"release": "2"}}})
            await said_silent(site, "si")
            await site.operator.stop("run")
            await site.start_operator()
            await said_silent(site, "si")
            assert set(await site.pods("si")) == {"si-0", "si-1"}
        await site.until_pods("si", "si-0")
        assert await site.is_running(job)
        await site.slurm.jobs.cancel(job)
        await site.until_pods("si")


async def said_silent(site: Site, name: str) -> None:
    """It has had a turn since it was last changed, and knows that Slurm is silent."""

    async def silent() -> bool:
        found = await site.kube.get(NODESETS, name, site.namespace)
        seen = found["status"]["observedGeneration"] == found["metadata"]["generation"]
        return seen and "SlurmNotAnswering" in (await site.condition(name, "Progressing"))[1]

    await site.until(f"NodeSet {name} said that Slurm does not answer", silent)
