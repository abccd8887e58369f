"""What the controllers that make pods have in common: children with their owner's reference, pods from a template; and a Job's pods, as others make Jobs. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Document", "added", "child", "letters", "of_job", "pod", "uid_of", "with_claims"]

Document = dict[str, Any]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def of_job(job: Document) -> Iterator[Document]:
    spec, meta = job["spec"], job["metadata"]
    name, uid = meta["name"], meta["uid"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    labels = dict.fromkeys(("batch.kubernetes.io/controller-uid", "controller-uid"), uid)
    labels |= dict.fromkeys(("batch.kubernetes.io/job-name", "job-name"), name)
    for index in range(min(parallelism, completions) if completions is not None else parallelism):
        if spec.get("completionMode") == "Indexed":
            place = {"batch.kubernetes.io/job-completion-index": str(index)}
            yield pod(job, spec["template"], f"{name}-{index}-{letters(0)}", labels | place, place)
        else:
            yield pod(job, spec["template"], f"{name}-{letters(index)}", labels)


def with_claims(spec: Mapping[str, Any], pod: str) -> Document:
    """Each of its claim templates is a volume of the pod, over one of that name in the template."""
    template: Document = spec["template"]
    names = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates") or ()]
    if not names:
        return template
    own = [volume for volume in template["spec"].get("volumes") or () if volume.get("name") not in names]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}} for name in names]
    return template | {"spec": template["spec"] | {"volumes": own + claims}}


def pod(
    owner: Document,
    template: Mapping[str, Any],
    name: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Document:
    made = {"metadata": added(template.get("metadata", {}), labels or {}, annotations or {}), "spec": template["spec"]}
    return child(owner, "v1", "Pod", name, made)


def child(owner: Document, api_version: str, kind: str, name: str, made: Mapping[str, Any]) -> Document:
    namespace = owner["metadata"]["namespace"]
    reference = {
        "apiVersion": owner.get("apiVersion", ""),
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    meta = {**made.get("metadata", {}), "name": name, "namespace": namespace, "uid": uid_of(kind, namespace, name)}
    return {"apiVersion": api_version, "kind": kind, **made, "metadata": meta | {"ownerReferences": [reference]}}


def added(meta: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> Document:
    return {**meta, "labels": {**meta.get("labels", {}), **labels}, "annotations": {**meta.get("annotations", {}), **annotations}}


def uid_of(kind: str, namespace: str, name: str) -> str:
    return f"{kind.lower()}.{namespace}.{name}"


def letters(number: int, length: int = 5) -> str:
    """0 → aaaaa, 1 → aaaab: in the stead of those that Kubernetes draws by lot, and in order."""
    found = ""
    for _ in range(length):
        number, rest = divmod(number, len(LETTERS))
        found = LETTERS[rest] + found
    return found
