"""Who has to look again when something changes. Pure.

Comes in: an object as it was written, or the name of a ConfigMap or Secret. Goes out: the keys of objects whose children depend on it. What must stay true: an object that cannot be read is related all the same, by what it names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from slinky.kube import Key
from slinky.operator.kinds import Written

__all__ = ["MEMBERS", "Place", "accounting_of", "affected", "controller_of", "named_files", "refers_to"]


class Place(NamedTuple):
    """An object of ours. The namespace first: who has many does not keep others waiting."""

    namespace: str
    kind: str
    name: str

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


MEMBERS = ("RestApi", "LoginSet", "NodeSet")


def controller_of(found: Written) -> str:
    """The name of the Controller that a RestApi, LoginSet or NodeSet belongs to."""
    return _name(found.spec.get("controllerRef"))


def accounting_of(found: Written) -> str:
    """The name of a Controller's Accounting."""
    return _name(found.spec.get("accountingRef"))


def affected(kind: str, found: Written, others: Callable[[str, str], Iterable[Written]]) -> Iterator[Place]:
    """Objects that are made differently when this one changes, itself included. `others(kind, namespace)` gives all there are."""
    namespace, name = found.metadata.namespace, found.metadata.name
    yield Place(namespace, kind, name)
    match kind:
        case "Controller":
            for member in MEMBERS:
                yield from (
                    Place(namespace, member, each.metadata.name) for each in others(member, namespace) if controller_of(each) == name
                )
            if accounting := accounting_of(found):
                yield Place(namespace, "Accounting", accounting)
        case "Accounting":
            yield from (
                Place(namespace, "Controller", each.metadata.name)
                for each in others("Controller", namespace)
                if accounting_of(each) == name
            )
        case "RestApi" | "LoginSet" | "NodeSet":
            if controller := controller_of(found):
                yield Place(namespace, "Controller", controller)


def refers_to(found: Written, name: str) -> bool:
    """Whether its spec names a ConfigMap or Secret of that name."""
    return name in named_files(found.spec)


def named_files(spec: Mapping[str, Any]) -> frozenset[str]:
    """The names in all that is called a reference, at any depth but in what Kubernetes defines."""
    return frozenset(_named(spec))


def _named(part: Mapping[str, Any]) -> Iterator[str]:
    for field, value in part.items():
        if field in ("template", "slurmctld", "slurmdbd", "slurmrestd", "slurmd", "login", "controllerRef", "accountingRef"):
            continue
        if field.endswith("Ref"):
            yield from filter(None, [_name(value)])
        elif field.endswith("Refs") and isinstance(value, list):
            yield from filter(None, map(_name, value))
        elif isinstance(value, dict):
            yield from _named(value)


def _name(reference: object) -> str:
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else ""
