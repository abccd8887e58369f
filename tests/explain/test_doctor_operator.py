"""What the doctor finds in an operator, its clusters and an exporter that are broken in one place, and that it finds nothing where they are not."""

import base64
import copy
import datetime as dt
from typing import Any

import msgspec
import pytest

from slinky.explain.doctor import PARTS, Diagnosis, diagnose, text
from slinky.explain.examining_exporter import told
from slinky.explain.installation import ExporterSide, Installation, KubeSide, OperatorSide, Webhooks
from slinky.explain.troubles import Token
from slinky.kube import Node, Pod
from slinky.kube.admission.certificates import issue
from slinky.operator.admission_service import configuration
from slinky.operator.conditions import Standing, broken, settled, under_way, written
from slinky.operator.kinds import Written
from slinky.operator.kinds.schema import crds
from slinky.operator.settings import Settings
from tests.explain.worlds import NOW, SETTINGS, lease

OPERATOR = Settings(namespace="slinky")
HOST = "slurm-operator-admission.slinky.svc"
ISSUED, OTHER, EXPIRED = issue([HOST], NOW), issue([HOST], NOW), issue([HOST], NOW - dt.timedelta(days=800))


def webhooks(settings: Settings = OPERATOR, authorities: bytes = ISSUED.authorities, **more: Any) -> Webhooks:
    """As the webhook wrote them, and as the API server fills them in."""
    found = configuration(settings)
    for hook in found["webhooks"]:
        hook["clientConfig"] = {"caBundle": base64.b64encode(authorities).decode()}
        hook["objectSelector"] = {}
    wanted = {"validating": configuration(OPERATOR)}
    return Webhooks(**{"found": {"validating": found}, "wanted": wanted, "certificate": ISSUED.certificate, "endpoints": 2, **more})


def written_object(kind: str, name: str, standing: Standing | None = None, *, hours: float = 2, **more: Any) -> Written:
    """Made and said `hours` ago."""
    then = NOW - dt.timedelta(hours=hours)
    said = written([], standing if standing is not None else settled("all is well"), then) if standing != {} else []
    plain = {
        "kind": kind,
        "metadata": {"name": name, "namespace": "slurm", "creationTimestamp": f"{then:%Y-%m-%dT%H:%M:%SZ}", **more.pop("metadata", {})},
        "spec": more.pop("spec", {}),
        "status": {"conditions": said, **more.pop("status", {})},
    }
    return msgspec.convert(plain, Written)


def token_object(issued: float, ends: float, **spec: Any) -> tuple[Written, ...]:
    """Hours from now."""
    moments = {name: f"{NOW + dt.timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}" for name, hours in (("issuedAt", issued), ("expiresAt", ends))}
    return (written_object("Token", "ours", status=moments, spec={"username": "slurm", **spec}),)


CLUSTER: dict[str, tuple[Written, ...]] = {
    "Controller": (written_object("Controller", "slurm"),),
    "RestApi": (written_object("RestApi", "slurm", spec={"controllerRef": {"name": "slurm"}}),),
    "NodeSet": (written_object("NodeSet", "cpu", spec={"controllerRef": {"name": "slurm"}}),),
    "Token": token_object(-1, 23),
}


def kinds() -> dict[str, Any]:
    return {document["metadata"]["name"]: copy.deepcopy(document) for document in crds()}


def without(name: str, *path: str) -> dict[str, Any]:
    """One kind lacks a field, as one that was installed long ago."""
    found = kinds()
    place = found[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in path[:-1]:
        place = place["properties"][step]
    del place["properties"][path[-1]]
    return found


def of_operator(objects: dict[str, tuple[Written, ...]] | None = None, **more: Any) -> Installation:
    """Sound, but for what is given."""
    plain: dict[str, Any] = {
        "settings": OPERATOR,
        "kinds": kinds(),
        "lease": lease("operator-0"),
        "webhooks": webhooks(),
        "objects": CLUSTER | (objects or {}),
    }
    return Installation(now=NOW, settings=SETTINGS, has_bridge=False, operator=OperatorSide(**plain | more))


def of_exporter(**more: Any) -> Installation:
    plain: dict[str, Any] = {
        "place": "Service slinky/slurm-exporter-metrics",
        "namespace": "slinky",
        "endpoints": 1,
        "up": True,
        "age": 8.0,
        "looks": 1200,
        "since": NOW - dt.timedelta(days=1),
        "secret": "slinky/slurm-exporter-jwt-token",
        "token": Token("slurm", NOW + dt.timedelta(days=1)),
    }
    return Installation(now=NOW, settings=SETTINGS, has_bridge=False, exporters=(ExporterSide(**plain | more),))


def ends(hours: float) -> Token:
    return Token("slurm", NOW + dt.timedelta(hours=hours))


DEGRADED = (written_object("NodeSet", "gpu", broken("WorkersFailing", "pod gpu-0: ImagePullBackOff")),)
UNSEEN = (written_object("NodeSet", "gpu", {}),)
DRAINING = (written_object("NodeSet", "gpu", under_way("ScalingDown", "2 workers are to go; gpu-1 runs job 7", ready=True), hours=5),)
SEVERAL = (written_object("Controller", "slurm", {}, hours=0.01, spec={"ha": {"enabled": True}}),)
ELSEWHERE = (written_object("RestApi", "slurm", spec={"controllerRef": {"name": "other"}}),)

DEAD = (written_object("Controller", "slurm", under_way("NotReady", "0 of 1 slurmctld ready")),)
ROLLING = (written_object("LoginSet", "login", under_way("Updating", "1 of 2 login", available=True)),)
LOST = msgspec.convert(
    {
        "metadata": {"name": "k1"},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    },
    Node,
)


def head(name: str, ready: str, daemon: str = "slurmctld") -> Pod:
    labels = {"app.kubernetes.io/name": daemon, "app.kubernetes.io/instance": "slurm"}
    since = NOW - dt.timedelta(seconds=50)
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    plain = {
        "metadata": {"name": name, "namespace": "slurm", "labels": labels},
        "spec": {"nodeName": "k1"},
        "status": {"conditions": [condition]},
    }
    return msgspec.convert(plain, Pod)


CASES: dict[str, tuple[Installation, str, str]] = {
    "operator-config-unreadable": (of_operator(wrong="no such key: namespacez", config="/etc/o.yaml"), "namespacez", "/etc/o.yaml"),
    "operator-leader-missing": (of_operator(lease=None), "does not exist", "leader.name slurm-operator, namespace slinky"),
    "operator-leader-nobody": (of_operator(lease=lease("operator-0", 600)), "operator-0 renewed it last at", "kubectl -n slinky get pods"),
    "operator-kind-missing": (of_operator(kinds={**kinds(), "tokens.slinky.slurm.net": None}), "does not exist", "slurm-operator-crds"),
    "operator-kind-older": (of_operator(kinds=without("nodesets.slinky.slurm.net", "spec", "drainDeadlineSeconds")), "does not know spec.drainDeadlineSeconds", "helm upgrade slurm-operator-crds"),
    "operator-webhook-missing": (of_operator(webhooks=webhooks(found={"validating": None})), "does not exist", "slinky operator admission"),
    "operator-webhook-other": (of_operator(webhooks=webhooks(msgspec.structs.replace(OPERATOR, namespaces=["a"]), wanted={"validating": configuration(msgspec.structs.replace(OPERATOR, namespaces=["b"]))})), "another namespaceSelector", "restart"),
    "operator-webhook-without-authority": (of_operator(webhooks=webhooks(authorities=b"")), "caBundle is empty", "slinky operator admission"),
    "operator-webhook-wrong-authority": (of_operator(webhooks=webhooks(authorities=OTHER.authorities)), "did not sign", "restart"),
    "operator-webhook-certificate-expired": (of_operator(webhooks=webhooks(authorities=EXPIRED.authorities, certificate=EXPIRED.certificate)), "ended at", "delete secret slurm-operator-admission"),
    "operator-webhook-without-endpoint": (of_operator(webhooks=webhooks(endpoints=0)), "no address behind it", "endpointslices"),
    "object-degraded": (of_operator({"NodeSet": DEGRADED}), "WorkersFailing: pod gpu-0: ImagePullBackOff", "kubectl -n slurm describe nodesets gpu"),
    "cluster-daemon-lost": (of_operator(heads=(head("slurm-controller-0", "False"),), nodes={"k1": LOST}), "pod slurm-controller-0 is on Kubernetes node k1, which is not ready", "kubectl -n slurm describe pod slurm-controller-0"),
    "object-unavailable": (of_operator({"Controller": DEAD}), "NotReady: 0 of 1 slurmctld ready", "kubectl -n slurm describe controllers slurm"),
    "object-not-ready": (of_operator({"LoginSet": ROLLING}), "Updating: 1 of 2", "kubectl -n slurm describe loginsets login"),
    "object-unseen": (of_operator({"NodeSet": UNSEEN}), "its status says nothing", "kubectl -n slinky get pods"),
    "cluster-with-ha": (of_operator({"Controller": SEVERAL}), "ha.enabled is true", "kubectl -n slurm edit controllers slurm"),
    "cluster-without-restapi": (of_operator({"RestApi": ELSEWHERE}), "no RestApi names it", "controllerRef.name slurm"),
    "nodeset-draining-long": (of_operator({"NodeSet": DRAINING}), "for 5 h ScalingDown: 2 workers are to go; gpu-1 runs job 7", "kubectl -n slurm edit nodesets gpu"),
    "token-object-over": (of_operator({"Token": token_object(-25, -1)}), "ended at 2026-11-15 11:00 UTC", "kubectl -n slurm describe tokens ours"),
    "token-object-expires": (of_operator({"Token": token_object(-23, 1)}), "ends in 60 minutes, and should have been renewed", "operator's log"),
    "exporter-missing": (Installation(now=NOW, settings=SETTINGS, has_bridge=False, exporters=()), "no Service has the label", "helm install slurm-exporter"),
    "exporter-without-endpoint": (of_exporter(endpoints=0, up=None), "no address behind it", "kubectl -n slinky get pods"),
    "exporter-unanswered": (of_exporter(unanswered="connection refused", up=None), "connection refused", "services/proxy"),
    "exporter-slurm-down": (of_exporter(up=False, age=400.0), "slurm_up is 0", "renew the token"),
    "exporter-snapshot-old": (of_exporter(age=600.0), "600 s old", "snapshot.share"),
    "exporter-part-missing": (of_exporter(missing=("shares",)), "could not read shares", "slinky exporter once"),
    "exporter-not-scraped": (of_exporter(looks=1), "by nobody but the doctor", "metrics.serviceMonitor.enabled=true"),
    "exporter-token-missing": (of_exporter(token=None, without_token="it does not exist"), "does not exist", "create secret generic slurm-exporter-jwt-token"),
    "exporter-token-over": (of_exporter(token=ends(-1)), "ended at 2026-11-15 11:00 UTC", "scontrol token username=slurm"),
    "exporter-token-expires": (of_exporter(token=ends(0.5)), "ends in 30 minutes", "slurm-exporter-jwt-token"),
}  # fmt: skip


def found_in(seen: Installation) -> Diagnosis:
    return diagnose(seen)


@pytest.mark.parametrize("code", CASES)
def test_it_alone_is_found_with_the_advice_that_helps(code: str) -> None:
    situation, seen, change = CASES[code]
    [found] = found_in(situation).findings
    assert found.code == code
    assert seen in found.seen
    assert change in found.change


@pytest.mark.parametrize(("seen", "part"), [(of_operator(), "operator"), (of_exporter(), "exporter")])
def test_where_all_is_well_every_area_of_the_part_is_fine(seen: Installation, part: str) -> None:
    diagnosis = found_in(seen)
    assert diagnosis.findings == ()
    assert diagnosis.fine == PARTS[part]
    assert text(diagnosis).endswith("sound: 0 errors, 0 warnings, 0 notes\n")


def test_what_could_not_be_read_is_not_called_fine() -> None:
    unread = frozenset({"kinds", "objects", "heads", "operator-lease", "operator-webhooks"})
    diagnosis = found_in(msgspec.structs.replace(of_operator(lease=None, kinds={}), kube=KubeSide(unread=unread)))
    assert diagnosis.findings == ()
    assert diagnosis.fine == ()
    assert set(diagnosis.unseen) == set(PARTS["operator"])


def test_an_object_where_the_operator_does_not_look_is_told_with_the_setting() -> None:
    only = msgspec.structs.replace(OPERATOR, namespaces=["hpc"])
    seen = of_operator({"NodeSet": UNSEEN}, settings=only, webhooks=webhooks(only, wanted={"validating": configuration(only)}))
    [found] = found_in(seen).findings
    assert found.change == "the operator works in hpc only: add slurm to its `namespaces`"


@pytest.mark.parametrize(
    "objects",
    [
        {"NodeSet": (written_object("NodeSet", "new", {}, hours=0.01),)},
        {"NodeSet": (written_object("NodeSet", "gpu", under_way("ScalingDown", "1 is to go", ready=True), hours=0.5),)},
        {"NodeSet": (written_object("NodeSet", "gpu", under_way("WorkersStarting", "0 of 2"), hours=0.01),)},
        {"NodeSet": (written_object("NodeSet", "gpu", under_way("RollingUpdate", "1 of 2", available=True), hours=0.2),)},
        {"Token": token_object(-10, 14)},
        {"Token": token_object(-100, 44, refresh=False)},
        {"Token": (written_object("Token", "new", under_way("Creating", ""), hours=0.01),)},
    ],
    ids=["just written", "drains a while", "starts", "rolls", "token half way", "token that is not renewed", "no token yet"],
)
def test_what_takes_its_time_is_no_finding(objects: dict[str, tuple[Written, ...]]) -> None:
    assert found_in(of_operator(objects)).findings == ()


def test_a_daemon_with_a_ready_pod_elsewhere_is_not_lost() -> None:
    """A Deployment replaces a pod on a lost node by itself; the old one stays in the list."""
    well = head("slurm-restapi-b", "True", "slurmrestd")
    pods = (head("slurm-restapi-a", "False", "slurmrestd"), well)
    assert found_in(of_operator(heads=pods, nodes={"k1": LOST})).findings == ()


def test_a_nodeset_that_is_being_deleted_counts_from_then() -> None:
    gone = {"deletionTimestamp": f"{NOW - dt.timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}"}
    found = written_object("NodeSet", "gpu", under_way("Deleting", "1 worker is left"), hours=30, metadata=gone)
    assert "for 3 h Deleting" in found_in(of_operator({"NodeSet": (found,)})).findings[0].seen


def test_what_an_exporter_tells_of_itself_is_read() -> None:
    said = "# HELP slurm_up x\n# TYPE slurm_up gauge\nslurm_up 1\nslurm_exporter_snapshot_age_seconds 3.5\n"
    said += 'slurm_exporter_looks_total{outcome="ok"} 3\nslurm_exporter_looks_total{outcome="failed"} 2\n'
    said += 'slurm_exporter_part_up{part="jobs"} 1\nslurm_exporter_part_up{part="shares"} 0\nslurm_queue_jobs{user="\\"} 1\n'
    assert told(said) == {"up": True, "age": 3.5, "looks": 5, "missing": ("shares",)}
    assert "slurm_up is missing" in told("up 1\n")["unanswered"]
