"""The policy that keeps the bridge's keys and its finalizer on pods for the bridge: a ValidatingAdmissionPolicy and its binding, as documents. Pure.

The webhook guards these keys on the bridge's own pods. The prolog on hybrid nodes believes the job's id on any pod, so this policy covers
every pod of the cluster. The API server evaluates it itself: no webhook is called, and nothing is in the way while the bridge is down.

The finalizer keeps a pod's object until its containers are gone. Without it, a pod that is deleted by force leaves the bridge's count at
once, while its containers go on for the pod's whole grace period: its job ends, and other pods would be placed over it. So only the
bridge may remove the finalizer from a pod that runs or may still run, and so may a user with the right `release`, for emergencies.

*Invariants:* only CREATE and UPDATE are looked at, so no delete is ever refused. A request that leaves the keys as they are passes,
whoever sends it. The cost does not depend on how many labels or annotations a pod has: each key is looked up by its name, so a tenant
cannot write a pod whose check exceeds the API server's cost limit.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slinky.bridge.keys import FINALIZER, OWNED_ANNOTATIONS, OWNED_LABELS, TASK, TASK_ENVIRONMENT
from slinky.kube import Resource

__all__ = [
    "POLICIES",
    "POLICY_BINDINGS",
    "RELEASE_GROUP",
    "RELEASE_RESOURCE",
    "RELEASE_VERB",
    "is_own_policy",
    "key_policy",
    "policy_name",
    "protected_annotations",
]

GROUP = "admissionregistration.k8s.io"
POLICIES: Resource[dict[str, Any]] = Resource(GROUP, "v1", "validatingadmissionpolicies", dict, namespaced=False)
POLICY_BINDINGS: Resource[dict[str, Any]] = Resource(GROUP, "v1", "validatingadmissionpolicybindings", dict, namespaced=False)
POLICY_SUFFIX = "-keys"
NOT_BY_THE_BRIDGE = "is-not-by-the-bridge"

# Every way to write a pod's labels and annotations. A Binding's are copied onto the pod (labels from Kubernetes 1.35 on).
WRITTEN_THROUGH = ("pods", "pods/status", "pods/ephemeralcontainers", "pods/resize", "pods/binding", "bindings")
MESSAGE = (
    " is the Slurm bridge's own key: only the bridge may set, change or remove it. It names the pod's Slurm job. "
    "Remove it from the pod and its template"
)

OVER = ("Succeeded", "Failed")
# The right by which an administrator removes the finalizer all the same. It is asked for the whole cluster, so an
# administrator of one namespace does not have it; a cluster-admin has every right.
RELEASE_GROUP, RELEASE_RESOURCE, RELEASE_VERB = "scheduler.slinky.slurm.net", "pods", "release"
KEPT = (
    f"finalizer {FINALIZER} is the Slurm bridge's own: the bridge removes it when the containers of the pod are gone,"
    " so that no other pod gets the pod's share of the node before; delete the pod and wait, or ask an administrator"
    f" with the right '{RELEASE_VERB}' on {RELEASE_RESOURCE}.{RELEASE_GROUP} (docs/operations.md)"
)


def policy_name(configuration: str) -> str:
    """`configuration` is the name of the webhook configurations (`admission.configuration`)."""
    return configuration + POLICY_SUFFIX


def key_policy(name: str, users: Sequence[str]) -> list[dict[str, Any]]:
    """The policy and its binding. `users` may write the keys: the bridge, `slinky bridge uninstall`, and other bridges of the cluster."""
    labels = {"app.kubernetes.io/name": "slurm-bridge", "app.kubernetes.io/component": "admission"}
    meta = {"name": name, "labels": labels}
    api = f"{GROUP}/v1"
    return [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": _policy(users)},
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": meta,
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def is_own_policy(document: Mapping[str, Any], name: str) -> bool:
    """Of a policy or a binding that has our name: is it ours, by what it says?"""
    spec = document.get("spec") or {}
    return spec.get("policyName") == name or NOT_BY_THE_BRIDGE in {each.get("name") for each in spec.get("matchConditions") or ()}


def _policy(users: Sequence[str]) -> dict[str, Any]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": list(WRITTEN_THROUGH),
        "scope": "Namespaced",
    }
    return {
        # Nothing remote can fail here. An expression that fails would let a forged key pass under Ignore.
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        # Nearly all writes end here: the API server converts the pod once for all match conditions, and three times more for validations.
        "matchConditions": [
            {"name": NOT_BY_THE_BRIDGE, "expression": f"!(request.userInfo.username in {json.dumps(sorted(users))})"},
            {"name": "changes-what-is-the-bridges", "expression": _changes_what_is_the_bridges()},
        ],
        "variables": [
            {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
            {"name": "annotations", "expression": "object.metadata.?annotations.orValue({})"},
            {"name": "labelsBefore", "expression": "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})"},
            {"name": "annotationsBefore", "expression": "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})"},
            {"name": "touchedLabels", "expression": _touched("labels", sorted(OWNED_LABELS))},
            {"name": "touchedAnnotations", "expression": _touched("annotations", protected_annotations())},
            {"name": "releases", "expression": _releases()},
            {"name": "isOver", "expression": f"dyn(oldObject).?status.?phase.orValue('') in {json.dumps(OVER)}"},
            {"name": "neverRan", "expression": _never_ran()},
            {"name": "mayRelease", "expression": _may_release()},
        ],
        "validations": [
            {
                "expression": "variables.touchedLabels.size() + variables.touchedAnnotations.size() == 0",
                "messageExpression": (
                    "(variables.touchedLabels.map(k, 'label ' + k) + variables.touchedAnnotations.map(k, 'annotation ' + k)).join(', ')"
                    f" + {json.dumps(MESSAGE)}"
                ),
                "reason": "Forbidden",
            },
            {
                "expression": "!variables.releases || variables.isOver || variables.neverRan || variables.mayRelease",
                "message": KEPT,
                "reason": "Forbidden",
            },
        ],
    }


def protected_annotations() -> list[str]:
    """Those of the task's environment by their names: a prefix would have to be looked for among all that a pod has."""
    return sorted({*OWNED_ANNOTATIONS, *(TASK + key for key in TASK_ENVIRONMENT.values())})


def _changes_what_is_the_bridges() -> str:
    """True wherever a validation may fail. Match conditions cannot use variables."""
    parts = [_changes("labels", sorted(OWNED_LABELS)), _changes("annotations", protected_annotations()), f"({_releases()})"]
    return " || ".join(parts)


def _changes(kind: str, keys: Sequence[str]) -> str:
    """The keys are looked up only where any label or annotation differs, as a kubelet's update of the status changes none."""
    after, before = f"object.metadata.?{kind}", f"(oldObject == null ? optional.none() : oldObject.metadata.?{kind})"
    return f"({after} != {before} && {json.dumps(keys)}.exists(k, {after}[?k] != {before}[?k]))"


def _touched(kind: str, keys: Sequence[str]) -> str:
    return f"{json.dumps(keys)}.filter(k, variables.{kind}[?k] != variables.{kind}Before[?k])"


def _releases() -> str:
    """The request removes the finalizer."""
    name = json.dumps(FINALIZER)
    before, after = (f"{name} in {side}.metadata.?finalizers.orValue([])" for side in ("oldObject", "object"))
    return f"request.operation == 'UPDATE' && {before} && !({after})"


def _never_ran() -> str:
    """The pod is being deleted and has no node: it never gets one."""
    return "dyn(oldObject).?spec.?nodeName.orValue('') == '' && has(oldObject.metadata.deletionTimestamp)"


def _may_release() -> str:
    return f"authorizer.group('{RELEASE_GROUP}').resource('{RELEASE_RESOURCE}').check('{RELEASE_VERB}').allowed()"
