"""What is wrong with an object although its fields can be read: all that the CRDs' schema cannot say.

Pure. Comes in: a typed object, the settings, and its neighbours in the namespace. Goes out: problems, each with the field's path and a sentence: what was asked, what is wrong, what would be right. The webhook refuses by
them; the operator asks the same again (there may be no webhook) and says Degraded. What must stay true: what passes here can be made into objects that Kubernetes and Slurm take, as far as their text shows it.
"""

from collections.abc import Iterable

from slinky.operator.kinds import Accounting, Controller, LoginSet, NodeSet, RestApi, Token
from slinky.operator.kinds.reading import Problem
from slinky.operator.settings import Settings
from slinky.operator.validation.changes import change_problems
from slinky.operator.validation.files import file_problems
from slinky.operator.validation.naming import name_problems
from slinky.operator.validation.neighbours import Neighbours, neighbour_problems
from slinky.operator.validation.references import reference_problems
from slinky.operator.validation.specs import (
    accounting_problems,
    controller_problems,
    loginset_problems,
    nodeset_problems,
    token_problems,
)
from slinky.operator.validation.warnings import warnings

__all__ = ["Neighbours", "Object", "change_problems", "file_problems", "neighbour_problems", "problems", "warnings"]

Object = Controller | Accounting | RestApi | NodeSet | LoginSet | Token


def problems(found: Object, settings: Settings, neighbours: Neighbours | None = None) -> list[Problem]:
    """Of one object by itself and, where `neighbours` are given, beside those that were there before it."""
    kind, meta = type(found).__name__, found.metadata
    told: list[Problem] = []
    told += name_problems(kind, meta.name)
    told += reference_problems(found.spec, meta.namespace)
    told += _of_its_kind(found, settings)
    if neighbours is not None:
        told += neighbour_problems(found, neighbours.older_than(found))
    return told


def _of_its_kind(found: Object, settings: Settings) -> Iterable[Problem]:
    match found:
        case Controller():
            return controller_problems(found)
        case Accounting():
            return accounting_problems(found)
        case NodeSet():
            return nodeset_problems(found)
        case LoginSet() | RestApi():
            return loginset_problems(found)
        case Token():
            return token_problems(found, settings)
