"""Which change makes new pods, and which reaches the ones that run."""

from typing import Any

import msgspec
import pytest

from slinky.kube.objects import Node
from slinky.operator import labels
from slinky.operator.kinds import Accounting, Controller, LoginSet, NodeSet, RestApi
from slinky.operator.objects.accounting import accounting_objects
from slinky.operator.objects.controller import controller_objects
from slinky.operator.objects.loginset import login_objects
from slinky.operator.objects.restapi import restapi_objects
from slinky.operator.objects.view import AccountingView, ClusterView
from slinky.operator.objects.worker_pod import revision_of, worker_base, worker_pod


def controller(**spec: Any) -> Controller:
    return msgspec.convert(
        {"metadata": {"name": "c", "namespace": "ns", "uid": "1"}, "spec": {"slurmctld": {"image": "i"}, **spec}}, Controller
    )


def nodeset(name: str = "w", labels: dict[str, str] | None = None, **spec: Any) -> NodeSet:
    meta = {"name": name, "namespace": "ns", "uid": "2", "labels": labels or {}}
    return msgspec.convert({"metadata": meta, "spec": {"controllerRef": {"name": "c"}, "slurmd": {"image": "i"}, **spec}}, NodeSet)


def view(**parts: Any) -> ClusterView:
    return ClusterView(**{"controller": controller(), "digests": {"c-auth-slurm": "1", "c-auth-jwt": "1"}, **parts})


def head(site: ClusterView) -> Any:
    return next(made for made in controller_objects(site.controller, site) if made["kind"] == "StatefulSet")["spec"]["template"]


def gate(site: ClusterView) -> Any:
    meta = {"name": "l", "namespace": "ns", "uid": "3"}
    loginset = msgspec.convert({"metadata": meta, "spec": {"controllerRef": {"name": "c"}, "login": {"image": "i"}}}, LoginSet)
    return next(made for made in login_objects(loginset, site) if made["kind"] == "Deployment")["spec"]["template"]


def rest(site: ClusterView) -> Any:
    meta = {"name": "r", "namespace": "ns", "uid": "4"}
    restapi = msgspec.convert({"metadata": meta, "spec": {"controllerRef": {"name": "c"}, "slurmrestd": {"image": "i"}}}, RestApi)
    return next(made for made in restapi_objects(restapi, site) if made["kind"] == "Deployment")["spec"]["template"]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(view(nodesets=(nodeset(partition={"enabled": True}, extraConf="Gres=gpu:2", replicas=5000),)), id="a NodeSet more"),
        pytest.param(
            view(controller=controller(extraConf="SchedulerParameters=defer\nMaxJobCount=7\nReturnToService=0")), id="other settings"
        ),
        pytest.param(view(controller=controller(metrics={"enabled": True})), id="metrics"),
        pytest.param(
            view(
                controller=controller(configFileRefs=[{"name": "more"}], prologScriptRefs=[{"name": "p"}]),
                files={"more": {"gres.conf": ""}, "p": {"a": "b"}},
            ),
            id="files and scripts",
        ),
    ],
)
def test_slurmctld_takes_these_while_it_runs(changed: ClusterView) -> None:
    assert head(changed) == head(view())
    assert rest(changed) == rest(view())
    assert gate(changed) == gate(view())


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(view(digests={"c-auth-slurm": "2", "c-auth-jwt": "1"}), id="slurm.key"),
        pytest.param(view(digests={"c-auth-slurm": "1", "c-auth-jwt": "2"}), id="jwt.key"),
        pytest.param(view(controller=controller(extraConf="AuthInfo=ttl=900")), id="how it authenticates"),
        pytest.param(view(controller=controller(slurmctld={"image": "j"})), id="the image"),
    ],
)
def test_slurmctld_starts_anew_for_these(changed: ClusterView) -> None:
    assert head(changed) != head(view())


def test_a_file_that_changes_in_a_configmap_changes_no_pod() -> None:
    referring = controller(configFileRefs=[{"name": "site"}], prologScriptRefs=[{"name": "prologs"}])
    before = view(controller=referring, files={"site": {"gres.conf": "Name=gpu File=/dev/a"}, "prologs": {"a.sh": "1"}})
    after = view(controller=referring, files={"site": {"gres.conf": "Name=gpu File=/dev/b"}, "prologs": {"a.sh": "2", "b.sh": "3"}})
    assert head(before) == head(after)


def test_a_new_slurm_key_reaches_logins_and_workers_by_new_pods() -> None:
    changed = view(digests={"c-auth-slurm": "2", "c-auth-jwt": "1"})
    assert gate(changed) != gate(view())
    assert revision_of(nodeset(), changed) != revision_of(nodeset(), view())


@pytest.mark.parametrize(
    "spec",
    [
        {"slurmd": {"image": "j"}},
        {"slurmd": {"image": "i", "args": ["-v"]}},
        {"extraConf": "Weight=2"},
        {"template": {"spec": {"priorityClassName": "p"}}},
        {"template": {"metadata": {"labels": {"a": "b"}}}},
        {"ssh": {"enabled": True}},
        {"ordinalPadding": 3},
        {"oversubscribeNode": True},
    ],
    ids=str,
)
def test_a_worker_that_would_be_another_has_another_revision(spec: dict[str, Any]) -> None:
    assert revision_of(nodeset(**spec), view()) != revision_of(nodeset(), view())


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 9},
        {"partition": {"enabled": True}},
        {"labels": {"a": "b"}},
        {"minReadySeconds": 4},
        {"updateStrategy": {"type": "OnDelete"}},
        {"pinToNode": True},
    ],
    ids=str,
)
def test_what_makes_no_other_worker_leaves_the_revision(spec: dict[str, Any]) -> None:
    assert revision_of(nodeset(**spec), view()) == revision_of(nodeset(), view())


def test_a_worker_is_made_the_same_twice_and_its_name_says_which_it_is() -> None:
    site, daemons = view(), nodeset(scalingMode="DaemonSet")
    nodes = [msgspec.convert({"metadata": {"name": name}}, Node) for name in ("a.east", "a.west")]
    pods = [worker_pod(daemons, worker_base(daemons, site), ordinal=None, node=node, revision="r") for node in (*nodes, *nodes)]
    assert pods[:2] == pods[2:]
    assert pods[0]["metadata"]["name"] != pods[1]["metadata"]["name"]
    with pytest.raises(ValueError, match="DaemonSet"):
        worker_pod(daemons, worker_base(daemons, site), ordinal=0, node=None, revision="r")
    with pytest.raises(ValueError, match="StatefulSet"):
        worker_pod(nodeset(), worker_base(nodeset(), site), ordinal=None, node=None, revision="r")


def test_a_label_that_a_selector_reads_is_never_the_administrators() -> None:
    mine = nodeset(labels={labels.APP: "mine", "x": "y"})
    pod = worker_pod(mine, worker_base(mine, view()), ordinal=0, node=None, revision="r")
    assert pod["metadata"]["labels"][labels.APP] == "slurmd"
    assert "x" not in pod["metadata"]["labels"]


def accounts(meta: dict[str, Any], spec: dict[str, Any]) -> list[dict[str, Any]]:
    made = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "5", **meta},
        "spec": {"slurmdbd": {"image": "i"}, "storageConfig": {"host": "db"}, **spec},
    }
    accounting = msgspec.convert(made, Accounting)
    site = AccountingView(accounting=accounting, controllers=(controller(),))
    return accounting_objects(accounting, site, "p")


def cluster_objects(meta: dict[str, Any], spec: dict[str, Any]) -> list[dict[str, Any]]:
    """What is made of one of each kind, all with this metadata and with `spec` in their specs."""

    def one(kind: Any, name: str, **more: Any) -> Any:
        written = {"metadata": {"name": name, "namespace": "ns", "uid": name, **meta}}
        return msgspec.convert({**written, "spec": {**more, **spec}}, kind)

    reference = {"name": "c"}
    site = view(controller=one(Controller, "c", slurmctld={"image": "i"}))
    workers = one(NodeSet, "w", controllerRef=reference, slurmd={"image": "i"})
    revision = revision_of(workers, site)
    return [
        *controller_objects(site.controller, site),
        *restapi_objects(one(RestApi, "r", controllerRef=reference), site),
        *login_objects(one(LoginSet, "l", controllerRef=reference), site),
        *accounts(meta, spec),
        worker_pod(workers, worker_base(workers, site), ordinal=0, node=None, revision=revision),
    ]


def pods_of(made: list[dict[str, Any]]) -> dict[str, Any]:
    """The pods and pod templates among them, by name."""
    found = {}
    for each in made:
        if each["kind"] in ("StatefulSet", "Deployment"):
            found[each["metadata"]["name"]] = each["spec"]["template"]
        elif each["kind"] == "Pod":
            found[each["metadata"]["name"]] = each
    return found


LABELLED = {
    "labels": {"helm.sh/chart": "slurm-9.9.9", "app.kubernetes.io/version": "9", "team": "hpc"},
    "annotations": {"note": "mine"},
}


def test_labels_of_a_custom_resource_are_on_its_children_and_on_no_pod() -> None:
    plain, labelled = cluster_objects({}, {}), cluster_objects(LABELLED, {})
    assert sorted(pods_of(plain)) == ["a-accounting", "c-controller", "l", "r-restapi", "w-0"]
    assert pods_of(labelled) == pods_of(plain)
    for each in labelled:
        if each["kind"] != "Pod":
            assert each["metadata"]["labels"]["team"] == "hpc", each["metadata"]["name"]
            assert each["metadata"]["annotations"]["note"] == "mine"


def test_labels_of_the_template_are_on_the_pods() -> None:
    added = {"labels": {"tier": "gold"}, "annotations": {"seen": "yes"}}
    for name, pod in pods_of(cluster_objects(LABELLED, {"template": {"metadata": added}})).items():
        assert pod["metadata"]["labels"]["tier"] == "gold", name
        assert pod["metadata"]["annotations"]["seen"] == "yes", name
        assert not {"team", "helm.sh/chart"} & set(pod["metadata"]["labels"]), name
