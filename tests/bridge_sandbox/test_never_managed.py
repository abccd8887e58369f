"""Where Slurm, the bridge and Kubernetes themselves run, nothing ever waits for Slurm: on the real servers, whatever labels, settings and pods say."""

from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.kube import NAMESPACES, PODS, NotFoundError
from slinky.sandbox.bridge import SandboxBridge
from tests.bridge_sandbox.conftest import SCHEDULER, Team
from tests.conftest import Cli

pytestmark = pytest.mark.sandbox


async def test_the_bridges_own_namespace_and_slurms_can_never_be_managed(
    team: Team, bridge: SandboxBridge, cli: Cli, tmp_path: Path
) -> None:
    own = bridge.settings["namespace"]
    label = {"metadata": {"labels": {"bridge": "on"}}}  # by which every other namespace would be managed
    await team.kube.create(NAMESPACES.untyped, {"metadata": {"name": "slurm"} | label["metadata"]})
    await team.kube.patch(NAMESPACES, own, label)
    plain = team.pod("plain")
    naming = team.pod("naming") | {"spec": team.pod("naming")["spec"] | {"schedulerName": SCHEDULER}}
    try:
        await team.create(team.pod("taken"))
        for namespace in ("slurm", own):
            for pod in (plain, naming):
                await team.kube.create(PODS.untyped, pod, namespace)
        await team.until_running("taken")  # who came first in a namespace that is managed
        for namespace in ("slurm", own):
            found = await team.kube.get(PODS, "plain", namespace)
            assert (found.spec.scheduler_name, found.metadata.finalizers) == ("default-scheduler", ())

            async def left_alone(key: str = f"{namespace}/naming") -> bool:
                return f"pod {key} names our scheduler in a namespace that can never be managed" in bridge.log("run")

            await team.until(f"the bridge left the pod in {namespace} alone", left_alone)
            found = await team.kube.get(PODS, "naming", namespace)
            assert not found.spec.node_name
            assert FINALIZER not in found.metadata.finalizers
            assert JOB_ID not in found.metadata.labels
        assert {job.name for job in await team.slurm.jobs.all()}.isdisjoint({"slurm/naming", f"{own}/naming"})
    finally:
        await team.kube.patch(NAMESPACES, own, {"metadata": {"labels": {"bridge": None}}})
        for namespace in ("slurm", own):
            for name in ("plain", "naming"):
                with suppress(NotFoundError):
                    await team.kube.delete(PODS, name, namespace, grace_seconds=0)
        await team.kube.delete(NAMESPACES, "slurm")

    for namespace in ("slurm", own):
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump({**bridge.settings, "managedNamespaceSelector": None, "managedNamespaces": [namespace]}))
        refused = cli("bridge", "run", "--config", str(config))
        assert refused.returncode == 1
        assert f"managedNamespaces has {namespace}" in refused.stderr
