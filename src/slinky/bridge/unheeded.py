"""Job annotations on a pod template that have no effect, told when the object is applied. Pure.

*Invariants:* what is said here is what `workload.workload_of` does: the annotations of a gang are
those of the object that makes it, and only such an object can ask for a gang. A template that names
another group is not judged, because that group decides.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from slinky.bridge.keys import GANG, SETTINGS
from slinky.bridge.workload import COSCHEDULING_LABEL, MOST_SAID

__all__ = ["GROUP_FIELDS", "unheeded"]

GROUP_FIELDS = ("schedulingGroup", "workloadRef")
MOST_KEYS = 3  # named in one warning: the API server cuts a warning after 256 characters
MOST_WARNINGS = 10

_Object = Mapping[str, Any]
_Said = Mapping[str, str]


def unheeded(root: _Object, templates: Iterable[tuple[str, _Object, _Said]]) -> list[str]:
    """Warn about a Job, JobSet or LeaderWorkerSet.

    A template is its place, the pod template, and the annotations of the Job template around it.
    """
    owners = (root.get("metadata") or {}).get("ownerReferences") or ()
    if any(owner.get("controller") and owner.get("kind") == "JobSet" for owner in owners):
        return []  # a Job of a JobSet: the JobSet was judged
    found: dict[str, None] = {}
    for each in templates:
        for warning in _of_template(root, *each):
            found[warning] = None
        if len(found) >= MOST_WARNINGS:
            break
    return list(found)[:MOST_WARNINGS]


def _of_template(root: _Object, place: str, template: _Object, of_job: _Said) -> Iterator[str]:
    if _names_a_group(template):
        return
    kind, by_root = _kind(root), _annotations(root)
    own = _annotations(template)
    is_set = kind != "Job"
    if _is_gang(by_root, default=is_set):
        if of_job:
            yield from _gang(kind, place.removesuffix(".spec.template"), by_root, of_job)
        yield from _gang(kind, place, by_root, own)
    elif kind == "JobSet" and _is_gang(of_job):
        yield from _gang("Job template", place, of_job, own)
    elif _is_gang(own):
        yield f"{place}: annotation {GANG} has no effect on a pod template: put it on the {kind}"


def _gang(kind: str, place: str, heeded: _Said, said: _Said) -> Iterator[str]:
    """Those of a template that say something else than the object whose annotations count."""
    keys = sorted(key for key in said if key.startswith(SETTINGS) and heeded.get(key) != said[key])
    if _is_gang(said):
        keys = [key for key in keys if key != GANG]  # it is a gang, as this says
    if keys:
        more = len(keys) - MOST_KEYS
        named = ", ".join(keys[:MOST_KEYS]) + (f" and {more} more" if more > 0 else "")
        why = f"no effect, because for a gang only annotations on the {kind} count; put them there"
        yield f"{place}: {named}: {why}"


def _kind(root: _Object) -> str:
    """An object is known by what is in it."""
    spec = root.get("spec") or {}
    if "replicatedJobs" in spec:
        return "JobSet"
    return "LeaderWorkerSet" if "leaderWorkerTemplate" in spec else "Job"


def _names_a_group(template: _Object) -> bool:
    spec = template.get("spec") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    return COSCHEDULING_LABEL in labels or any(spec.get(field) for field in GROUP_FIELDS)


def _annotations(document: _Object) -> _Said:
    found: _Said = (document.get("metadata") or {}).get("annotations") or {}
    return found


def _is_gang(said: _Said, *, default: bool = False) -> bool:
    """As `workload.asks_for_gang` reads it."""
    text = said.get(GANG, "")[:MOST_SAID].strip().lower()
    return text == "true" if text else default
