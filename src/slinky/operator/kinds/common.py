"""What several kinds of `slinky.slurm.net` have in common: references, templates, and what a status says.

Pure. Structs read what is in the API server, Python's names for its camelCase; each field's help stands beside it, and the CRDs and docs/operator-reference.md are made from it. Parts that Kubernetes itself
defines (pods, containers, Services, claims) stay mappings as they came: whoever applies what is made of them has Kubernetes judge them.
"""

from typing import Annotated, Any

import msgspec

from slinky.kube.objects import Condition

__all__ = [
    "PORTS",
    "Conditioned",
    "Container",
    "ExternalHost",
    "KeyReference",
    "NameReference",
    "Part",
    "PodTemplate",
    "ServiceTemplate",
    "TemplateMeta",
    "told",
]


def told(help_: str, *, least: int | None = None, most: int | None = None) -> msgspec.Meta:
    """A field's help; `least` and `most` are a number's bounds."""
    return msgspec.Meta(description=help_, ge=least, le=most)


PORTS = {"least": 0, "most": 65535}


class Part(msgspec.Struct, kw_only=True, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Of a spec: one that holds a field nobody knows is not read."""


class NameReference(Part, frozen=True):
    """An object in the same namespace."""

    name: Annotated[str, told("Its name.")] = ""
    namespace: Annotated[str, told("Its namespace; where it is given, it has to be this object's own.")] = ""


class KeyReference(Part, frozen=True):
    """A key of a Secret or a ConfigMap in the same namespace."""

    name: Annotated[str, told("The Secret's or ConfigMap's name.")] = ""
    key: Annotated[str, told("The key in it.")] = ""
    namespace: Annotated[str, told("Its namespace; where it is given, it has to be this object's own.")] = ""
    optional: Annotated[bool | None, told("Whether it may be missing.")] = None


Container = Annotated[
    dict[str, Any],
    told(
        'Of the container: whatever a container of a pod can have. It is laid over what the operator makes: `false`, 0 and `""` win, '
        "an empty list says nothing, null removes."
    ),
]


class TemplateMeta(Part, frozen=True):
    """Labels and annotations that are added."""

    labels: Annotated[dict[str, str] | None, told("Labels to add.")] = None
    annotations: Annotated[dict[str, str] | None, told("Annotations to add.")] = None


class PodTemplate(Part, frozen=True):
    """Laid over the pod that the operator makes."""

    metadata: Annotated[TemplateMeta, told("Labels and annotations of the pod.")] = msgspec.field(default_factory=TemplateMeta)
    spec: Annotated[
        dict[str, Any],
        told('Whatever a pod\'s spec can have; `false`, 0 and `""` win, an empty list says nothing, null removes.'),
    ] = msgspec.field(default_factory=dict)


class ServiceTemplate(Part, frozen=True):
    """Laid over the Service that the operator makes."""

    metadata: Annotated[TemplateMeta, told("Labels and annotations of the Service.")] = msgspec.field(default_factory=TemplateMeta)
    spec: Annotated[dict[str, Any], told("Whatever a Service's spec can have. `externalIPs` is refused.")] = msgspec.field(
        default_factory=dict
    )
    port: Annotated[int, told("The Service's port; 0 for the usual one.", **PORTS)] = 0
    node_port: Annotated[int, told("The port on each node, where the Service's type has one; 0 for any.", **PORTS)] = 0


class ExternalHost(Part, frozen=True):
    """A daemon that runs elsewhere."""

    host: Annotated[str, told("Its host name or address.")] = ""
    port: Annotated[int, told("Its port; 0 for the usual one.", **PORTS)] = 0


class Conditioned(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A status: what was last seen to be so."""

    conditions: Annotated[list[Condition], told("Ready, Available, Progressing and Degraded, each with a reason.")] = msgspec.field(
        default_factory=list
    )
    observed_generation: Annotated[int, told("The generation that was last worked on.")] = 0
