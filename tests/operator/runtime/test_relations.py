"""Who is looked at again when something changes."""

from typing import Any

from slinky.kube import Meta
from slinky.operator.kinds import Written
from slinky.operator.operator import domain_in
from slinky.operator.relations import Place, affected, named_files


def written(name: str, **spec: Any) -> Written:
    return Written(metadata=Meta(name=name, namespace="lab"), spec=spec)


KNOWN = {
    "Controller": [written("c", accountingRef={"name": "a"}), written("d")],
    "RestApi": [written("r", controllerRef={"name": "c"}), written("other", controllerRef={"name": "d"})],
    "NodeSet": [written("w", controllerRef={"name": "c"})],
    "LoginSet": [written("broken", controllerRef="c")],
}


def places(kind: str, found: Written) -> list[str]:
    return sorted(
        f"{place.kind}/{place.name}" for place in affected(kind, found, lambda kind, namespace: KNOWN[kind] if namespace == "lab" else [])
    )


def test_a_controller_concerns_all_that_point_at_it() -> None:
    assert places("Controller", KNOWN["Controller"][0]) == ["Accounting/a", "Controller/c", "NodeSet/w", "RestApi/r"]


def test_what_points_at_a_controller_concerns_it() -> None:
    assert places("NodeSet", KNOWN["NodeSet"][0]) == ["Controller/c", "NodeSet/w"]
    assert places("Accounting", written("a")) == ["Accounting/a", "Controller/c"]
    assert places("Token", written("t")) == ["Token/t"]


def test_an_object_that_cannot_be_read_holds_up_nothing() -> None:
    assert places("LoginSet", KNOWN["LoginSet"][0]) == ["LoginSet/broken"]


def test_every_file_that_is_named_is_known() -> None:
    spec = {
        "slurmKeyRef": {"name": "key", "key": "slurm.key"},
        "configFileRefs": [{"name": "gres"}, {"name": "topology"}, "wrong"],
        "storageConfig": {"passwordKeyRef": {"name": "password"}, "tls": {"caRef": {"name": "ca"}}},
        "controllerRef": {"name": "c"},
        "template": {"spec": {"volumes": [{"secretRef": {"name": "theirs"}}]}},
    }
    assert named_files(spec) == {"key", "gres", "topology", "password", "ca"}


def test_a_place_says_what_it_is() -> None:
    assert str(Place("lab", "RestApi", "r")) == "RestApi lab/r"


def test_the_cluster_domain_stands_in_a_pods_resolv_conf() -> None:
    assert domain_in("nameserver 10.0.0.10\nsearch lab.svc.k8s.example svc.k8s.example k8s.example\n") == "k8s.example"
    assert domain_in("search example.com\n") == ""
