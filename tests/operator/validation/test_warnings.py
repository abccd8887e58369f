"""Nothing that is written is without effect in silence, and what is named and not there yet is told."""

from typing import Any

import pytest

from slinky.operator.validation import warnings
from tests.operator.validation.things import made

KEY = {"name": "keys", "key": "jwt.key"}
EXTERNAL: dict[str, Any] = {"external": True, "externalConfig": {"host": "h"}}
DAEMONS: dict[str, Any] = {"scalingMode": "DaemonSet"}


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("Controller", {"externalConfig": {"host": "h"}}, "spec.externalConfig has no effect: spec.external is false"),
        ("Controller", {"logfile": {"image": "i"}}, "spec.logfile has no effect"),
        ("Controller", {"reconfigure": {"image": "i"}}, "spec.reconfigure has no effect"),
        (
            "Controller",
            {"persistence": {"existingClaim": "a", "accessModes": ["ReadWriteOnce"]}},
            "what describes a claim of our own has no effect",
        ),
        ("Controller", {"jwtHs256KeyRef": KEY}, "the older name of jwtKeyRef"),
        ("Accounting", {"externalConfig": {"host": "h"}}, "spec.externalConfig has no effect"),
        ("NodeSet", {"logfile": {"image": "i"}}, "spec.logfile has no effect"),
        ("Controller", {"inplaceReconfigure": False}, "spec.inplaceReconfigure has no effect"),
        ("Controller", {"ha": {"backups": 2}}, "spec.ha.backups has no effect"),
        ("Controller", EXTERNAL | {"persistence": {"storageClassName": "fast"}}, "spec.persistence has no effect: spec.external is true"),
        ("Controller", EXTERNAL | {"metrics": {"enabled": True}}, "spec.metrics has no effect: spec.external is true"),
        ("Controller", EXTERNAL | {"template": {"metadata": {"labels": {"a": "b"}}}}, "spec.template has no effect"),
        ("Controller", EXTERNAL | {"service": {"port": 7}}, "spec.service has no effect"),
        ("Controller", EXTERNAL | {"slurmctld": {"image": "i", "args": ["-v"]}}, "spec.slurmctld has no effect"),
        ("Controller", {"persistence": {"enabled": False, "volumeName": "v"}}, "with enabled false, what describes a claim has no effect"),
        ("Controller", {"metrics": {"serviceMonitor": {"enabled": True}}}, "spec.metrics.serviceMonitor has no effect"),
        ("Accounting", EXTERNAL | {"storageConfig": {"host": "db"}}, "spec.storageConfig has no effect: spec.external is true"),
        ("Accounting", EXTERNAL | {"storageConfig": None, "extraConf": "DebugLevel=info"}, "spec.extraConf has no effect"),
        ("NodeSet", {"partition": {"config": "MaxTime=1"}}, "spec.partition.config has no effect"),
        ("NodeSet", {"ssh": {"extraSshdConfig": "Banner /x"}}, "spec.ssh: with enabled false"),
        ("NodeSet", {"template": {"spec": {"hostname": "a-", "hostNetwork": True}}}, "has the host's name"),
        ("NodeSet", DAEMONS | {"template": {"spec": {"hostname": "a-"}}}, "has its Kubernetes node's name"),
        ("NodeSet", DAEMONS | {"pinToNode": True}, "spec.pinToNode has no effect in mode DaemonSet"),
        ("NodeSet", DAEMONS | {"ordinalPadding": 3}, "spec.ordinalPadding has no effect in mode DaemonSet"),
        ("NodeSet", {"pruneSlurmNodeRecords": "NodeNotFound"}, "spec.pruneSlurmNodeRecords has no effect in mode StatefulSet"),
        ("NodeSet", {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}, "there are no volumeClaimTemplates"),
        (
            "NodeSet",
            DAEMONS | {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}, "volumeClaimTemplates": [{}]},
            "whenScaled has no effect in mode DaemonSet",
        ),
        ("LoginSet", {"initconf": {"image": "i"}}, "spec.initconf has no effect"),
        ("NodeSet", {}, "there is no Controller slurm in namespace site yet"),
        ("Controller", {"accountingRef": {"name": "db"}}, "there is no Accounting db in namespace site yet"),
    ],
)
def test_what_has_no_effect_is_told(kind: str, spec: dict[str, Any], said: str) -> None:
    found = warnings(made(kind, **spec), controllers=["other"] if kind == "NodeSet" and not spec else ["slurm"], accountings=[])
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize("kind", ["Controller", "Accounting", "NodeSet", "LoginSet", "RestApi", "Token"])
def test_what_is_as_it_looks_gives_no_warning(kind: str) -> None:
    assert warnings(made(kind)) == []
    assert warnings(made(kind), controllers=["slurm"], accountings=[]) == []
