"""The admission webhook's decisions about our kinds, and the objects' way from one version to another.

Comes in: AdmissionRequests, and a look at what else is in the namespace. Goes out: a yes, or a refusal that names the object and each field that is wrong. What must stay true: a change that leaves the spec alone
is never refused, nor one to an object that is being deleted (its finalizers must go); what is refused here is what `reading` and `validation` say, and nothing else; a neighbour that stands in the way counts whichever came first, unless it
did so before the change.
"""

import asyncio
import time
from typing import Any, Protocol

import msgspec

from slinky.kube import AdmissionMetrics, AdmissionRequest, AdmissionResponse
from slinky.operator.kinds import GROUP, KINDS, VERSION, Controller, Written
from slinky.operator.kinds.reading import Problem, read
from slinky.operator.settings import Settings
from slinky.operator.validation import Neighbours, change_problems, file_problems, neighbour_problems, problems, warnings
from slinky.operator.validation.files import referenced

__all__ = ["CONVERT", "VALIDATE", "Surroundings", "Validator", "convert"]

VALIDATE, CONVERT = "/validate", "/convert"
MOST_SAID = 20  # problems in one refusal


class Surroundings(Protocol):
    """What there is beside an object, as the API server has it now."""

    async def neighbours(self, namespace: str) -> Neighbours: ...

    async def accountings(self, namespace: str) -> frozenset[str]: ...

    async def files(self, names: list[str], namespace: str) -> dict[str, list[str]]:
        """Of each ConfigMap that is there, the names of the files in it."""
        ...


class Validator:
    def __init__(self, settings: Settings, surroundings: Surroundings, metrics: AdmissionMetrics) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._metrics = metrics

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        started, outcome = time.perf_counter(), "failed"
        try:
            answer = await self._judged(request)
            outcome = "allowed" if answer.allowed else "refused"
        except asyncio.CancelledError:
            outcome = "late"
            raise
        finally:
            self._metrics.count(request, outcome, time.perf_counter() - started)
        return answer

    async def _judged(self, request: AdmissionRequest) -> AdmissionResponse:
        kind = request.kind.kind
        document, before = request.document(), request.old_document()
        if kind not in KINDS or not document or document.get("metadata", {}).get("deletionTimestamp"):
            return AdmissionResponse.allow()
        if before and before.get("spec") == document.get("spec"):
            return AdmissionResponse.allow()
        written = _written(document)
        if isinstance(written, Problem):
            return _refused(request, written.path, [written])
        found = read(kind, written)
        if isinstance(found, list):
            return _refused(request, written.metadata.name, found)
        old = _read_before(kind, before) if before else None
        told = change_problems(old, found) if old else []
        namespace = request.namespace
        neighbours, accountings = await asyncio.gather(self._surroundings.neighbours(namespace), self._surroundings.accountings(namespace))
        told += problems(found, self._settings)
        known = list(neighbour_problems(old, neighbours)) if old else []
        told += [each for each in neighbour_problems(found, neighbours) if each not in known]
        warned = warnings(found, {each.metadata.name for each in neighbours.controllers}, accountings)
        if isinstance(found, Controller):
            names = sorted({reference.name for _, reference in referenced(found) if reference.name})
            files = await self._surroundings.files(names, namespace)
            told += file_problems(found, files)
            warned += [f"there is no ConfigMap {name} in namespace {namespace} yet" for name in names if name not in files]
        if told:
            return _refused(request, written.metadata.name, told)
        return AdmissionResponse.allow(warnings=warned)


def _written(document: dict[str, Any]) -> Written | Problem:
    try:
        return msgspec.convert(document | {"spec": document.get("spec") or {}, "status": {}}, Written)
    except msgspec.ValidationError as error:
        return Problem("spec", f"cannot be read: {error}")


def _read_before(kind: str, document: dict[str, Any]) -> Any:
    """None where it cannot be read: there is nothing then that could be kept."""
    written = _written(document)
    found = None if isinstance(written, Problem) else read(kind, written)
    return None if isinstance(found, list) else found


def _refused(request: AdmissionRequest, name: str, told: list[Problem]) -> AdmissionResponse:
    lines = [str(each) for each in told[:MOST_SAID]]
    if len(told) > MOST_SAID:
        lines.append(f"… and {len(told) - MOST_SAID} more")
    whose = f"{request.kind.kind} {request.namespace}/{request.name or name}"
    text = f"{whose}: {lines[0]}" if len(lines) == 1 else "\n  ".join([f"{whose}:", *lines])
    return AdmissionResponse.refuse(text, code=422)


def convert(document: dict[str, Any], wanted: str) -> dict[str, Any]:
    """To another version of our group. There is one so far; raises ValueError for others."""
    for version in (wanted, str(document.get("apiVersion", ""))):
        if version != f"{GROUP}/{VERSION}":
            name = document.get("metadata", {}).get("name", "")
            raise ValueError(f"{document.get('kind', 'object')} {name}: there is no version {version}; there is {GROUP}/{VERSION}")
    return document
