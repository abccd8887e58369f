"""What the JobSet and LeaderWorkerSet controllers, and their webhooks for pods, make of their objects. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from slinky.bridge.expansion_parts import Document, added, child, of_job, pod, with_claims

__all__ = ["of_job_set", "of_leader_worker_set"]

JOBSET = "jobset.sigs.k8s.io/"
EXCLUSIVE_JOBS = ("alpha.jobset.sigs.k8s.io/exclusive-topology", "alpha.jobset.sigs.k8s.io/node-selector")
LWS = "leaderworkerset.sigs.k8s.io/"
DEFAULT_GROUP = "default"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def of_job_set(jobs: Document) -> Iterator[Document]:
    name, roles = jobs["metadata"]["name"], jobs["spec"]["replicatedJobs"]
    before: dict[str, int] = {}  # Jobs so far, of each group; of all under ""
    for role in roles:
        group = role.get("groupName") or DEFAULT_GROUP
        for index in range(role.get("replicas", 1)):
            said = _said_of_job(jobs, role, group, index)
            said |= {"job-global-index": str(before.get("", 0)), "job-group-index": str(before.get(group, 0))}
            labels = {JOBSET + key: value for key, value in said.items()}
            template = role["template"]
            notes = labels | _exclusive_jobs(jobs, template)
            made = {
                "metadata": added(template.get("metadata", {}), labels, notes),
                "spec": {"completionMode": "Indexed", **template["spec"]},
            }
            pods = made["spec"]["template"]
            made["spec"]["template"] = pods | {"metadata": added(pods.get("metadata", {}), labels, notes)}
            job = child(jobs, "batch/v1", "Job", f"{name}-{role['name']}-{index}", made)
            yield from (job, *of_job(job))
            for counted in ("", group):
                before[counted] = before.get(counted, 0) + 1


def _said_of_job(jobs: Document, role: Mapping[str, Any], group: str, index: int) -> dict[str, str]:
    meta, roles = jobs["metadata"], jobs["spec"]["replicatedJobs"]
    name = f"{meta['name']}-{role['name']}-{index}"
    said = {
        "jobset-name": meta["name"],
        "jobset-uid": meta["uid"],
        "replicatedjob-name": role["name"],
        "replicatedjob-replicas": str(role.get("replicas", 1)),
        "global-replicas": str(sum(other.get("replicas", 1) for other in roles)),
        "group-name": group,
        "group-replicas": str(sum(other.get("replicas", 1) for other in roles if (other.get("groupName") or DEFAULT_GROUP) == group)),
        "job-index": str(index),
        "job-key": _key(meta["namespace"], name),
        "restart-attempt": "0",
    }
    if coordinator := jobs["spec"].get("coordinator"):
        subdomain = jobs["spec"].get("network", {}).get("subdomain") or meta["name"]
        place = f"{coordinator['replicatedJob']}-{coordinator.get('jobIndex', 0)}-{coordinator.get('podIndex', 0)}"
        said["coordinator"] = f"{meta['name']}-{place}.{subdomain}"
    return said


def _exclusive_jobs(jobs: Document, template: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for meta in (jobs["metadata"], template.get("metadata", {})):
        annotations = meta.get("annotations", {})
        if EXCLUSIVE_JOBS[0] in annotations:
            found |= {key: annotations[key] for key in EXCLUSIVE_JOBS if key in annotations}
    return found


def of_leader_worker_set(sets: Document) -> Iterator[Document]:
    """A leader for each group, from a StatefulSet of the set's name; its workers from one of the leader's name."""
    spec, name, namespace = sets["spec"], sets["metadata"]["name"], sets["metadata"]["namespace"]
    both = spec["leaderWorkerTemplate"]
    size, subgroups = both.get("size", 1), both.get("subGroupPolicy", {})
    leaders = child(sets, "apps/v1", "StatefulSet", name, {"spec": {}})
    yield leaders
    notes = {LWS + "size": str(size)} | _exclusive_groups(sets, subgroups)
    for group in range(spec.get("replicas", 1)):
        called = f"{name}-{group}"
        labels = {LWS + "name": name, LWS + "group-index": str(group), LWS + "group-key": _key(namespace, called)}
        kind = subgroups.get("type") or "LeaderWorker"
        own = notes | ({LWS + "subgroup-policy-type": kind} if subgroups else {})
        alone = kind == "LeaderExcluded"
        template = both.get("leaderTemplate") or both["workerTemplate"]
        leader = _placed(
            leaders, both, template, called, labels | {LWS + "worker-index": "0"}, own, "" if alone or not subgroups else "0", group
        )
        yield leader
        workers = child(leader, "apps/v1", "StatefulSet", called, {"spec": {}})
        yield workers
        for index in range(1, size):
            place = labels | {LWS + "worker-index": str(index)}
            said = notes | {LWS + "leader-name": called}
            subgroup = _subgroup(size, subgroups["subGroupSize"], index) if subgroups else ""
            yield _placed(workers, both, both["workerTemplate"], f"{called}-{index}", place, said, subgroup, index)


def _exclusive_groups(sets: Document, subgroups: Mapping[str, Any]) -> dict[str, str]:
    annotations = sets["metadata"].get("annotations", {})
    found = {key: annotations[key] for key in (LWS + "exclusive-topology",) if annotations.get(key)}
    if subgroups:
        found[LWS + "subgroup-size"] = str(subgroups["subGroupSize"])
        found |= {key: annotations[key] for key in (LWS + "subgroup-exclusive-topology",) if annotations.get(key)}
    return found


def _placed(
    owner: Document,
    both: Mapping[str, Any],
    template: Mapping[str, Any],
    name: str,
    labels: Mapping[str, str],
    notes: Mapping[str, str],
    subgroup: str,
    ordinal: int,
) -> Document:
    """A pod of a group, as the webhook leaves it: with the affinities that keep its group, or its subgroup, together and others away."""
    place = {**labels, "apps.kubernetes.io/pod-index": str(ordinal), "statefulset.kubernetes.io/pod-name": name}
    if subgroup:
        leader = notes.get(LWS + "leader-name", name)
        place |= {LWS + "subgroup-index": subgroup, LWS + "subgroup-key": _key(leader, subgroup)}
    spec = with_claims({"template": template, "volumeClaimTemplates": both.get("volumeClaimTemplates")}, name)["spec"]
    for topology, key in ((LWS + "exclusive-topology", LWS + "group-key"), (LWS + "subgroup-exclusive-topology", LWS + "subgroup-key")):
        leader_only = topology == LWS + "exclusive-topology" and LWS + "leader-name" in notes
        if topology in notes and key in place and not leader_only:
            spec = _exclusive(spec, notes[topology], key, place[key])
    return pod(owner, {**template, "spec": spec}, name, place, notes)


def _exclusive(spec: Mapping[str, Any], topology: str, key: str, value: str) -> Document:
    affinity = dict(spec.get("affinity") or {})
    mine = {"key": key, "operator": "In", "values": [value]}
    others = [{"key": key, "operator": "Exists"}, {"key": key, "operator": "NotIn", "values": [value]}]
    for kind, expressions in (("podAffinity", [mine]), ("podAntiAffinity", others)):
        term = {"topologyKey": topology, "labelSelector": {"matchExpressions": expressions}}
        before = affinity.get(kind) or {}
        affinity[kind] = {**before, REQUIRED: [*(before.get(REQUIRED) or ()), term]}
    return {**spec, "affinity": affinity}


def _subgroup(size: int, each: int, index: int) -> str:
    """Where one pod is over, the leader is that one, and part of the first."""
    return str((index - 1) // each if (size - 1) % each == 0 else index // each)


def _key(first: str, second: str) -> str:
    return hashlib.sha1(f"{first}/{second}".encode(), usedforsecurity=False).hexdigest()
