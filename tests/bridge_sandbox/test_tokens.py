"""Tokens that expire and are rotated, Slurm's and Kubernetes': no pod fails for it."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slinky.kube import Client as KubeClient
from slinky.kube import UnauthorizedError, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from slinky.slurm import AuthenticationError, FixedToken, SlurmClient
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import jobs_of, own_bridge
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox


async def slurm_token(sandbox: Sandbox, seconds: int) -> str:
    told = await sandbox.link.run("head", "scontrol", "token", "username=root", f"lifespan={seconds}")
    return told.strip().removeprefix("SLURM_JWT=")


def put(file: Path, token: str) -> None:
    """As a kubelet renews a mounted secret: another file, moved into its place."""
    new = file.with_suffix(".new")
    new.write_text(token)
    new.rename(file)


async def until_refused(team: Team, token: str) -> None:
    async with SlurmClient(team.sandbox.slurm_server, FixedToken(token)) as client:

        async def refused() -> bool:
            try:
                await client.jobs.states([1])
            except AuthenticationError:
                return True
            return False

        await team.until("the token had expired", refused, 60)


async def test_slurms_token_expires_and_is_rotated_without_a_failed_pod(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    file = tmp_path / "token"
    put(file, await slurm_token(sandbox, 3600))
    async with own_bridge(sandbox, partition, tmp_path / "bridge", slurm={"tokenFile": str(file)}) as (bridge, team):
        await team.create(team.pod("runs"), team.pod("ends", run_for="10s"), team.pod("held", said={"priority": "0"}))
        await team.until_running("runs", "ends")
        before = await team.until_labelled("runs", "held")
        first = await slurm_token(sandbox, 5)
        put(file, first)
        await until_refused(team, first)
        await team.create(team.pod("meanwhile"))

        async def noticed() -> bool:
            return "the jobs' states cannot be read" in bridge.log("run")

        await team.until("the bridge noticed", noticed)
        put(file, await slurm_token(sandbox, 3600))
        await team.until_running("meanwhile")
        for number in range(3):  # and again, while there is much to do
            await team.create_all([team.pod(f"many-{number}-{index}", run_for="1s") for index in range(8)])
            put(file, await slurm_token(sandbox, 3600))

        async def done() -> bool:
            pods = {pod.metadata.name: pod.status.phase for pod in await team.pods()}
            return all(phase == "Succeeded" for name, phase in pods.items() if name.startswith(("many", "ends")))

        await team.until("all had ended", done)
        assert await team.until_labelled("runs", "held") == before
        assert {(await team.get(name)).status.phase for name in ("runs", "meanwhile")} == {"Running"}
        assert len(await jobs_of(team)) == 4 + 24
        assert "is parked" not in bridge.log("run")
        assert first not in bridge.log("run")


async def test_kubernetes_token_is_rotated_without_a_failed_pod(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    """Of a ServiceAccount, in a file; the old one is worth nothing from one moment to the next, and the new one comes later."""
    numbers = itertools.count()
    file = tmp_path / "kube-token"
    async with KubeClient(from_kubeconfig(sandbox.kubeconfig)) as kube:
        account = {"metadata": {"name": "rotated", "namespace": "kube-system"}}
        role = {
            "metadata": {"name": "rotated"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "rotated", "namespace": "kube-system"}],
        }
        await kube.raw("POST", "/api/v1/namespaces/kube-system/serviceaccounts", body=account)
        await kube.raw("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body=role)

        async def new_token() -> tuple[str, str]:
            """And the Secret that it stands and falls with."""
            name = f"rotated-{next(numbers)}"
            made = await kube.raw("POST", "/api/v1/namespaces/kube-system/secrets", body={"metadata": {"name": name}})
            uid = msgspec.json.decode(made, type=dict[str, Any])["metadata"]["uid"]
            bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid}
            path = "/api/v1/namespaces/kube-system/serviceaccounts/rotated/token"
            answer = msgspec.json.decode(await kube.raw("POST", path, body={"spec": {"boundObjectRef": bound}}), type=dict[str, Any])
            return name, answer["status"]["token"]

        secret, token = await new_token()
        put(file, token)
        known: dict[str, Any] = yaml.safe_load(sandbox.kubeconfig.read_text())
        known["users"] = [{"name": known["contexts"][0]["context"]["user"], "user": {"tokenFile": str(file)}}]
        config = tmp_path / "rotated.kubeconfig"
        config.write_text(yaml.safe_dump(known))
        config.chmod(0o600)

        async with own_bridge(sandbox, partition, tmp_path / "bridge", parts=()) as (bridge, team):
            bridge.kubeconfigs = {"run": config}
            await bridge.start("admission")
            await bridge.start("run")
            await team.create(team.pod("before"))
            await team.until_running("before")
            await kube.raw("DELETE", f"/api/v1/namespaces/kube-system/secrets/{secret}")
            async with KubeClient(from_kubeconfig(config)) as old:

                async def refused() -> bool:
                    try:
                        await old.raw("GET", "/api/v1/nodes?limit=1")
                    except UnauthorizedError:
                        return True
                    return False

                await team.until("the old token was refused", refused)
            await team.create(team.pod("meanwhile"))
            await asyncio.to_thread(put, file, (await new_token())[1])
            await team.until_running("meanwhile")
            assert (await team.get("before")).status.phase == "Running"
            assert len(await jobs_of(team)) == 2
            assert "Traceback" not in bridge.log("run")
        await kube.raw("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/rotated")
        await kube.raw("DELETE", "/api/v1/namespaces/kube-system/serviceaccounts/rotated")
