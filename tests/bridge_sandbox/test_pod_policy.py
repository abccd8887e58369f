"""Plain pods are taken in by the API server itself, as the webhook would: asked of the real API server."""

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import pytest_asyncio
from bench.bridge.pods import changed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slinky.bridge.admission import admit_pod
from slinky.bridge.keys import FINALIZER, MANAGED_NODE, SETTINGS
from slinky.bridge.pod_policy import POD_POLICIES, POD_POLICY_BINDINGS
from slinky.bridge.policy_settings import PolicyGrant, PolicySettings, PriorityClass
from slinky.bridge.settings import AdmissionSettings, Settings
from slinky.bridge.webhook_configuration import mutating_configuration, policy_for_pods
from slinky.kube import MUTATING_CONFIGURATIONS, NAMESPACES, ApiError, Client, NotFoundError, Retries, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.processes import free_port

pytestmark = pytest.mark.sandbox

NAME = "plain-pods"
MANAGED, OTHER = f"{NAME}-managed", f"{NAME}-other"
SCHEDULER = f"{NAME}-scheduler"
ASKED = "the webhook was asked"
_numbers = itertools.count()

Document = dict[str, Any]


def pod(spec: Mapping[str, Any] | None = None, container: Mapping[str, Any] | None = None, **meta: Any) -> Document:
    containers = [{"name": "c", "image": "none"} | dict(container or {})]
    return {"metadata": {"name": f"p{next(_numbers)}", **meta}, "spec": {"containers": containers} | dict(spec or {})}


def owner(kind: str, *, controller: bool = True) -> list[Document]:
    api = {"Job": "batch/v1", "ReplicaSet": "apps/v1", "DaemonSet": "apps/v1"}[kind]
    return [{"apiVersion": api, "kind": kind, "name": "of", "uid": "0000-1", "controller": controller}]


class Site:
    """A managed namespace with the policy, and a webhook that nobody serves: a pod that it is asked about is refused."""

    def __init__(self, kube: Client, settings: Settings) -> None:
        self.kube, self.settings = kube, settings

    async def sent(self, wanted: Document, namespace: str = MANAGED) -> Document | str:
        """The pod as the API server would store it, or that the webhook was asked."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        try:
            answer = await self.kube.raw("POST", path, body=wanted, parameters={"dryRun": "All"}, retries=Retries(most=0))
        except ApiError as error:
            assert "failed calling webhook" in str(error), error
            return ASKED
        found: Document = json.loads(answer)
        return found

    async def taken_in(self, wanted: Document) -> Document:
        """As the webhook would leave the pod."""
        names = wanted["spec"].get("schedulerName") == SCHEDULER
        # In another namespace the webhook is asked about a pod that names the scheduler.
        before = await self.sent(wanted | {"spec": wanted["spec"] | {"schedulerName": "stand-in"}} if names else wanted, OTHER)
        assert isinstance(before, dict), before
        if names:
            before["spec"]["schedulerName"] = SCHEDULER
        verdict = admit_pod(before, self.settings, managed=True)
        assert not verdict.refusal
        return changed(before, verdict.patches)


def relevant(found: Document) -> Document:
    """What a pod is changed in; the rest differs by namespace, name and time, and the token's volume has a random name."""
    spec = copy.deepcopy(found["spec"])
    spec.pop("volumes", None)
    for kind in ("containers", "initContainers"):
        for each in spec.get(kind) or ():
            each.pop("volumeMounts", None)
            for variable in each.get("env") or ():
                variable.get("valueFrom", {}).get("fieldRef", {}).pop("apiVersion", None)
    return {"finalizers": found["metadata"].get("finalizers"), "spec": spec}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(sandbox: Sandbox) -> AsyncIterator[Site]:
    said = AdmissionSettings(configuration=NAME, url=f"https://{sandbox.record.addresses.host}:{free_port()}")
    grant = PolicyGrant(max_grace_seconds=25)
    classes = (PriorityClass(name="system-cluster-critical", nice=1),)
    settings_ = Settings(
        scheduler_name=SCHEDULER,
        managed_namespaces=[MANAGED],
        namespace="default",
        admission=said,
        priority_classes=classes,
        policy=PolicySettings(default=grant),
    )
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
        found = Site(kube, settings_)
        for namespace in (MANAGED, OTHER):
            await kube.create(NAMESPACES.untyped, {"metadata": {"name": namespace}})
            async with sandbox.kube() as administrator:
                account = {"metadata": {"name": "default", "namespace": namespace}}
                await administrator.apply({"apiVersion": "v1", "kind": "ServiceAccount"} | account)
        try:
            for resource, document in zip((POD_POLICIES, POD_POLICY_BINDINGS), policy_for_pods(settings_), strict=True):
                await kube.create(resource, document)
            await sandbox.until("apiserver", "the policy was in force", in_force(found, lambda sent: SCHEDULER in json.dumps(sent)))
            await kube.create(MUTATING_CONFIGURATIONS, mutating_configuration(settings_))
            refused = pod(annotations={f"{SETTINGS}partition": "p"})
            await sandbox.until("apiserver", "the webhook was in force", in_force(found, lambda sent: sent == ASKED, refused))
            yield found
        finally:
            for resource, name in ((MUTATING_CONFIGURATIONS, NAME), (POD_POLICY_BINDINGS, f"{NAME}-pods"), (POD_POLICIES, f"{NAME}-pods")):
                await gone(kube, resource, name)
            for namespace in (MANAGED, OTHER):
                await kube.delete(NAMESPACES, namespace)


async def gone(kube: Client, resource: Any, name: str) -> None:
    try:
        await kube.delete(resource, name)
    except NotFoundError:
        return


def in_force(site: Site, shows: Callable[[Document | str], bool], wanted: Document | None = None) -> Callable[[], Any]:
    async def probe() -> bool:
        return shows(await site.sent(with_grace(wanted or pod())))

    return probe


OWN = [{"name": "A", "value": "1"}]
SLURMS = [{"name": "SLURM_PROCID", "value": "7"}]
SECOND = {"name": "d", "image": "none", "env": OWN}
FINISHED = {
    "schedulerName": SCHEDULER,
    "tolerations": [{"key": MANAGED_NODE, "operator": "Equal", "value": SCHEDULER}],
}

PLAIN = {
    "nothing": pod(),
    "its own variables": pod(container={"env": OWN}),
    "several containers": pod({"containers": [SECOND, SECOND | {"name": "e", "env": []}], "initContainers": [SECOND | {"name": "i"}]}),
    "names the scheduler": pod({"schedulerName": SCHEDULER}),
    "half of it is there": pod(FINISHED, finalizers=["example.com/a"]),
    "a finalizer": pod(FINISHED, finalizers=[FINALIZER]),
    "of a Job": pod(ownerReferences=owner("Job")),
    "of a Job, with a variable": pod(container={"env": OWN}, ownerReferences=owner("Job")),
    "of a Deployment": pod(ownerReferences=owner("ReplicaSet")),
    "of a group": pod(labels={"scheduling.x-k8s.io/pod-group": "g"}),
    "of a JobSet": pod(labels={"jobset.sigs.k8s.io/jobset-name": "g"}),
    "mentions a variable": pod(container={"command": ["sh", "-c", "echo $SLURM_PROCID"]}),
    "mentions one as a value": pod(container={"env": [{"name": "RANK", "value": "$(SLURM_PROCID)"}]}),
    "other annotations": pod(annotations={"example.com/a": "b"}, labels={"app": "x"}),
    "some tolerations": pod({"tolerations": [{"key": f"k{index}", "operator": "Exists"} for index in range(8)]}),
    "some labels of nodes": pod({"nodeSelector": {f"k{index}": "v" for index in range(16)}}),
    "some ports": pod(container={"ports": [{"containerPort": 80 + index, "hostPort": 80 + index} for index in range(16)]}),
    "some volumes": pod({"volumes": [{"name": f"v{index}", "emptyDir": {}} for index in range(16)]}),
}
JUDGED = {
    "an annotation": pod(annotations={f"{SETTINGS}partition": "p"}),
    "an old annotation": pod(annotations={"slinky.slurm.net/partition": "p"}),
    "a key of the bridge's": pod(labels={"scheduler.slinky.slurm.net/slurm-jobid": "7"}),
    "a node": pod({"nodeName": "n"}),
    "a claim": pod({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}),
    "a node affinity": pod({"affinity": {"nodeAffinity": {}}}),
    "apart from others": pod({"affinity": {"podAntiAffinity": {}}}),
    "near others": pod({"affinity": {"podAffinity": {}}}),
    "spread": pod({"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}),
    "many tolerations": pod({"tolerations": [{"key": f"k{index}", "operator": "Exists"} for index in range(17)]}),
    "many labels of nodes": pod({"nodeSelector": {f"k{index}": "v" for index in range(17)}}),
    "many ports": pod(container={"ports": [{"containerPort": 80 + index} for index in range(17)]}),
    "many variables": pod(container={"env": [{"name": f"A{index}"} for index in range(257)]}),
    "many resources": pod(container={"resources": {"limits": {f"example.com/r{index}": "1" for index in range(9)}}}),
    "many volumes": pod({"volumes": [{"name": f"v{index}", "emptyDir": {}} for index in range(65)]}),
    "a deadline": pod({"activeDeadlineSeconds": 60}),
    "a long grace period": pod({"terminationGracePeriodSeconds": 26}),
    "a class": pod({"priorityClassName": "system-cluster-critical"}),
    "a variable of Slurm's": pod(container={"env": SLURMS}),
    "a device of a class": pod(container={"resources": {"limits": {"deviceclass.resource.kubernetes.io/x": "1"}}}),
    "many containers": pod({"containers": [SECOND | {"name": f"c{index}"} for index in range(5)]}),
}
SHORT = {"terminationGracePeriodSeconds": 10}


def with_grace(wanted: Document) -> Document:
    """The site allows 25 s, and Kubernetes' default is 30."""
    return wanted | {"spec": SHORT | wanted["spec"]}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_plain_pod_is_taken_in_without_the_webhook(site: Site, name: str) -> None:
    wanted = with_grace(PLAIN[name])
    found = await site.sent(wanted)
    assert isinstance(found, dict), found
    assert relevant(found) == relevant(await site.taken_in(wanted))


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.asyncio(loop_scope="module")
async def test_the_webhook_is_asked_about_all_others(site: Site, name: str) -> None:
    assert await site.sent(with_grace(JUDGED[name])) == ASKED


@pytest.mark.asyncio(loop_scope="module")
async def test_a_pod_that_a_user_finished_is_judged_all_the_same(site: Site) -> None:
    plain = await site.taken_in(with_grace(pod()))
    by_hand = pod(finalizers=[FINALIZER], annotations={f"{SETTINGS}partition": "p"})
    by_hand["spec"] = {key: value for key, value in plain["spec"].items() if key != "serviceAccountName"}
    assert await site.sent(by_hand) == ASKED
    for field, value in (("nodeName", "n"), ("activeDeadlineSeconds", 5), ("terminationGracePeriodSeconds", 1000)):
        assert await site.sent(pod(by_hand["spec"] | {field: value}, finalizers=[FINALIZER])) == ASKED


@pytest.mark.asyncio(loop_scope="module")
async def test_pods_of_daemonsets_and_of_other_schedulers_are_left_alone(site: Site) -> None:
    for wanted in (pod(ownerReferences=owner("DaemonSet")), pod({"schedulerName": "other"})):
        found, before = await site.sent(wanted), await site.sent(wanted, OTHER)
        assert isinstance(found, dict) and isinstance(before, dict)
        assert relevant(found) == relevant(before)


CONTAINERS = st.fixed_dictionaries(
    {"image": st.just("none")},
    optional={
        "env": st.sampled_from([[], OWN, [*OWN, {"name": "RANK", "value": "$(SLURM_PROCID)"}], SLURMS, [{"name": "SLURM_NODELIST"}]]),
        "command": st.sampled_from([["true"], ["echo", "$SLURM_JOB_ID"]]),
        "args": st.just(["SLURM_NTASKS"]),
    },
)
PODS_WRITTEN = st.fixed_dictionaries(
    {
        "containers": st.lists(CONTAINERS, min_size=1, max_size=6),
        "init": st.lists(CONTAINERS, max_size=3),
        "labels": st.sampled_from([{}, {"app": "a"}, {"scheduling.x-k8s.io/pod-group": "g"}]),
        "annotations": st.sampled_from([{}, {"a": "b"}, {f"{SETTINGS}timelimit": "5"}]),
        "owners": st.sampled_from([[], owner("Job"), owner("ReplicaSet"), owner("Job", controller=False)]),
        "spec": st.sampled_from([{}, FINISHED, {"tolerations": [{"operator": "Exists"}]}, {"schedulerName": "other"}]),
    }
)


@pytest.mark.asyncio(loop_scope="module")
async def test_whatever_a_pod_is_like_the_policy_does_what_the_webhook_would_or_leaves_it_to_the_webhook(site: Site) -> None:
    loop, compared = asyncio.get_running_loop(), []

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(PODS_WRITTEN)
    def holds(drawn: Document) -> None:
        named = {
            kind: [each | {"name": f"{kind[0]}{index}"} for index, each in enumerate(drawn[key])]
            for kind, key in (("containers", "containers"), ("initContainers", "init"))
        }
        meta = {"labels": drawn["labels"], "annotations": drawn["annotations"], "ownerReferences": drawn["owners"]}
        wanted = with_grace(pod(drawn["spec"] | named, **meta))
        found = asyncio.run_coroutine_threadsafe(site.sent(wanted), loop).result(30)
        if isinstance(found, dict):
            compared.append(wanted)
            assert relevant(found) == relevant(asyncio.run_coroutine_threadsafe(site.taken_in(wanted), loop).result(30))

    await asyncio.to_thread(holds)
    assert len(compared) >= 15, "the webhook was asked about most of them"
