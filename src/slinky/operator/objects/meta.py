"""The metadata of the objects that the operator makes: names, labels, annotations and owners.

*Invariants:* A child has the labels and annotations of its custom resource. A pod and a pod
template do not: they have those of `spec.template.metadata` and the operator's own, so that no label of a
custom resource, such as a chart's version, restarts a pod. A label that a selector reads wins over
every label that an administrator writes.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from slinky.kube.objects import Meta
from slinky.operator.kinds import GROUP, VERSION, Accounting, Controller, LoginSet, NodeSet, RestApi, Token
from slinky.operator.kinds.common import TemplateMeta

__all__ = [
    "NOT_PASSED_ON",
    "Maker",
    "digest_of",
    "metadata",
    "owned_pod",
    "owner",
    "pod_metadata",
    "resource",
]

Maker = Controller | Accounting | RestApi | LoginSet | NodeSet | Token

# kubectl's own copy of the whole object, and Helm's, Argo's and Flux's marks: of the object they stand on, not of its children.
NOT_PASSED_ON = (
    "kubectl.kubernetes.io/",
    "meta.helm.sh/",
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
)
_NOT_PASSED_ON_LABELS = ("argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "app.kubernetes.io/managed-by")


def owner(maker: Maker) -> dict[str, Any]:
    """The reference by which what is made goes when `maker` goes."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": type(maker).__name__,
        "name": maker.metadata.name,
        "uid": maker.metadata.uid,
        "controller": True,
    }


def passed_on(meta: Meta) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations of a custom resource that its children carry too."""
    return (
        {key: value for key, value in meta.labels.items() if not key.startswith(_NOT_PASSED_ON_LABELS)},
        {key: value for key, value in meta.annotations.items() if not key.startswith(NOT_PASSED_ON)},
    )


def metadata(
    maker: Maker,
    name: str,
    labels: Mapping[str, str],
    template: TemplateMeta | None = None,
) -> dict[str, Any]:
    """The metadata of a child of `maker`; for pods see `owned_pod`."""
    given_labels, given_annotations = passed_on(maker.metadata)
    added = template or TemplateMeta()
    made = _place(maker, name) | {"labels": given_labels | (added.labels or {}) | dict(labels)}
    if notes := given_annotations | (added.annotations or {}):
        made["annotations"] = notes
    return made | {"ownerReferences": [owner(maker)]}


def pod_metadata(
    labels: Mapping[str, str],
    template: TemplateMeta,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The metadata of a pod template: only what `template` adds and what is the operator's own."""
    made: dict[str, Any] = {"labels": (template.labels or {}) | dict(labels)}
    notes = (template.annotations or {}) | dict(annotations or {})
    return made | ({"annotations": notes} if notes else {})


def owned_pod(
    maker: Maker,
    name: str,
    labels: Mapping[str, str],
    template: TemplateMeta,
    annotations: Mapping[str, str],
) -> dict[str, Any]:
    """The metadata of a pod that the operator itself makes for `maker`."""
    made = _place(maker, name) | pod_metadata(labels, template, annotations)
    return made | {"ownerReferences": [owner(maker)]}


def _place(maker: Maker, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": maker.metadata.namespace}


def resource(api_version: str, kind: str, meta: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **parts}


def digest_of(value: Any) -> str:
    """The same for the same value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
