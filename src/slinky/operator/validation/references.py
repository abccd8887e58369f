"""References at any depth of a spec: each has to name something, in the object's own namespace; and a Service may not take addresses that are not the cluster's.

Pure. What must stay true: no reference leads out of its namespace, where other people's Secrets are.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from slinky.operator.kinds import KeyReference, NameReference, ServiceTemplate
from slinky.operator.kinds.reading import Problem

__all__ = ["reference_problems"]


def reference_problems(part: msgspec.Struct, namespace: str, path: str = "spec") -> Iterator[Problem]:
    for field in msgspec.structs.fields(part):
        here = f"{path}.{field.encode_name}"
        value = getattr(part, field.name)
        for where, each in [(here, value)] if not isinstance(value, list) else [(f"{here}[{n}]", each) for n, each in enumerate(value)]:
            yield from _of_value(each, namespace, where)


def _of_value(value: Any, namespace: str, path: str) -> Iterator[Problem]:
    match value:
        case NameReference():
            yield from _elsewhere(value.namespace, namespace, path)
            if not value.name and path != "spec.controllerRef":
                yield Problem(f"{path}.name", "is empty; it has to name an object in this namespace, or the reference be left out")
        case KeyReference():
            yield from _elsewhere(value.namespace, namespace, path)
            yield from _key_reference(value, path)
        case ServiceTemplate():
            if value.spec.get("externalIPs"):
                yield Problem(
                    f"{path}.spec.externalIPs",
                    "is refused: a Service with it takes other people's traffic (CVE-2020-8554); use type LoadBalancer or NodePort",
                )
            if value.spec.get("selector"):
                yield Problem(
                    f"{path}.spec.selector", "is the operator's to say: with another, the daemon would not be reached; take it out"
                )
        case msgspec.Struct():
            yield from reference_problems(value, namespace, path)


def _elsewhere(said: str, own: str, path: str) -> Iterator[Problem]:
    if said and said != own:
        yield Problem(
            f"{path}.namespace",
            f"is {said}, but references reach no further than the object's own namespace ({own}); leave it out, and have what is meant there",
        )


def _key_reference(value: KeyReference, path: str) -> Iterator[Problem]:
    if path == "spec.secretRef":  # what a Token writes: each part may be left to us
        return
    for name, said in (("name", value.name), ("key", value.key)):
        if not said:
            yield Problem(f"{path}.{name}", f"is empty; a reference to a key says both, name and key (the {name} is missing)")
    if value.optional:
        yield Problem(f"{path}.optional", "is true, but nothing works without it; leave it out")
