"""Nothing that is written is without effect in silence, and what is named and not there yet is told."""

from typing import Any

import pytest

from slinky.operator.validation import warnings
from tests.operator.validation.things import made

KEY = {"name": "keys", "key": "jwt.key"}


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
