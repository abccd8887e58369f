"""Labels and annotations on custom resources change no pod template, on a real API server.

An object as an earlier version of the operator wrote it keeps its pods too.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from slinky.kube import PODS
from slinky.operator.children import MANAGER
from slinky.operator.kept_template import TEMPLATE_DIGEST
from slinky.sandbox.handle import Sandbox
from tests.operator_sandbox.lab import IMAGE, Background, Lab, open_lab, operator_for_any

pytestmark = pytest.mark.sandbox

CHART = "helm.sh/chart"
CRS = (("Controller", "c"), ("RestApi", "r"), ("LoginSet", "l"), ("Accounting", "a"))
WORKLOADS = (
    ("StatefulSet", "c-controller"),
    ("Deployment", "r-restapi"),
    ("Deployment", "l"),
    ("StatefulSet", "a-accounting"),
)


@pytest.fixture(scope="module")
def operator(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    with operator_for_any(sandbox, tmp_path_factory.mktemp("operator")) as found:
        yield found


async def cluster(lab: Lab) -> None:
    await lab.create("Secret", "database", data={"password": "c2VjcmV0"})
    key = {"name": "database", "key": "password"}
    storage = {"host": "nowhere", "username": "slurm", "passwordKeyRef": key}
    await lab.create("Accounting", "a", {"slurmdbd": IMAGE, "storageConfig": storage})
    await lab.create("Controller", "c", {"slurmctld": IMAGE, "accountingRef": {"name": "a"}})
    await lab.create("RestApi", "r", {"controllerRef": {"name": "c"}, "slurmrestd": IMAGE})
    await lab.create("LoginSet", "l", {"controllerRef": {"name": "c"}, "login": IMAGE})
    await lab.until_there(*WORKLOADS)
    await lab.until_said("RestApi", "r", "True")  # all keys are made, nothing changes any more
    await lab.until_said("LoginSet", "l", "True")

    async def all_pods() -> bool:
        return len(await pods(lab)) == len(WORKLOADS)

    await lab.until("each workload had its pod", all_pods)


async def workloads(lab: Lab) -> list[Any]:
    return [await lab.get(kind, name) for kind, name in WORKLOADS]


async def templates(lab: Lab) -> list[Any]:
    return [each["spec"]["template"] for each in await workloads(lab)]


async def pods(lab: Lab) -> set[str]:
    return {each.metadata.uid for each in (await lab.kube.list(PODS, lab.namespace)).items}


async def label_all(lab: Lab, value: str) -> None:
    """Write one label and one annotation onto each custom resource; wait for the children."""
    for kind, name in CRS:
        meta = {"labels": {CHART: value}, "annotations": {"note": value}}
        await lab.patch(kind, name, {"metadata": meta})

    def is_on(meta: dict[str, Any]) -> bool:
        return [meta["labels"].get(CHART), meta["annotations"].get("note")] == [value, value]

    async def arrived() -> bool:
        return all(is_on(each["metadata"]) for each in await workloads(lab))

    await lab.until(f"every workload had the label {value}", arrived)


async def test_a_label_on_a_custom_resource_restarts_nothing(
    sandbox: Sandbox,
    operator: Background,
) -> None:
    async with open_lab(sandbox) as lab:
        await cluster(lab)
        before, running = await templates(lab), await pods(lab)
        await label_all(lab, "slurm-0.2.0")
        await label_all(lab, "slurm-0.3.0")
        assert await templates(lab) == before
        assert await pods(lab) == running
        for kind, name in CRS:
            added = {"labels": {"tier": "gold"}, "annotations": {"seen": "yes"}}
            await lab.patch(kind, name, {"spec": {"template": {"metadata": added}}})

        def is_on(meta: dict[str, Any]) -> bool:
            found = (meta["labels"].get("tier"), meta["annotations"].get("seen"))
            return found == ("gold", "yes")

        async def added_everywhere() -> bool:
            return all(is_on(each["metadata"]) for each in await templates(lab))

        await lab.until("the templates had what spec.template adds", added_everywhere)
    assert operator


async def as_before(lab: Lab, kind: str, name: str) -> None:
    """Leave a workload as an operator did that wrote a custom resource's labels into templates."""
    found = await lab.get(kind, name)
    meta, spec = found["metadata"], found["spec"]
    spec["template"]["metadata"]["labels"][CHART] = "slurm-0.1.0"
    spec["template"]["metadata"]["annotations"]["note"] = "old"
    kept = {"name": name, "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]}
    await lab.kube.raw(
        "PATCH",
        f"/apis/apps/v1/namespaces/{lab.namespace}/{kind.lower()}s/{name}",
        body={"apiVersion": "apps/v1", "kind": kind, "metadata": kept, "spec": spec},
        parameters={"fieldManager": MANAGER, "force": "true"},
        content_type="application/apply-patch+yaml",
    )


async def test_an_upgrade_of_the_operator_keeps_the_pods_that_an_earlier_one_made(
    sandbox: Sandbox,
    operator: Background,
) -> None:
    async with open_lab(sandbox) as lab:
        await cluster(lab)
        await operator.do(operator.operator.stop("run"))
        for kind, name in WORKLOADS:
            await as_before(lab, kind, name)
        before = await templates(lab)
        assert all(each["metadata"]["labels"][CHART] == "slurm-0.1.0" for each in before)
        await operator.do(operator.operator.start("run"))

        async def written() -> bool:
            found = [each["metadata"].get("annotations", {}) for each in await workloads(lab)]
            return all(TEMPLATE_DIGEST in each for each in found)

        await lab.until("the operator had written every workload", written)
        assert await templates(lab) == before
        await label_all(lab, "slurm-0.2.0")
        assert await templates(lab) == before

        # A change that pods need takes the old labels with it.
        for kind, name in CRS:
            slower = {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}
            await lab.patch(kind, name, {"spec": slower})

        async def changed() -> bool:
            found = [each["spec"] for each in await templates(lab)]
            return all(each["terminationGracePeriodSeconds"] == 7 for each in found)

        await lab.until("the templates were changed", changed)
        for each in await templates(lab):
            assert CHART not in each["metadata"]["labels"]
            assert "note" not in each["metadata"]["annotations"]
