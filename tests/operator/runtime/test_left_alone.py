"""Which of the original's clusters are left alone whole, and what is said of them."""

from typing import Any

import pytest

from slinky.kube import Meta
from slinky.operator.children import MANAGED_BY, MANAGER, Workload, WorkloadSpec, WorkloadStatus
from slinky.operator.kinds import Written
from slinky.operator.left_alone import has_several, left_alone

HA = {"ha": {"enabled": True, "backups": 1}}


def controller(**spec: Any) -> Written:
    return Written(metadata=Meta(name="c", namespace="lab"), spec=spec)


def slurmctlds(wanted: int, there: int, *, ours: bool = False) -> Workload:
    labels = {MANAGED_BY: MANAGER if ours else "Helm"}
    meta = Meta(name="c-controller", namespace="lab", labels=labels)
    return Workload(metadata=meta, spec=WorkloadSpec(replicas=wanted), status=WorkloadStatus(replicas=there))


@pytest.mark.parametrize(
    ("spec", "there", "said"),
    [
        pytest.param(HA, slurmctlds(2, 2), ("Controller c has ha.enabled: true", "ha.enabled: false", "c-controller"), id="several"),
        pytest.param(HA, slurmctlds(1, 1), ("Controller c has ha.enabled: true",), id="several are asked for"),
        pytest.param(HA, None, ("Controller c has ha.enabled: true",), id="none was made yet"),
        pytest.param(
            {"ha": {"enabled": False, "backups": 1}},
            slurmctlds(2, 2),
            ("still has 2 pods", "kubectl -n lab scale statefulset c-controller --replicas=1"),
            id="one from now on, and two are there",
        ),
        pytest.param({}, slurmctlds(1, 2), ("still has 2 pods",), id="one goes"),
        pytest.param({}, slurmctlds(1, 1), (), id="one"),
        pytest.param({}, slurmctlds(0, 0), (), id="scaled to none"),
        pytest.param({"ha": None}, None, (), id="new"),
        pytest.param(HA, slurmctlds(1, 1, ours=True), (), id="ours already"),
        pytest.param(HA | {"external": True}, None, (), id="the head is elsewhere"),
    ],
)
def test_a_cluster_with_several_slurmctld_is_left_alone(spec: dict[str, Any], there: Workload | None, said: tuple[str, ...]) -> None:
    found = left_alone(controller(**spec), there)
    assert bool(found) == bool(said)
    assert all(part in found for part in said)


@pytest.mark.parametrize("ha", [None, {}, {"enabled": False}, {"enabled": None}, {"enabled": "true"}, []])
def test_only_what_is_plainly_asked_for_counts(ha: object) -> None:
    assert not has_several(controller(ha=ha))
