"""The CustomResourceDefinitions, made from the types.

Pure. Comes in: the kinds. Goes out: one CRD each, kept in crds/ (`slinky operator crds`). What must stay true: every field has its help; nothing that is written is pruned in silence (unknown fields stay, for
the webhook or the operator to refuse by name); what Kubernetes itself defines (pods, containers, Services, claims) has no schema here; names, columns and paths are the original's, as other tools know them.
"""

import enum
from dataclasses import dataclass
from typing import Any

from msgspec import inspect

from slinky.operator.kinds import GROUP, KINDS, VERSION
from slinky.operator.kinds.anatomy import Field, fields_of, part_of
from slinky.operator.kinds.nodeset import Update
from slinky.operator.kinds.rules import LONGEST, REQUIRED, RULES, SCHEDULED_UPDATE_TYPE

__all__ = ["OFFERED", "Offer", "crd", "crds"]

Document = dict[str, Any]
KEEPS = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True)
class Offer:
    """How the API server offers a kind. `columns`: name, type, JSON path, priority (1: only with -o wide)."""

    plural: str
    short: tuple[str, ...]
    columns: tuple[tuple[str, str, str, int], ...] = ()
    scales: bool = False


def _of_ready(part: str) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{part}'


READY = (("READY", "string", _of_ready("status"), 0), ("REASON", "string", _of_ready("reason"), 0))
LAST = (("MESSAGE", "string", _of_ready("message"), 1), ("AGE", "date", ".metadata.creationTimestamp", 0))
REPLICAS = ("REPLICAS", "integer", ".status.replicas", 0)

OFFERED = {
    "Controller": Offer("controllers", ("slurmctld",), (*READY, *LAST)),
    "Accounting": Offer("accountings", ("slurmdbd",), (*READY, *LAST)),
    "RestApi": Offer("restapis", ("slurmrestd",), (*READY, *LAST)),
    "NodeSet": Offer(
        "nodesets",
        ("nss", "slurmd"),
        (
            ("DESIRED", "integer", ".status.desired", 0),
            REPLICAS,
            ("UPDATED", "integer", ".status.updatedReplicas", 0),
            ("READY", "integer", ".status.readyReplicas", 0),
            ("IDLE", "integer", ".status.slurmIdle", 1),
            ("ALLOCATED", "integer", ".status.slurmAllocated", 1),
            ("DOWN", "integer", ".status.slurmDown", 1),
            ("DRAIN", "integer", ".status.slurmDrain", 1),
            READY[1],
            *LAST,
        ),
        scales=True,
    ),
    "LoginSet": Offer("loginsets", ("lss", "sackd"), (REPLICAS, *READY, *LAST), scales=True),
    "Token": Offer("tokens", ("jwt",), (("USER", "string", ".spec.username", 0), ("IAT", "date", ".status.issuedAt", 0), *READY, *LAST)),
}


def crds() -> list[Document]:
    return [crd(kind) for kind in KINDS]


def crd(kind: str) -> Document:
    offer = OFFERED[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{offer.plural}.{GROUP}", "labels": {"app.kubernetes.io/name": "slurm-operator"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": offer.plural,
                "singular": kind.lower(),
                "shortNames": list(offer.short),
                "categories": ["slinky"],
            },
            "versions": [_version(kind, offer)],
        },
    }


def _version(kind: str, offer: Offer) -> Document:
    subresources: Document = {"status": {}}
    if offer.scales:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    columns = [
        {"name": name, "type": type_, "jsonPath": path} | ({"priority": priority} if priority else {})
        for name, type_, path, priority in offer.columns
    ]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(kind)},
        "subresources": subresources,
        "additionalPrinterColumns": columns,
    }


def _root(kind: str) -> Document:
    parts = {field.name: part_of(field.type) for field in fields_of(KINDS[kind])}
    spec, status = parts["spec"], parts["status"]
    assert spec and status
    texts = {"apiVersion": f"{GROUP}/{VERSION}.", "kind": f"{kind}."}
    properties: Document = {name: {"description": text, "type": "string"} for name, text in texts.items()}
    properties["metadata"] = {"type": "object"}
    properties["spec"] = _part(spec, _sentence(spec))
    properties["status"] = _part(status, _sentence(status))
    required = {"required": ["spec"]} if spec in REQUIRED else {}
    return {"description": _sentence(KINDS[kind]), "type": "object", "properties": properties, **required}


def _part(part: type, help_: str) -> Document:
    made: Document = {"description": help_, "type": "object", KEEPS: True}
    required = REQUIRED.get(part, ())
    made["properties"] = {field.name: _field(field, required=field.name in required) for field in fields_of(part)}
    if required:
        made["required"] = list(required)
    if rules := RULES.get(part):
        made["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules]
    return made


def _field(field: Field, *, required: bool) -> Document:
    if field.name == "conditions":
        return _conditions(field.help)
    made = _type(field.type, field.help)
    if field.name == "observedGeneration":
        made["format"] = "int64"
    if field.name in LONGEST and made.get("type") == "string":
        made["maxLength"] = LONGEST[field.name]
    if (default := _default(field)) is not None:
        made["default"] = default
    elif not required:
        made["nullable"] = True  # server-side apply, as of Helm 4, has nulls reach the schema
    return made


def _type(type_: inspect.Type, help_: str) -> Document:
    told = {"description": help_} if help_ else {}
    if part := part_of(type_):
        return _part(part, help_ or _sentence(part))
    match type_:
        case inspect.ListType(item_type=each):
            return {**told, "type": "array", "items": _type(each, "")}
        case inspect.DictType(value_type=inspect.StrType()):
            return {**told, "type": "object", "additionalProperties": {"type": "string"}}
        case inspect.DictType():
            return {**told, "type": "object", KEEPS: True}
        case inspect.EnumType(cls=cls):
            return {**told, "type": "string", "enum": _words(cls)}
        case inspect.BoolType():
            return {**told, "type": "boolean"}
        case inspect.IntType(ge=least, le=most):
            bounds = {name: bound for name, bound in (("minimum", least), ("maximum", most)) if bound is not None}
            return {**told, "type": "integer", "format": "int32", **bounds}
        case inspect.UnionType():
            return {**told, "x-kubernetes-int-or-string": True}
        case inspect.DateTimeType():
            return {**told, "type": "string", "format": "date-time"}
        case inspect.StrType():
            return {**told, "type": "string"}
    raise TypeError(f"{type_} has no schema yet")


def _words(cls: type[enum.Enum]) -> list[str]:
    """Of an enumeration; one word of the original's that is refused by a rule, with a sentence, stands among them."""
    return [str(each.value) for each in cls] + ([SCHEDULED_UPDATE_TYPE] if cls is Update else [])


def _default(field: Field) -> Any:
    """What the API server fills in: what people and autoscalers want to see, and nothing that is empty anyhow."""
    default = field.default
    if isinstance(default, enum.Enum):
        return default.value
    return default if isinstance(default, str | int) and default else None


def _conditions(help_: str) -> Document:
    texts = {"type": "Its name.", "reason": "One word for people and programs.", "message": "For people."}
    properties: Document = {name: {"description": text, "type": "string"} for name, text in texts.items()}
    properties["status"] = {"description": "Whether it holds.", "type": "string", "enum": ["True", "False", "Unknown"]}
    properties["lastTransitionTime"] = {"description": "Since when status is so.", "type": "string", "format": "date-time"}
    properties["observedGeneration"] = {"description": "The generation it is about.", "type": "integer", "format": "int64", "minimum": 0}
    items = {"type": "object", "required": ["type", "status"], "properties": properties}
    return {"description": help_, "type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


def _sentence(part: type) -> str:
    return " ".join((part.__doc__ or "").split())
