"""The policy that keeps the bridge's keys on pods for the bridge: a ValidatingAdmissionPolicy and its binding, as documents. Pure.

The webhook guards these keys on the bridge's own pods. The prolog on hybrid nodes believes the job's id on any pod, so this policy covers
every pod of the cluster. The API server evaluates it itself: no webhook is called, and nothing is in the way while the bridge is down.

*Invariants:* only CREATE and UPDATE are looked at, so no delete is ever refused. A request that leaves the keys as they are passes,
whoever sends it. The cost does not depend on how many labels or annotations a pod has: each key is looked up by its name, so a tenant
cannot write a pod whose check exceeds the API server's cost limit.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slinky.bridge.admission import TASK_ENVIRONMENT
from slinky.bridge.keys import OWNED_ANNOTATIONS, OWNED_LABELS, TASK
from slinky.kube import Resource

__all__ = ["POLICIES", "POLICY_BINDINGS", "is_own_policy", "key_policy", "policy_name"]

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
        "matchConditions": [{"name": NOT_BY_THE_BRIDGE, "expression": f"!(request.userInfo.username in {json.dumps(sorted(users))})"}],
        "variables": [
            {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
            {"name": "annotations", "expression": "object.metadata.?annotations.orValue({})"},
            {"name": "labelsBefore", "expression": "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})"},
            {"name": "annotationsBefore", "expression": "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})"},
            {"name": "touchedLabels", "expression": _touched("labels", sorted(OWNED_LABELS))},
            {"name": "touchedAnnotations", "expression": _touched("annotations", protected_annotations())},
        ],
        "validations": [
            {
                "expression": "variables.touchedLabels.size() + variables.touchedAnnotations.size() == 0",
                "messageExpression": (
                    "(variables.touchedLabels.map(k, 'label ' + k) + variables.touchedAnnotations.map(k, 'annotation ' + k)).join(', ')"
                    f" + {json.dumps(MESSAGE)}"
                ),
                "reason": "Forbidden",
            }
        ],
    }


def protected_annotations() -> list[str]:
    """Those of the task's environment by their names: a prefix would have to be looked for among all that a pod has."""
    return sorted({*OWNED_ANNOTATIONS, *(TASK + key for key in TASK_ENVIRONMENT.values())})


def _touched(kind: str, keys: Sequence[str]) -> str:
    return f"{json.dumps(keys)}.filter(k, variables.{kind}[?k] != variables.{kind}Before[?k])"
