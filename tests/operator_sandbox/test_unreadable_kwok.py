"""Secrets that are away for a while, or may not be read: nothing that runs is replaced, and the status says which Secret is missing."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from slinky.kube import PODS, Client, Resource, from_kubeconfig
from slinky.operator.children import DEPLOYMENTS, SECRETS
from slinky.operator.files import NamespaceFiles
from slinky.operator.kinds import GROUP, VERSION
from slinky.operator.trouble import Trouble
from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.test_rights import kubeconfig_of
from tests.operator_sandbox.kwok_site import NODESETS, Site, a_site

pytestmark = pytest.mark.sandbox

LOGINSETS = Resource(GROUP, VERSION, "loginsets", dict)
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
