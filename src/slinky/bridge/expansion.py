"""From a manifest to the objects that would be there: what Kubernetes' controllers make of a Deployment, a Job, a JobSet …, down to the pods.

Comes in: one object as it stands in a manifest. Goes out: that object and all that its controllers would make of it, owners before what they own, as plain mappings. Pure. What must stay true: names, labels, annotations and
owners are those that the real controllers write, as far as the bridge reads them; where Kubernetes makes up letters or ids, ours are made up too, the same each time. What is made is what is there first: pods that come later in the
stead of others are not.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["KINDS", "Document", "ExpansionError", "expand", "normal", "title"]

Document = dict[str, Any]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
QUANTITIES = frozenset({"requests", "limits", "overhead"})
JOBSET = "jobset.sigs.k8s.io/"
LWS = "leaderworkerset.sigs.k8s.io/"


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
        return [root, *KINDS[document["kind"]](root)]
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise ExpansionError(f"{title(document)} cannot be read: {type(error).__name__}: {error}") from error


def _owned_by_nobody(document: Document) -> Document:
    meta = document["metadata"]
    name = meta.get("name") or f"{meta['generateName']}{_letters(0)}"
    return document | {"metadata": {**meta, "name": name, "uid": _uid(document["kind"], meta["namespace"], name)}}


# One function a kind: what its controller makes


def _nothing(_: Document) -> Iterator[Document]:
    return iter(())


def _of_job(job: Document) -> Iterator[Document]:
    spec, meta = job["spec"], job["metadata"]
    name, uid = meta["name"], meta["uid"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    labels = dict.fromkeys(("batch.kubernetes.io/controller-uid", "controller-uid"), uid)
    labels |= dict.fromkeys(("batch.kubernetes.io/job-name", "job-name"), name)
    for index in range(min(parallelism, completions) if completions is not None else parallelism):
        if spec.get("completionMode") == "Indexed":
            place = {"batch.kubernetes.io/job-completion-index": str(index)}
            yield _pod(job, spec["template"], f"{name}-{index}-{_letters(0)}", labels | place, place)
        else:
            yield _pod(job, spec["template"], f"{name}-{_letters(index)}", labels)


def _of_cron_job(cron: Document) -> Iterator[Document]:
    """One of its Jobs; the real one's name ends with the minute it is due."""
    template = cron["spec"]["jobTemplate"]
    job = _child(cron, "batch/v1", "Job", f"{cron['metadata']['name']}-{_letters(0)}", template)
    yield from (job, *_of_job(job))


def _of_deployment(deployment: Document) -> Iterator[Document]:
    spec = deployment["spec"]
    made = {"metadata": {"labels": spec["template"].get("metadata", {}).get("labels", {})}, "spec": spec}
    replicas = _child(deployment, "apps/v1", "ReplicaSet", f"{deployment['metadata']['name']}-{_letters(0, 10)}", made)
    yield from (replicas, *_of_replica_set(replicas))


def _of_replica_set(replicas: Document) -> Iterator[Document]:
    spec = replicas["spec"]
    for index in range(spec.get("replicas", 1)):
        yield _pod(replicas, spec["template"], f"{replicas['metadata']['name']}-{_letters(index)}")


def _of_stateful_set(states: Document) -> Iterator[Document]:
    spec, name = states["spec"], states["metadata"]["name"]
    first = spec.get("ordinals", {}).get("start", 0)
    for index in range(first, first + spec.get("replicas", 1)):
        called = f"{name}-{index}"
        labels = {"apps.kubernetes.io/pod-index": str(index), "statefulset.kubernetes.io/pod-name": called}
        yield _pod(states, _with_claims(spec, called), called, labels)


def _with_claims(spec: Mapping[str, Any], pod: str) -> Document:
    """Each of its claim templates is a volume of the pod, over one of that name in the template."""
    template: Document = spec["template"]
    names = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates") or ()]
    if not names:
        return template
    own = [volume for volume in template["spec"].get("volumes") or () if volume.get("name") not in names]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}} for name in names]
    return template | {"spec": template["spec"] | {"volumes": own + claims}}


def _of_job_set(jobs: Document) -> Iterator[Document]:
    name, uid, roles = jobs["metadata"]["name"], jobs["metadata"]["uid"], jobs["spec"]["replicatedJobs"]
    total = sum(role.get("replicas", 1) for role in roles)
    number = 0
    for role in roles:
        replicas, template = role.get("replicas", 1), role["template"]
        for index in range(replicas):
            called = f"{name}-{role['name']}-{index}"
            said = {
                "jobset-name": name,
                "jobset-uid": uid,
                "replicatedjob-name": role["name"],
                "replicatedjob-replicas": str(replicas),
                "global-replicas": str(total),
                "job-index": str(index),
                "job-global-index": str(number),
                "restart-attempt": "0",
            }
            said = {JOBSET + key: value for key, value in said.items()}
            made = {"metadata": _added(template.get("metadata", {}), said, said), "spec": dict(template["spec"])}
            pods = made["spec"]["template"]
            made["spec"]["template"] = pods | {"metadata": _added(pods.get("metadata", {}), said, said)}
            job = _child(jobs, "batch/v1", "Job", called, made)
            yield from (job, *_of_job(job))
            number += 1


def _of_leader_worker_set(groups: Document) -> Iterator[Document]:
    """A leader for each group, from a StatefulSet of the set's name; its workers from one of the leader's name."""
    spec, name = groups["spec"], groups["metadata"]["name"]
    both = spec["leaderWorkerTemplate"]
    size = both.get("size", 1)
    leaders = _child(groups, "apps/v1", "StatefulSet", name, {"spec": {}})
    yield leaders
    subgroups = both.get("subGroupPolicy", {}).get("subGroupSize")
    for group in range(spec.get("replicas", 1)):
        called = f"{name}-{group}"
        said = {LWS + "name": name, LWS + "group-index": str(group), LWS + "group-key": _uid("group", name, called)}
        notes = {LWS + "size": str(size)} | ({LWS + "subgroup-size": str(subgroups)} if subgroups else {})
        exclusive = groups["metadata"].get("annotations", {}).get(LWS + "exclusive-topology")
        notes |= {LWS + "exclusive-topology": exclusive} if exclusive else {}
        place = {LWS + "worker-index": "0", "apps.kubernetes.io/pod-index": str(group), "statefulset.kubernetes.io/pod-name": called}
        leader = _pod(leaders, both.get("leaderTemplate") or both["workerTemplate"], called, said | place, notes)
        yield leader
        workers = _child(leader, "apps/v1", "StatefulSet", called, {"spec": {}})
        yield workers
        notes |= {LWS + "leader-name": called}
        for index in range(1, size):
            pod = f"{called}-{index}"
            place = {
                LWS + "worker-index": str(index),
                "apps.kubernetes.io/pod-index": str(index),
                "statefulset.kubernetes.io/pod-name": pod,
            }
            yield _pod(workers, both["workerTemplate"], pod, said | place, notes)


KINDS: Mapping[str, Callable[[Document], Iterator[Document]]] = {
    "Pod": _nothing,
    "PodGroup": _nothing,
    "Workload": _nothing,
    "Job": _of_job,
    "CronJob": _of_cron_job,
    "Deployment": _of_deployment,
    "ReplicaSet": _of_replica_set,
    "StatefulSet": _of_stateful_set,
    "JobSet": _of_job_set,
    "LeaderWorkerSet": _of_leader_worker_set,
}


# What they have in common


def _pod(
    owner: Document,
    template: Mapping[str, Any],
    name: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Document:
    made = {"metadata": _added(template.get("metadata", {}), labels or {}, annotations or {}), "spec": template["spec"]}
    return _child(owner, "v1", "Pod", name, made)


def _child(owner: Document, api_version: str, kind: str, name: str, made: Mapping[str, Any]) -> Document:
    namespace = owner["metadata"]["namespace"]
    reference = {
        "apiVersion": owner.get("apiVersion", ""),
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    meta = {**made.get("metadata", {}), "name": name, "namespace": namespace, "uid": _uid(kind, namespace, name)}
    return {"apiVersion": api_version, "kind": kind, **made, "metadata": meta | {"ownerReferences": [reference]}}


def _added(meta: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> Document:
    return {**meta, "labels": {**meta.get("labels", {}), **labels}, "annotations": {**meta.get("annotations", {}), **annotations}}


def _uid(kind: str, namespace: str, name: str) -> str:
    return f"{kind.lower()}.{namespace}.{name}"


def _letters(number: int, length: int = 5) -> str:
    """0 → aaaaa, 1 → aaaab: in the stead of those that Kubernetes draws by lot, and in order."""
    found = ""
    for _ in range(length):
        number, rest = divmod(number, len(LETTERS))
        found = LETTERS[rest] + found
    return found
