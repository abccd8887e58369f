"""Taking pods in: what is changed about a pod when it is created, and what is refused, of pods and of what they are made from. Decisions only; the server is `slinky.kube`'s.

Comes in: a pod (or a Job, JobSet, LeaderWorkerSet, PodGroup) as it was sent, whose it is, what its namespace is granted, and the settings. Goes out: a `Verdict`: patches, warnings, or a refusal that names the field and says what would be right. What must stay true: a pod
that is not ours is never changed or refused; one that is ours gets all it needs in this one change; nothing that the bridge cannot honour is let pass in silence; the bridge's own keys
are written by the bridge only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import msgspec

from slinky.bridge.annotations import AnnotationError, Hints, in_short, old_names, read_settings
from slinky.bridge.eligibility.bounds import MOST_CONTAINERS, spec_problems
from slinky.bridge.gang_admission import gang_problems, size_problems
from slinky.bridge.gres_needs import too_few
from slinky.bridge.jobsets import JOBSET_NAME
from slinky.bridge.keys import FINALIZER, JOB_ID, MANAGED_NODE, OWNED_ANNOTATIONS, OWNED_LABELS, SETTINGS, TASK, TASK_ENVIRONMENT
from slinky.bridge.leaderworkersets import LWS_NAME
from slinky.bridge.policy import Grant, Policy
from slinky.bridge.settings import Settings
from slinky.bridge.unheeded import GROUP_FIELDS, unheeded
from slinky.bridge.workload import COSCHEDULING_LABEL
from slinky.kube import Pod
from slinky.kube.objects import Affinity, PodSpec
from slinky.kube.quantities import QuantityError

__all__ = ["DEVICE_CLASS", "Verdict", "admit_change", "admit_pod", "admit_root", "is_ours", "needs_task_environment", "task_variables"]

DEFAULT_SCHEDULER = "default-scheduler"
GRES = f"{SETTINGS}gres"
MOST_LISTED = 10
MOST_PROBLEMS = 50  # of one object; ten are told
MOST_VARIABLES = 2_000  # of all containers of a pod
PLACING = ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints")
MOST_NAME = 253  # as long as a name can be; the API server checks names after the webhook has seen them
MIRROR = "kubernetes.io/config.mirror"
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"  # a resource name that asks for devices of a DeviceClass

JOB_ID_VARIABLE = "SLURM_JOB_ID"
PLAIN_ENVIRONMENT = ("SLURM_CPUS_PER_TASK",)  # of a pod that is no part of a gang, besides the job's id
VARIABLES = "SLURM"  # how the names of all of them begin
# A pod with one of these may be one of a gang.
GROUP_LABELS = frozenset({COSCHEDULING_LABEL, JOBSET_NAME, LWS_NAME})
SERVICE_CONTROLLERS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})  # their pods are single jobs
# Older names of the same: short, as every byte of a pod is paid for by the API server at each of its changes.
ALIASES = {
    "SLURM_JOBID": JOB_ID_VARIABLE,
    "SLURM_NPROCS": "SLURM_NTASKS",
    "SLURM_JOB_NUM_NODES": "SLURM_NNODES",
    "SLURM_NODELIST": "SLURM_JOB_NODELIST",
}

Patch = dict[str, Any]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`refusal` empty: admitted, with these changes."""

    patches: tuple[Patch, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""


LEFT_ALONE = Verdict()


def _never(pod: Mapping[str, Any], settings: Settings) -> list[str]:
    """Whoever names our scheduler where it can never be: the webhook is not even asked, unless its configuration was written by somebody else."""
    namespace = pod.get("metadata", {}).get("namespace") or ""
    if namespace not in settings.never_managed:
        return []
    why = f"Slurm schedules nothing in namespace {namespace}, as Kubernetes, Slurm or the bridge itself run there"
    return [f"spec.schedulerName is {settings.scheduler_name!r}: {why}; remove it"]


def is_ours(pod: Mapping[str, Any], settings: Settings, *, managed: bool) -> bool:
    """`managed` tells whether its namespace is. A pod that names another scheduler, one of a DaemonSet, and a kubelet's own are left alone."""
    scheduler = pod.get("spec", {}).get("schedulerName") or DEFAULT_SCHEDULER
    if scheduler == settings.scheduler_name:
        return True
    meta = pod.get("metadata", {})
    daemon = any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in meta.get("ownerReferences") or ())
    return managed and scheduler == DEFAULT_SCHEDULER and not daemon and MIRROR not in (meta.get("annotations") or {})


def admit_pod(pod: Mapping[str, Any], settings: Settings, *, managed: bool, by_bridge: bool = False, grant: Grant | None = None) -> Verdict:
    """A pod that is being created. Where no `grant` is given, it is that of a namespace without labels."""
    if not is_ours(pod, settings, managed=managed):
        return LEFT_ALONE
    if large := _too_large(pod):
        return Verdict(refusal=in_short(large))
    grant = grant or Policy(settings).grant(pod.get("metadata", {}).get("namespace") or "", {})
    annotations = _annotations(pod)
    problems = [
        *_never(pod, settings),
        *([] if by_bridge else _owned_keys(pod)),
        *_not_yet(pod),
        *_problems(annotations, grant, *_own_word(pod), whole=not _is_made(pod)),
        *grant.too_long(_grace(pod)),
        *_reaching(pod, grant),
        *_too_few(pod, annotations, grant),
    ]
    if problems:
        return Verdict(refusal=in_short(problems))
    return Verdict(patches=tuple(_patches(pod, settings)), warnings=tuple(old_names(annotations)))


def admit_root(root: Mapping[str, Any], settings: Settings, before: Mapping[str, Any] | None = None, grant: Grant | None = None) -> Verdict:
    """A Job, JobSet, LeaderWorkerSet or PodGroup, whose annotations speak for its pods, and the pod templates in it.

    `before` is what it was, where it is changed: what was wrong already is not refused again, or its controllers could not touch it any more.
    """
    grant = grant or Policy(settings).grant(root.get("metadata", {}).get("namespace") or "", {})
    hints = Hints()  # one for both, so that the same mistake is told in the same words
    known = _root_problems(before, settings, grant, hints) if before else []
    if len(known) < MOST_PROBLEMS:  # else not all are known; the pods are judged too
        already = frozenset(known)
        if news := [problem for problem in _root_problems(root, settings, grant, hints) if problem not in already]:
            return Verdict(refusal=in_short(news))
    told = frozenset(_root_warnings(before, settings)) if before else frozenset()
    warnings = [warning for warning in _root_warnings(root, settings) if warning not in told]
    if before and (others := _changed("annotation", before, root, frozenset(), SETTINGS)):
        warnings.append(f"{_listed(others)}: the change applies only to jobs submitted from now on")
    return Verdict(warnings=tuple(warnings))


def admit_change(
    old: Mapping[str, Any], new: Mapping[str, Any], settings: Settings, *, by_bridge: bool, resize: bool = False, grant: Grant | None = None
) -> Verdict:
    """A pod of ours that is being changed by someone."""
    if (new.get("spec", {}).get("schedulerName") or DEFAULT_SCHEDULER) != settings.scheduler_name or by_bridge:
        return LEFT_ALONE
    if resize:
        return Verdict(
            refusal="pods/resize: Slurm has set aside what the pod asked for when it was created; make a new pod with other resources"
        )
    touched = [*_changed("label", old, new, OWNED_LABELS), *_changed("annotation", old, new, OWNED_ANNOTATIONS, TASK)]
    if touched:
        why = "is the bridge's own key and names the pod's Slurm job and its share of it: leave it unchanged"
        return Verdict(refusal=in_short(f"{key} {why}" for key in touched))
    return _other_settings(old, new, grant or Policy(settings).grant(new.get("metadata", {}).get("namespace") or "", {}))


def _other_settings(old: Mapping[str, Any], new: Mapping[str, Any], grant: Grant) -> Verdict:
    """Job annotations that were changed: judged as those of a new pod, and of no use once the job is submitted."""
    others = _changed("annotation", old, new, frozenset(), SETTINGS)
    if not others:
        return LEFT_ALONE
    whole = not _is_made(new)
    hints = Hints()
    known, found = (
        [*_problems(said, grant, whole=whole, hints=hints), *_too_few(new, said, grant)] for said in map(_annotations, (old, new))
    )
    if news := [problem for problem in found if problem not in known]:
        return Verdict(refusal=in_short(news))
    job_id = (new.get("metadata", {}).get("labels") or {}).get(JOB_ID)
    if not job_id:
        return LEFT_ALONE
    return Verdict(warnings=(f"{_listed(others)}: no effect, because the pod is already Slurm job {job_id}",))


def _changed(kind: str, old: Mapping[str, Any], new: Mapping[str, Any], keys: Set[str], prefix: str | None = None) -> list[str]:
    """Those of `keys`, and of all that begin with `prefix`, that are not what they were."""
    before, after = (side.get("metadata", {}).get(f"{kind}s") or {} for side in (old, new))
    different = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return [f"{kind} {key}" for key in different if key in keys or (prefix and key.startswith(prefix))]


def _listed(keys: Sequence[str]) -> str:
    """The first few of them; users may write any number."""
    more = len(keys) - MOST_LISTED
    return ", ".join(keys[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _annotations(document: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = document.get("metadata", {}).get("annotations") or {}
    return found


def _problems(
    annotations: Mapping[str, str],
    grant: Grant,
    priority_class: str = "",
    time_limit: int | None = None,
    *,
    whole: bool = True,
    hints: Hints | None = None,
) -> list[str]:
    """`whole`: no other object says more about the same job."""
    try:
        said = read_settings(annotations, hints)
        return [*grant.refusals(said, priority_class, time_limit), *(grant.groupless(said) if whole else ())]
    except AnnotationError as error:
        return error.problems


def _too_few(pod: Mapping[str, Any], said: Mapping[str, str], grant: Grant) -> list[str]:
    """Fewer GRES than the pod's resources come to."""
    if GRES not in said:
        return []
    try:
        found = msgspec.convert({"metadata": {}, "spec": pod.get("spec") or {}}, Pod)
        return too_few(read_settings({GRES: said[GRES]}).gres, [found], grant.gres)
    except (AnnotationError, QuantityError, msgspec.ValidationError):
        return []  # which is said already, or the API server says it


def _reaching(pod: Mapping[str, Any], grant: Grant) -> list[str]:
    """Required affinity into other namespaces, where the policy allows none."""
    said = (pod.get("spec") or {}).get("affinity")
    if not said or grant.cross_namespace_affinity:
        return []
    try:
        return grant.reaching(msgspec.convert(said, Affinity))
    except msgspec.ValidationError:
        return []  # the API server says it


def _is_made(pod: Mapping[str, Any]) -> bool:
    """By a controller, whose object may have annotations too."""
    return any(owner.get("controller") for owner in pod.get("metadata", {}).get("ownerReferences") or ())


def _own_word(pod: Mapping[str, Any]) -> tuple[str, int | None]:
    """Class and time limit, where no annotation of an owner can go before them: of a pod that is made from a Job, only its Job can tell."""
    owner = next((owner for owner in pod.get("metadata", {}).get("ownerReferences") or () if owner.get("controller")), None)
    if owner is not None and owner.get("kind") != "ReplicaSet":
        return "", None
    return _word(pod.get("spec") or {})


def _grace(pod: Mapping[str, Any]) -> int | None:
    found = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    return found if isinstance(found, int) else None


def _word(spec: Mapping[str, Any]) -> tuple[str, int | None]:
    seconds = spec.get("activeDeadlineSeconds")
    return spec.get("priorityClassName") or "", -(-seconds // 60) if isinstance(seconds, int) else None


def _root_warnings(root: Mapping[str, Any], settings: Settings) -> list[str]:
    """Annotations without effect: with an old name, or on a template where only the root's count."""
    templates = _templates(root.get("spec") or {})
    ours = (each for each in templates if is_ours(each[1], settings, managed=True))
    return [*old_names(_annotations(root)), *unheeded(root, ours)]


def _root_problems(root: Mapping[str, Any], settings: Settings, grant: Grant, hints: Hints) -> list[str]:
    """Its own, and those of its templates, each with the template's place: not many more than `MOST_PROBLEMS`.

    The root's annotations go before a template's class and deadline.
    """
    spec = root.get("spec") or {}
    _, limit = _word(spec)
    said_by_root = {key: text for key, text in _annotations(root).items() if key.startswith(SETTINGS)}
    ours = [each for each in _templates(spec) if is_ours(each[1], settings, managed=True)]
    own = _problems(said_by_root, grant, time_limit=limit, whole=not ours, hints=hints)
    found, known = list(own), set(own)
    judged: dict[bytes, list[str]] = {}  # by template: the replicated jobs of a JobSet are often alike
    for place, template, more in ours:
        if len(found) >= MOST_PROBLEMS:
            return found
        alike = msgspec.json.encode((template, more))
        if alike not in judged:
            if large := _too_large(template, f"{place}: "):
                return [*found, *large]
            said = {**said_by_root, **more, **_annotations(template)}
            judged[alike] = _template_problems(template, said, grant, limit, hints)
        found += [f"{place}: {problem}" for problem in judged[alike] if problem not in known]
    sizes = size_problems(root, settings.gangs.max_pods) if ours or not _has_templates(spec) else []
    return [*found, *sizes, *gang_problems(root, settings.nodes.feature_labels)]


def _template_problems(template: Mapping[str, Any], said: Mapping[str, str], grant: Grant, limit: int | None, hints: Hints) -> list[str]:
    name, deadline = _word(template.get("spec") or {})
    return [
        *_owned_keys(template),
        *_not_yet(template),
        *_problems(said, grant, name, deadline or limit, hints=hints),
        *grant.too_long(_grace(template)),
        *_reaching(template, grant),
        *_too_few(template, said, grant),
    ]


def _has_templates(spec: Mapping[str, Any]) -> bool:
    return any(key in spec for key in ("template", "replicatedJobs", "leaderWorkerTemplate"))


def _templates(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, str]]]:
    """Place, pod template, and annotations that stand between the root's and the template's."""
    if template := spec.get("template"):
        yield "spec.template", template, {}
    for index, each in enumerate(spec.get("replicatedJobs") or ()):
        job = each.get("template") or {}
        place = f"spec.replicatedJobs[{index}].template.spec.template"
        yield place, (job.get("spec") or {}).get("template") or {}, _annotations(job)
    for name in ("leaderTemplate", "workerTemplate"):
        if template := (spec.get("leaderWorkerTemplate") or {}).get(name):
            yield f"spec.leaderWorkerTemplate.{name}", template, {}


def _owned_keys(pod: Mapping[str, Any]) -> list[str]:
    meta = pod.get("metadata", {})
    found = [("label", key) for key in sorted(OWNED_LABELS & set(meta.get("labels") or {}))]
    found += [("annotation", key) for key in sorted(OWNED_ANNOTATIONS & set(meta.get("annotations") or {}))]
    found += [("annotation", key) for key in sorted(meta.get("annotations") or {}) if key.startswith(TASK)]
    return [f"{kind} {key} is written by the bridge when Slurm has placed the pod: remove it" for kind, key in found]


def _too_large(pod: Mapping[str, Any], place: str = "") -> list[str]:
    """Whether a patch of the pod would be too large: each container gets up to twenty variables."""
    containers = _containers(pod.get("spec") or {})
    if len(containers) > MOST_CONTAINERS:
        count = f"{len(containers):,} containers and init containers"
        right = f"at most {MOST_CONTAINERS} are supported: make several pods of it"
        return [f"{place}spec has {count}, and {right}"]
    variables = sum(len(container.get("env") or ()) for container in containers)
    if variables > MOST_VARIABLES:
        why = f"at most {MOST_VARIABLES:,} are supported: use envFrom with a ConfigMap"
        return [f"{place}env of the containers has {variables:,} variables in all, and {why}"]
    return []


def _too_much(spec: Mapping[str, Any]) -> list[str]:
    """Longer lists than the scheduler judges: see `bounds`."""
    said: dict[str, Any] = {field: spec[field] for field in PLACING if spec.get(field)}
    said["volumes"] = ({},) * len(spec.get("volumes") or ())
    for kind in ("containers", "initContainers"):
        each_of = spec.get(kind) or ()
        said[kind] = [{"ports": one.get("ports") or (), "resources": _names_of(one)} for one in each_of]
    try:
        return spec_problems(msgspec.convert(said, PodSpec))
    except msgspec.ValidationError:
        return []  # the API server says so itself


def _names_of(container: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The resources that it requests; how much does not matter."""
    return {"requests": dict.fromkeys((container.get("resources") or {}).get("requests") or (), "")}


def _containers(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))


def _not_yet(pod: Mapping[str, Any]) -> list[str]:
    """What cannot be honoured, by the field's name."""
    spec = pod.get("spec", {})
    found = []
    if spec.get("nodeName"):
        found.append(
            f"spec.nodeName is {str(spec['nodeName'])[:MOST_NAME]!r}: Slurm chooses the node; remove it, or ask for features with the constraints annotation"
        )
    if spec.get("resourceClaims"):
        found.append(
            "spec.resourceClaims: devices by claim are not supported; ask for GPUs as a resource (nvidia.com/gpu) or with the gres annotation"
        )
    found += _too_much(spec)
    devices = {
        name
        for container in _containers(spec)
        for name in ((container.get("resources") or {}).get("requests") or {})
        if name.startswith(DEVICE_CLASS)
    }
    found += [
        f"resource {name}: devices of a DeviceClass are not supported; request GPUs as a resource that a device plugin offers (nvidia.com/gpu), or use the gres annotation"
        for name in sorted(devices)
    ]
    return found


def _patches(pod: Mapping[str, Any], settings: Settings) -> list[Patch]:
    spec, meta = pod.get("spec", {}), pod.get("metadata", {})
    patches: list[Patch] = []
    if spec.get("schedulerName") != settings.scheduler_name:
        patches.append(_add("/spec/schedulerName", settings.scheduler_name))
    toleration = {"key": MANAGED_NODE, "operator": "Equal", "value": settings.scheduler_name}
    if toleration not in (spec.get("tolerations") or ()):
        patches += _append("/spec/tolerations", spec.get("tolerations"), toleration)
    if FINALIZER not in (meta.get("finalizers") or ()):
        patches += _append("/metadata/finalizers", meta.get("finalizers"), FINALIZER)
    if settings.task_environment not in (False, "none"):
        whole = settings.task_environment in (True, "all") or needs_task_environment(pod)
        for kind in ("initContainers", "containers"):
            for index, container in enumerate(spec.get(kind) or ()):
                patches += _environment(f"/spec/{kind}/{index}/env", container, whole=whole)
    return patches


def needs_task_environment(pod: Mapping[str, Any]) -> bool:
    """Whether a pod needs the whole environment of a task: it says something to Slurm, may be one of a gang, or mentions a variable.

    Each variable costs the API server about 0.3 ms of CPU over the pod's life, so that a plain pod has only two.
    """
    meta, spec = pod.get("metadata", {}), pod.get("spec", {})
    if any(key.startswith(SETTINGS) for key in meta.get("annotations") or {}):
        return True
    if any(key in GROUP_LABELS for key in meta.get("labels") or {}) or any(spec.get(field) for field in GROUP_FIELDS):
        return True
    controller = next((owner for owner in meta.get("ownerReferences") or () if owner.get("controller")), None)
    if controller is not None and controller.get("kind") not in SERVICE_CONTROLLERS:
        return True
    return any(VARIABLES in text for container in _containers(spec) for text in _texts(container))


def _texts(container: Mapping[str, Any]) -> Iterator[str]:
    """Where a container can mention a variable."""
    yield from container.get("command") or ()
    yield from container.get("args") or ()
    for variable in container.get("env") or ():
        yield variable.get("value") or ""


def task_variables(*, whole: bool) -> list[Patch]:
    """The variables that a container gets which sets none of them itself: of a whole task, or of a plain pod."""
    names = TASK_ENVIRONMENT if whole else PLAIN_ENVIRONMENT
    return _variables(names, taken=frozenset(), whole=whole)


def _environment(path: str, container: Mapping[str, Any], *, whole: bool) -> list[Patch]:
    """What the user set stays as the user set it."""
    own = list(container.get("env") or ())
    taken = frozenset(variable.get("name") for variable in own)
    added = _variables(TASK_ENVIRONMENT if whole else PLAIN_ENVIRONMENT, taken=taken, whole=whole)
    # In front of the user's own, which may refer to them: $(SLURM_PROCID).
    return [_add(path, added + own)] if added else []


def _variables(names: Iterable[str], *, taken: Set[Any], whole: bool) -> list[Patch]:
    sources = {JOB_ID_VARIABLE: f"metadata.labels['{JOB_ID}']"}
    sources |= {name: f"metadata.annotations['{TASK}{TASK_ENVIRONMENT[name]}']" for name in names}
    added: list[Patch] = [_variable(name, place) for name, place in sources.items() if name not in taken]
    for name, meant in ALIASES.items():
        if whole and name not in taken:
            added.append({"name": name, "value": f"$({meant})"} if meant not in taken else _variable(name, sources[meant]))
    return added


def _variable(name: str, place: str) -> Patch:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": place}}}


def _append(path: str, existing: Any, value: object) -> list[Patch]:
    return [_add(f"{path}/-", value)] if existing else [_add(path, [value])]


def _add(path: str, value: object) -> Patch:
    return {"op": "add", "path": path, "value": value}
