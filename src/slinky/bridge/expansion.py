"""From a manifest to the objects that would be there: what Kubernetes' controllers make of a Deployment, a Job, a JobSet …, down to the pods.

Comes in: one object as it stands in a manifest. Goes out: that object and all that its controllers would make of it, owners before what they own, as plain mappings. Pure. What must stay true: names, labels, annotations and
owners are those that the real controllers write, as far as the bridge reads them; where Kubernetes makes up letters or ids, ours are made up too, the same each time. What is made is what is there first: pods that come later in the
stead of others are not.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slinky.bridge.expansion_parts import Document, added, child, letters, of_job, pod, uid_of, with_claims
from slinky.bridge.expansion_sets import of_job_set, of_leader_worker_set

__all__ = ["KINDS", "ExpansionError", "expand", "normal", "title"]

MOST_OBJECTS = 100_000  # made of one
QUANTITIES = frozenset({"requests", "limits", "overhead"})


class ExpansionError(Exception):
    """Nobody could make pods of it; the message says what is wrong."""


def normal(value: Any, key: str = "") -> Any:
    """As the API server would keep it: what is null is not there, quantities are text."""
    if isinstance(value, Mapping):
        if key in QUANTITIES:
            return {name: str(found) if _is_number(found) else found for name, found in value.items() if found is not None}
        return {name: normal(found, name) for name, found in value.items() if found is not None}
    if isinstance(value, list):
        return [normal(found) for found in value]
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def title(document: Mapping[str, Any]) -> str:
    meta = document.get("metadata", {})
    return f"{document.get('kind')} {meta.get('namespace', '')}/{meta.get('name', '')}"


def expand(document: Document) -> list[Document]:
    """`document` is normal, and has a name, a namespace and a kind of `KINDS`. Raises ExpansionError."""
    root = _owned_by_nobody(document)
    try:
        made = list(itertools.islice(KINDS[document["kind"]](root), MOST_OBJECTS + 1))
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise ExpansionError(f"{title(document)} cannot be read: {type(error).__name__}: {error}") from error
    if len(made) > MOST_OBJECTS:
        raise ExpansionError(f"{title(document)} makes more than {MOST_OBJECTS:,} objects: they cannot be shown")
    return [root, *made]


def _owned_by_nobody(document: Document) -> Document:
    meta = document["metadata"]
    name = meta.get("name") or f"{meta['generateName']}{letters(0)}"
    return document | {"metadata": {**meta, "name": name, "uid": uid_of(document["kind"], meta["namespace"], name)}}


# One function a kind: what its controller makes


def _nothing(_: Document) -> Iterator[Document]:
    return iter(())


def _of_cron_job(cron: Document) -> Iterator[Document]:
    """One of its Jobs; the real one's name ends with the minute it is due."""
    template = cron["spec"]["jobTemplate"]
    job = child(cron, "batch/v1", "Job", f"{cron['metadata']['name']}-{letters(0)}", template)
    yield from (job, *of_job(job))


def _of_deployment(deployment: Document) -> Iterator[Document]:
    spec, drawn = deployment["spec"], letters(0, 10)
    meta = spec["template"].get("metadata", {})
    template = spec["template"] | {"metadata": added(meta, {"pod-template-hash": drawn}, {})}
    made = {"metadata": {"labels": template["metadata"]["labels"]}, "spec": spec | {"template": template}}
    replicas = child(deployment, "apps/v1", "ReplicaSet", f"{deployment['metadata']['name']}-{drawn}", made)
    yield from (replicas, *_of_replica_set(replicas))


def _of_replica_set(replicas: Document) -> Iterator[Document]:
    spec = replicas["spec"]
    for index in range(spec.get("replicas", 1)):
        yield pod(replicas, spec["template"], f"{replicas['metadata']['name']}-{letters(index)}")


def _of_stateful_set(states: Document) -> Iterator[Document]:
    spec, name = states["spec"], states["metadata"]["name"]
    first = spec.get("ordinals", {}).get("start", 0)
    for index in range(first, first + spec.get("replicas", 1)):
        called = f"{name}-{index}"
        labels = {"apps.kubernetes.io/pod-index": str(index), "statefulset.kubernetes.io/pod-name": called}
        yield pod(states, with_claims(spec, called), called, labels)


KINDS: Mapping[str, Callable[[Document], Iterator[Document]]] = {
    "Pod": _nothing,
    "PodGroup": _nothing,
    "Workload": _nothing,
    "Job": of_job,
    "CronJob": _of_cron_job,
    "Deployment": _of_deployment,
    "ReplicaSet": _of_replica_set,
    "StatefulSet": _of_stateful_set,
    "JobSet": of_job_set,
    "LeaderWorkerSet": of_leader_worker_set,
}
