"""What the bridge would do with a manifest, without a cluster: each workload with its job, what it requires of a node, and what is refused.

Comes in: objects as they stand in a manifest, and the site's settings. Goes out: a `Preview` a workload, those that are alike told once, and what was left out. Pure. What must stay true: no decision is taken here: admission, membership, workloads and
translation are the bridge's own functions, called as the bridge calls them, so what is shown is what happens.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from slinky.bridge.admission import DEFAULT_SCHEDULER, admit_pod, admit_root
from slinky.bridge.admitted import admitted
from slinky.bridge.annotations import AnnotationError
from slinky.bridge.expansion import KINDS, ExpansionError, expand, normal, title
from slinky.bridge.expansion_parts import Document
from slinky.bridge.groupapis import (
    BUILTIN,
    COSCHEDULING,
    BuiltinGroup,
    CoschedulingGroup,
    GroupObject,
    GroupWorkload,
    group_from,
    workload_behind,
)
from slinky.bridge.jobsets import JobSet
from slinky.bridge.leaderworkersets import LeaderWorkerSet
from slinky.bridge.membership import Membership
from slinky.bridge.policy import Grant, Policy, PolicyError
from slinky.bridge.preview_directions import DirectionsError, directed
from slinky.bridge.preview_words import Preview, described
from slinky.bridge.roots import Root, group_of_root, part_in
from slinky.bridge.settings import Settings
from slinky.bridge.translate import components, site_of
from slinky.bridge.workload import PodGroup, WorkloadKey, rank_of, workload_of
from slinky.kube import Cache, Job, KubeObject, Pod
from slinky.kube.quantities import QuantityError

__all__ = ["Previews", "preview"]

ROOTS = frozenset({"Job", "JobSet", "LeaderWorkerSet", "PodGroup"})  # what the webhook is asked about besides pods
PREVIEW = "preview"  # the cluster's name in markers, which nobody sees


class Previews(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`skipped` is what no workload is made of, each with the reason."""

    workloads: tuple[Preview, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        return any(found.refusals for found in self.workloads)


def preview(
    documents: Iterable[Document], settings: Settings, labels: Mapping[str, str] | None = None, *, managed: bool | None = None
) -> Previews:
    """`documents` have a kind, a name and a namespace. `labels` are those of their namespaces; `managed` says whether these are, where the settings are not to decide."""
    world = _World(settings, dict(labels or {}), managed)
    for document in documents:
        world.take(normal(document))
    return Previews(workloads=tuple(_told_once(world.workloads())), skipped=tuple(world.skipped))


class _World:
    """The cluster as it would be."""

    def __init__(self, settings: Settings, labels: Mapping[str, str], managed: bool | None) -> None:
        self._settings = settings
        self._labels = labels
        self._managed = managed
        self._policy = Policy(settings)
        self._site = site_of(settings, settings.cluster or PREVIEW)
        self._pods: Cache[Pod] = Cache()
        self._jobs: Cache[Job] = Cache()
        self._groups: dict[tuple[str, str, str], GroupObject] = {}
        self._roots: dict[tuple[str, str, str], Root] = {}
        self._workloads: dict[tuple[str, str], KubeObject] = {}
        self._refused: list[Preview] = []
        self._warnings: dict[str, list[str]] = {}  # by the UID of the pod or of its root
        self._root_of: dict[str, Document] = {}  # by the UID of a pod
        self.skipped: list[str] = []

    # Taking in

    def take(self, document: Document) -> None:
        kind = document["kind"]
        if kind not in KINDS:
            self.skipped.append(f"{kind} {document['metadata'].get('name', '')}: {_why_skipped(kind)}")
            return
        try:
            msgspec.convert(document, KubeObject)
            root, *made = expand(document)
            self._take_root(root, made)
        except ExpansionError as error:
            self._refuse(document, str(error))
        except msgspec.ValidationError as error:
            self._refuse(document, f"it is malformed, and the API server refuses it: {error}")

    def _take_root(self, root: Document, made: list[Document]) -> None:
        if root["kind"] in ROOTS:
            verdict = admit_root(root, self._settings, grant=self._grant(root["metadata"]["namespace"]))
            if verdict.refusal:
                self._refuse(root, verdict.refusal)
                return
            self._warnings.setdefault(root["metadata"]["uid"], []).extend(verdict.warnings)
        self._warnings.setdefault(root["metadata"]["uid"], []).extend(_waits(root))
        pods = 0
        for found in (root, *made):
            match found["kind"]:
                case "Pod":
                    pods += 1
                    self._take_pod(found, root)
                case "Job":
                    self._jobs.put(msgspec.convert(found, Job))
                case "PodGroup" | "Workload":
                    self._take_group(found)
                case "JobSet":
                    self._roots["JobSet", found["metadata"]["namespace"], found["metadata"]["name"]] = msgspec.convert(found, JobSet)
                case "LeaderWorkerSet":
                    self._roots["LeaderWorkerSet", found["metadata"]["namespace"], found["metadata"]["name"]] = msgspec.convert(
                        found, LeaderWorkerSet
                    )
        if not pods and root["kind"] not in ("PodGroup", "Workload"):
            self.skipped.append(f"{title(root)}: it asks for no pods")

    def _take_pod(self, pod: Document, root: Document) -> None:
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        managed = self._settings.manages(namespace, dict(self._labels)) if self._managed is None else self._managed
        msgspec.convert(pod, Pod)
        if namespace in self._settings.never_managed and not _is_for(pod, self._settings):
            self.skipped.append(
                f"{title(pod)}: Slurm schedules nothing in namespace {namespace}, as Kubernetes, Slurm or the bridge itself run there"
            )
            return
        verdict = admit_pod(pod, self._settings, managed=True, grant=self._grant(namespace))
        self._root_of[uid] = root
        if verdict.refusal:
            self._refuse(pod, verdict.refusal)
            return
        if not verdict.patches and not _is_for(pod, self._settings):
            self.skipped.append(f"{title(pod)}: {_why_left_alone(pod)}")
            return
        self._warnings.setdefault(uid, []).extend(verdict.warnings)
        if not managed and not _is_for(pod, self._settings):
            self._warnings[uid].append(
                f"namespace {namespace} is not managed by this configuration: this is what it would become if it were"
            )
        self._pods.put(msgspec.convert(admitted(pod, verdict), Pod))

    def _take_group(self, found: Document) -> None:
        meta, api = found["metadata"], found.get("apiVersion", "").partition("/")[0]
        if found["kind"] == "PodGroup" and api == COSCHEDULING:
            self._groups["CoschedulingPodGroup", meta["namespace"], meta["name"]] = msgspec.convert(found, CoschedulingGroup)
        elif found["kind"] == "PodGroup" and api == BUILTIN:
            self._groups["PodGroup", meta["namespace"], meta["name"]] = msgspec.convert(found, BuiltinGroup)
        elif found["kind"] == "Workload" and api == BUILTIN:
            self._groups["Workload", meta["namespace"], meta["name"]] = msgspec.convert(found, GroupWorkload)
            self._workloads[meta["namespace"], meta["name"]] = msgspec.convert(found, KubeObject)
        else:
            self.skipped.append(f"{title(found)}: groups of pods are {COSCHEDULING} and {BUILTIN}, not {api}")

    def _refuse(self, found: Document, why: str) -> None:
        meta = found["metadata"]
        root = self._root_of.get(meta.get("uid", ""), found)
        self._refused.append(Preview(workload=title(found), made_by=title(root) if root is not found else "", refusals=(why,)))

    def _grant(self, namespace: str) -> Grant:
        return self._policy.grant(namespace, self._labels)

    # What comes of it

    def workloads(self) -> list[Preview]:
        membership = Membership(self._pods, self._jobs, lambda _: None, self._group, self._part)
        found = [self._preview(key, membership) for key in membership.keys()]  # noqa: SIM118 a method of its own
        return [*self._refused, *found]

    def _part(self, named: WorkloadKey, pod: Pod) -> str:
        root = self._roots.get((named.kind, named.namespace, named.object_name))
        return part_in(root, pod) if root is not None else ""

    def _group(self, key: WorkloadKey) -> PodGroup | None:
        if root := self._roots.get((key.kind, key.namespace, key.object_name)):
            return group_of_root(root, key.part)
        found = self._groups.get((key.kind, key.namespace, key.object_name))
        if found is None:
            return None
        behind = self._workloads.get((key.namespace, workload_behind(found)))
        owner = next((self._jobs.get(owner.name, key.namespace) for owner in found.metadata.owner_references if owner.kind == "Job"), None)
        return group_from(found, key.part, behind.metadata if behind else None, owner.metadata if owner else None)

    def _preview(self, key: WorkloadKey, membership: Membership) -> Preview:
        pods = sorted(membership.pods(key), key=rank_of)
        roots = list({root["metadata"]["uid"]: root for pod in pods if (root := self._root_of[pod.metadata.uid])}.values())
        told = [pod.metadata.uid for pod in pods] + [root["metadata"]["uid"] for root in roots]
        warnings = list(dict.fromkeys(text for uid in told for text in self._warnings.get(uid, ())))
        name = f"Pod {pods[0].key}" if key.kind == "Pod" else str(key)
        made_by = ", ".join(title(root) for root in roots if root["kind"] != "Pod" and title(root) != name)
        told_of = {"workload": name, "made_by": made_by, "pods": tuple(str(pod.key) for pod in pods)}
        try:
            named = membership.named_group(pods[0]) if key.kind == "Pod" else key
            workload = workload_of(key, pods, self._group(named) if named else None, membership.job_of(pods[0]))
            if workload is None:
                return Preview(**told_of, warnings=(*warnings, f"it waits: {key} is not there"))  # type: ignore[arg-type]
            workload = self._grant(key.namespace).settled(workload)
            jobs = components(workload, self._site)
            jobs = directed(workload, jobs, self._site, self._settings.nodes.feature_labels, self._labels)
        except (AnnotationError, DirectionsError, PolicyError, QuantityError) as error:
            return Preview(**told_of, refusals=(str(error),), warnings=tuple(warnings))  # type: ignore[arg-type]
        return described(workload, tuple(jobs), self._site, told_of, warnings)


def _told_once(found: Iterable[Preview]) -> list[Preview]:
    """Workloads of one root that differ in nothing but names are one, with their number."""
    kept: dict[object, Preview] = {}
    for each in found:
        names = (each.workload, *each.pods)
        key = (
            (
                each.made_by,
                len(each.pods),
                _nameless(msgspec.to_builtins((each.jobs, each.nodes, each.preferences, each.refusals, each.warnings)), names),
            )
            if each.made_by
            else id(each)
        )
        before = kept.get(key)
        kept[key] = msgspec.structs.replace(before, more=before.more + 1) if before else each
    return list(kept.values())


def _nameless(value: Any, names: Sequence[str]) -> str:
    """`names`: the workload's, then those of its pods."""
    text = msgspec.json.encode(value).decode()
    words = {*names, *(name.rpartition("/")[2] for name in names[1:])}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "*")
    return text


def _is_for(pod: Document, settings: Settings) -> bool:
    return bool(pod.get("spec", {}).get("schedulerName") == settings.scheduler_name)


def _why_left_alone(pod: Document) -> str:
    scheduler = pod.get("spec", {}).get("schedulerName") or DEFAULT_SCHEDULER
    return (
        f"it names the scheduler {scheduler}, to which it is left"
        if scheduler != DEFAULT_SCHEDULER
        else "a kubelet's own pod is left alone"
    )


def _why_skipped(kind: str) -> str:
    return (
        "pods of a DaemonSet are left to Kubernetes' own scheduler"
        if kind == "DaemonSet"
        else "no pods are made of it, as far as is known here"
    )


def _waits(root: Document) -> list[str]:
    spec = root.get("spec", {})
    found = []
    if spec.get("suspend"):
        found.append(f"{title(root)} is suspended: it has no pods until it is resumed")
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    if root["kind"] == "Job" and completions is not None and completions > parallelism:
        found.append(
            f"{completions - parallelism} more pods follow as these end: {title(root)} runs {parallelism} of {completions} at a time"
        )
    return found
