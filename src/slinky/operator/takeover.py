"""Objects that the original made for a cluster: whose they are, and how all that it wrote into them becomes ours to say. Pure.

Comes in: the metadata of an object under a child's name. Goes out: whether it may be taken over, and its managedFields as they have to be before it is. What must stay true: only what belongs to objects of ours is taken; after it, whatever the original wrote and
we do not is removed by the next apply (its Service chooses pods by a label that nobody writes any more), and what Kubernetes' own controllers wrote stays theirs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slinky.kube import KubeObject, Meta, Resource
from slinky.kube.objects import Record
from slinky.operator.children import MANAGER, Owner
from slinky.operator.kinds import GROUP

__all__ = ["Held", "HeldMeta", "as_ours", "held", "is_for"]

KUBERNETES = "kube-controller-manager"
ORIGINAL = "manager"  # its binary's name
FIELDS = "FieldsV1"
METADATA = "f:metadata"
# What people and other controllers add to an object: a DNS name, what holds its load balancer.
ADDED = frozenset({"f:annotations", "f:finalizers", "f:labels"})

Entry = Mapping[str, Any]


class HeldMeta(Meta, frozen=True):
    managed_fields: tuple[dict[str, Any], ...] = ()


class HeldTemplate(Record, frozen=True):
    metadata: Meta = Meta()


class HeldSpec(Record, frozen=True):
    template: HeldTemplate = HeldTemplate()


class Held(KubeObject, frozen=True):
    """The parts of an object that tell its owner, who wrote what, and its pod template's labels."""

    metadata: HeldMeta = msgspec.field(default_factory=HeldMeta)
    spec: HeldSpec = HeldSpec()


def held(resource: Resource[Any]) -> Resource[Held]:
    return Resource(resource.group, resource.version, resource.plural, Held, resource.namespaced)


def is_for(found: Meta, owner: Owner) -> bool:
    """Made for that object; or, without a controller, for several objects of our group.

    The original shares the workers' Service and budget among NodeSets, without a controller. Its
    Secret with a token belongs to the Secret with the key, not to the Token.
    """
    holder = found.controller
    if holder is not None:
        return holder.uid == owner.uid or (owner.kind == "Token" and holder.kind == "Secret")
    return bool(found.owner_references) and all(each.api_version.startswith(f"{GROUP}/") for each in found.owner_references)


def as_ours(entries: Sequence[Entry], api_version: str) -> list[Entry]:
    """All that was written with the object itself counts as applied by us.

    A status and Kubernetes' own remarks stay, and what others added to the metadata.
    """
    kept = [each for each in entries if not _is_taken(each)]
    fields: dict[str, Any] = {}
    for each in entries:
        if _is_taken(each):
            taken, added = _parted(each)
            fields = _joined(fields, taken)
            if added:
                kept.append({**each, "fieldsV1": {METADATA: added}})
    return [*kept, {"manager": MANAGER, "operation": "Apply", "apiVersion": api_version, "fieldsType": FIELDS, "fieldsV1": fields}]


def _is_taken(entry: Entry) -> bool:
    return not entry.get("subresource") and entry.get("manager") != KUBERNETES and entry.get("fieldsType", FIELDS) == FIELDS


def _parted(entry: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
    """What becomes ours of an entry's fields, and what of the metadata stays its manager's."""
    fields = dict(entry.get("fieldsV1") or {})
    metadata: Mapping[str, Any] = fields.get(METADATA) or {}
    stays = {"f:finalizers"} if entry.get("manager") in (ORIGINAL, MANAGER) else ADDED
    added = {key: value for key, value in metadata.items() if key in stays}
    if added:
        taken = {key: value for key, value in metadata.items() if key not in added}
        fields = {key: value for key, value in fields.items() if key != METADATA}
        fields |= {METADATA: taken} if taken else {}
    return fields, added


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _joined(one.get(key) or {}, other.get(key) or {}) for key in {**one, **other}}
