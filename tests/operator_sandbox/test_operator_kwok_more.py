"""More of the operator's process on kwok nodes: what takes too long for every run."""

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from slinky.kube import Client, Resource, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from tests.operator_sandbox.lab import CHILDREN, IMAGE, Background, open_lab, operator_for_any
from tests.operator_sandbox.originals import leave_behind

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

# Of Prometheus' operator, as far as it is written here; what is not in it is refused, as writes are strict.
_TEXT = {"type": "string"}
_ENDPOINT = {"type": "object", "properties": dict.fromkeys(("port", "path", "interval", "scrapeTimeout"), _TEXT)}
_SELECTOR = {"type": "object", "properties": {"matchLabels": {"type": "object", "additionalProperties": _TEXT}}}
_NAMES = {"type": "object", "properties": {"matchNames": {"type": "array", "items": _TEXT}}}
_SPEC = {"endpoints": {"type": "array", "items": _ENDPOINT}, "selector": _SELECTOR, "namespaceSelector": _NAMES}
_SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "required": ["endpoints", "selector"], "properties": _SPEC}}}
SERVICE_MONITORS: dict[str, Any] = {
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"plural": "servicemonitors", "singular": "servicemonitor", "kind": "ServiceMonitor", "listKind": "ServiceMonitorList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
    },
}


@pytest.fixture(scope="module")
def operator(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    with operator_for_any(sandbox, tmp_path_factory.mktemp("operator")) as found:
        yield found


async def test_what_the_original_made_is_taken_over_and_what_it_wrote_is_ours_to_say(sandbox: Sandbox, operator: Background) -> None:
    """The worker lives on (its NodeSet says OnDelete); what the original wrote and we do not is gone; nothing waits for it any more."""
    async with open_lab(sandbox) as lab:
        await operator.do(operator.operator.stop("run", signal.SIGTERM))
        await leave_behind(lab, IMAGE)
        pods = f"/api/v1/namespaces/{lab.namespace}/pods"
        worker = msgspec.json.decode(await lab.kube.raw("GET", f"{pods}/n-0"))["metadata"]["uid"]
        deployment = (await lab.get("Deployment", "l"))["metadata"]["uid"]
        await operator.do(operator.operator.start("run"))

        async def is_ours() -> bool:
            selector = (await lab.get("Service", "c-controller"))["spec"]["selector"]
            stateful = await lab.get("StatefulSet", "c-controller")
            shared = (await lab.get("Service", "slurm-workers-c"))["metadata"]["ownerReferences"]
            return (
                "controller.slinky.slurm.net/active" not in selector
                and stateful.get("spec", {}).get("serviceName") == "c-controller-internal"
                and "logfile" not in str(stateful["spec"]["template"]["spec"])
                and [owner["kind"] for owner in shared] == ["Controller"]
            )

        await lab.until("the cluster's objects were ours", is_ours)

        async def login_is_ours() -> bool:
            containers = (await lab.get("Deployment", "l"))["spec"]["template"]["spec"]["containers"]
            return [each["name"] for each in containers] == ["login"] and "THEIRS" not in str(containers)

        await lab.until("the login node was ours", login_is_ours)
        assert (await lab.get("Deployment", "l"))["metadata"]["uid"] == deployment

        async def finalizers() -> bool:
            return bool((await lab.get("NodeSet", "n"))["metadata"]["finalizers"] == ["nodeset.slinky.slurm.net/workers"])

        await lab.until("only our finalizer was left", finalizers)
        await lab.until_said("Controller", "c", "False", type_="Degraded")
        assert msgspec.json.decode(await lab.kube.raw("GET", f"{pods}/n-0"))["metadata"]["uid"] == worker


async def test_a_service_monitor_is_made_when_the_api_server_knows_them(sandbox: Sandbox, operator: Background) -> None:
    """Until then the Controller says that there is none, and why."""
    async with open_lab(sandbox) as lab:
        metrics = {"enabled": True, "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"}}
        await lab.create("Controller", "c", {"slurmctld": IMAGE, "metrics": metrics})

        async def is_told() -> bool:
            return "no ServiceMonitor is made" in (await lab.condition("Controller", "c"))[2]

        await lab.until("the Controller said so", is_told)
        crds = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", dict, namespaced=False)
        await lab.kube.create(crds, SERVICE_MONITORS)
        try:
            await lab.until_there(("ServiceMonitor", "c-controller"))
            made = await lab.get("ServiceMonitor", "c-controller")
            assert made["metadata"]["labels"]["release"] == "prometheus"
            assert [each["path"] for each in made["spec"]["endpoints"]] == [
                f"/metrics/{what}" for what in ("jobs", "nodes", "partitions", "scheduler")
            ]
            service = (await lab.get("Service", "c-controller"))["metadata"]["labels"]
            assert made["spec"]["selector"]["matchLabels"].items() <= service.items()

            async def is_silent() -> bool:
                return not await is_told()

            await lab.until("the Controller had nothing to say of it", is_silent)
            await lab.patch("Controller", "c", {"spec": {"metrics": {"serviceMonitor": {"enabled": False}}}})
            await lab.until_gone(("ServiceMonitor", "c-controller"))
        finally:
            await lab.kube.delete(crds, SERVICE_MONITORS["metadata"]["name"])
        await operator.do(operator.operator.stop("run", signal.SIGTERM))
        await operator.do(operator.operator.start("run"))


async def test_ten_clusters_in_ten_namespaces_survive_the_operators_death(sandbox: Sandbox, operator: Background) -> None:
    async with Client(from_kubeconfig(sandbox.kubeconfig)), asyncio.TaskGroup() as group:
        ready = asyncio.Semaphore(0)
        killed = asyncio.Event()

        async def cluster() -> None:
            async with open_lab(sandbox) as lab:
                await lab.create("Controller", "c", {"slurmctld": IMAGE})
                ready.release()
                await killed.wait()
                await lab.until_said("Controller", "c", "True")
                await lab.until_there(*CHILDREN)
                assert (await lab.get("StatefulSet", "c-controller"))["metadata"]["generation"] == 1

        for _ in range(10):
            group.create_task(cluster())
        for count in (2, 4, 4):  # while some were made, and others were not
            for _ in range(count):
                await ready.acquire()
            await operator.do(operator.operator.stop("run", signal.SIGKILL))
            await operator.do(operator.operator.start("run"))
        killed.set()
