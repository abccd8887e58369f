"""The operator with the rights of examples/operator/rbac.yaml, or rbac-namespaced.yaml, and no more: as a ServiceAccount, with its token."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import yaml

from slinky.sandbox.handle import Sandbox
from slinky.sandbox.operator import sandbox_operator
from tests.bridge_sandbox.test_rights import kubeconfig_of
from tests.operator_sandbox.cluster import EXAMPLES
from tests.operator_sandbox.lab import CHILDREN, IMAGE, Lab, open_lab

pytestmark = pytest.mark.sandbox


def manifest(file: str, own: str, lab: str) -> str:
    """The example, for other namespaces than those in it: several tests may use it on one sandbox."""
    text = (EXAMPLES / file).read_text().replace("slinky}", f"{own}}}").replace("namespace: slurm}", f"namespace: {lab}}}")
    documents: list[dict[str, Any]] = [each for each in yaml.safe_load_all(text) if each["metadata"]["name"] != "slurm"]
    return yaml.safe_dump_all(documents)


@contextmanager
def applied(sandbox: Sandbox, text: str) -> Iterator[None]:
    kubectl = str(sandbox.folder / "bin/kubectl")
    run([kubectl, "apply", "-f", "-"], input=text, text=True, check=True, env=os.environ | sandbox.exports())
    try:
        yield
    finally:
        run([kubectl, "delete", "--wait=false", "-f", "-"], input=text, text=True, check=True, env=os.environ | sandbox.exports())


async def everything(lab: Lab) -> None:
    """One of each kind, made, changed and deleted."""
    await lab.create("Secret", "database", data={"password": "c2VjcmV0"})
    storage = {"host": "nowhere", "username": "slurm", "passwordKeyRef": {"name": "database", "key": "password"}}
    await lab.create("Accounting", "a", {"slurmdbd": IMAGE, "storageConfig": storage})
    await lab.create("Controller", "c", {"slurmctld": IMAGE, "accountingRef": {"name": "a"}})
    await lab.create("RestApi", "r", {"controllerRef": {"name": "c"}, "slurmrestd": IMAGE})
    await lab.create("LoginSet", "l", {"controllerRef": {"name": "c"}, "login": IMAGE})
    claim = {"metadata": {"name": "scratch"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    workers = {"replicas": 1, "oversubscribeNode": True, "ssh": {"enabled": True}, "volumeClaimTemplates": [claim]}
    await lab.create("NodeSet", "w", {"controllerRef": {"name": "c"}, "slurmd": IMAGE, **workers})
    await lab.create("Token", "t", {"username": "alice", "jwtKeyRef": {"name": "c-auth-jwt", "key": "jwt.key"}})
    for kind, name in (("Accounting", "a"), ("RestApi", "r"), ("LoginSet", "l"), ("Token", "t")):
        await lab.until_said(kind, name, "True")
    await lab.until_there(*CHILDREN, ("ConfigMap", "w-ssh-config"), ("Secret", "a-accounting"))
    await lab.until("a worker was made", lambda: lab.kube.raw("GET", f"/api/v1/namespaces/{lab.namespace}/pods/w-0"))
    await lab.patch("StatefulSet", "c-controller", {"spec": {"replicas": 2}})
    await lab.patch("NodeSet", "w", {"spec": {"ssh": {"enabled": False}}})
    await lab.until_gone(("ConfigMap", "w-ssh-config"))

    async def mended() -> bool:
        return bool((await lab.get("StatefulSet", "c-controller"))["spec"]["replicas"] == 1)

    await lab.until("the StatefulSet was as before", mended)
    await lab.patch("Token", "t", {"spec": {"username": "bob"}})
    await lab.until_gone(("Secret", "t-jwt-alice"))
    await lab.until_event("c", "CreateSucceeded")


@pytest.mark.parametrize("file", ["rbac-namespaced.yaml", "rbac.yaml"])
async def test_the_rights_of_the_example_are_enough(sandbox: Sandbox, tmp_path: Path, file: str) -> None:
    own = f"own-{file.removesuffix('.yaml')}"
    async with open_lab(sandbox) as lab, open_lab(sandbox) as other:
        with applied(sandbox, manifest(file, own, lab.namespace)):
            limited = {"namespaces": [lab.namespace]} if "namespaced" in file else {}
            settings = {"namespace": own, "slurm": {"address": "http://127.0.0.1:9"}, **limited}
            async with sandbox_operator(sandbox, tmp_path, (), **settings) as operator:
                await other.create("Controller", "c", {"slurmctld": IMAGE})
                operator.kubeconfigs["run"] = await kubeconfig_of(lab.kube, sandbox, "slurm-operator", tmp_path, own)
                await operator.start("run")
                await everything(lab)
                if limited:
                    assert not (await other.get("Controller", "c")).get("status")
                    assert "orbidden" not in operator.log("run")
                else:
                    why = await other.until_said("Controller", "c", "True", "NamespaceUnreadable", type_="Degraded")
                    assert "Secrets of namespace" in why
                    wrong = [line for line in operator.log("run").splitlines() if "orbidden" in line and other.namespace not in line]
                    assert not wrong
