"""What of a cluster stays while it is being deleted, and for whom."""

import datetime as dt
from typing import Any

import pytest

from slinky.kube import Meta
from slinky.operator.departing import ABANDON, abandons, stays_for
from slinky.operator.kinds import Written

NOW = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)


def written(name: str, *, leaves: float | None = None, abandoned: bool = False, **spec: Any) -> Written:
    """`leaves`: since how many seconds."""
    since = None if leaves is None else NOW - dt.timedelta(seconds=leaves)
    annotations = {ABANDON: "true"} if abandoned else {}
    return Written(metadata=Meta(name=name, namespace="lab", deletion_timestamp=since, annotations=annotations), spec=spec)


def of(name: str, controller: str = "c", **more: Any) -> Written:
    return written(name, controllerRef={"name": controller}, **more)


def waits(kind: str, found: Written, **there: list[Written]) -> str:
    return stays_for(kind, found, lambda kind, _namespace: there.get(kind, []), NOW)


LEAVING = written("c", leaves=60, accountingRef={"name": "a"})
STAYING = written("c", accountingRef={"name": "a"})


def test_a_controller_stays_until_its_nodesets_are_gone_and_names_them() -> None:
    said = waits("Controller", LEAVING, NodeSet=[of("w", leaves=60), of("x"), of("other", "d")])
    assert "NodeSets w, x are gone" in said
    assert "NodeSet x is not being deleted" in said
    assert ABANDON in said
    assert waits("Controller", LEAVING, NodeSet=[of("other", "d")]) == ""


def test_a_controller_whose_jobs_are_given_up_waits_only_for_nodesets_that_go_with_it() -> None:
    given_up = written("c", leaves=60, abandoned=True)
    assert waits("Controller", given_up, NodeSet=[of("x")]) == ""
    assert waits("Controller", given_up, NodeSet=[of("w", leaves=60), of("x")]) != ""


@pytest.mark.parametrize(
    ("head", "nodesets", "others", "stays"),
    [
        ([LEAVING], [of("w")], [], True),
        ([STAYING], [of("w", leaves=1)], [], True),
        ([STAYING], [of("w")], [], False),
        ([LEAVING], [], [], False),
        ([], [of("w")], [], False),
        ([LEAVING], [of("w")], [of("s")], False),
        ([LEAVING], [of("w")], [of("s", leaves=60), of("t", "d")], True),
        ([written("c", leaves=60, abandoned=True)], [of("w", leaves=1)], [], False),
    ],
)
def test_a_restapi_stays_while_workers_go_and_nobody_else_can_be_asked(
    head: list[Written], nodesets: list[Written], others: list[Written], stays: bool
) -> None:
    found = of("r", leaves=60)
    assert bool(waits("RestApi", found, Controller=head, NodeSet=nodesets, RestApi=[found, *others])) is stays


def test_what_is_deleted_a_moment_before_its_cluster_is_still_there_for_it() -> None:
    restapi, accounting = of("r", leaves=3), written("a", leaves=3)
    assert waits("RestApi", restapi, Controller=[STAYING], NodeSet=[of("w")], RestApi=[restapi])
    assert waits("Accounting", accounting, Controller=[STAYING])
    assert waits("Accounting", written("a", leaves=3, abandoned=True), Controller=[STAYING]) == ""


def test_an_accounting_stays_until_its_controllers_that_are_deleted_are_gone() -> None:
    assert "Controller c" in waits("Accounting", written("a", leaves=60), Controller=[LEAVING])
    assert waits("Accounting", written("a", leaves=60), Controller=[STAYING, written("d", leaves=60)]) == ""


def test_jobs_are_given_up_only_of_what_is_being_deleted() -> None:
    given_up = written("c", leaves=60, abandoned=True)
    assert abandons(of("w", leaves=1, abandoned=True), None)
    assert abandons(of("w", leaves=1), given_up)
    assert not abandons(of("w", abandoned=True), given_up)
    assert not abandons(of("w", leaves=1), written("c", abandoned=True))
    assert not abandons(of("w", leaves=1), LEAVING)
