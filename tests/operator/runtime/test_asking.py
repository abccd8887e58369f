"""The client of a cluster's Slurm: what is wrong with its key is said, and keeps nothing from being made."""

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from slinky.kube import Key, Meta
from slinky.operator.asking import Asking
from slinky.operator.files import Content
from slinky.operator.kinds import Controller, ControllerSpec, RestApi, RestApiSpec
from slinky.operator.kinds.common import NameReference
from slinky.slurm import MintedToken


class Clusters:
    def __init__(self) -> None:
        self.made: list[Key] = []

    async def ensure(self, key: Key, _address: str, jwt_key: bytes) -> None:
        MintedToken(jwt_key, "slurm")
        self.made.append(key)


async def asked_with(jwt_key: bytes) -> tuple[Any, Clusters]:
    reference = NameReference(name="c")
    restapi = RestApi(metadata=Meta(name="r", namespace="ns"), spec=RestApiSpec(controller_ref=reference))

    async def content(*_: str) -> Content:
        return Content(data={"jwt.key": base64.b64encode(jwt_key).decode()})

    service = SimpleNamespace(spec=SimpleNamespace(cluster_ip="10.0.0.1"))
    watches = SimpleNamespace(
        files=SimpleNamespace(content=content),
        children={"Service": SimpleNamespace(get=lambda *_: service)},
    )
    settings = SimpleNamespace(slurm=SimpleNamespace(address="http://{service}.{namespace}:{port}"))
    clusters = Clusters()
    site: Any = SimpleNamespace(watches=watches, settings=settings, clusters=clusters)
    assembler: Any = SimpleNamespace(members=lambda *_: [restapi])
    controller = Controller(metadata=Meta(name="c", namespace="ns"), spec=ControllerSpec())
    return await Asking(site, assembler).begin(controller), clusters


async def test_a_key_that_signs_has_its_client() -> None:
    trouble, clusters = await asked_with(b"k" * 32)
    assert trouble is None and clusters.made == [Key("ns", "c")]


@pytest.mark.parametrize("jwt_key", [b"k", b"short key"])
async def test_a_key_that_cannot_sign_is_named_and_no_exception_ends_the_pass(jwt_key: bytes) -> None:
    """It ended each pass before slurmctld was made, and no status said so."""
    trouble, clusters = await asked_with(jwt_key)
    assert clusters.made == []
    assert trouble.reason == "KeyUnusable" and trouble.lasting
    assert "jwt.key of Secret c-auth-jwt" in trouble.message and "32 bytes" in trouble.message
