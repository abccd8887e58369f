"""Pods of a job that ends, with disruption budgets in the way: the real Eviction API. The bridge of these tests passes a budget over after five seconds."""

from contextlib import suppress

import pytest

from slinky.kube import EVENTS, PODS, NotFoundError, PatchKind
from tests.bridge_sandbox.conftest import Team

pytestmark = pytest.mark.sandbox


async def budget(team: Team, name: str, least: int) -> None:
    """For pods with label `app` of that value."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}},
    }
    await team.kube.raw("POST", f"/apis/policy/v1/namespaces/{team.namespace}/poddisruptionbudgets", body=body)


async def notes(team: Team, name: str, reason: str) -> list[str]:
    found = (await team.kube.list(EVENTS, team.namespace)).items
    return [event.note for event in found if event.regarding.name == name and event.reason == reason]


async def test_a_budget_is_honoured_then_overridden_with_an_event_that_names_it(team: Team) -> None:
    await budget(team, "web", 1)
    await team.create(team.pod("p", labels={"app": "web"}, finalizers=["example.com/look"]), team.pod("free"))
    await team.until_running("p", "free")
    jobs = await team.until_labelled("p", "free")
    await team.head("scancel", *map(str, jobs))
    await team.until_gone("free")
    assert (await team.get("p")).metadata.deletion_timestamp is None, "its budget holds it"

    async def delayed() -> bool:
        return bool(await notes(team, "p", "EvictionDelayed"))

    await team.until("an Event said that it waits", delayed)

    async def goes() -> bool:
        return (await team.get("p")).metadata.deletion_timestamp is not None

    await team.until("the pod went", goes)
    found = (await team.get("p")).condition("DisruptionTarget")
    assert found
    assert (found.status, found.reason) == ("True", "SlurmCancelled")
    assert f"Slurm job {jobs[0]} is CANCELLED" in found.message

    async def told() -> bool:
        return bool(await notes(team, "p", "BudgetOverridden"))

    await team.until("an Event said so", told)
    [note] = await notes(team, "p", "BudgetOverridden")
    assert "budget web" in note
    assert f"Slurm job {jobs[0]}" in note
    await team.kube.raw(
        "PATCH",
        f"/api/v1/namespaces/{team.namespace}/pods/p",
        body={"metadata": {"finalizers": None}},
        content_type="application/merge-patch+json",
    )


async def test_a_budget_that_gives_way_in_time_is_not_overridden(team: Team) -> None:
    """Two pods, of which one must stay: the first goes at once, the second when there is a third."""
    await budget(team, "pair", 1)
    await team.create(*(team.pod(name, labels={"app": "pair"}) for name in ("a", "b")))
    await team.until_running("a", "b")
    jobs = await team.until_labelled("a", "b")
    await team.head("scancel", str(jobs[0]))
    await team.until_gone("a")
    await team.create(team.pod("c", labels={"app": "pair"}))
    await team.until_running("c")
    await team.head("scancel", str(jobs[1]))
    await team.until_gone("b")
    assert not await notes(team, "b", "BudgetOverridden")
    assert (await team.get("c")).status.phase == "Running"


async def test_why_a_pod_was_evicted_is_said_again_where_its_kubelet_has_written_back_what_it_knew_before(team: Team) -> None:
    """A kubelet's next status carries the API server's own word for an eviction, if it had not seen ours by then."""
    stops = {"sandbox.slinky.slurm.net/stop-after": "60s"}
    pod = team.pod("p", annotations=stops)
    pod["spec"]["terminationGracePeriodSeconds"] = 60
    await team.create(pod)
    await team.until_running("p")
    [job] = await team.until_labelled("p")
    await team.head("scancel", str(job))

    async def says_why() -> bool:
        found = (await team.get("p")).condition("DisruptionTarget")
        return found is not None and found.reason == "SlurmCancelled"

    await team.until("it said why", says_why)
    old = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    change = {"status": {"conditions": [old]}}
    await team.kube.patch(PODS, "p", change, team.namespace, kind=PatchKind.STRATEGIC, subresource="status")
    await team.until("it said why again", says_why)
    await team.kube.patch(PODS, "p", {"metadata": {"annotations": dict.fromkeys(stops)}}, team.namespace)
    with suppress(NotFoundError):  # kwok ends the pod as soon as it has no annotation that says when it stops
        await team.kube.delete(PODS, "p", team.namespace, grace_seconds=0)
    await team.until_gone("p")
