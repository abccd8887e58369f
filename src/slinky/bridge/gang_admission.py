"""What the members of a gang ask of one another, judged when the object that makes them is applied. Pure.

Comes in: a Job, JobSet, LeaderWorkerSet or PodGroup as it was sent, and which labels Slurm has as features. Goes out: why Slurm could not be told, or that there would be too many of them, or nothing. What must stay true: a gang that could be placed is never refused here; one that is not seen to be
impossible before its controllers and webhooks have had their say about its pods is parked later.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from slinky.bridge.eligibility import within_gang
from slinky.bridge.eligibility.bounds import spec_problems
from slinky.bridge.eligibility.gang import HOSTNAME, UNMAPPED
from slinky.bridge.jobsets import JobSet
from slinky.bridge.keys import GANG
from slinky.bridge.leaderworkersets import LeaderWorkerSet
from slinky.bridge.roots import Root, largest_gang
from slinky.bridge.workload import MOST_SAID
from slinky.kube import Pod

__all__ = ["gang_problems", "size_problems"]


def gang_problems(root: Mapping[str, Any], mapped: Mapping[str, str]) -> list[str]:
    found = []
    for place, template in _templates_of_gangs(root):
        try:
            pod = msgspec.convert({"metadata": template.get("metadata") or {}, "spec": template.get("spec") or {}}, Pod)
        except msgspec.ValidationError:
            continue  # the API server says so itself
        if spec_problems(pod.spec):
            continue  # which is said of the template
        rules = within_gang([_numbered(pod, "0"), _numbered(pod, "1")])
        label = rules.same_domain if rules.same_domain != HOSTNAME else None
        if why := rules.refusal or (UNMAPPED.format(label=label) if label and label not in mapped else ""):
            found.append(f"{place}: {why}")
    return found


def size_problems(root: Mapping[str, Any], most: int) -> list[str]:
    """A gang of more pods than one may have, in an object of any kind, which is known by what is in it."""
    spec, meta = root.get("spec") or {}, root.get("metadata") or {}
    kind: type[Root] | None = JobSet if "replicatedJobs" in spec else LeaderWorkerSet if "leaderWorkerTemplate" in spec else None
    said = meta.get("annotations") or {}
    if kind is not None:
        try:
            found = msgspec.convert({"metadata": {"annotations": said}, "spec": spec}, kind)
        except msgspec.ValidationError:
            return []  # the API server says so itself
        place, count = "spec", largest_gang(found)
    elif "template" in spec:
        place, count = "spec.parallelism", _count(spec) if _said_yes(said.get(GANG, "")) else 1
    else:
        place, count = max(_minimums(spec), key=lambda each: each[1], default=("", 0))
    if count <= most:
        return []
    return [f"{place}: a gang of {count:,} pods, above the limit of {most:,} (gangs.maxPods): use a smaller gang, or several gangs"]


def _minimums(spec: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Of a PodGroup or Workload: how many pods its gangs wait for."""
    policies = [("spec.schedulingPolicy", spec.get("schedulingPolicy"))]
    policies += [(f"spec.podGroups[{index}].policy", each.get("policy")) for index, each in enumerate(spec.get("podGroups") or ())]
    for place, policy in policies:
        minimum = ((policy or {}).get("gang") or {}).get("minCount")
        if isinstance(minimum, int):
            yield f"{place}.gang.minCount", minimum
    if isinstance(minimum := spec.get("minMember"), int):
        yield "spec.minMember", minimum


def _said_yes(text: str) -> bool:
    return text[:MOST_SAID].strip().lower() == "true"


def _numbered(pod: Pod, uid: str) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))


def _templates_of_gangs(root: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Place and pod template of those that are made several times within one gang."""
    spec = root.get("spec") or {}
    said = str(((root.get("metadata") or {}).get("annotations") or {}).get(GANG, ""))[:MOST_SAID].strip().lower()
    if template := spec.get("template"):
        if said == "true" and _count(spec) > 1:
            yield "spec.template", template
        return
    if said == "false":
        return
    for index, each in enumerate(spec.get("replicatedJobs") or ()):
        job = (each.get("template") or {}).get("spec") or {}
        if _count(job) * (1 if each.get("replicas") is None else each["replicas"]) > 1:
            yield f"spec.replicatedJobs[{index}].template.spec.template", job.get("template") or {}
    group = spec.get("leaderWorkerTemplate") or {}
    if (group.get("size") or 1) > 2 or ((group.get("size") or 1) > 1 and not group.get("leaderTemplate")):
        yield "spec.leaderWorkerTemplate.workerTemplate", group.get("workerTemplate") or {}


def _count(job: Mapping[str, Any]) -> int:
    parallelism = 1 if job.get("parallelism") is None else int(job["parallelism"])
    completions = job.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))
