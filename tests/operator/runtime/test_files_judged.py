"""A ConfigMap can be changed without its Controller, and then no webhook sees it: the operator judges the files at each look."""

from types import SimpleNamespace
from typing import Any

import pytest

from slinky.kube.objects import Meta
from slinky.operator.assembling import Assembler
from slinky.operator.files import Content
from slinky.operator.settings import Settings
from slinky.operator.trouble import Trouble
from tests.operator.validation.things import made


class Files:
    """ConfigMaps of a namespace; no Secrets."""

    def __init__(self, **held: dict[str, str]) -> None:
        self.held = held

    async def content(self, kind: str, name: str, namespace: str) -> Content | None:
        assert namespace == "site"
        return Content(metadata=Meta(name=name), data=self.held[name]) if kind == "ConfigMap" and name in self.held else None


def assembler(files: Files) -> Assembler:
    nothing = SimpleNamespace(list=lambda _: [], get=lambda *_: None)
    kinds = dict.fromkeys(("NodeSet", "LoginSet", "RestApi", "Accounting"), nothing)
    watches: Any = SimpleNamespace(files=files, kinds=kinds, children={})
    return Assembler(watches, Settings(), "cluster.local")


async def test_a_file_that_is_the_operators_own_is_refused_whenever_it_comes() -> None:
    controller, files = made("Controller", configFileRefs=[{"name": "files"}]), Files(files={"gres.conf": "AutoDetect=nvidia"})
    assert (await assembler(files).view(controller)).files == {"files": {"gres.conf": "AutoDetect=nvidia"}}
    files.held["files"] = {"slurm.conf": "ClusterName=other"}
    with pytest.raises(Trouble, match=r"ConfigMap files has a file slurm\.conf, which the operator makes") as caught:
        await assembler(files).view(controller)
    assert (caught.value.reason, caught.value.lasting) == ("InvalidSpec", True)
