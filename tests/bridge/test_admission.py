"""Admission: pods that are ours get all they need in one change, the others are left alone, and what cannot be is refused by its name."""

from typing import Any

import msgspec
import pytest

from slinky.bridge.admission import ALIASES, LEFT_ALONE, admit_change, admit_pod, admit_root
from slinky.bridge.eligibility.bounds import MOST_RULES
from slinky.bridge.keys import FINALIZER, JOB_ID, SETTINGS, SLURM_NODE, TASK_ENVIRONMENT
from slinky.bridge.settings import Settings

OURS = Settings()
WHOLE = Settings(task_environment="all")
NAME = OURS.scheduler_name


def pod(spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "lab", **meta}, "spec": {"containers": [{"name": "c"}]} | (spec or {})}


def applied(before: dict[str, Any], patches: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """RFC 6902, as far as `add` goes."""
    import copy

    after = copy.deepcopy(before)
    for patch in patches:
        assert patch["op"] == "add"
        *path, last = patch["path"].split("/")[1:]
        place: Any = after
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if last == "-":
            place.append(patch["value"])
        elif isinstance(place, list):
            place.insert(int(last), patch["value"])
        else:
            place[last] = patch["value"]
    return after


@pytest.mark.parametrize("scheduler", [None, "default-scheduler", NAME])
def test_a_pod_gets_all_it_needs_in_one_change(scheduler: str | None) -> None:
    sent = pod({"schedulerName": scheduler, "initContainers": [{"name": "i"}], "tolerations": [{"key": "x"}]}, finalizers=["other.org/f"])
    verdict = admit_pod(sent, WHOLE, managed=True)
    assert not verdict.refusal
    became = applied(sent, verdict.patches)
    assert became["spec"]["schedulerName"] == NAME
    assert became["metadata"]["finalizers"] == ["other.org/f", FINALIZER]
    assert became["spec"]["tolerations"] == [{"key": "x"}, {"key": "slinky.slurm.net/managed-node", "operator": "Equal", "value": NAME}]
    for container in (*became["spec"]["containers"], *became["spec"]["initContainers"]):
        names = [variable["name"] for variable in container["env"]]
        assert {"SLURM_JOB_ID", *TASK_ENVIRONMENT, *ALIASES} == set(names)
        assert len(names) == len(set(names))
    assert admit_pod(became, WHOLE, managed=True).patches == ()


def variables(sent: dict[str, Any], settings: Settings = OURS) -> set[str]:
    became = applied(sent, admit_pod(sent, settings, managed=True).patches)
    return {variable["name"] for variable in became["spec"]["containers"][0]["env"]}


def test_a_plain_pod_has_the_jobs_id_and_its_cpus_only() -> None:
    """Each variable costs the API server CPU at each change of the pod."""
    assert variables(pod()) == {"SLURM_JOB_ID", "SLURM_CPUS_PER_TASK"}
    for kind in ("ReplicaSet", "StatefulSet"):
        owned = pod(ownerReferences=[{"kind": kind, "name": "x", "controller": True}])
        assert variables(owned) == {"SLURM_JOB_ID", "SLURM_CPUS_PER_TASK"}


@pytest.mark.parametrize(
    "sent",
    [
        pod(annotations={SETTINGS + "timelimit": "10"}),
        pod(labels={"scheduling.x-k8s.io/pod-group": "g"}),
        pod(labels={"leaderworkerset.sigs.k8s.io/name": "l"}),
        pod(labels={"jobset.sigs.k8s.io/jobset-name": "j"}),
        pod({"schedulingGroup": {"podGroupName": "g"}}),
        pod({"workloadRef": {"name": "w", "podGroup": "g"}}),
        pod(ownerReferences=[{"kind": "Job", "name": "j", "controller": True}]),
        pod(ownerReferences=[{"kind": "PyTorchJob", "name": "j", "controller": True}]),
        pod({"containers": [{"name": "c", "command": ["sh", "-c", "echo $SLURMD_NODENAME"]}]}),
        pod({"containers": [{"name": "c"}, {"name": "d", "args": ["--rank=$(SLURM_PROCID)"]}]}),
        pod({"containers": [{"name": "c", "env": [{"name": "RANK", "value": "$(SLURM_PROCID)"}]}]}),
    ],
)
def test_a_pod_that_may_use_it_has_the_whole_task_environment(sent: dict[str, Any]) -> None:
    assert variables(sent) >= {"SLURM_JOB_ID", *TASK_ENVIRONMENT, *ALIASES}


def test_what_the_user_set_stays() -> None:
    own = [{"name": "SLURM_PROCID", "value": "7"}, {"name": "SLURM_NNODES", "value": "9"}, {"name": "RANK", "value": "$(SLURM_NTASKS)"}]
    sent = pod({"containers": [{"name": "c", "env": own}]})
    became = applied(sent, admit_pod(sent, OURS, managed=True).patches)
    env = became["spec"]["containers"][0]["env"]
    assert env[-3:] == own
    assert [v for v in env if v["name"] == "SLURM_PROCID"] == [own[0]]
    older = {v["name"]: v for v in env if v["name"] in ALIASES}
    assert older["SLURM_NPROCS"]["value"] == "$(SLURM_NTASKS)"
    assert "valueFrom" in older["SLURM_JOB_NUM_NODES"]  # what the user set comes later and could not be referred to


def test_the_task_environment_can_be_switched_off() -> None:
    sent = pod(annotations={SETTINGS + "timelimit": "10"})
    for word in (False, "none"):
        without = Settings(task_environment=word)
        assert "env" not in applied(sent, admit_pod(sent, without, managed=True).patches)["spec"]["containers"][0]
    assert variables(pod(), Settings(task_environment=True)) >= set(TASK_ENVIRONMENT), "as older configuration files say it"


@pytest.mark.parametrize(
    ("sent", "managed"),
    [
        (pod(), False),
        (pod({"schedulerName": "volcano"}), True),
        (pod({"schedulerName": "volcano", "resourceClaims": [{"name": "x"}], "nodeName": "n"}), True),
        (pod(ownerReferences=[{"kind": "DaemonSet", "name": "d", "controller": True}]), True),
        (pod({"nodeName": "n"}, annotations={"kubernetes.io/config.mirror": "x"}), True),
        (pod(annotations={"slurmjob.slinky.slurm.net/timelimit": "nonsense"}), False),
    ],
)
def test_a_pod_that_is_not_ours_is_left_alone(sent: dict[str, Any], managed: bool) -> None:
    assert admit_pod(sent, OURS, managed=managed) == LEFT_ALONE


def test_a_pod_that_names_us_is_ours_wherever_it_is() -> None:
    assert admit_pod(pod({"schedulerName": NAME}), OURS, managed=False).patches


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (pod({"resourceClaims": [{"name": "gpu"}]}), "spec.resourceClaims: devices by claim are not supported; ask for GPUs as a resource"),
        (pod({"nodeName": "n7"}), "spec.nodeName is 'n7': Slurm chooses the node"),
        (pod(labels={JOB_ID: "7"}), f"label {JOB_ID} is written by the bridge"),
        (pod(annotations={SLURM_NODE: "n"}), f"annotation {SLURM_NODE} is written by the bridge"),
        (pod(annotations={"task.slinky.slurm.net/procid": "0"}), "annotation task.slinky.slurm.net/procid is written by the bridge"),
        (
            pod(annotations={"slurmjob.slinky.slurm.net/timelimit": "soon"}),
            "annotation slurmjob.slinky.slurm.net/timelimit is 'soon', and must be minutes",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(sent: dict[str, Any], said: str) -> None:
    verdict = admit_pod(sent, OURS, managed=True)
    assert said in verdict.refusal
    assert verdict.patches == ()


def test_everything_wrong_is_said_at_once() -> None:
    sent = pod({"resourceClaims": [{"name": "x"}]}, labels={JOB_ID: "7"}, annotations={"slurmjob.slinky.slurm.net/priority": "high"})
    refusal = admit_pod(sent, OURS, managed=True).refusal
    assert all(word in refusal for word in ("resourceClaims", JOB_ID, "priority"))


def test_the_root_of_a_workload_is_read_too() -> None:
    assert "must be minutes" in admit_root({"metadata": {"annotations": {"slurmjob.slinky.slurm.net/timelimit": "soon"}}}, OURS).refusal
    assert admit_root({"metadata": {"annotations": {"slinky.slurm.net/account": "x"}}}, OURS).warnings == (
        "annotation slinky.slurm.net/account has no effect: since 1.0 its name is slurmjob.slinky.slurm.net/account",
    )
    assert admit_root({"metadata": {"annotations": {"slurmjob.slinky.slurm.net/timelimit": "5"}}}, OURS) == LEFT_ALONE


def test_only_the_bridge_changes_its_own_keys() -> None:
    old = pod({"schedulerName": NAME}, labels={JOB_ID: "7", "app": "x"})
    for labels in ({JOB_ID: "8"}, {}):
        new = pod({"schedulerName": NAME}, labels=labels)
        assert f"label {JOB_ID} is the bridge's own" in admit_change(old, new, OURS, by_bridge=False).refusal
        assert admit_change(old, new, OURS, by_bridge=True) == LEFT_ALONE
    assert admit_change(old, pod({"schedulerName": NAME}, labels={JOB_ID: "7"}), OURS, by_bridge=False) == LEFT_ALONE
    assert admit_change(pod(labels={JOB_ID: "7"}), pod(), OURS, by_bridge=False) == LEFT_ALONE


def test_what_the_binding_wrote_is_the_bridges_too() -> None:
    old = pod({"schedulerName": NAME}, annotations={"task.slinky.slurm.net/procid": "0", "note": "x"})
    for annotations in ({"task.slinky.slurm.net/procid": "1"}, {}, {"task.slinky.slurm.net/procid": "0", "task.slinky.slurm.net/new": "1"}):
        new = pod({"schedulerName": NAME}, annotations=annotations)
        assert "annotation task.slinky.slurm.net/" in admit_change(old, new, OURS, by_bridge=False).refusal
    assert (
        admit_change(old, pod({"schedulerName": NAME}, annotations={"task.slinky.slurm.net/procid": "0"}), OURS, by_bridge=False)
        == LEFT_ALONE
    )


def test_the_bridge_may_create_pods_with_its_own_keys() -> None:
    assert admit_pod(pod(labels={JOB_ID: "7"}), OURS, managed=True, by_bridge=True).patches


def test_resize_is_refused() -> None:
    ours = pod({"schedulerName": NAME})
    assert "pods/resize: Slurm has set aside" in admit_change(ours, ours, OURS, by_bridge=False, resize=True).refusal


# What the namespace may, and what roots and their templates say

TIMELIMIT, ACCOUNT = "slurmjob.slinky.slurm.net/timelimit", "slurmjob.slinky.slurm.net/account"
NO_ACCOUNT = f"annotation {ACCOUNT} is 'rich', and namespace lab may name no account: leave it out"
MALFORMED = f"annotation {TIMELIMIT} is 'soon', and must be minutes"


def root(spec: dict[str, Any], /, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "r", "namespace": "lab", "annotations": annotations}, "spec": spec}


def template(spec: dict[str, Any] | None = None, /, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]} | (spec or {})}


def job_set(of: dict[str, Any], /, **annotations: str) -> dict[str, Any]:
    return {"replicatedJobs": [{"name": "a", "template": {"metadata": {"annotations": annotations}, "spec": {"template": of}}}]}


SHAPES: list[tuple[str, Any]] = [
    ("spec.template", lambda of: {"template": of}),
    ("spec.replicatedJobs[0].template.spec.template", job_set),
    ("spec.leaderWorkerTemplate.leaderTemplate", lambda of: {"leaderWorkerTemplate": {"leaderTemplate": of}}),
    ("spec.leaderWorkerTemplate.workerTemplate", lambda of: {"leaderWorkerTemplate": {"workerTemplate": of}}),
]


def test_what_the_namespace_may_not_is_refused_on_pods_and_roots() -> None:
    assert admit_pod(pod(annotations={ACCOUNT: "rich"}), OURS, managed=True).refusal == NO_ACCOUNT
    assert admit_root(root({}, **{ACCOUNT: "rich"}), OURS).refusal == NO_ACCOUNT
    assert admit_pod(pod(annotations={ACCOUNT: "rich"}), OURS, managed=False) == LEFT_ALONE


@pytest.mark.parametrize(("place", "shape"), SHAPES, ids=[place for place, _ in SHAPES])
def test_a_template_is_judged_with_its_root(place: str, shape: Any) -> None:
    for made, why in (
        (template(**{TIMELIMIT: "soon"}), MALFORMED),
        (template(**{ACCOUNT: "rich"}), NO_ACCOUNT),
        (template({"nodeName": "n1"}), "spec.nodeName is 'n1': Slurm chooses the node"),
        ({"metadata": {"labels": {JOB_ID: "7"}}, "spec": {}}, f"label {JOB_ID} is written by the bridge"),
    ):
        assert admit_root(root(shape(made)), OURS).refusal.startswith(f"{place}: {why}")
    assert admit_root(root(shape(template({"schedulerName": "other"}, **{TIMELIMIT: "soon"}))), OURS) == LEFT_ALONE
    assert not admit_root(root(shape(template(**{TIMELIMIT: "5"}))), OURS).refusal


OWN_ONLY = msgspec.convert({"policy": {"default": {"crossNamespaceAffinity": False}}}, Settings)
FIELD = "requiredDuringSchedulingIgnoredDuringExecution"


def near(kind: str = "podAntiAffinity", **term: Any) -> dict[str, Any]:
    return {"affinity": {kind: {FIELD: [{"topologyKey": "kubernetes.io/hostname", **term}]}}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_required_affinity_into_other_namespaces_is_refused_where_the_site_says_so(kind: str) -> None:
    """A pod of one CPU with such anti-affinity keeps all tenants off its node. Kubernetes allows it, and so do we by default."""
    for_all, listed = near(kind, namespaceSelector={}), near(kind, namespaces=["lab", "other"])
    for spec, field in ((for_all, "namespaceSelector"), (listed, "namespaces")):
        why = f"spec.affinity.{kind}.{FIELD}[0].{field} reaches into other namespaces"
        refusal = admit_pod(pod(spec), OWN_ONLY, managed=True).refusal
        assert refusal.startswith(why)
        assert "name lab alone" in refusal
        assert admit_root(root({"template": template(spec)}), OWN_ONLY).refusal.startswith(f"spec.template: {why}")
        assert not admit_pod(pod(spec), OURS, managed=True).refusal
        assert not admit_root(root({"template": template(spec)}), OURS).refusal


def test_affinity_within_the_namespace_and_preferred_affinity_are_never_refused() -> None:
    name = "kubernetes.io/metadata.name"
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaceSelector": {}}}
    for spec in (
        near(labelSelector={"matchLabels": {"app": "web"}}),
        near(namespaces=["lab"]),
        near(namespaceSelector={"matchLabels": {name: "lab"}}),
        near(namespaceSelector={"matchExpressions": [{"key": name, "operator": "In", "values": ["lab"]}]}),
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}},
    ):
        assert not admit_pod(pod(spec), OWN_ONLY, managed=True).refusal
        assert not admit_root(root({"template": template(spec)}), OWN_ONLY).refusal


def test_what_is_wrong_with_the_root_is_not_said_again_for_each_template() -> None:
    assert admit_root(root({"template": template()}, **{ACCOUNT: "rich"}), OURS).refusal == NO_ACCOUNT


def test_the_annotations_of_a_job_within_a_job_set_are_judged_too() -> None:
    assert MALFORMED in admit_root(root(job_set(template(), **{TIMELIMIT: "soon"})), OURS).refusal


def test_a_class_and_a_deadline_are_judged_where_no_owner_could_overrule_them() -> None:
    strict = msgspec.convert(
        {"policy": {"default": {"maxTimeLimit": 60, "qoses": ["low"]}}, "priorityClasses": [{"name": "gold", "qos": "high"}]}, Settings
    )
    spec = {"priorityClassName": "gold", "activeDeadlineSeconds": 7200}
    why = "spec.priorityClassName gold means QoS high, and namespace lab may name low only"
    late = "activeDeadlineSeconds is 120 minutes, and namespace lab may have 60 at most"
    of_job = pod(spec, ownerReferences=[{"kind": "Job", "name": "j", "controller": True}])
    of_replica_set = pod(spec, ownerReferences=[{"kind": "ReplicaSet", "name": "j", "controller": True}])
    assert admit_pod(pod(spec), strict, managed=True).refusal == f"{late}; {why}"
    assert admit_pod(of_replica_set, strict, managed=True).refusal == f"{late}; {why}"
    assert not admit_pod(of_job, strict, managed=True).refusal
    assert admit_root(root({"template": template(spec)}), strict).refusal == f"spec.template: {late}; spec.template: {why}"
    overruled = {"slurmjob.slinky.slurm.net/qos": "low", TIMELIMIT: "30"}
    assert not admit_root(root({"template": template(spec)}, **overruled), strict).refusal


def test_a_root_that_is_changed_is_refused_for_what_the_change_brings() -> None:
    wrong = root({"template": template(**{ACCOUNT: "rich"})}, **{TIMELIMIT: "soon"})
    assert admit_root(wrong, OURS, wrong) == LEFT_ALONE
    worse = root({"template": template(**{ACCOUNT: "rich"})}, **{TIMELIMIT: "later"})
    assert "'later'" in admit_root(worse, OURS, wrong).refusal
    better = admit_root(root({}, **{TIMELIMIT: "5"}), OURS, wrong)
    assert better.warnings == (f"annotation {TIMELIMIT}: the change applies only to jobs submitted from now on",)


GANG, MEMORY = SETTINGS + "gang", SETTINGS + "mem-per-node"


def lws_of(of: dict[str, Any]) -> dict[str, Any]:
    return {"leaderWorkerTemplate": {"size": 2, "workerTemplate": of}}


@pytest.mark.parametrize(
    ("spec", "own", "place", "kind"),
    [
        ({"template": template(**{MEMORY: "64Gi"})}, {GANG: "true"}, "spec.template", "Job"),
        (job_set(template(**{MEMORY: "64Gi"})), {}, "spec.replicatedJobs[0].template.spec.template", "JobSet"),
        (job_set(template(), **{MEMORY: "64Gi"}), {}, "spec.replicatedJobs[0].template", "JobSet"),
        (lws_of(template(**{MEMORY: "64Gi"})), {}, "spec.leaderWorkerTemplate.workerTemplate", "LeaderWorkerSet"),
        (
            job_set(template(**{MEMORY: "64Gi"}), **{GANG: "true"}),
            {GANG: "false"},
            "spec.replicatedJobs[0].template.spec.template",
            "Job template",
        ),
    ],
)
def test_annotations_on_the_template_of_a_gang_are_warned_of(spec: dict[str, Any], own: dict[str, str], place: str, kind: str) -> None:
    sent = root(spec, **own)
    verdict = admit_root(sent, OURS)
    why = f"no effect, because for a gang only annotations on the {kind} count; put them there"
    assert verdict.warnings == (f"{place}: {MEMORY}: {why}",)
    assert not verdict.refusal
    assert admit_root(sent, OURS, sent).warnings == ()


@pytest.mark.parametrize("text", ["true", "TRUE"])
def test_gang_on_a_pod_template_is_warned_of(text: str) -> None:
    said = {GANG: text, MEMORY: "64Gi"}
    expected = f"spec.template: annotation {GANG} has no effect on a pod template: put it on the Job"
    assert admit_root(root({"template": template(**said)}), OURS).warnings == (expected,)
    (warning,) = admit_root(root(job_set(template(**said)), **{GANG: "false"}), OURS).warnings
    assert warning.endswith("put it on the JobSet")


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        ({"template": template(**{MEMORY: "64Gi"})}, {}),
        ({"template": template(**{MEMORY: "64Gi"})}, {GANG: "false"}),
        ({"template": template(**{MEMORY: "64Gi", GANG: "true"})}, {GANG: "true", MEMORY: "64Gi"}),
        ({"template": template({"schedulingGroup": {"podGroupName": "g"}}, **{MEMORY: "64Gi"})}, {GANG: "true"}),
        ({"template": template({"schedulerName": "other"}, **{MEMORY: "64Gi"})}, {GANG: "true"}),
        ({"template": template(**{"example.com/team": "x"})}, {GANG: "true"}),
        (job_set(template(**{MEMORY: "64Gi"})), {GANG: "false"}),
        (job_set(template(), **{GANG: "true"}), {GANG: "false"}),
        (lws_of(template(**{MEMORY: "64Gi"})), {GANG: "false"}),
    ],
)
def test_annotations_that_count_are_not_warned_of(spec: dict[str, Any], own: dict[str, str]) -> None:
    assert admit_root(root(spec, **own), OURS) == LEFT_ALONE


def test_warnings_about_templates_are_few_and_short() -> None:
    """The API server cuts a warning after 256 characters."""
    said = {SETTINGS + name: "5" for name in ("max-nodes", "min-nodes", "nice", "ntasks-per-node", "segment")}
    one = {"name": "a", "template": {"spec": {"template": template(**said)}}}
    warnings = admit_root(root({"replicatedJobs": [one] * 100}), OURS).warnings
    assert len(warnings) == 10
    assert all(len(warning) <= 256 and "and 2 more" in warning for warning in warnings)


def test_a_job_of_a_jobset_is_not_warned_of() -> None:
    """Users see warnings about the JobSet."""
    made = root({"template": template(**{MEMORY: "64Gi"})}, **{GANG: "true"})
    made["metadata"]["ownerReferences"] = [{"kind": "JobSet", "name": "x", "controller": True}]
    assert admit_root(made, OURS) == LEFT_ALONE


def test_job_annotations_of_a_pod_that_are_changed_are_judged_and_of_no_use_once_it_has_a_job() -> None:
    old = pod({"schedulerName": NAME}, annotations={TIMELIMIT: "5"})
    for label, warnings in (({}, ()), ({JOB_ID: "7"}, (f"annotation {TIMELIMIT}: no effect, because the pod is already Slurm job 7",))):
        old["metadata"]["labels"] = label
        new = pod({"schedulerName": NAME}, annotations={TIMELIMIT: "6"}, labels=label)
        assert admit_change(old, new, OURS, by_bridge=False).warnings == warnings
    for said, why in (({TIMELIMIT: "soon"}, MALFORMED), ({TIMELIMIT: "5", ACCOUNT: "rich"}, NO_ACCOUNT)):
        new = pod({"schedulerName": NAME}, annotations=said, labels={JOB_ID: "7"})
        assert admit_change(old, new, OURS, by_bridge=False).refusal.startswith(why)


GRES = "slurmjob.slinky.slurm.net/gres"
EIGHT = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
TOO_FEW = f"annotation {GRES} is 'gpu:1', and the pod asks for 8 of gpu by its resources: say gpu:8 at least, or leave it out"


def test_fewer_gres_than_the_pod_asks_for_are_refused() -> None:
    assert admit_pod(pod(EIGHT, annotations={GRES: "gpu:1"}), OURS, managed=True).refusal == TOO_FEW
    assert not admit_pod(pod(EIGHT, annotations={GRES: "gpu:8"}), OURS, managed=True).refusal
    assert admit_pod(pod(EIGHT, annotations={GRES: "gpu:"}), OURS, managed=True).refusal.startswith(
        f"annotation {GRES} is 'gpu:', and must"
    )


@pytest.mark.parametrize(("place", "shape"), SHAPES, ids=[place for place, _ in SHAPES])
def test_fewer_gres_than_a_template_asks_for_are_refused_whoever_says_them(place: str, shape: Any) -> None:
    assert admit_root(root(shape(template(EIGHT)), **{GRES: "gpu:1"}), OURS).refusal == f"{place}: {TOO_FEW}"
    assert admit_root(root(shape(template(EIGHT, **{GRES: "gpu:1"}))), OURS).refusal == f"{place}: {TOO_FEW}"
    assert not admit_root(root(shape(template(EIGHT)), **{GRES: "gpu:8"}), OURS).refusal


def test_gres_cannot_be_made_fewer_than_the_pod_asks_for() -> None:
    spec = EIGHT | {"schedulerName": NAME}
    old = pod(spec, annotations={GRES: "gpu:8"})
    assert admit_change(old, pod(spec, annotations={GRES: "gpu:1"}), OURS, by_bridge=False).refusal == TOO_FEW
    wrong = pod(spec, annotations={GRES: "gpu:1"})
    assert not admit_change(wrong, pod(spec, annotations={GRES: "gpu:1", TIMELIMIT: "5"}), OURS, by_bridge=False).refusal


@pytest.mark.parametrize("namespace", ["kube-system", "bridge", "slurm"])
def test_where_slurm_and_the_bridge_run_nothing_is_taken_in(namespace: str) -> None:
    settings = Settings(namespace="bridge")
    verdict = admit_pod(pod({"schedulerName": NAME}, namespace=namespace), settings, managed=True)
    assert f"Slurm schedules nothing in namespace {namespace}" in verdict.refusal
    assert admit_pod(pod(namespace=namespace), settings, managed=settings.manages(namespace, {})) == LEFT_ALONE


def test_node_affinity_that_would_cost_more_than_a_pod_may_is_refused_by_its_name() -> None:
    """Each rule is judged for every node: 20,000 of them held the scheduler for seconds."""

    def asking(terms: list[dict[str, Any]]) -> dict[str, Any]:
        return pod({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})

    one = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    assert not admit_pod(asking([one] * MOST_RULES), OURS, managed=True).refusal
    for terms in ([one] * (MOST_RULES + 1), [{"matchExpressions": one["matchExpressions"] * (MOST_RULES + 1)}]):
        assert "spec.affinity.nodeAffinity: at most" in admit_pod(asking(terms), OURS, managed=True).refusal
