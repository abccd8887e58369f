"""Which labels stay on a live pod template, so that nothing restarts for their removal."""

from typing import Any

import msgspec
import pytest

from slinky.operator.children import MANAGED_BY, MANAGER
from slinky.operator.kept_template import TEMPLATE_DIGEST, keeping, marked
from slinky.operator.takeover import Held

OURS = {"app.kubernetes.io/name": "slurmctld"}


def body(image: str = "i", **labels: str) -> dict[str, Any]:
    template = {"metadata": {"labels": OURS | labels}, "spec": {"containers": [{"image": image}]}}
    meta = {"name": "c-controller", "labels": {MANAGED_BY: MANAGER}}
    return marked({"kind": "StatefulSet", "metadata": meta, "spec": {"template": template}})


def live(
    written: dict[str, Any],
    manager: str = MANAGER,
    *,
    managed: bool = True,
    **extra: str,
) -> Held:
    """`written` as it is in the API server, with more labels on its template by `manager`."""
    keys: dict[str, Any] = {f"f:{key}": {} for key in extra}
    fields = {"f:spec": {"f:template": {"f:metadata": {"f:labels": keys}}}}
    metadata = dict(written["metadata"])
    metadata["managedFields"] = [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]
    if not managed:
        metadata["labels"] = {}
    labels = written["spec"]["template"]["metadata"]["labels"] | extra
    found = {"metadata": metadata, "spec": {"template": {"metadata": {"labels": labels}}}}
    return msgspec.convert(found, Held)


def labels_of(sent: Any) -> dict[str, str]:
    return dict(sent["spec"]["template"]["metadata"]["labels"])


def without_digest(written: dict[str, Any]) -> dict[str, Any]:
    return {**written, "metadata": {**written["metadata"], "annotations": {}}}


@pytest.mark.parametrize("before", [body(), without_digest(body())], ids=["same", "no digest"])
def test_what_the_operator_once_wrote_stays(before: dict[str, Any]) -> None:
    assert labels_of(keeping(body(), live(before, team="hpc"))) == OURS | {"team": "hpc"}


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(live(body(image="older"), team="hpc"), id="the template changes anyway"),
        pytest.param(live(body(), "kubectl", team="hpc"), id="written by another manager"),
        pytest.param(live(body(), managed=False, team="hpc"), id="made by another operator"),
    ],
)
def test_nothing_else_stays(held: Held) -> None:
    assert keeping(body(), held) == body()


def test_a_label_that_spec_template_loses_goes() -> None:
    assert labels_of(keeping(body(), live(body(tier="gold"), tier="gold"))) == OURS


def test_the_value_that_is_wanted_wins() -> None:
    held = live(body(tier="gold"), tier="silver")
    assert labels_of(keeping(body(tier="gold"), held)) == OURS | {"tier": "gold"}


def test_only_objects_with_a_pod_template_are_marked() -> None:
    assert TEMPLATE_DIGEST in body()["metadata"]["annotations"]
    service = {"kind": "Service", "metadata": {"name": "s"}}
    assert marked(service) == service
