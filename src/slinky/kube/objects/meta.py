"""What all objects share: their metadata, the key they are known by, conditions and selectors.

What must stay true: every field has a default, unknown fields are tolerated, and nothing holds a cycle (the garbage collector is told not to look).
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

__all__ = ["Condition", "Key", "KubeObject", "LabelSelector", "Meta", "ObjectReference", "OwnerReference", "Record", "SelectorRequirement"]

EMPTY: Mapping[str, str] = {}
NOTHING: Any = msgspec.field(default_factory=lambda: EMPTY)  # one for all: 100,000 pods would hold half a million empty dicts


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A part of an object: camelCase in JSON, snake_case here."""


class Key(NamedTuple):
    """What an object is called within its resource; the namespace is empty for cluster-wide ones."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Record, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Record, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generate_name: str = ""
    generation: int = 0
    labels: Mapping[str, str] = NOTHING
    annotations: Mapping[str, str] = NOTHING
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: dt.datetime | None = None
    deletion_timestamp: dt.datetime | None = None
    deletion_grace_period_seconds: int | None = None

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def born(self) -> float:
        """In seconds since 1970; 0 where it was not made yet."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp else 0.0

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        for owner in self.owner_references:  # asked at each change of each pod
            if owner.controller:
                return owner
        return None


class KubeObject(Record, frozen=True):
    """What a Reflector can follow; also all that is read of an object of which only the metadata matters."""

    metadata: Meta = Meta()

    @property
    def key(self) -> Key:
        meta = self.metadata
        return Key(meta.namespace, meta.name)


class Condition(Record, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: dt.datetime | None = None


class SelectorRequirement(Record, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Record, frozen=True):
    match_labels: Mapping[str, str] = NOTHING
    match_expressions: tuple[SelectorRequirement, ...] = ()


class ObjectReference(Record, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""
