"""When an object is sent, and when a child goes."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from slinky.kube import ConnectionFailedError, InvalidError, Key, KubeError, Meta, NotFoundError, Resource
from slinky.kube.errors import Status
from slinky.kube.objects import OwnerReference
from slinky.operator.applying import Applier, ApplyError, decorated, surplus
from slinky.operator.children import MANAGED_BY, MANAGER, Child, Owner, fingerprint
from slinky.operator.takeover import Held, as_ours, is_for

OWNER = Owner("Controller", "lab", "c", "uid-c")
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c-config"}, "data": {"slurm.conf": "ClusterName=c"}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c-controller"}, "spec": {"clusterIP": "None"}}


class Server:
    """What an Applier sees of Kubernetes: it keeps what it is sent."""

    def __init__(self) -> None:
        self.held: dict[Child, Meta] = {}
        self.bodies: dict[Child, Mapping[str, Any]] = {}
        self.writes: list[str] = []
        self.refuses: dict[str, KubeError] = {}
        self.theirs: dict[Key, Meta] = {}  # without our label: no cache of ours knows it
        self.patches: list[dict[str, Any]] = []
        self._version = 0

    def of(self, owner_uid: str) -> Iterable[tuple[Child, Meta]]:
        return [(child, meta) for child, meta in self.held.items() if any(owner.uid == owner_uid for owner in meta.owner_references)]

    def meta(self, child: Child) -> Meta | None:
        return self.held.get(child)

    async def raw(self, method: str, _path: str, *, body: Mapping[str, Any], parameters: Mapping[str, str], **_: Any) -> bytes:
        assert (method, parameters["fieldValidation"], parameters["force"]) == ("PATCH", "Strict", "true")
        child = Child(str(body["kind"]), Key(body["metadata"]["namespace"], body["metadata"]["name"]))
        if child.key.name in self.refuses:
            raise self.refuses[child.key.name]
        self.writes.append(child.key.name)
        if self.bodies.get(child) != body or child not in self.held:
            self.touch(child)
        self.bodies[child] = body
        return msgspec.json.encode({"metadata": self.held[child]})

    def touch(self, child: Child) -> None:
        self._version += 1
        self.held[child] = Meta(
            name=child.key.name,
            namespace=child.key.namespace,
            uid=f"uid-{child.key.name}",
            resource_version=str(self._version),
            owner_references=(OwnerReference(uid=OWNER.uid, controller=True),),
        )

    async def get(self, resource: Resource[Any], name: str, namespace: str) -> Held:
        known = {child.key: meta for child, meta in self.held.items()} | self.theirs
        if Key(namespace, name) not in known:
            raise NotFoundError("GET", resource.path(namespace, name), Status(code=404, message="gone"))
        return msgspec.convert({"metadata": msgspec.to_builtins(known[Key(namespace, name)])}, Held)

    async def patch(self, resource: Resource[Any], name: str, patch: Mapping[str, Any], namespace: str) -> None:
        assert resource.plural and Key(namespace, name) in self.theirs
        self.patches.append(dict(patch["metadata"]))

    async def delete(self, resource: Resource[Any], name: str, namespace: str, *, uid: str, **_: Any) -> None:
        child = next(each for each in self.held if each.key == Key(namespace, name))
        assert self.held[child].uid == uid and resource.plural
        del self.held[child]
        self.writes.append(f"-{name}")
        self.refuses.pop(name, None)


@pytest.fixture
def server() -> Server:
    return Server()


def applier(server: Server, **more: Any) -> Applier:
    return Applier(server, server, **more)  # type: ignore[arg-type]


def test_a_child_names_its_owner_and_its_maker() -> None:
    body = decorated({**CONFIG, "metadata": {"name": "c-config", "labels": {"a": "b"}}}, OWNER)
    assert body["metadata"]["labels"] == {"a": "b", MANAGED_BY: MANAGER}
    assert [(owner["uid"], owner["controller"]) for owner in body["metadata"]["ownerReferences"]] == [("uid-c", True)]
    assert decorated(body, OWNER) == body


async def test_what_is_as_it_was_applied_is_not_sent_again(server: Server) -> None:
    ours = applier(server)
    first = await ours.apply([CONFIG, SERVICE], OWNER)
    assert [child.key.name for child in first.created] == ["c-config", "c-controller"]
    again = await ours.apply([CONFIG, SERVICE], OWNER)
    assert again == ([], [], []) and server.writes == ["c-config", "c-controller"]


async def test_what_somebody_changed_or_deleted_is_sent_again(server: Server) -> None:
    ours = applier(server)
    await ours.apply([CONFIG, SERVICE], OWNER)
    server.touch(Child("ConfigMap", Key("lab", "c-config")))
    del server.held[Child("Service", Key("lab", "c-controller"))]
    await ours.apply([CONFIG, SERVICE], OWNER)
    assert server.writes[2:] == ["c-config", "c-controller"]


async def test_a_new_content_is_sent_and_told_as_a_change(server: Server) -> None:
    ours = applier(server)
    await ours.apply([CONFIG], OWNER)
    applied = await ours.apply([{**CONFIG, "data": {"slurm.conf": "ClusterName=d"}}], OWNER)
    assert [child.key.name for child in applied.changed] == ["c-config"]


async def test_a_process_that_begins_anew_sends_once_and_calls_nothing_created(server: Server) -> None:
    await applier(server).apply([CONFIG], OWNER)
    applied = await applier(server).apply([CONFIG], OWNER)
    assert applied == ([], [], []) and server.writes == ["c-config", "c-config"]


async def test_children_that_are_no_longer_made_go_and_those_kept_stay(server: Server) -> None:
    ours = applier(server)
    await ours.apply([CONFIG, SERVICE], OWNER)
    applied = await ours.apply([], OWNER, kept=[Child("ConfigMap", Key("lab", "c-config"))])
    assert [child.key.name for child in applied.deleted] == ["c-controller"]
    assert [child.key.name for child in server.held] == ["c-config"]


async def test_where_one_is_refused_the_others_are_applied_and_nothing_goes(server: Server) -> None:
    ours = applier(server)
    await ours.apply([CONFIG, SERVICE], OWNER)
    server.refuses["c-config"] = InvalidError("PATCH", "/x", Status(code=422, message="data: too long"))
    with pytest.raises(ApplyError, match="ConfigMap c-config: data: too long"):
        await ours.apply([{**CONFIG, "data": {"slurm.conf": "x"}}, {**SERVICE, "metadata": {"name": "other"}}], OWNER)
    assert {child.key.name for child in server.held} == {"c-config", "c-controller", "other"}


async def test_a_stateful_set_that_cannot_be_changed_is_made_anew_and_its_pods_live_on(server: Server) -> None:
    ours = applier(server)
    stateful = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "c-controller"}, "spec": {"serviceName": "a"}}
    await ours.apply([stateful], OWNER)
    words = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas' … are forbidden"
    server.refuses["c-controller"] = InvalidError("PATCH", "/x", Status(code=422, message=words))
    applied = await ours.apply([{**stateful, "spec": {"serviceName": "b"}}], OWNER)
    assert [child.key.name for child in applied.changed] == ["c-controller"]
    assert server.writes == ["c-controller", "-c-controller", "c-controller"]


async def test_a_stateful_set_of_somebody_else_is_left_alone(server: Server) -> None:
    words = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas' … are forbidden"
    server.refuses["c-controller"] = InvalidError("PATCH", "/x", Status(code=422, message=words))
    with pytest.raises(ApplyError, match="Forbidden"):
        await applier(server).apply([{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "c-controller"}}], OWNER)
    assert not server.writes


@pytest.mark.parametrize(
    ("owners", "whose"),
    [((), "whoever made it"), ((OwnerReference(kind="Deployment", name="web", uid="u", controller=True),), "Deployment web")],
)
async def test_what_is_somebody_elses_is_not_taken_over(server: Server, owners: tuple[OwnerReference, ...], whose: str) -> None:
    server.theirs[Key("lab", "c-config")] = Meta(name="c-config", namespace="lab", uid="theirs", owner_references=owners)
    with pytest.raises(ApplyError, match=f"ConfigMap c-config: there is one of that name already, and it belongs to {whose}"):
        await applier(server).apply([CONFIG, SERVICE], OWNER)
    assert server.writes == ["c-controller"]


async def test_what_the_same_object_made_before_is_taken_over(server: Server) -> None:
    """As an operator did that knew nothing of our label."""
    ours = (OwnerReference(kind="Controller", name="c", uid=OWNER.uid, controller=True),)
    server.theirs[Key("lab", "c-config")] = Meta(name="c-config", namespace="lab", uid="x", resource_version="7", owner_references=ours)
    applied = await applier(server).apply([CONFIG], OWNER)
    assert server.writes == ["c-config"] and not applied.created
    assert server.patches == [
        {
            "resourceVersion": "7",
            "managedFields": [{"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        }
    ]


def test_what_nodesets_share_is_taken_over_and_what_others_share_is_not() -> None:
    shared = OwnerReference(api_version="slinky.slurm.net/v1beta1", kind="NodeSet", name="n", uid="n")
    other = OwnerReference(api_version="apps/v1", kind="Deployment", name="d", uid="d")
    assert is_for(Meta(owner_references=(shared, shared)), OWNER)
    assert not is_for(Meta(owner_references=(shared, other)), OWNER)
    assert not is_for(Meta(), OWNER)


def test_all_that_the_original_wrote_is_ours_to_say_and_kubernetes_own_remarks_are_not() -> None:
    theirs = {
        "manager": "manager",
        "operation": "Update",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:selector": {"f:active": {}}}},
    }
    more = {**theirs, "manager": "kubectl-edit", "fieldsV1": {"f:spec": {"f:selector": {"f:name": {}}, "f:type": {}}}}
    status = {**theirs, "subresource": "status"}
    kubernetes = {**theirs, "manager": "kube-controller-manager"}
    found = as_ours([theirs, status, kubernetes, more], "v1")
    assert found[:2] == [status, kubernetes]
    assert found[2]["fieldsV1"] == {"f:spec": {"f:selector": {"f:active": {}, "f:name": {}}, "f:type": {}}}
    assert (found[2]["manager"], found[2]["operation"]) == (MANAGER, "Apply")


def test_what_others_added_to_the_metadata_stays_theirs() -> None:
    """A DNS name that was given to a login's Service, and what holds its load balancer."""
    entry = {"operation": "Update", "fieldsType": "FieldsV1"}
    dns: dict[str, Any] = {"f:annotations": {"f:external-dns": {}}}
    people = {**entry, "manager": "kubectl-annotate", "fieldsV1": {"f:metadata": dns}}
    holds: dict[str, Any] = {"f:finalizers": {'v:"lb"': {}}}
    spec: dict[str, Any] = {"f:spec": {"f:type": {}}}
    wrote = {"f:metadata": {**holds, "f:ownerReferences": {}}, **spec}
    cloud = {**entry, "manager": "controller", "fieldsV1": wrote}
    hashes: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:hash": {}}}}
    original = {**entry, "manager": "manager", "fieldsV1": hashes}
    found = as_ours([people, cloud, original], "v1")
    assert found[0] == people
    assert found[1] == {**cloud, "fieldsV1": {"f:metadata": holds}}
    ours = {"f:metadata": {"f:ownerReferences": {}, **hashes["f:metadata"]}, **spec}
    assert found[2]["fieldsV1"] == ours
    assert as_ours(found, "v1") == found  # by an operator that was ended in between


def test_a_tokens_secret_of_the_original_is_taken_over() -> None:
    """It belongs to the Secret with the key there, not to the Token."""
    key = OwnerReference(kind="Secret", name="c-auth-jwt", uid="key", controller=True)
    assert is_for(Meta(owner_references=(key,)), Owner("Token", "lab", "t", "uid-t"))
    assert not is_for(Meta(owner_references=(key,)), OWNER)


async def test_a_secret_that_was_immutable_is_made_anew(server: Server) -> None:
    ours, secret = (
        applier(server),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t"}, "data": {"a": "YQ=="}, "immutable": True},
    )
    await ours.apply([secret], OWNER)
    server.refuses["t"] = InvalidError(
        "PATCH", "/x", Status(code=422, message="data: Forbidden: field is immutable when `immutable` is set")
    )
    await ours.apply([{**secret, "data": {"a": "Yg=="}, "immutable": False}], OWNER)
    assert server.writes == ["t", "-t", "t"]


async def test_a_server_that_cannot_be_asked_is_no_refusal(server: Server) -> None:
    server.refuses["c-config"] = ConnectionFailedError("PATCH", "/x", "nobody there")
    with pytest.raises(ConnectionFailedError):
        await applier(server).apply([CONFIG], OWNER)


async def test_nothing_is_written_once_another_leads(server: Server) -> None:
    with pytest.raises(KubeError, match="another process leads"):
        await applier(server, may_act=lambda: False).apply([CONFIG], OWNER)
    assert not server.writes


def test_a_status_that_changes_is_no_change_of_what_is_ours() -> None:
    before = Meta(uid="u", generation=3, resource_version="10", labels={"a": "b"})
    assert fingerprint(before) == fingerprint(Meta(uid="u", generation=3, resource_version="11", labels={"a": "b"}))
    assert fingerprint(before) != fingerprint(Meta(uid="u", generation=4, resource_version="11", labels={"a": "b"}))
    assert fingerprint(before) != fingerprint(Meta(uid="u", generation=3, resource_version="11", labels={"a": "c"}))
    plain = Meta(uid="u", resource_version="10")
    assert fingerprint(plain) != fingerprint(Meta(uid="u", resource_version="11"))


def test_a_child_that_goes_already_is_not_deleted_again() -> None:
    going = Meta(name="x", deletion_timestamp=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert surplus([(Child("Service", Key("lab", "x")), going)], []) == []


async def test_what_was_just_written_is_seen_when_the_caches_have_its_generation(
    server: Server,
) -> None:
    applier, child = Applier(server, server), Child("Service", Key("lab", "c-controller"))  # type: ignore[arg-type]
    assert applier.is_seen(OWNER.uid, child)  # never written here
    await applier.apply([SERVICE], OWNER)
    assert applier.is_seen(OWNER.uid, child)
    written = server.held[child]
    applier._memory[OWNER.uid][child] = applier._memory[OWNER.uid][child]._replace(generation=2)
    assert not applier.is_seen(OWNER.uid, child)
    server.held[child] = msgspec.structs.replace(written, generation=2)
    assert applier.is_seen(OWNER.uid, child)
    server.held[child] = msgspec.structs.replace(written, generation=3, uid="another")
    assert not applier.is_seen(OWNER.uid, child)
