"""The policy that takes in plain pods: a MutatingAdmissionPolicy and its binding, as documents. Pure.

A plain pod says nothing to Slurm that has to be judged, so what the bridge adds to it is always the same. From
Kubernetes 1.36 on the API server can add that itself, which costs it less CPU than a call to the webhook. All other
pods, and all pods on older servers, go to the webhook, which adds the same.

*Invariants:* the webhook is left out only for a pod that is both plain and finished (`needs_no_webhook`), whether
the policy or a user finished it. So a missing, late or failing policy changes nothing but the cost, and a tenant who writes a finished pod
by hand gains nothing. What the policy adds is what `admission.admit_pod` adds.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slinky.bridge.admission import (
    DEFAULT_SCHEDULER,
    DEVICE_CLASS,
    GROUP_LABELS,
    MIRROR,
    SERVICE_CONTROLLERS,
    VARIABLES,
    task_variables,
)
from slinky.bridge.keys import FINALIZER, JOB_ID, MANAGED_NODE
from slinky.bridge.settings import Settings
from slinky.bridge.unheeded import GROUP_FIELDS
from slinky.kube import Resource

__all__ = [
    "POD_POLICIES",
    "POD_POLICY_BINDINGS",
    "has_pod_policy",
    "is_own_pod_policy",
    "needs_no_webhook",
    "pod_policy",
    "pod_policy_name",
]

GROUP = "admissionregistration.k8s.io"
POD_POLICIES: Resource[dict[str, Any]] = Resource(GROUP, "v1", "mutatingadmissionpolicies", dict, namespaced=False)
POD_POLICY_BINDINGS: Resource[dict[str, Any]] = Resource(GROUP, "v1", "mutatingadmissionpolicybindings", dict, namespaced=False)
POLICY_SUFFIX = "-pods"
IS_TAKEN_IN = "is-taken-in-by-the-bridge"
OURS = "slinky.slurm.net/"  # in every annotation key that the bridge reads or writes
MOST_GRACE = 30  # seconds, Kubernetes' default; a pod with a longer grace period is judged
MOST_CONTAINERS, MOST_INIT_CONTAINERS = 4, 2  # of a plain pod
MOST_PORTS, MOST_VARIABLES, MOST_REQUESTS = 16, 256, 8  # of a plain pod's container
MOST_TOLERATIONS, MOST_SELECTORS, MOST_VOLUMES = 16, 16, 64  # of a plain pod: far below what the webhook refuses

POD, SPEC = "object.metadata", "object.spec"
SCHEDULER = f"{SPEC}.?schedulerName.orValue('{DEFAULT_SCHEDULER}')"
CONTAINERS = f"({SPEC}.containers + {SPEC}.?initContainers.orValue([]))"


def pod_policy_name(configuration: str) -> str:
    """`configuration` is the name of the webhook configurations (`admission.configuration`)."""
    return configuration + POLICY_SUFFIX


def has_pod_policy(settings: Settings) -> bool:
    """Whether any pod can be plain under these settings.

    Where a namespace's label names the user, a pod that says nothing may be refused for a user without a group.
    """
    grants = (settings.policy.default, *settings.policy.rules)
    by_label = any("user" in (grant.from_labels or ()) for grant in grants)
    return settings.task_environment in (True, "all", "auto") and not by_label and not settings.shadow


def pod_policy(settings: Settings, namespaces: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The policy and its binding, or nothing. `namespaces` selects those that are managed."""
    if namespaces is None or not has_pod_policy(settings):
        return []
    name = pod_policy_name(settings.admission.configuration)
    labels = {
        "app.kubernetes.io/name": "slurm-bridge",
        "app.kubernetes.io/component": "admission",
    }
    meta, api = {"name": name, "labels": labels}, f"{GROUP}/v1"
    policy, binding = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
    return [
        {"apiVersion": api, "kind": policy, "metadata": meta, "spec": _policy(settings, namespaces)},
        {"apiVersion": api, "kind": binding, "metadata": meta, "spec": {"policyName": name}},
    ]


def is_own_pod_policy(document: Mapping[str, Any], name: str) -> bool:
    """Of a policy or a binding that has our name: is it ours, by what it says?"""
    spec = document.get("spec") or {}
    conditions = {each.get("name") for each in spec.get("matchConditions") or ()}
    return spec.get("policyName") == name or IS_TAKEN_IN in conditions


def needs_no_webhook(settings: Settings) -> str:
    """CEL: the pod that is created is plain, and has all that the webhook would add."""
    if not has_pod_policy(settings):
        return "false"
    conditions = [_finished(settings), *(expression for _, expression in _plain(settings))]
    return " && ".join(f"({each})" for each in conditions)


def _policy(settings: Settings, namespaces: Mapping[str, Any]) -> dict[str, Any]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "Namespaced",
    }
    conditions = [
        (IS_TAKEN_IN, _taken_in(settings)),
        *_plain(settings),
        ("has-no-slurm-variable", _names_no_variable()),
    ]
    return {
        # A pod that the policy leaves as it is goes to the webhook.
        "failurePolicy": "Ignore",
        # A container that another webhook adds later is the webhook's to complete.
        "reinvocationPolicy": "Never",
        "matchConstraints": {"namespaceSelector": dict(namespaces), "resourceRules": [rule]},
        "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions],
        "variables": [
            {"name": "whole", "expression": _needs_whole(settings)},
            {
                "name": "env",
                "expression": f"variables.whole ? {_variables(whole=True)} : {_variables(whole=False)}",
            },
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _patches(settings)}}],
    }


# Which pods are plain


def _taken_in(settings: Settings) -> str:
    """The same as `admission.is_ours` in a managed namespace."""
    daemon = f"{POD}.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet' && o.?controller.orValue(false))"
    mirror = f"'{MIRROR}' in {POD}.?annotations.orValue({{}})"
    default = f"{SCHEDULER} == '{DEFAULT_SCHEDULER}' && !{daemon} && !({mirror})"
    return f"{SCHEDULER} == {_text(settings.scheduler_name)} || ({default})"


def _plain(settings: Settings) -> list[tuple[str, str]]:
    """Conditions under which `admission.admit_pod` has nothing to judge."""
    grants = (settings.policy.default, *settings.policy.rules)
    grace = min([MOST_GRACE, *(each.max_grace_seconds for each in grants if each.max_grace_seconds)])
    judged = [
        f"{SPEC}.?nodeName.orValue('') == ''",
        f"{SPEC}.?resourceClaims.orValue([]).size() == 0",
        f"!{SPEC}.?affinity.hasValue()",
        f"{SPEC}.?topologySpreadConstraints.orValue([]).size() == 0",
        f"!{SPEC}.?activeDeadlineSeconds.hasValue()",
        f"{SPEC}.?terminationGracePeriodSeconds.orValue({MOST_GRACE}) <= {grace}",
    ]
    if settings.priority_classes:
        names = json.dumps([each.name for each in settings.priority_classes])
        judged.append(f"!({SPEC}.?priorityClassName.orValue('') in {names})")
    few = [
        f"{SPEC}.containers.size() <= {MOST_CONTAINERS}",
        f"{SPEC}.?initContainers.orValue([]).size() <= {MOST_INIT_CONTAINERS}",
    ]
    requests = "c.?resources.?requests.orValue({})"
    short = [
        f"{SPEC}.?tolerations.orValue([]).size() <= {MOST_TOLERATIONS}",
        f"{SPEC}.?nodeSelector.orValue({{}}).size() <= {MOST_SELECTORS}",
        f"{SPEC}.?volumes.orValue([]).size() <= {MOST_VOLUMES}",
    ]
    of_each = [
        f"c.?ports.orValue([]).size() <= {MOST_PORTS}",
        f"c.?env.orValue([]).size() <= {MOST_VARIABLES}",
        f"{requests}.size() <= {MOST_REQUESTS}",
    ]
    device = f"{CONTAINERS}.exists(c, {requests}.exists(r, r.startsWith('{DEVICE_CLASS}')))"
    return [
        (
            "says-nothing-to-slurm",
            f"!('{JOB_ID}' in {POD}.?labels.orValue({{}})) && !{POD}.?annotations.orValue({{}}).exists(k, k.contains('{OURS}'))",
        ),
        ("asks-for-nothing-that-is-judged", " && ".join(judged)),
        ("has-few-containers", " && ".join(few)),
        ("has-short-lists", " && ".join([*short, f"{CONTAINERS}.all(c, {' && '.join(of_each)})"])),
        ("has-no-device-of-a-class", f"!{device}"),
    ]


def _names_no_variable() -> str:
    """A variable that the user sets stays as it is; the webhook leaves that one out."""
    return f"!{CONTAINERS}.exists(c, c.?env.orValue([]).exists(e, e.name.startsWith('{VARIABLES}')))"


def _needs_whole(settings: Settings) -> str:
    """The same as `admission.needs_task_environment`, of a pod without annotations of ours."""
    if settings.task_environment in (True, "all"):
        return "true"
    labels = [f"'{key}' in {POD}.?labels.orValue({{}})" for key in sorted(GROUP_LABELS)]
    fields = [f"{SPEC}.?{field}.hasValue()" for field in GROUP_FIELDS]
    service = json.dumps(sorted(SERVICE_CONTROLLERS))
    batch = f"{POD}.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && !(o.kind in {service}))"
    words = [f"c.?{field}.orValue([]).exists(t, t.contains('{VARIABLES}'))" for field in ("command", "args")]
    values = f"c.?env.orValue([]).exists(e, e.?value.orValue('').contains('{VARIABLES}'))"
    mentions = f"{CONTAINERS}.exists(c, {' || '.join([*words, values])})"
    return " || ".join([*labels, *fields, batch, mentions])


# What is added


def _variables(*, whole: bool) -> str:
    """A list of maps. `dyn` lets the values of one map be of different types."""
    return f"[{', '.join(_literal(each) for each in task_variables(whole=whole))}]"


def _literal(value: object) -> str:
    if isinstance(value, Mapping):
        return f"dyn({{{', '.join(f'{_text(key)}: {_literal(each)}' for key, each in value.items())}}})"
    return f"dyn({json.dumps(value)})"


def _patches(settings: Settings) -> str:
    scheduler = _text(settings.scheduler_name)
    toleration = f'{{"key": "{MANAGED_NODE}", "operator": "Equal", "value": {scheduler}}}'
    parts = [
        f"[{_add_cel(_text('/spec/schedulerName'), scheduler)}]",
        f"({_tolerates(settings)} ? [] : {_append(f'{SPEC}.?tolerations', '/spec/tolerations', toleration)})",
        f"({_has_finalizer()} ? [] : {_append(f'{POD}.?finalizers', '/metadata/finalizers', _text(FINALIZER))})",
    ]
    for kind, most in (("containers", MOST_CONTAINERS), ("initContainers", MOST_INIT_CONTAINERS)):
        parts += [_environment(kind, index) for index in range(most)]
    return " + ".join(parts)


def _environment(kind: str, index: int) -> str:
    """In front of the user's own, which may refer to them: one after the other at the same place, the last first."""
    there = f"{SPEC}.?{kind}.orValue([]).size() > {index}"
    path = f"/spec/{kind}/{index}/env"
    whole = _add_cel(_text(path), "variables.env")
    one = _add_cel(_text(f"{path}/0"), "variables.env[variables.env.size() - 1 - i]")
    each = f"{list(range(len(task_variables(whole=True))))}.filter(i, i < variables.env.size()).map(i, {one})"
    empty = f"{SPEC}.{kind}[{index}].?env.orValue([]).size() == 0"
    return f"({there} ? ({empty} ? [{whole}] : {each}) : [])"


def _append(existing: str, path: str, value: str) -> str:
    at_the_end, alone = _add_cel(_text(f"{path}/-"), value), _add_cel(_text(path), f"[{value}]")
    return f"({existing}.orValue([]).size() > 0 ? [{at_the_end}] : [{alone}])"


def _add_cel(path: str, value: str) -> str:
    return f'JSONPatch{{op: "add", path: {path}, value: {value}}}'


# What a finished pod has


def _tolerates(settings: Settings) -> str:
    same = (
        f"t.?key.orValue('') == '{MANAGED_NODE}' && t.?operator.orValue('') == 'Equal'"
        f" && t.?value.orValue('') == {_text(settings.scheduler_name)} && !t.?effect.hasValue()"
    )
    return f"{SPEC}.?tolerations.orValue([]).exists(t, {same})"


def _has_finalizer() -> str:
    return f"'{FINALIZER}' in {POD}.?finalizers.orValue([])"


def _finished(settings: Settings) -> str:
    """The variables are looked for as one block in front, as the policy and the webhook write them."""
    blocks: Sequence[Sequence[Mapping[str, Any]]] = [
        task_variables(whole=whole) for whole in ((True,) if settings.task_environment in (True, "all") else (False, True))
    ]
    begins = " || ".join(
        f"(c.?env.orValue([]).size() >= {len(block)}"
        f" && c.env[0].name == '{block[0]['name']}' && c.env[{len(block) - 1}].name == '{block[-1]['name']}')"
        for block in blocks
    )
    parts = [
        f"{SCHEDULER} == {_text(settings.scheduler_name)}",
        _has_finalizer(),
        _tolerates(settings),
        f"{CONTAINERS}.all(c, {begins})",
    ]
    return " && ".join(parts)


def _text(value: str) -> str:
    return json.dumps(value)
