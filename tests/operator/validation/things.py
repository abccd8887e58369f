"""Objects as they are written in these tests: the least that is right, and what a test adds."""

from typing import Any

from slinky.kube import Meta
from slinky.operator.kinds import Written
from slinky.operator.kinds.reading import read
from slinky.operator.settings import Settings
from slinky.operator.validation import Neighbours, Object, problems

LEAST: dict[str, dict[str, Any]] = {
    "Controller": {},
    "Accounting": {"storageConfig": {"host": "db"}},
    "RestApi": {"controllerRef": {"name": "slurm"}},
    "NodeSet": {"controllerRef": {"name": "slurm"}},
    "LoginSet": {"controllerRef": {"name": "slurm"}},
    "Token": {"jwtKeyRef": {"name": "keys", "key": "jwt.key"}, "username": "alice"},
}


def made(kind: str, name: str = "one", **spec: Any) -> Any:
    found = read(kind, Written(metadata=Meta(name=name, namespace="site"), spec=LEAST[kind] | spec))
    assert not isinstance(found, list), found
    return found


def told(found: Object, neighbours: Neighbours | None = None, settings: Settings | None = None) -> list[str]:
    return [str(each) for each in problems(found, settings or Settings(), neighbours)]
