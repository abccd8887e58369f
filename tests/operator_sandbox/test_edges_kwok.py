"""What is refused or missing for a while: nothing that runs is replaced, nothing is asked again and again, and the status says why."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from slinky.kube import EVENTS, PODS, Client, Resource, from_kubeconfig
from slinky.operator.children import DEPLOYMENTS, SECRETS
from slinky.operator.files import NamespaceFiles
from slinky.operator.kinds import GROUP, VERSION
from slinky.operator.trouble import Trouble
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobDescription
from tests.bridge_sandbox.test_rights import kubeconfig_of
from tests.operator_sandbox.kwok_site import NODESETS, Site, a_site

pytestmark = pytest.mark.sandbox

LOGINSETS = Resource(GROUP, VERSION, "loginsets", dict)
MERGE = "application/merge-patch+json"
PASSES = 6.0  # seconds, in which the operator looks at what is not settled at least once more


async def people(site: Site, conf: str) -> None:
    """The Secret with sssd.conf."""
    data = {"sssd.conf": base64.b64encode(conf.encode()).decode()}
    await site.kube.create(SECRETS.untyped, {"metadata": {"name": "people"}, "data": data}, site.namespace)


async def degraded(site: Site, resource: Resource[dict[str, Any]], name: str) -> tuple[str, str]:
    """Reason and message; nothing where all is well."""
    found = await site.kube.get(resource, name, site.namespace)
    told = (one for one in found.get("status", {}).get("conditions", []) if one["type"] == "Degraded")
    return next(((one["reason"], one["message"]) for one in told if one["status"] == "True"), ("", ""))


async def until_said(site: Site, reason: str) -> None:
    async def said() -> bool:
        found = [await degraded(site, NODESETS, "ss"), await degraded(site, LOGINSETS, "lo")]
        return all(one[0] == reason and ("people" in one[1] or not reason) for one in found)

    await site.until(f"NodeSet ss and LoginSet lo said {reason or 'that all is well'}", said)


async def uids(site: Site) -> dict[str, str]:
    return {name: pod.metadata.uid for name, pod in (await site.pods("ss")).items()}


async def test_a_secret_that_is_away_for_a_while_replaces_no_pod_also_across_a_restart(
    sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    async with a_site(sandbox, namespace, tmp_path) as site:
        await people(site, "[sssd]\n")
        sssd = {"sssdConfRef": {"name": "people", "key": "sssd.conf"}}
        await site.nodeset("ss", replicas=3, ssh={"enabled": True, **sssd})
        await site.create("LoginSet", "lo", controllerRef={"name": "c"}, login={"image": "none"}, **sssd)
        for number in range(3):
            await site.until_states(f"ss-{number}", "IDLE")
        await site.until_ready("ss")
        before = await uids(site)
        revision = (await site.kube.get(NODESETS, "ss", site.namespace))["status"]["nodeSetHash"]
        await site.until("the login's Deployment was there", lambda: site.kube.get(DEPLOYMENTS, "lo", site.namespace))
        logins = (await site.kube.get(DEPLOYMENTS, "lo", site.namespace)).metadata.generation

        await site.kube.delete(SECRETS, "people", site.namespace)
        await until_said(site, "SecretNotFound")
        await site.operator.stop("run")
        await site.start_operator()
        await site.kube.delete(PODS, "ss-2", site.namespace)
        await site.until_pods("ss", "ss-0", "ss-1")
        await asyncio.sleep(PASSES)  # nothing is to happen: there is no sign to wait for
        await until_said(site, "SecretNotFound")
        left = {"ss-0": before["ss-0"], "ss-1": before["ss-1"]}
        assert await uids(site) == left, "none is replaced, and none is made that could not start"
        told = (await site.kube.get(NODESETS, "ss", site.namespace))["status"]
        assert (told["nodeSetHash"], told["updatedReplicas"]) == (revision, 2)

        await people(site, "[sssd]\n")
        await site.until_pods("ss", "ss-0", "ss-1", "ss-2")
        await until_said(site, "")
        await site.until_ready("ss")
        after = await uids(site)
        assert {name: after[name] for name in left} == left
        assert (await site.kube.get(DEPLOYMENTS, "lo", site.namespace)).metadata.generation == logins

        data = {"sssd.conf": base64.b64encode(b"[sssd]\ndomains = lab\n").decode()}
        await site.kube.patch(SECRETS, "people", {"data": data}, site.namespace)

        async def replaced() -> bool:
            found = await uids(site)
            return len(found) == 3 and found.items().isdisjoint(after.items())

        await site.until("another sssd.conf replaced the workers", replaced)


async def test_a_secret_that_may_be_seen_and_not_read_is_trouble_that_says_so(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
        rights = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["list", "watch"]}
        group = "/apis/rbac.authorization.k8s.io/v1/namespaces/"
        subject = {"kind": "ServiceAccount", "name": "half", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "half"}
        await kube.raw("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body={"metadata": {"name": "half"}})
        await kube.raw("POST", f"{group}{namespace}/roles", body={"metadata": {"name": "half"}, "rules": [rights]})
        binding = {"metadata": {"name": "half"}, "subjects": [subject], "roleRef": role}
        await kube.raw("POST", f"{group}{namespace}/rolebindings", body=binding)
        await kube.create(SECRETS.untyped, {"metadata": {"name": "people"}, "data": {}}, namespace)
        half = await kubeconfig_of(kube, sandbox, "half", tmp_path, namespace)
        async with Client(from_kubeconfig(half)) as limited, NamespaceFiles(limited).running() as files:
            files.follow(namespace)
            await files.known(namespace)
            with pytest.raises(Trouble, match=r"people .* cannot be read: .*forbidden.*ServiceAccount") as trouble:
                await files.content("Secret", "people", namespace)
            assert (trouble.value.reason, trouble.value.lasting) == ("SecretUnreadable", False)


async def requests(site: Site, metric: str, *labels: str) -> int:
    """That the operator has made so far."""
    async with aiohttp.ClientSession() as session, session.get(f"{site.operator.health()}/metrics") as answer:
        text = await answer.text()
    lines = (line for line in text.splitlines() if line.startswith(metric) and all(label in line for label in labels))
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


async def posts(site: Site) -> int:
    return await requests(site, "slinky_kube_requests_total", 'method="POST"', 'resource="pods"')


async def slurm_calls(site: Site, call: str) -> int:
    return await requests(site, "slinky_slurm_requests_total", f'call="{call}"')


async def test_a_quota_that_is_used_up_is_asked_ever_more_rarely_and_told_of_once(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    async with a_site(sandbox, namespace, tmp_path) as site:
        quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
        await site.kube.raw("POST", quotas, body={"metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}})

        async def is_in_force() -> bool:
            found = msgspec.json.decode(await site.kube.raw("GET", f"{quotas}/few"))
            return bool(found.get("status", {}).get("hard") == {"pods": "3"})

        await site.until("the quota was in force", is_in_force)
        await site.nodeset("qu", replicas=22)

        async def refused() -> bool:
            reason, message = await degraded(site, NODESETS, "qu")
            return reason == "Refused" and "exceeded quota: few" in message and "19 workers wait" in message

        await site.until("the NodeSet quoted the refusal", refused)
        before = await posts(site)
        await asyncio.sleep(20.0)  # it had 228 refusals a minute in such a time
        assert await posts(site) - before <= 5
        assert len(await site.pods("qu")) == 3
        events = [one for one in (await site.kube.list(EVENTS, namespace)).items if one.reason == "Refused"]
        assert len(events) == 1, [one.note for one in events]

        await site.kube.raw("PATCH", f"{quotas}/few", body={"spec": {"hard": {"pods": "30"}}}, content_type=MERGE)
        await site.change("qu", replicas=21)
        await site.until_ready("qu")
        assert len(await site.pods("qu")) == 21


async def test_workers_leave_under_many_jobs_without_a_list_of_all_of_them(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    """More than the operator reads one by one at each look."""
    async with a_site(sandbox, namespace, tmp_path) as site:
        await site.nodeset("jo", replicas=21, oversubscribeNode=True)
        for number in range(21):
            await site.until_states(f"jo-{number}", "IDLE")
        await site.until_ready("jo")
        jobs = [one for number in range(20) for one in await jobs_on(site, f"jo-{number}", 4)]
        await site.until("all jobs ran", lambda: all_run(site, jobs))
        before = await slurm_calls(site, "GET slurm/job/*")
        await site.change("jo", replicas=20)
        await site.until_pods("jo", *(f"jo-{number}" for number in range(20)))
        read = await slurm_calls(site, "GET slurm/job/*") - before
        assert read == 0, "the idle one goes, whatever the others do"
        await site.change("jo", replicas=0)
        for number in range(20):
            await site.until_states(f"jo-{number}", "DRAIN")

        async def named() -> bool:
            why = (await site.condition("jo", "Progressing"))[1]
            return any(f"job {job} is" in why or f"{job}, " in why for job in jobs)

        await site.until("the NodeSet named a job that it waits for", named)
        assert all([await site.is_running(job) for job in jobs])
        await site.slurm.jobs.cancel_many(jobs[:4])
        await site.until_pods("jo", *(f"jo-{number}" for number in range(1, 20)))
        await site.slurm.jobs.cancel_many(jobs[4:])
        await site.until_pods("jo")
        assert await slurm_calls(site, "GET slurm/jobs") == 0
        assert await slurm_calls(site, "GET slurm/jobs/state") > 0


async def all_run(site: Site, jobs: list[int]) -> bool:
    return all(status.is_running for status in await site.slurm.jobs.states(jobs))


async def jobs_on(site: Site, node: str, count: int) -> list[int]:
    """Running external jobs, each on a core of that node."""
    job = JobDescription(
        name="held",
        tasks=1,
        memory_per_cpu=100,
        partition="all",
        required_nodes=[node],
        current_working_directory="/tmp",
        environment=["A=b"],
    )
    return [(await site.slurm.jobs.submit_external(job)).job_id for _ in range(count)]
