"""Kinds that an API server is to serve for a test."""

import os
import subprocess

from slinky.cli.manifests import as_yaml
from slinky.sandbox.handle import Sandbox
from tests.charts.helm import Document

__all__ = ["apply", "serve"]


def apply(sandbox: Sandbox, text: str, *words: str) -> str:
    command = [str(sandbox.folder / "bin/kubectl"), "apply", "--server-side", "--force-conflicts", *words, "--filename=-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False, env=os.environ | sandbox.exports())
    assert done.returncode == 0, done.stderr
    return done.stdout


async def serve(sandbox: Sandbox, found: list[Document]) -> None:
    """Until the API server serves these kinds."""
    apply(sandbox, as_yaml(found))
    async with sandbox.kube() as kube:
        for crd in found:
            version = next(each["name"] for each in crd["spec"]["versions"] if each["served"])
            path = f"/apis/{crd['spec']['group']}/{version}/{crd['spec']['names']['plural']}"
            await sandbox.until("kube-apiserver", f"{path} was served", lambda path=path: kube.get(path))  # type: ignore[misc]
