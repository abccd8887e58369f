"""Which changes of a child are news to its owner."""

import msgspec
import pytest

from slinky.kube import KubeObject, Meta
from slinky.operator.children import Workload
from slinky.operator.passes import is_only_status

BUDGET = KubeObject(metadata=Meta(name="slurm-workers-pdb-c", namespace="hpc", uid="u", resource_version="1", generation=1))


def changed(**more: object) -> KubeObject:
    return KubeObject(metadata=msgspec.structs.replace(BUDGET.metadata, resource_version="2", **more))


def test_a_status_that_nobody_reads_is_no_news() -> None:
    assert is_only_status(BUDGET, changed())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, BUDGET),
        (BUDGET, None),
        (BUDGET, changed(generation=2)),
        (BUDGET, changed(labels={"a": "b"})),
        (BUDGET, changed(uid="another")),
        (changed(generation=0), changed(generation=0)),  # of a kind that does not count them
        (Workload(metadata=BUDGET.metadata), Workload(metadata=BUDGET.metadata)),  # whose status tells whether it is ready
    ],
)
def test_all_else_is(old: KubeObject | None, new: KubeObject | None) -> None:
    assert not is_only_status(old, new)
