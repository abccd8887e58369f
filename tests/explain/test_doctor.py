"""What the doctor finds in an installation that is broken in one place, and that it finds nothing in one that is not."""

import base64
import datetime as dt
from typing import Any

import msgspec
import pytest
import yaml

from slinky.bridge.admission_service import configurations
from slinky.bridge.settings import Settings
from slinky.explain.doctor import PARTS, Diagnosis, diagnose, text
from slinky.explain.findings import Severity
from slinky.explain.installation import Installation, KubeSide, SlurmSide, Webhooks
from slinky.explain.rights import Right, review_of, rights_of
from slinky.explain.troubles import Token, slurm_trouble
from slinky.kube.admission.certificates import issue
from slinky.slurm import Qos, UnavailableError
from tests.conftest import CHECKOUT
from tests.explain.worlds import NOW, SETTINGS, claim_lease, kube_node, lease, namespace, node, partition, pod

ISSUED = issue(["slurm-bridge-admission.slinky.svc"], NOW)
OTHER = issue(["slurm-bridge-admission.slinky.svc"], NOW)
CONF = {
    "SchedulerParameters": ["batch_sched_delay=0", "sched_min_interval=0", "default_queue_depth=10000"],
    "GresTypes": ["gpu"],
    "MaxJobCount": 200000,
    "MinJobAge": 300,
    "SelectType": "select/cons_tres",
    "SlurmUser": "slurm",
}


def webhooks(settings: Settings = SETTINGS, authorities: bytes = ISSUED.authorities, **more: Any) -> Webhooks:
    """As the webhook wrote them, which knows who the bridge is, and as the API server fills them in."""
    kinds = ("mutating", "validating")
    wanted = {kind: document for kind, (_, document) in zip(kinds, configurations(settings), strict=True)}
    written = {kind: document for kind, (_, document) in zip(kinds, configurations(settings, frozenset({"bridge"})), strict=True)}
    bundle = base64.b64encode(authorities).decode()
    found = {
        kind: {
            **document,
            "webhooks": [{**hook, "clientConfig": {"caBundle": bundle}, "objectSelector": {}} for hook in document["webhooks"]],
        }
        for kind, document in written.items()
    }
    return Webhooks(**{"found": found, "wanted": wanted, "certificate": ISSUED.certificate, "endpoints": 1, **more})


def installation(
    kube: dict[str, Any] | None = None, slurm: dict[str, Any] | None = None, settings: Settings = SETTINGS, wrong: str = ""
) -> Installation:
    """Sound, but for what is given."""
    kube_side: dict[str, Any] = {
        "version": "v1.36.4",
        "nodes": (kube_node(),),
        "namespaces": (namespace(),),
        "lease": lease(),
        "claim": claim_lease(),
        "webhooks": webhooks(),
        "ahead": 0.4,
    }
    slurm_side: dict[str, Any] = {
        "release": "26.05.5",
        "has_accounting": True,
        "token": Token("slurm", NOW + dt.timedelta(days=1)),
        "is_administrator": True,
        "partitions": (partition(),),
        "nodes": (node(),),
        "conf": CONF,
        "ahead": -0.3,
    }
    return Installation(
        now=NOW,
        settings=settings,
        config="/etc/x.yaml",
        wrong=wrong,
        kube=KubeSide(**kube_side | (kube or {})),
        slurm=SlurmSide(**slurm_side | (slurm or {})),
    )


def token(user: str = "slurm", hours: float = 24) -> Token:
    return Token(user, NOW + dt.timedelta(hours=hours))


def conf(**more: Any) -> dict[str, Any]:
    return {"conf": {**CONF, **more}}


def otherwise(**more: Any) -> Settings:
    return msgspec.structs.replace(SETTINGS, **more)


LONG_GRACE = (pod(job=7, spec={"nodeName": "w1", "terminationGracePeriodSeconds": 120}, status={"phase": "Running"}),)
SINK = otherwise(nodes=msgspec.structs.replace(SETTINGS.nodes, sink="10.0.0.9:6818"))
EXPIRED = issue(["x"], NOW - dt.timedelta(days=800))
GRACE_QOS = msgspec.convert({"name": "low", "limits": {"grace_time": 20}}, Qos)

CASES: dict[str, tuple[Installation, str, str]] = {
    "config-unreadable": (installation(wrong="no such key: partitoin", settings=Settings(namespace="slinky")), "partitoin", "/etc/x.yaml"),
    "config-manages-nothing": (installation(settings=otherwise(managed_namespaces=[])), "managedNamespaces is empty", "managedNamespaceSelector"),
    "config-namespace-missing": (installation({"namespaces": ()}), "does not exist", "kubectl create namespace team"),
    "kubernetes-version": (installation({"version": "v1.29.1"}), "v1.29.1", "upgrade"),
    "slurm-version": (installation(slurm={"release": "24.11.5"}), "24.11.5", "26.05"),
    "token-user": (installation(slurm={"token": token("alice"), "is_administrator": False}), "its user is alice", "modify user alice set adminlevel=admin"),
    "token-expires": (installation(slurm={"token": token(hours=0.5)}), "in 30 minutes", "scontrol token username=slurm"),
    "token-without-end": (installation(slurm={"token": Token("slurm", None)}), "no end", "Token"),
    "partition-missing": (installation(slurm={"partitions": (partition("debug"),)}, settings=otherwise(partition="pods")), "there is debug", "PartitionName=pods Nodes=pods"),
    "partition-down": (installation(slurm={"partitions": (partition("slurm-bridge", "DOWN"),)}), "DOWN", "PartitionName=slurm-bridge State=UP"),
    "partition-empty": (installation(slurm={"partitions": (partition("slurm-bridge"),)}), "no node is in it", "external-node=true"),
    "partition-unavailable": (
        installation(slurm={"partitions": (partition("slurm-bridge"),), "nodes": (node(states="IDLE+DRAIN", partitions=["slurm-bridge"], reason="power"),)}),
        "reasons: power",
        "NodeName=w1 State=RESUME",
    ),
    "nodes-unregistered": (installation(slurm={"nodes": (node("w9"),)}), "1 labelled Nodes are not in Slurm", "slinky bridge run"),
    "nodes-none-labelled": (installation({"nodes": (kube_node(metadata={"labels": {}}),)}, {"nodes": ()}), "none of 1", "kubectl label node"),
    "nodes-address-missing": (installation(slurm={"nodes": (node(address="w1"),)}), "no NodeAddr but their name", "InternalIP"),
    "nodes-not-responding": (installation(slurm={"nodes": (node(states="IDLE+EXTERNAL+NOT_RESPONDING"),)}), "NOT_RESPONDING", "sink"),
    "nodes-drained": (installation(slurm={"nodes": (node(states="IDLE+EXTERNAL+DRAIN", reason="disk"),)}), "w1: disk", "NodeName=w1 State=RESUME"),
    "gres-type-missing": (installation(slurm=conf(GresTypes=["(null)"])), "GresTypes is empty", "add gpu to GresTypes"),
    "gres-mismatch": (installation({"nodes": (kube_node(gpus=8),)}), "8 allocatable in Kubernetes, 2 in Slurm", "NodeName=w1 Name=gpu File="),
    "select-type": (installation(slurm=conf(SelectType="select/linear")), "select/linear", "SelectType=select/cons_tres"),
    "scheduler-delay": (installation(slurm=conf(SchedulerParameters=["default_queue_depth=5000", "bf_continue"])), "batch_sched_delay is 3, by default", "SchedulerParameters=default_queue_depth=5000,bf_continue,batch_sched_delay=0"),
    "queue-depth": (installation(slurm=conf(SchedulerParameters="batch_sched_delay=0")), "default_queue_depth is 100, by default", "default_queue_depth=1000"),
    "max-job-count": (installation(slurm=conf(MaxJobCount=10000)), "MaxJobCount is 10000", "MaxJobCount=20000"),
    "min-job-age": (installation(slurm=conf(MinJobAge="2 sec")), "2 seconds", "MinJobAge=300"),
    "no-accounting": (installation(slurm={"has_accounting": False}), "no accounting", "slurmdbd"),
    "grace-too-short": (installation({"pods": LONG_GRACE}, {"partitions": (partition(grace_time=30),)}, SINK), "team/train-0 has terminationGracePeriodSeconds 120", "PartitionName=bridge GraceTime=125"),
    "grace-without-sink": (installation(slurm={"qos": (GRACE_QOS,)}), "GraceTime is 20 s, nodes.sink is empty", "GraceTime=0"),
    "rights-missing": (installation({"denied": (Right(group="", resource="pods/binding", verb="create"),), "bridge_user": "u"}), "may not create pods/binding", 'apiGroups: [""], resources: [pods/binding], verbs: [create]'),
    "rights-missing-optional": (installation({"denied": (Right(group="", resource="pods/exec", verb="create", optional="it signals"),)}), "pods/exec", "it signals"),
    "webhook-missing": (installation({"webhooks": webhooks(found={"mutating": None, "validating": None})}), "does not exist", "slinky bridge admission"),
    "webhook-other": (installation({"webhooks": webhooks(otherwise(managed_namespaces=["other"]), wanted=webhooks().wanted)}), "another namespaceSelector", "restart"),
    "webhook-without-authority": (installation({"webhooks": webhooks(authorities=b"")}), "caBundle is empty", "slinky bridge admission"),
    "webhook-wrong-authority": (installation({"webhooks": webhooks(authorities=OTHER.authorities)}), "did not sign", "restart"),
    "webhook-certificate-expired": (installation({"webhooks": webhooks(authorities=EXPIRED.authorities, certificate=EXPIRED.certificate)}), "ended at", "delete secret slurm-bridge-admission"),
    "webhook-without-endpoint": (installation({"webhooks": webhooks(endpoints=0)}), "no address behind it", "endpointslices"),
    "leader-missing": (installation({"lease": None}), "does not exist", "leader.name slurm-bridge"),
    "leader-nobody": (installation({"lease": lease("", 0)}), "it has no holder", "kubectl -n slinky get pods"),
    "bridge-claim-conflict": (installation({"claim": claim_lease(4711)}), "Slurm job 4711 carries claim 9.zz.4", "slinky.slurm.net/take-over=9.zz"),
    "clock-kubernetes": (installation({"ahead": -95.0}), "95 s behind", "chrony"),
    "clock-slurm": (installation(slurm={"ahead": 300.0}), "300 s ahead", "chrony"),
}  # fmt: skip


def found_in(seen: Installation) -> Diagnosis:
    return diagnose(seen)


@pytest.mark.parametrize("code", CASES)
def test_it_is_found_with_the_advice_that_helps(code: str) -> None:
    situation, seen, change = CASES[code]
    found = {each.code: each for each in found_in(situation).findings}
    assert code in found, sorted(found)
    assert seen in found[code].seen
    assert change in found[code].change


def test_in_a_sound_installation_every_area_is_fine() -> None:
    sound = otherwise(partition="bridge")
    diagnosis = found_in(installation(settings=sound))
    assert diagnosis.findings == ()
    assert diagnosis.fine == PARTS["bridge"]
    assert diagnosis.is_sound(strict=True)
    assert text(diagnosis).endswith("sound: 0 errors, 0 warnings, 0 notes\n")


def test_a_side_that_does_not_answer_is_the_finding_and_its_areas_are_not_called_fine() -> None:
    down = slurm_trouble(UnavailableError("connection refused"), "server", SETTINGS, token(), NOW)
    unread = frozenset({"server", "conf", "partitions", "nodes", "clock"})
    diagnosis = found_in(
        installation(slurm={"troubles": (down,), "unread": unread, "token": token()}, settings=otherwise(partition="bridge"))
    )
    assert [each.code for each in diagnosis.findings] == ["slurm-unreachable"]
    assert "http://localhost:6820" in diagnosis.findings[0].change
    assert set(diagnosis.unseen) == {"versions", "partition", "nodes", "gres", "scheduler", "grace", "clock"}
    assert "webhooks" in diagnosis.fine
    assert not diagnosis.is_sound()
    assert "Partitions: not looked at in full (slurm.partitions, slurm.nodes could not be read)" in text(diagnosis)


def test_warnings_count_only_where_it_is_strict() -> None:
    late = found_in(installation({"ahead": 60.0}, settings=otherwise(partition="bridge")))
    assert [each.severity for each in late.findings] == [Severity.WARNING]
    assert late.is_sound() and not late.is_sound(strict=True)


def test_a_grace_of_the_pods_own_is_enough() -> None:
    short = (pod(job=7, spec={"nodeName": "w1", "terminationGracePeriodSeconds": 10}),)
    found = found_in(installation({"pods": short}, {"partitions": (partition(grace_time=30),)}, SINK))
    assert "grace" in found.fine


def test_the_rights_asked_about_are_those_of_the_example() -> None:
    documents = list(yaml.safe_load_all((CHECKOUT / "examples/bridge-rbac.yaml").read_text()))
    given = set()
    for document in documents:
        if document["kind"] in ("ClusterRole", "Role") and not document["metadata"]["name"].endswith("-admission"):
            for rule in document["rules"]:
                given |= {
                    (group, resource, verb) for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
                }
    assert {(right.group, right.resource, right.verb) for right in rights_of(SETTINGS)} == given


def test_the_lease_is_asked_about_by_its_name_and_need_not_be_made_where_it_is_there() -> None:
    """As the chart gives the rights: on that one object, which it makes itself."""
    asked = {right.verb: right.name for right in rights_of(SETTINGS) if right.resource == "leases"}
    assert asked == {"create": "", **dict.fromkeys(("get", "update", "patch"), SETTINGS.leader.name)}
    _, body = review_of(next(right for right in rights_of(SETTINGS) if right.name), "")
    assert body["spec"]["resourceAttributes"]["name"] == SETTINGS.leader.name  # type: ignore[index]
    denied = {"denied": (Right(group="coordination.k8s.io", resource="leases", verb="create", namespace="slinky"),)}
    assert "rights" in found_in(installation(denied)).fine
    assert "rights-missing" in [each.code for each in found_in(installation({**denied, "lease": None})).findings]
    unelected = msgspec.structs.replace(SETTINGS, leader=msgspec.structs.replace(SETTINGS.leader, elect=False))
    assert not [right for right in rights_of(unelected) if right.resource == "leases"]


def test_a_right_of_a_service_account_is_asked_with_its_groups() -> None:
    path, body = review_of(Right(group="", resource="pods/binding", verb="create"), "system:serviceaccount:slinky:slurm-bridge")
    assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert body["spec"] == {
        "resourceAttributes": {"resource": "pods", "subresource": "binding", "verb": "create"},
        "user": "system:serviceaccount:slinky:slurm-bridge",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:slinky", "system:authenticated"],
    }
    assert review_of(Right(group="", resource="pods", verb="get"), "")[0].endswith("/selfsubjectaccessreviews")


def test_a_leader_that_does_nothing_is_not_called_fine() -> None:
    found = found_in(installation({"claim": claim_lease(4711)}, settings=otherwise(partition="bridge")))
    assert [each.code for each in found.findings] == ["bridge-claim-conflict"]
    assert "leader" not in found.fine
    assert not found.is_sound()
    left = installation({"claim": claim_lease(4711), "lease": lease("", 0)}, settings=otherwise(partition="bridge"))
    assert [each.code for each in found_in(left).findings] == ["leader-nobody"]
