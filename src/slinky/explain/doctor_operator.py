"""What the doctor looks at in the operator itself: its configuration, whether one leads, and whether its kinds are as it knows them. Pure.

What must stay true: a kind counts as older only where it lacks something that this program knows; what it has besides is no finding.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from slinky.explain.catalogue import entry
from slinky.explain.findings import Finding
from slinky.explain.installation import Installation
from slinky.explain.leader import leader_findings
from slinky.operator.kinds import VERSION
from slinky.operator.kinds.schema import crds

__all__ = ["configuration", "kinds", "leader"]

SHOWN = 5


def configuration(seen: Installation) -> Iterator[Finding]:
    if seen.operator is not None and seen.operator.wrong:
        yield entry("operator-config-unreadable").found("operator's configuration", seen.operator.wrong, file=seen.operator.config)


def leader(seen: Installation) -> Iterator[Finding]:
    if seen.operator is not None and seen.operator.settings.leader.elect:
        settings = seen.operator.settings
        yield from leader_findings("operator-", seen.operator.lease, settings.namespace, settings.leader.name, seen.now)


def kinds(seen: Installation) -> Iterator[Finding]:
    if seen.operator is None:
        return
    for wanted in crds():
        name = wanted["metadata"]["name"]
        found = seen.operator.kinds.get(name)
        about = f"CustomResourceDefinition {name}"
        if found is None:
            yield entry("operator-kind-missing").found(about, "it does not exist")
            continue
        schema = _schema(found)
        if schema is None:
            yield entry("operator-kind-older").found(about, f"it does not offer version {VERSION}")
        elif lacking := list(_lacking(schema, _schema(wanted) or {}, "")):
            more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
            yield entry("operator-kind-older").found(about, f"it does not know {', '.join(lacking[:SHOWN])}{more}")


def _schema(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for version in document.get("spec", {}).get("versions", ()):
        if version.get("name") == VERSION and version.get("served", False):
            return version.get("schema", {}).get("openAPIV3Schema") or {}
    return None


def _lacking(found: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[str]:
    """Fields, and words of enumerations, that are not there; of a field that is missing, not what would be in it."""
    there = found.get("properties") or {}
    for name, part in (wanted.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        if name in there:
            yield from _lacking(there[name], part, here)
        else:
            yield here
    if isinstance(wanted.get("items"), Mapping) and isinstance(found.get("items"), Mapping):
        yield from _lacking(found["items"], wanted["items"], f"{path}[]")
    if "enum" in found:
        yield from (f"{path}: {word}" for word in wanted.get("enum", ()) if word not in found["enum"])
