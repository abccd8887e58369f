"""A cluster put together from what was written, also where some of it cannot be read."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from slinky.kube import ForbiddenError, Key, Meta
from slinky.kube.errors import Status
from slinky.operator.absent import unreadable
from slinky.operator.assembling import Assembler, with_image
from slinky.operator.children import digest
from slinky.operator.conf.slurm import is_without_cgroups
from slinky.operator.files import Content
from slinky.operator.kinds import Accounting, Controller, NodeSet, NodeSetSpec, Written
from slinky.operator.objects.worker_pod import revision_of
from slinky.operator.settings import ImageSettings, Settings
from slinky.operator.trouble import Trouble
from slinky.operator.watching import RESOURCES


class Kind(dict[str, Written]):
    def list(self, _namespace: str) -> list[Written]:
        return [*self.values()]

    def get(self, name: str, _namespace: str = "") -> Written | None:  # type: ignore[override]
        return dict.get(self, name)


class World:
    def __init__(self) -> None:
        self.kinds = {kind: Kind() for kind in RESOURCES}
        self.files = self
        self.children: dict[str, Any] = {}
        self.contents: dict[tuple[str, str], Content] = {}
        self.refused: set[str] = set()
        self._version = 0
        self.assembler = Assembler(self, Settings(), "cluster.local")  # type: ignore[arg-type]

    def get(self, kind: str, key: Key) -> Content | None:
        return self.contents.get((kind, key.name))

    async def content(self, kind: str, name: str, _namespace: str) -> Content | None:
        if name in self.refused:
            raise unreadable(kind, name, "lab", ForbiddenError("GET", name, Status(code=403, message="you may not")))
        return self.contents.get((kind, name))

    def write(self, kind: str, name: str, uid: str = "", **spec: Any) -> Written:
        self._version += 1
        meta = Meta(name=name, namespace="lab", uid=uid or f"uid-{name}", resource_version=str(self._version))
        self.kinds[kind][name] = Written(metadata=meta, spec=spec)
        return self.kinds[kind][name]

    def controller(self) -> Controller:
        return self.assembler.read(Controller, self.kinds["Controller"]["c"])

    async def nodesets(self) -> list[tuple[str, int]]:
        view = await self.assembler.view(self.controller())
        return [(each.metadata.name, each.spec.replicas) for each in view.nodesets]


@pytest.fixture
def world() -> World:
    found = World()
    found.write("Controller", "c")
    found.contents["ConfigMap", "c-config"] = Content()
    return found


MEMBER: dict[str, Any] = {"controllerRef": {"name": "c"}}


async def test_a_nodeset_that_cannot_be_read_any_more_stands_as_it_was(world: World) -> None:
    world.write("NodeSet", "w", replicas=3, **MEMBER)
    assert await world.nodesets() == [("w", 3)]
    world.write("NodeSet", "w", replicas=5, typo=1, **MEMBER)
    assert await world.nodesets() == [("w", 3)]


async def test_one_that_never_could_be_read_holds_the_configuration_of_a_cluster_that_runs(world: World) -> None:
    world.write("NodeSet", "w", typo=1, **MEMBER)
    with pytest.raises(Trouble, match="NodeSet w cannot be read"):
        await world.nodesets()
    del world.contents["ConfigMap", "c-config"]
    assert await world.nodesets() == []


async def test_another_of_the_same_name_is_not_taken_for_the_one_before(world: World) -> None:
    world.write("NodeSet", "w", replicas=3, **MEMBER)
    await world.nodesets()
    world.write("NodeSet", "w", uid="another", typo=1, **MEMBER)
    with pytest.raises(Trouble, match="NodeSet w cannot be read"):
        await world.nodesets()


async def test_a_file_that_is_named_has_to_be_there(world: World) -> None:
    world.write("Controller", "c", configFileRefs=[{"name": "files"}])
    with pytest.raises(Trouble, match="no ConfigMap files"):
        await world.nodesets()
    world.contents["ConfigMap", "files"] = Content(data={"gres.conf": "x"})
    view = await world.assembler.view(world.controller())
    assert view.files == {"files": {"gres.conf": "x"}}
    world.contents["ConfigMap", "files"] = Content(binary_data={"a": "AA=="})
    with pytest.raises(Trouble, match="binary"):
        await world.nodesets()


async def test_of_secrets_there_are_digests_only(world: World) -> None:
    world.contents["Secret", "c-auth-slurm"] = Content(data={"slurm.key": "c2VjcmV0"})
    view = await world.assembler.view(world.controller())
    assert set(view.digests) == {"c-auth-slurm"} and "c2VjcmV0" not in str(view)
    world.contents["Secret", "c-auth-slurm"] = Content(data={"slurm.key": "b3RoZXI="})
    assert (await world.assembler.view(world.controller())).digests != view.digests


def secret(**data: str) -> Content:
    return Content(data={key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()})


SSSD = {"name": "sssd", "key": "sssd.conf"}


async def test_no_password_in_sssd_conf_can_be_tried_against_what_pods_show(world: World) -> None:
    """Whoever may read pods sees the digest; it is keyed by slurm.key, so it says nothing without that key."""
    world.write("NodeSet", "w", ssh={"enabled": True, "sssdConfRef": SSSD}, **MEMBER)
    world.contents["Secret", "sssd"] = guessed = secret(sssd_conf="ldap_default_authtok = summer")
    assert "sssd" not in (await world.assembler.view(world.controller())).digests, "there is no key yet"
    shown = []
    for key in ("first", "other"):
        world.contents["Secret", "c-auth-slurm"] = secret(slurm_key=key)
        view = await world.assembler.view(world.controller())
        assert view.digests["sssd"] not in (digest(dict(guessed.data))[:16], view.plain_digests["sssd"])
        [nodeset] = view.nodesets
        shown.append((view.digests["sssd"], revision_of(nodeset, replace(view, digests={**view.digests, "c-auth-slurm": ""}))))
    assert shown[0][0] != shown[1][0] and shown[0][1] != shown[1][1]
    again = await world.assembler.view(world.controller())
    assert (again.digests["sssd"], again.plain_digests) == (view.digests["sssd"], {"sssd": digest(dict(guessed.data))[:16]})
    world.contents["Secret", "sssd"] = secret(sssd_conf="ldap_default_authtok = winter")
    assert (await world.assembler.view(world.controller())).digests["sssd"] != view.digests["sssd"]


async def test_a_databases_password_that_stands_with_certificates_cannot_be_tried_either(world: World) -> None:
    storage = {
        "host": "db",
        "passwordKeyRef": {"name": "db", "key": "password"},
        "tls": {"caRef": {"name": "db", "key": "ca.crt"}, "keyRef": {"name": "client", "key": "tls.key"}},
    }
    found = world.write("Accounting", "a", storageConfig=storage)
    world.write("Controller", "c", accountingRef={"name": "a"})
    accounting = world.assembler.read(Accounting, found)
    for name, content in (("c-auth-slurm", secret(slurm_key="k")), ("c-auth-jwt", secret(jwt_key="j"))):
        world.contents["Secret", name] = content
    world.contents["Secret", "db"], world.contents["Secret", "client"] = secret(password="summer", ca_crt="x"), secret(tls_key="y")
    digests = (await world.assembler.accounting_view(accounting)).digests
    assert set(digests) == {"c-auth-slurm", "c-auth-jwt", "db", "client"}
    assert digests["db"] != digest(dict(world.contents["Secret", "db"].data))[:16]
    assert digests["client"] == digest(dict(world.contents["Secret", "client"].data))[:16], "as before: nobody guesses a private key"


async def test_a_mixture_of_nodesets_leaves_cgroups_as_the_cluster_has_them(world: World) -> None:
    world.write("NodeSet", "plain", **MEMBER)
    assert (await world.assembler.view(world.controller())).runs_without_cgroups is None
    world.write("NodeSet", "small", slurmd={"securityContext": {"privileged": False}}, **MEMBER)
    for line, runs in (("", False), ("ProctrackType=proctrack/linuxproc", True)):
        world.contents["ConfigMap", "c-config"] = Content(data={"slurm.conf": f"ClusterName=c\n{line}\n"})
        view = await world.assembler.view(world.controller())
        assert view.runs_without_cgroups is runs
        assert is_without_cgroups(view) is runs
    del world.contents["ConfigMap", "c-config"]
    assert (await world.assembler.view(world.controller())).runs_without_cgroups is None


PEOPLE = ("people", "sssd.conf")


@pytest.mark.parametrize(
    ("data", "refused", "reason"),
    [
        (None, False, "SecretNotFound"),
        ({}, False, "SecretNotFound"),
        ({"sssd.conf": ""}, False, "SecretNotFound"),
        ({"sssd.conf": "eA=="}, True, "SecretUnreadable"),
    ],
)
async def test_a_secret_that_is_not_there_or_cannot_be_read_is_trouble_for_those_who_need_it_alone(
    world: World, data: dict[str, str] | None, refused: bool, reason: str
) -> None:
    world.contents["Secret", "c-auth-slurm"] = Content(data={"slurm.key": "eA=="})
    world.write("NodeSet", "w", ssh={"enabled": True, "sssdConfRef": {"name": "people"}}, **MEMBER)
    if data is not None:
        world.contents["Secret", "people"] = Content(data=data)
    if refused:
        world.refused.add("people")
    view = await world.assembler.worker_view(world.controller())
    view.need(("c-auth-slurm", "slurm.key"))
    with pytest.raises(Trouble, match="people") as trouble:
        view.need(("c-auth-slurm", "slurm.key"), PEOPLE)
    assert (trouble.value.reason, trouble.value.lasting) == (reason, not refused)
    assert "What runs stays as it is" in trouble.value.message


async def test_a_file_of_the_controllers_that_is_gone_keeps_no_worker_from_being_made(world: World) -> None:
    world.write("Controller", "c", configFileRefs=[{"name": "files"}], accountingRef={"name": "nowhere"})
    world.write("NodeSet", "w", replicas=3, **MEMBER)
    view = await world.assembler.worker_view(world.controller())
    assert [each.metadata.name for each in view.nodesets] == ["w"]


async def test_a_password_that_was_deleted_and_is_back_is_the_same_and_another_is_another(world: World) -> None:
    """slurmdbd restarts for another mark."""
    storage = {"host": "db", "passwordKeyRef": {"name": "database", "key": "password"}}
    found = world.write("Accounting", "a", storageConfig=storage, slurmKeyRef={"name": "keys"}, jwtKeyRef={"name": "keys"})
    accounting = world.assembler.read(Accounting, found)
    world.contents["Secret", "keys"] = Content(data={"slurm.key": "eA==", "jwt.key": "eA=="})

    async def mark(password: str, uid: str) -> str:
        world.contents["Secret", "database"] = Content(metadata=Meta(name="database", uid=uid), data={"password": password})
        return (await world.assembler.accounting_view(accounting)).password_mark

    first = await mark("c2VjcmV0", "1")
    assert await mark("c2VjcmV0", "2") == first != await mark("b3RoZXI=", "2")
    del world.contents["Secret", "database"]
    with pytest.raises(Trouble, match="no Secret database"):
        await world.assembler.accounting_view(accounting)


def test_what_is_wrong_with_an_object_is_trouble_that_names_the_field(world: World) -> None:
    found = world.write("Controller", "d", extraconf="x")
    with pytest.raises(Trouble, match="extraconf") as trouble:
        world.assembler.read(Controller, found)
    assert (trouble.value.reason, trouble.value.lasting) == ("UnknownField", True)


def test_an_image_is_the_settings_unless_it_is_named() -> None:
    images = ImageSettings(slurmd="usual:1", pull_policy="Always")
    plain = NodeSet(metadata=Meta(name="w"), spec=NodeSetSpec(slurmd={"tty": False}))
    assert with_image(plain, images).spec.slurmd == {"imagePullPolicy": "Always", "tty": False, "image": "usual:1"}
    named = NodeSet(metadata=Meta(name="w"), spec=NodeSetSpec(slurmd={"image": "mine:2"}))
    assert with_image(named, images) == named
