"""Labels and annotations that stay on a pod template because their removal would only restart pods.

Earlier versions of the operator wrote the labels and annotations of a custom resource into its pod
templates. What the operator once wrote there stays until the template changes for another reason.
Pure.

*Invariants:* A StatefulSet or Deployment carries the digest of its pod template as the operator
wants it. Keys that other writers own (such as those of `kubectl rollout restart`) are never sent.
"""

from collections.abc import Mapping
from typing import Any

from slinky.operator.children import MANAGER, digest, is_managed
from slinky.operator.takeover import Held

__all__ = ["TEMPLATE_DIGEST", "WITH_TEMPLATE", "keeping", "marked"]

TEMPLATE_DIGEST = "slinky.slurm.net/pod-template-digest"
WITH_TEMPLATE = frozenset({"StatefulSet", "Deployment"})

Body = Mapping[str, Any]


def marked(body: Body) -> dict[str, Any]:
    """Add the digest of the body's pod template to its annotations."""
    if body.get("kind") not in WITH_TEMPLATE:
        return dict(body)
    annotations = dict(body["metadata"].get("annotations") or {})
    annotations[TEMPLATE_DIGEST] = digest(body.get("spec", {}).get("template"))[:16]
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


def keeping(body: Body, live: Held) -> Body:
    """Add what the operator once wrote into the live template, if nothing else changes in it.

    Without a digest on the live object, an earlier version of the operator wrote it: then
    everything stays, and goes with the next change.
    """
    if not is_managed(live.metadata):
        return body  # another operator's: its pods restart in any case
    before = live.metadata.annotations.get(TEMPLATE_DIGEST)
    if before is not None and before != body["metadata"]["annotations"][TEMPLATE_DIGEST]:
        return body
    wanted = body["spec"]["template"]["metadata"]
    found = live.spec.template.metadata
    merged = {
        part: _kept(said, part, live) | dict(wanted.get(part) or {})
        for part, said in (("labels", found.labels), ("annotations", found.annotations))
    }
    metadata = {**wanted, **{part: value for part, value in merged.items() if value}}
    template = {**body["spec"]["template"], "metadata": metadata}
    return {**body, "spec": {**body["spec"], "template": template}}


def _kept(said: Mapping[str, str], part: str, live: Held) -> dict[str, str]:
    owned = _owned(part, live)
    return {key: value for key, value in said.items() if key in owned}


def _owned(part: str, live: Held) -> set[str]:
    """The keys of the live pod template that the operator itself has applied."""
    found: set[str] = set()
    for entry in live.metadata.managed_fields:
        if entry.get("manager") == MANAGER and not entry.get("subresource"):
            fields: Any = entry.get("fieldsV1") or {}
            for step in ("f:spec", "f:template", "f:metadata", f"f:{part}"):
                fields = fields.get(step) or {}
            found |= {key.removeprefix("f:") for key in fields}
    return found
