"""What all objects of the operator carry: a name, labels, annotations, and who owns them.

What must stay true: labels and annotations of the custom resource go to what is made of it; a label of ours that a selector reads wins over any of theirs.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from slinky.kube.objects import Meta
from slinky.operator.kinds import GROUP, VERSION, Accounting, Controller, LoginSet, NodeSet, RestApi, Token
from slinky.operator.kinds.common import TemplateMeta

__all__ = ["Maker", "digest_of", "metadata", "owner", "pod_metadata", "resource"]

Maker = Controller | Accounting | RestApi | LoginSet | NodeSet | Token

# kubectl's own copy of the whole object, and Helm's, Argo's and Flux's marks: of the object they stand on, not of its children.
_NOT_PASSED_ON = (
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
        {key: value for key, value in meta.annotations.items() if not key.startswith(_NOT_PASSED_ON)},
    )


def metadata(
    maker: Maker, name: str, labels: Mapping[str, str], template: TemplateMeta | None = None, annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Of a child of `maker`."""
    made: dict[str, Any] = {"name": name, "namespace": maker.metadata.namespace}
    made |= pod_metadata(maker, labels, template, annotations)
    return made | {"ownerReferences": [owner(maker)]}


def pod_metadata(
    maker: Maker, labels: Mapping[str, str], template: TemplateMeta | None = None, annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Of a pod template: labels and annotations only."""
    given_labels, given_annotations = passed_on(maker.metadata)
    more = template or TemplateMeta()
    made: dict[str, Any] = {"labels": given_labels | (more.labels or {}) | dict(labels)}
    notes = given_annotations | (more.annotations or {}) | dict(annotations or {})
    return made | ({"annotations": notes} if notes else {})


def resource(api_version: str, kind: str, meta: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **parts}


def digest_of(value: Any) -> str:
    """The same for the same value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
