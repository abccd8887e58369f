"""What is not wrong and yet not as it may look: fields that have no effect here, and what is named and not there yet.

Pure. Comes in: a typed object and, where known, what there is in its namespace. Goes out: sentences that kubectl shows as warnings. What must stay true: nothing that is written is without effect in silence.
"""

from collections.abc import Collection, Iterator
from typing import Any

from slinky.operator.kinds import Accounting, Controller, LoginSet, NameReference, NodeSet, RestApi, Token

__all__ = ["warnings"]

CLAIM = ("access_modes", "resources", "storage_class_name", "selector", "volume_name", "volume_mode", "data_source", "data_source_ref")
LOGFILE = "spec.logfile has no effect: daemons log to standard error here, and need no container for it"


def warnings(found: Any, controllers: Collection[str] | None = None, accountings: Collection[str] | None = None) -> list[str]:
    """`controllers` and `accountings` are the names there are, None where that is not known."""
    return [*_without_effect(found), *_not_there(found, controllers, accountings)]


def _without_effect(found: Any) -> Iterator[str]:
    spec = found.spec
    if isinstance(found, Controller | Accounting) and not spec.external and spec.external_config and spec.external_config.host:
        yield "spec.externalConfig has no effect: spec.external is false"
    if isinstance(found, Controller | NodeSet) and spec.logfile:
        yield LOGFILE
    if isinstance(found, Controller):
        if spec.reconfigure:
            yield "spec.reconfigure has no effect: the operator itself has the daemons take a new configuration, and needs no container for it"
        if spec.persistence.existing_claim and any(getattr(spec.persistence, name) for name in CLAIM):
            yield "spec.persistence: with existingClaim, what describes a claim of our own has no effect"
    if isinstance(found, LoginSet) and spec.initconf:
        yield "spec.initconf has no effect: keys are mounted with the right owner here, and need no container for it"
    if isinstance(found, Controller | Accounting | Token) and spec.jwt_hs256_key_ref:
        yield "spec.jwtHs256KeyRef is the older name of jwtKeyRef"


def _not_there(found: Any, controllers: Collection[str] | None, accountings: Collection[str] | None) -> Iterator[str]:
    match found:
        case RestApi() | NodeSet() | LoginSet():
            yield from _missing("Controller", found.spec.controller_ref, controllers, found.metadata.namespace)
        case Controller():
            yield from _missing("Accounting", found.spec.accounting_ref, accountings, found.metadata.namespace)


def _missing(kind: str, reference: NameReference | None, there: Collection[str] | None, namespace: str) -> Iterator[str]:
    if reference is not None and there is not None and reference.name not in there:
        yield f"there is no {kind} {reference.name} in namespace {namespace} yet"
