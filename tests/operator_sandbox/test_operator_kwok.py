"""The operator's process on kwok nodes: objects appear, are mended and pruned, what is wrong is said, and nothing is lost when it is killed."""

import asyncio
import base64
import datetime as dt
import signal
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from slinky.bridge.settings import Settings as BridgeSettings
from slinky.explain.doctor import diagnose
from slinky.explain.examining import Asked, examine
from slinky.kube import NAMESPACES, NODES, PODS, ApiError, PatchKind, from_kubeconfig
from slinky.operator.children import SECRETS
from slinky.operator.kinds import CONTROLLERS
from slinky.operator.settings import load_settings
from slinky.sandbox.handle import Sandbox
from slinky.slurm import FixedToken, SlurmClient
from slinky.slurm.credentials import mint
from tests.operator_sandbox.cluster import EXAMPLES
from tests.operator_sandbox.lab import CHILDREN, IMAGE, Background, Lab, open_lab, operator_for_any
from tests.operator_sandbox.originals import leave_behind_several, originals_rules, written_in

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def operator(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    with operator_for_any(sandbox, tmp_path_factory.mktemp("operator")) as found:
        yield found


def jwt_key(sandbox: Sandbox) -> bytes:
    return (sandbox.head / "etc/slurm/jwt_hs256.key").read_bytes()


def written(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def test_a_cluster_appears_is_mended_and_goes(sandbox: Sandbox, operator: Background) -> None:
    async with open_lab(sandbox) as lab:
        await lab.create("ConfigMap", "files", data={"gres.conf": "Name=disk Count=1\n"})
        await lab.create("Controller", "c", {"slurmctld": IMAGE, "configFileRefs": [{"name": "files"}]})
        await lab.create("RestApi", "r", {"controllerRef": {"name": "c"}, "slurmrestd": IMAGE})
        await lab.create("LoginSet", "l", {"controllerRef": {"name": "c"}, "login": IMAGE, "replicas": 2})
        await lab.until_there(
            *CHILDREN, ("Deployment", "r-restapi"), ("Service", "r-restapi"), ("Deployment", "l"), ("Secret", "l-ssh-host-keys")
        )
        keys = {name: await lab.secret(name) for name in ("c-auth-slurm", "c-auth-jwt", "l-ssh-host-keys")}
        assert [len(content) for name in ("c-auth-slurm", "c-auth-jwt") for content in keys[name].values()] == [1024, 1024]
        assert len(keys["l-ssh-host-keys"]) == 6
        await lab.until_said("RestApi", "r", "True")
        await lab.until_said("LoginSet", "l", "True")
        assert (await lab.get("LoginSet", "l"))["status"]["readyReplicas"] == 2
        await lab.until_said("Controller", "c", "False", "SlurmNotAnswering")
        assert (await lab.get("Controller", "c"))["status"]["observedGeneration"] == 1

        await asyncio.gather(mends(lab), follows(lab))
        await lab.until_there(*CHILDREN)
        assert {name: await lab.secret(name) for name in keys} == keys
        await loses_a_key(lab, "Controller", "c", "c-auth-slurm")
        await loses_a_key(lab, "LoginSet", "l", "l-ssh-host-keys")
        assert {name: await lab.secret(name) for name in keys} == keys
        await lab.until_said("RestApi", "r", "True")
        await lab.delete("Controller", "c")
        assert "NodeSet w is not being deleted" in await lab.until_said("Controller", "c", "True", "Deleting", type_="Progressing")
        assert "NodeSet w" in await lab.until_event("c", "DeletionWaits")
        await lab.until_there(*CHILDREN)
        await lab.delete("NodeSet", "w")
        await lab.until_gone(*CHILDREN)
        await lab.until_said("RestApi", "r", "False", "ControllerNotFound")
        await lab.until_said("RestApi", "r", "True", type_="Available")
        await lab.until_said("RestApi", "r", "True", type_="Degraded")
    assert operator


async def loses_a_key(lab: Lab, kind: str, name: str, secret: str) -> None:
    """What runs with it is given no other: what was there has to come back."""
    held = await lab.get("Secret", secret)
    await lab.delete("Secret", secret)
    assert secret in await lab.until_said(kind, name, "True", "KeyLost", type_="Degraded")
    assert not await lab.get("Secret", secret)
    owners = {"ownerReferences": held["metadata"]["ownerReferences"]}
    await lab.kube.create(SECRETS.untyped, {"metadata": {"name": secret, **owners}, "data": held["data"]}, lab.namespace)
    await lab.until_said(kind, name, "False", type_="Degraded")


async def mends(lab: Lab) -> None:
    """What is not as it should be is made so again, and what cannot be changed is replaced under its pods."""
    pod = f"/api/v1/namespaces/{lab.namespace}/pods/c-controller-0"
    before = msgspec.json.decode(await lab.kube.raw("GET", pod))["metadata"]["uid"]
    await lab.patch("Controller", "c", {"spec": {"persistence": {"resources": {"requests": {"storage": "8Gi"}}}}})

    async def replaced() -> bool:
        claims = (await lab.get("StatefulSet", "c-controller")).get("spec", {}).get("volumeClaimTemplates", [])
        return [claim["spec"]["resources"]["requests"]["storage"] for claim in claims] == ["8Gi"]

    await lab.until("the StatefulSet had another claim", replaced)
    assert msgspec.json.decode(await lab.kube.raw("GET", pod))["metadata"]["uid"] == before
    await lab.patch("StatefulSet", "c-controller", {"spec": {"replicas": 3}})
    await lab.patch("Service", "c-controller", {"spec": {"selector": {"app.kubernetes.io/name": "other"}}})
    await lab.patch("ConfigMap", "c-config", {"data": {"slurm.conf": "ClusterName=other\n"}})
    await lab.delete("Service", "slurm-workers-c")
    await lab.delete("Deployment", "r-restapi")

    async def mended() -> bool:
        replicas = (await lab.get("StatefulSet", "c-controller"))["spec"]["replicas"]
        selector = (await lab.get("Service", "c-controller"))["spec"]["selector"]["app.kubernetes.io/name"]
        conf = (await lab.get("ConfigMap", "c-config"))["data"]["slurm.conf"]
        return bool(replicas == 1 and selector == "slurmctld" and "SlurmctldHost=c-controller-0" in conf)

    await lab.until("what was changed by hand was as before", mended)
    await lab.until_there(("Service", "slurm-workers-c"), ("Deployment", "r-restapi"))


async def follows(lab: Lab) -> None:
    """A file that is named, and a NodeSet that comes, are in the configuration; what is no longer made goes."""
    await lab.patch("ConfigMap", "files", {"data": {"gres.conf": "Name=disk Count=7\n"}})
    await lab.create(
        "NodeSet",
        "w",
        {"controllerRef": {"name": "c"}, "slurmd": IMAGE, "replicas": 0, "partition": {"enabled": True}, "ssh": {"enabled": True}},
    )

    async def configured() -> bool:
        data = (await lab.get("ConfigMap", "c-config")).get("data", {})
        return data.get("gres.conf") == "Name=disk Count=7\n" and "PartitionName=w Nodes=w" in data.get("slurm.conf", "")

    await lab.until("the configuration followed", configured)
    await lab.until_there(("ConfigMap", "w-ssh-config"))
    await lab.patch("NodeSet", "w", {"spec": {"ssh": {"enabled": False}}})
    await lab.until_gone(("ConfigMap", "w-ssh-config"))


async def test_what_is_wrong_is_said_and_holds_up_nothing_else(sandbox: Sandbox, operator: Background) -> None:
    async with open_lab(sandbox) as lab:
        await lab.create("Controller", "typo", {"slurmctld": IMAGE, "extraconf": "x"})
        await lab.create("Controller", "refused", {"slurmctld": IMAGE, "template": {"spec": {"nodeSelector": {"a b": "c"}}}})
        await lab.create("Controller", "nofile", {"slurmctld": IMAGE, "configFileRefs": [{"name": "missing"}]})
        await lab.create("ConfigMap", "taken-config", data={"theirs": "yes"})
        await lab.create("Controller", "taken", {"slurmctld": IMAGE})
        await lab.create("Controller", "c", {"slurmctld": IMAGE})
        await lab.until_said("Controller", "c", "True")
        assert "taken-config" in await lab.until_said("Controller", "taken", "True", "Refused", type_="Degraded")
        assert (await lab.get("ConfigMap", "taken-config"))["data"] == {"theirs": "yes"}
        assert "extraconf" in await lab.until_said("Controller", "typo", "True", "UnknownField", type_="Degraded")
        assert "extraConf" in await lab.until_event("typo", "UnknownField")
        assert "nodeSelector" in await lab.until_said("Controller", "refused", "True", "Refused", type_="Degraded")
        assert "missing" in await lab.until_said("Controller", "nofile", "True", "ConfigMapNotFound", type_="Degraded")
        assert not await lab.get("StatefulSet", "typo-controller")
        await sees_the_doctor(lab, operator)

        await lab.patch("Controller", "typo", {"spec": {"extraconf": None}})
        await lab.patch("Controller", "refused", {"spec": {"template": None}})
        await lab.create("ConfigMap", "missing", data={"gres.conf": ""})
        await asyncio.gather(*(lab.until_said("Controller", name, "True") for name in ("typo", "refused", "nofile")))
        assert (await lab.condition("Controller", "refused", "Degraded"))[0] == "False"

        await lab.delete("ConfigMap", "missing")  # what runs can be used, and is not as written
        await lab.until_said("Controller", "nofile", "False", "ConfigMapNotFound")
        assert (await lab.condition("Controller", "nofile", "Available"))[0] == "True"
    assert operator


async def test_a_lost_kubernetes_node_under_slurmctld_is_named_with_what_to_do(sandbox: Sandbox, operator: Background) -> None:
    """By an Event of the node: the Controller itself, its StatefulSet and its files stay as they are."""
    async with open_lab(sandbox) as lab:
        name = f"lost-{lab.namespace}"
        sizes = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        meta = {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name}}
        taint = {"key": "own-nodes", "effect": "NoSchedule"}
        status = {"capacity": sizes, "allocatable": sizes}
        await lab.kube.create(NODES.untyped, {"metadata": meta, "spec": {"taints": [taint]}, "status": status})
        try:
            there = {"nodeSelector": {"kubernetes.io/hostname": name}, "tolerations": [{"key": "own-nodes", "operator": "Exists"}]}
            spec = {"slurmctld": IMAGE, "persistence": {"enabled": False}, "template": {"spec": there}}
            await lab.create("Controller", "c", spec)
            await lab.until_said("Controller", "c", "True")
            assert (await lab.condition("Controller", "c", "Available"))[0] == "True"
            unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
            await lab.kube.patch(
                PODS.untyped,
                "c-controller-0",
                unready,
                lab.namespace,
                kind=PatchKind.STRATEGIC,
                subresource="status",
            )
            await lab.until_said("Controller", "c", "False", "NotReady")
            lost = {"metadata": {"annotations": {"sandbox.slinky.slurm.net/not-ready": "true"}}}
            await lab.kube.patch(NODES.untyped, name, lost)
            condition = {"type": "Ready", "status": "False", "reason": "Lost", "message": "no word"}
            gone = {"status": {"conditions": [condition]}}
            await lab.kube.patch(NODES.untyped, name, gone, subresource="status")
            said = await lab.until_said("Controller", "c", "True", "NodeNotReady", type_="Degraded")
            assert f"pod c-controller-0 is on Kubernetes node {name}" in said
            assert f"kubectl taint nodes {name} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in said
            for type_ in ("Ready", "Available"):
                assert (await lab.condition("Controller", "c", type_))[0] == "False"
            asked = Asked(parts=frozenset({"operator"}), operator=load_settings(operator.operator.config))
            seen = await examine(BridgeSettings(), from_kubeconfig(sandbox.kubeconfig), asked=asked)
            here = {each.code for each in diagnose(seen).findings if f"{lab.namespace}/c" in each.about}
            assert {"object-degraded", "cluster-daemon-lost"} <= here
        finally:
            await lab.kube.delete(NODES, name)


async def sees_the_doctor(lab: Lab, operator: Background) -> None:
    """What is wrong here, and no more: the operator leads and its kinds are there; its webhook does not run."""
    asked = Asked(parts=frozenset({"operator"}), operator=load_settings(operator.operator.config))
    diagnosis = diagnose(await examine(BridgeSettings(), from_kubeconfig(lab.sandbox.kubeconfig), asked=asked))
    assert {"operator", "operator-kinds"} <= set(diagnosis.fine), diagnosis
    assert "operator-webhook-missing" in {each.code for each in diagnosis.findings}
    found = {(each.about.rpartition("/")[2], each.code): each.seen for each in diagnosis.findings if f" {lab.namespace}/" in each.about}
    assert found["typo", "object-degraded"].startswith("UnknownField: ")
    assert {name for name, code in found if code == "object-degraded"} == {"typo", "refused", "nofile", "taken"}
    assert {name for name, code in found if code == "cluster-without-restapi"} == {"typo", "refused", "nofile", "taken", "c"}


async def test_a_nodeset_that_cannot_be_read_keeps_its_partition(sandbox: Sandbox, operator: Background) -> None:
    async with open_lab(sandbox) as lab:
        await lab.create("NodeSet", "w", {"controllerRef": {"name": "c"}, "slurmd": IMAGE, "replicas": 0, "partition": {"enabled": True}})
        await lab.create("Controller", "c", {"slurmctld": IMAGE})

        async def has_partition() -> bool:
            return "PartitionName=w" in (await lab.get("ConfigMap", "c-config")).get("data", {}).get("slurm.conf", "")

        await lab.until("the partition was there", has_partition)
        await lab.patch("NodeSet", "w", {"spec": {"partitions": []}})
        await lab.until_said("NodeSet", "w", "True", type_="Degraded")
        await operator.do(operator.operator.stop("run", signal.SIGKILL))
        await operator.do(operator.operator.start("run"))
        assert "NodeSet w" in await lab.until_said("Controller", "c", "True", "NodeSetUnreadable", type_="Degraded")
        assert await has_partition()
        await lab.patch("NodeSet", "w", {"spec": {"partitions": None}})
        await lab.until_said("Controller", "c", "False", type_="Degraded")
        assert await has_partition()


async def test_a_cluster_elsewhere_is_spoken_to_with_tokens_of_ours(sandbox: Sandbox, operator: Background) -> None:
    async with open_lab(sandbox) as lab:
        await lab.create("Secret", "keys", data={"jwt.key": written(jwt_key(sandbox)), "slurm.key": written(b"x" * 1024)})
        reference = {"slurmKeyRef": {"name": "keys", "key": "slurm.key"}, "jwtKeyRef": {"name": "keys", "key": "jwt.key"}}
        await lab.create("Controller", "c", {"external": True, "externalConfig": {"host": "head", "port": 6817}, **reference})
        await lab.create("RestApi", "r", {"controllerRef": {"name": "c"}, "slurmrestd": IMAGE})
        await lab.until_said("Controller", "c", "True", "Answers")
        assert not await lab.get("StatefulSet", "c-controller")
        await lab.patch("Secret", "keys", {"data": {"jwt.key": written(b"y" * 32)}})
        await lab.until_said("Controller", "c", "False", "SlurmNotAnswering")
    assert operator


async def test_tokens_are_good_fresh_and_only_for_whom_they_may_be(sandbox: Sandbox, operator: Background) -> None:
    async with open_lab(sandbox) as lab:
        key = jwt_key(sandbox)
        await lab.create("Secret", "key", data={"jwt.key": written(key)})
        reference = {"jwtKeyRef": {"name": "key", "key": "jwt.key"}}
        await lab.create("Token", "t", {"username": "alice", "lifetime": "10m", **reference})
        await lab.create("Token", "root", {"username": "root", **reference})
        await lab.create("Token", "carol", {"username": "carol", **reference})
        await lab.until_said("Token", "t", "True")
        token = (await lab.secret("t-jwt-alice"))["SLURM_JWT"].decode()
        async with SlurmClient(sandbox.slurm_server, FixedToken(token, "alice")) as slurm:
            await slurm.jobs.states()
        status = (await lab.get("Token", "t"))["status"]
        assert status["issuedAt"] < status["expiresAt"]
        for name in ("root", "carol"):
            assert name in await lab.until_said("Token", name, "True", "UserNotAllowed", type_="Degraded")
            assert not await lab.get("Secret", f"{name}-jwt-{name}")
        await lab.until_event("root", "UserNotAllowed")

        async def until_other(than: str, why: str) -> str:
            async def other() -> bool:
                return (await lab.secret("t-jwt-alice")).get("SLURM_JWT", b"").decode() not in ("", than)

            await lab.until(why, other)
            return (await lab.secret("t-jwt-alice"))["SLURM_JWT"].decode()

        old = mint(key, "alice", 600, time.time() - 500)  # past four fifths of its life
        await lab.patch("Secret", "t-jwt-alice", {"data": {"SLURM_JWT": written(old.encode())}})
        fresh = await until_other(old, "a token that was soon over was renewed")
        await lab.patch("Secret", "key", {"data": {"jwt.key": written(b"z" * 32)}})
        signed = await until_other(fresh, "a new key made a new token")
        await lab.delete("Secret", "t-jwt-alice")
        await until_other("", "a token that was deleted came back")
        await lab.patch("Token", "t", {"spec": {"username": "bob"}})
        await lab.until_there(("Secret", "t-jwt-bob"))
        await lab.until_gone(("Secret", "t-jwt-alice"))
        await lab.delete("Token", "t")
        await lab.until_gone(("Secret", "t-jwt-bob"))
        assert signed
    assert operator


async def test_slurmdbd_keeps_the_key_of_its_first_controller_and_one_with_another_is_told(sandbox: Sandbox, operator: Background) -> None:
    async with open_lab(sandbox) as lab:
        await lab.create("Secret", "database", data={"password": written(b"secret")})
        storage = {"host": "nowhere", "username": "slurm", "passwordKeyRef": {"name": "database", "key": "password"}}
        await lab.create("Accounting", "a", {"slurmdbd": IMAGE, "storageConfig": storage})
        await lab.create("Controller", "first", {"slurmctld": IMAGE, "accountingRef": {"name": "a"}, "logfile": {"image": "none"}})
        await lab.until_there(("StatefulSet", "a-accounting"))
        assert "spec.logfile has no effect" in await lab.until_event("first", "NoEffect")
        first = dt.datetime.fromisoformat((await lab.get("Controller", "first"))["metadata"]["creationTimestamp"])

        async def later() -> bool:
            return dt.datetime.now(dt.UTC) - first >= dt.timedelta(seconds=1)

        await lab.until("the API server's clock, which counts seconds, went on", later)
        await lab.create("Controller", "another", {"slurmctld": IMAGE, "accountingRef": {"name": "a"}})
        assert "Controller another" in await lab.until_said("Accounting", "a", "True", "KeysDiffer", type_="Degraded")
        volumes = (await lab.get("StatefulSet", "a-accounting"))["spec"]["template"]["spec"]["volumes"]
        assert "first-auth-slurm" in str(volumes)
        assert "another-auth-slurm" not in str(volumes)
        await lab.delete("Controller", "another")
        await lab.until_said("Accounting", "a", "False", type_="Degraded")
    assert operator


async def test_what_kubernetes_would_delete_by_itself_can_be_protected(sandbox: Sandbox, operator: Background) -> None:
    """By examples/operator/protection.yaml: a deletion in the foreground, and that of a namespace."""
    policies = list(yaml.safe_load_all((EXAMPLES / "protection.yaml").read_text()))

    def place_of(policy: dict[str, Any]) -> str:
        plural = "validatingadmissionpolicybindings" if policy["kind"].endswith("Binding") else "validatingadmissionpolicies"
        return f"/apis/admissionregistration.k8s.io/v1/{plural}/{policy['metadata']['name']}"

    async with open_lab(sandbox) as lab:
        for each in policies:
            await lab.kube.raw(
                "PATCH", place_of(each), body=each, content_type="application/apply-patch+yaml", parameters={"fieldManager": "test"}
            )
        try:
            await lab.create("Controller", "c", {"slurmctld": IMAGE})
            await lab.until_there(*CHILDREN)
            await lab.kube.patch(NAMESPACES.untyped, lab.namespace, {"metadata": {"labels": {"slinky.slurm.net/protect": "true"}}})

            async def refused(place: str, why: str) -> bool:
                """The server reads its policies once a second, and not all at once: so it is only asked what it would do. Beside a body, parameters are not heard."""
                try:
                    await lab.kube.raw("DELETE", place, body={"propagationPolicy": "Foreground", "dryRun": ["All"]})
                except ApiError as error:
                    return why in error.message
                return False

            place, home = CONTROLLERS.path(lab.namespace, "c"), NAMESPACES.path(name=lab.namespace)
            await lab.until("a deletion in the foreground was refused", lambda: refused(place, "--cascade=background"))
            await lab.until("so was that of its namespace", lambda: refused(home, "a Slurm cluster is in this namespace"))
            with pytest.raises(ApiError, match="a Slurm cluster is in this namespace"):
                await lab.kube.delete(NAMESPACES, lab.namespace)
            await lab.kube.patch(NAMESPACES.untyped, lab.namespace, {"metadata": {"labels": {"slinky.slurm.net/protect": None}}})
            await lab.delete("Controller", "c")
            await lab.until_gone(*CHILDREN)
        finally:
            for each in policies:
                await lab.kube.raw("DELETE", place_of(each))
    assert operator


async def test_a_cluster_of_the_original_with_several_slurmctld_is_left_alone_whole_until_it_has_one(
    sandbox: Sandbox, operator: Background
) -> None:
    """Each of its objects says so, and names the Controller; nothing but their statuses is written."""
    async with open_lab(sandbox) as lab:
        await operator.do(operator.operator.stop("run", signal.SIGTERM))
        async with originals_rules(lab):
            await leave_behind_several(lab, IMAGE)

        async def both_are_there() -> bool:
            return bool((await lab.get("StatefulSet", "c-controller"))["status"].get("replicas") == 2)

        await lab.until("there were two slurmctld", both_are_there)
        before = await written_in(lab)
        await operator.do(operator.operator.start("run"))
        parts = (("Controller", "c"), ("Accounting", "a"), ("RestApi", "r"), ("LoginSet", "l"), ("NodeSet", "n"))
        for kind, name in parts:
            said = await lab.until_said(kind, name, "True", "NotTakenOver", "Degraded")
            assert "Controller c has ha.enabled: true" in said and "set ha.enabled: false" in said
            assert "Controller c" in await lab.until_event(name, "NotTakenOver")
        assert await written_in(lab) == before

        await lab.patch("Controller", "c", {"spec": {"ha": {"enabled": False}}})
        for kind, name in parts:
            await lab.until(f"{kind} {name} named the pods", lambda kind=kind, name=name: names_pods(lab, kind, name))  # type: ignore[misc]
        after = await written_in(lab)
        assert {**after, "controllers/c": None} == {**before, "controllers/c": None}

        await lab.patch("StatefulSet", "c-controller", {"spec": {"replicas": 1}})

        async def is_taken_over() -> bool:
            made = [await lab.get("StatefulSet", name) for name in ("c-controller", "a-accounting")]  # each is made again
            return all(one and one["metadata"]["labels"].get("app.kubernetes.io/managed-by") == "slinky-operator" for one in made)

        await lab.until("all of it was taken over", is_taken_over)
        for kind, name in parts:
            await lab.until(f"{kind} {name} had nothing to say of it", lambda kind=kind, name=name: is_ours(lab, kind, name))  # type: ignore[misc]


async def names_pods(lab: Lab, kind: str, name: str) -> bool:
    return "still has 2 pods" in (await lab.condition(kind, name, "Degraded"))[2]


async def is_ours(lab: Lab, kind: str, name: str) -> bool:
    return (await lab.condition(kind, name, "Degraded"))[1] != "NotTakenOver"
