"""What namespaces may say: each rule seen with a value that it allows, one that the webhook refuses, and one that is refused before the submit where no webhook is in the way."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from slinky.bridge.keys import CONDITION, JOB_ID, POLICY, SETTINGS
from slinky.kube import NAMESPACES, PODS, ApiError, Client, Resource, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.conftest import Team, background_bridge
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox

PRIORITY_CLASSES: Resource[dict[str, Any]] = Resource("scheduling.k8s.io", "v1", "priorityclasses", dict, namespaced=False)
ROLES: Resource[dict[str, Any]] = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", dict)
RESERVATION = "policy-test"
_numbers = itertools.count()


@dataclass(frozen=True)
class Case:
    """A rule, what it allows, what it refuses, and the beginning of the reason. `shown` is what `scontrol show job` says of the allowed one. `wrong` is of the refused pod's spec, where no annotation is what is refused."""

    rule: dict[str, Any]
    allowed: dict[str, str]
    refused: dict[str, str]
    why: str
    shown: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        return f"{self.why}, and " if self.wrong else f"annotation {SETTINGS}{self.why}, and "


CASES = {
    "users": Case({"users": ["alice"], "group": "users"}, {"user-id": "alice"}, {"user-id": "bob"}, "user-id is 'bob'", "GroupId=users("),
    "no-group": Case(
        {"users": ["alice"], "groups": ["users"]},
        {"user-id": "alice", "group-id": "users"},
        {"user-id": "alice"},
        "user-id is 'alice'",
        "UserId=alice(",
    ),
    "groups": Case({"groups": ["daemon"]}, {"group-id": "daemon"}, {"group-id": "bin"}, "group-id is 'bin'", "GroupId=daemon("),
    "user": Case({"user": "alice", "group": "users"}, {}, {"user-id": "bob"}, "user-id is 'bob'", "UserId=alice("),
    "accounts": Case({"accounts": ["physics"]}, {"account": "physics"}, {"account": "ai"}, "account is 'ai'", "Account=physics"),
    "account": Case({"account": "ai"}, {}, {"account": "physics"}, "account is 'physics'", "Account=ai"),
    "qoses": Case({"qoses": ["low"]}, {"qos": "low"}, {"qos": "high"}, "qos is 'high'", "QOS=low"),
    "qos": Case({"qos": "low"}, {}, {"qos": "high"}, "qos is 'high'", "QOS=low"),
    "partitions": Case({"partitions": ["all"]}, {"partition": "all"}, {"partition": "compute"}, "partition is 'compute'", "Partition=all"),
    "partition": Case({"partition": "all"}, {}, {"partition": "bridge"}, "partition is 'bridge'", "Partition=all"),
    "reservations": Case(
        {"reservations": [RESERVATION]},
        {"reservation": RESERVATION},
        {"reservation": "x"},
        "reservation is 'x'",
        f"Reservation={RESERVATION}",
    ),
    "wckeys": Case({"wckeys": ["w"]}, {"wckey": "w"}, {"wckey": "x"}, "wckey is 'x'", "WCKey=w"),
    "licenses": Case({"licenses": []}, {}, {"licenses": "matlab:1"}, "licenses is 'matlab:1'"),
    "maxPriority": Case({"maxPriority": 7}, {"priority": "7"}, {"priority": "8"}, "priority is '8'", "Priority=7 "),
    "hold": Case({"hold": False}, {}, {"priority": "0"}, "priority is '0'"),
    "minNice": Case({"minNice": -5}, {"nice": "-5"}, {"nice": "-6"}, "nice is '-6'", "Nice=-5 "),
    "exclusive": Case({"exclusive": False}, {"exclusive": "false"}, {"exclusive": "true"}, "exclusive is 'true'", "Exclusive=NO "),
    "dependency": Case({"dependency": False}, {}, {"dependency": "singleton"}, "dependency is 'singleton'"),
    "maxTimeLimit": Case({"maxTimeLimit": 60}, {}, {"timelimit": "61"}, "timelimit is '61 minutes'", "TimeLimit=01:00:00"),
    "timeLimit": Case({"timeLimit": 45, "maxTimeLimit": 60}, {}, {"timelimit": "2-0"}, "timelimit is '2880 minutes'", "TimeLimit=00:45:00"),
    "maxGraceSeconds": Case(
        {"maxGraceSeconds": 90},
        {},
        {"comment": "any: who says nothing of jobs is not asked about before its pods are"},
        "spec.terminationGracePeriodSeconds is 91",
        spec={"terminationGracePeriodSeconds": 90},
        wrong={"terminationGracePeriodSeconds": 91},
    ),
    "fromLabels": Case(
        {"fromLabels": ["account"]},
        {},
        {"account": "ai"},
        "account is 'ai'",
        "Account=physics",
        {POLICY + "account": "physics", POLICY + "qos": "high"},
    ),
    "nothing": Case({}, {}, {"user-id": "root"}, "user-id is 'root'", "QOS=normal"),
}


def settings(name: str) -> dict[str, Any]:
    rules = [{"selector": {"matchLabels": {"case": case}}, **CASES[case].rule} for case in CASES]
    rules += [{"selector": {"matchLabels": {"case": "window"}}, "window": 1, "hold": True}]
    rules += [{"selector": {"matchLabels": {"case": "gold"}}, "qoses": ["high"]}]
    classes = [{"name": f"{name}-gold", "qos": "high"}, {"name": f"{name}-late", "nice": 50}]
    return {
        "name": name,
        "managedNamespaceSelector": {"matchLabels": {"bridge": name}},
        "policy": {"default": {}, "rules": rules},
        "priorityClasses": classes,
        "status": {"seconds": 1, "rate": 50},
    }


@pytest.fixture(scope="module")
def guarded(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBridge]:
    with background_bridge(sandbox, tmp_path_factory.mktemp("guarded"), **settings("guarded")) as found:
        yield found


@pytest.fixture(scope="module")
def open_bridge(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBridge]:
    """One without a webhook: whoever names its scheduler gets to it."""
    with background_bridge(sandbox, tmp_path_factory.mktemp("open"), ("run",), **settings("open")) as found:
        yield found


class Site:
    """Namespaces by case, with small pods in them."""

    def __init__(self, sandbox: Sandbox, kube: Client, stack: AsyncExitStack, bridge: str) -> None:
        self.sandbox, self.kube, self.bridge, self._stack = sandbox, kube, bridge, stack

    async def team(self, case: str, **labels: str) -> Team:
        wanted = {"bridge": self.bridge, "case": case, **labels}
        return await self._stack.enter_async_context(_namespace(self.sandbox, self.kube, wanted))

    def pod(self, name: str, said: dict[str, str], **spec: Any) -> dict[str, Any]:
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}
        annotations = {SETTINGS + key: value for key, value in said.items()}
        if self.bridge == "open":
            spec["schedulerName"] = "open-scheduler"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [container], "restartPolicy": "Never", **spec},
        }


@asynccontextmanager
async def _namespace(sandbox: Sandbox, kube: Client, labels: dict[str, str]) -> AsyncIterator[Team]:
    name = f"policy{next(_numbers)}"
    await kube.create(NAMESPACES.untyped, {"metadata": {"name": name, "labels": labels}})
    async with sandbox.slurm_client() as slurm:
        team = Team(sandbox, kube, slurm, name, Partition("bridge", ()))
        yield team
        await kube.raw("DELETE", f"/apis/batch/v1/namespaces/{name}/jobs", body={"propagationPolicy": "Background"})
        await team.delete_all()

        async def empty() -> bool:
            return not await team.pods()

        await team.until("all pods were gone", empty)
        await kube.delete(NAMESPACES, name)


@asynccontextmanager
async def a_site(sandbox: Sandbox, bridge: str) -> AsyncIterator[Site]:
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube, AsyncExitStack() as stack:
        yield Site(sandbox, kube, stack, bridge)


@pytest.fixture
async def site(sandbox: Sandbox, guarded: SandboxBridge) -> AsyncIterator[Site]:
    assert guarded
    async with a_site(sandbox, "guarded") as found:
        yield found


@pytest.fixture
async def open_site(sandbox: Sandbox, open_bridge: SandboxBridge) -> AsyncIterator[Site]:
    assert open_bridge
    async with a_site(sandbox, "open") as found:
        yield found


@asynccontextmanager
async def reservation(team: Team) -> AsyncIterator[None]:
    await team.head("scontrol", "create", f"ReservationName={RESERVATION}", "StartTime=now", "Duration=60", "Users=root", "Nodes=kwok-47")
    try:
        yield
    finally:

        async def left() -> bool:
            return not await team.head("squeue", "--noheader", f"--reservation={RESERVATION}")

        await team.head("scancel", f"--reservation={RESERVATION}")
        await team.until("nothing was left in the reservation", left)
        await team.head("scontrol", "delete", f"ReservationName={RESERVATION}")


async def refusal(team: Team, document: dict[str, Any], path: str = "/api/v1/namespaces/{}/pods") -> str:
    """Of the API server and its webhooks, with nothing kept: empty where it would be made."""
    try:
        await team.kube.raw("POST", path.format(team.namespace), body=document, parameters={"dryRun": "All"})
    except ApiError as error:
        return str(error)
    return ""


async def parked(team: Team, name: str) -> str:
    found = (await team.get(name)).condition(CONDITION)
    return found.message if found and found.reason == "Parked" else ""


async def shown(team: Team, name: str) -> str:
    (job_id,) = await team.until_labelled(name)
    return await team.head("scontrol", "show", "job", str(job_id))


@pytest.mark.parametrize("name", CASES)
async def test_a_rule_allows_and_refuses_at_admission(site: Site, name: str) -> None:
    case = CASES[name]
    team = await site.team(name, **case.labels)
    assert not await refusal(team, site.pod("right", case.allowed, **case.spec))
    assert case.reason in await refusal(team, site.pod("wrong", case.refused, **case.spec | case.wrong))
    annotations = {SETTINGS + key: value for key, value in case.refused.items()}
    template = {"spec": site.pod("x", {}, **case.wrong)["spec"]}
    for root, place in ((annotations, ""), ({}, "spec.template: ")):
        spec = {"template": template if root else template | {"metadata": {"annotations": annotations}}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "wrong", "annotations": root}, "spec": spec}
        assert place + case.reason in await refusal(team, job, "/apis/batch/v1/namespaces/{}/jobs")


async def test_each_rule_allows_and_refuses_before_the_submit_where_there_is_no_webhook(open_site: Site) -> None:
    """All side by side: a pod's standing is told after some seconds."""
    teams = {name: await open_site.team(name, **case.labels) for name, case in CASES.items()}
    async with reservation(teams["reservations"]):
        for name, case in CASES.items():
            await teams[name].create(
                open_site.pod("right", case.allowed, **case.spec), open_site.pod("wrong", case.refused, **case.spec | case.wrong)
            )
        found = dict(zip(CASES, await asyncio.gather(*(shown(team, "right") for team in teams.values())), strict=True))
        assert not {name: (case.shown, found[name]) for name, case in CASES.items() if case.shown not in found[name]}

        async def all_parked() -> bool:
            return all([await parked(teams[name], "wrong") for name in CASES])

        await teams["nothing"].until("what is not granted was parked", all_parked, 120)
        for name, case in CASES.items():
            assert (await parked(teams[name], "wrong")).startswith(case.reason)
            assert JOB_ID not in (await teams[name].get("wrong")).metadata.labels


async def test_a_workload_that_was_refused_goes_on_when_it_says_something_else_or_its_namespace_is_labelled_otherwise(
    open_site: Site,
) -> None:
    team = await open_site.team("none")
    await team.create(open_site.pod("word", {"qos": "high"}), open_site.pod("label", {"qos": "high"}))
    await team.until_condition("word", "Parked")
    await team.until_condition("label", "Parked")
    await team.kube.patch(PODS, "word", {"metadata": {"annotations": {SETTINGS + "qos": None}}}, team.namespace)
    assert "QOS=normal" in await shown(team, "word")
    await team.kube.patch(NAMESPACES, team.namespace, {"metadata": {"labels": {"case": "gold"}}})
    assert "QOS=high" in await shown(team, "label")


async def test_what_is_in_slurm_is_left_alone_when_the_namespace_may_no_longer_have_it(site: Site) -> None:
    team = await site.team("gold")
    await team.create(site.pod("runs", {"qos": "high"}), site.pod("waits", {"qos": "high", "priority": "0"}))
    await team.until_running("runs")
    before = await team.until_labelled("runs", "waits")
    await team.kube.patch(NAMESPACES, team.namespace, {"metadata": {"labels": {"case": "nothing"}}})

    async def refused() -> bool:
        return bool(await refusal(team, site.pod("later", {"qos": "high"})))

    await team.until("the namespace may no longer have it", refused)
    await team.create(site.pod("another", {}))
    await team.until_running("another")
    assert await team.until_labelled("runs", "waits") == before
    assert (await team.get("runs")).status.phase == "Running"
    assert [(await team.job_of(name)).state for name in ("runs", "waits")] == ["RUNNING", "PENDING"]


async def test_a_priority_class_is_what_the_site_says_and_within_what_the_namespace_may(site: Site) -> None:
    for name, value in (("guarded-gold", 1000), ("guarded-late", -10)):
        await site.kube.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    try:
        gold, plain = await site.team("gold"), await site.team("nothing")
        await gold.create(site.pod("high", {}, priorityClassName="guarded-gold"), site.pod("late", {}, priorityClassName="guarded-late"))
        assert "QOS=high" in await shown(gold, "high")
        assert "Nice=50 " in await shown(gold, "late")
        why = "spec.priorityClassName guarded-gold means QoS high, and namespace"
        assert why in await refusal(plain, site.pod("high", {}, priorityClassName="guarded-gold"))
        assert not await refusal(plain, site.pod("late", {}, priorityClassName="guarded-late"))
    finally:
        for name in ("guarded-gold", "guarded-late"):
            await site.kube.delete(PRIORITY_CLASSES, name)


@pytest.mark.long
async def test_a_namespaces_window_is_its_rules(site: Site) -> None:
    team, other = await site.team("window"), await site.team("nothing")
    await team.create(site.pod("first", {"priority": "0"}))
    await team.until_labelled("first")
    await team.create(site.pod("second", {"priority": "0"}))
    await team.until_condition("second", "Window")
    await other.create(*(site.pod(f"p{index}", {"priority": "0"}) for index in range(3)))
    await other.until_labelled("p0", "p1", "p2")
    assert JOB_ID not in (await team.get("second")).metadata.labels
    await team.kube.delete(PODS, "first", team.namespace, grace_seconds=0)
    await team.until_labelled("second")


async def test_job_annotations_cannot_be_bettered_after_admission(site: Site) -> None:
    team = await site.team("nothing")
    await team.create(site.pod("waits", {"priority": "0"}))
    await team.until_labelled("waits")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
    await team.kube.create(ROLES, {"metadata": {"name": "alice"}, "roleRef": role, "subjects": [subject]}, team.namespace)
    access = from_kubeconfig(site.sandbox.kubeconfig)
    # The tests are the user that the bridge is, which may.
    async with Client(replace(access, identity=replace(access.identity, impersonate="alice"))) as alice:
        for subresource in ("", "status"):
            for said, why in (
                ({"qos": "high"}, "qos is 'high', and namespace"),
                ({"timelimit": "soon"}, "timelimit is 'soon', and must be"),
            ):
                annotations = {SETTINGS + key: value for key, value in said.items()}
                with pytest.raises(ApiError, match=f"annotation {SETTINGS}{why}"):
                    await alice.patch(PODS, "waits", {"metadata": {"annotations": annotations}}, team.namespace, subresource=subresource)
        await alice.patch(PODS, "waits", {"metadata": {"annotations": {SETTINGS + "timelimit": "5"}}}, team.namespace)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "root"},
        "spec": {"suspend": True, "template": {"spec": site.pod("x", {})["spec"]}},
    }
    await team.create(job)
    path = f"/apis/batch/v1/namespaces/{team.namespace}/jobs/root"
    for place, change in (
        ("", {"metadata": {"annotations": {SETTINGS + "qos": "high"}}}),
        ("spec.template: ", {"spec": {"template": {"metadata": {"annotations": {SETTINGS + "qos": "high"}}}}}),
    ):
        with pytest.raises(ApiError, match=f"{place}annotation {SETTINGS}qos is 'high', and namespace"):
            await team.kube.raw("PATCH", path, body=change, content_type="application/merge-patch+json")
    await team.kube.raw(
        "PATCH", path, body={"metadata": {"annotations": {SETTINGS + "timelimit": "5"}}}, content_type="application/merge-patch+json"
    )
