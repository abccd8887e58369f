"""The webhook configurations: which requests the API server sends to the admission webhook, and what it does while nobody answers.

Pure. Comes in: the settings (with `namespace` filled in), the users who are the bridge, the authority of the certificate. Goes out: a MutatingWebhookConfiguration and a
ValidatingWebhookConfiguration. What must stay true: nothing that is not ours is ever sent, so a webhook that is down is in nobody else's way; namespace kube-system, the
bridge's own and Slurm's are left out always; a pod is sent once, but where another webhook changed it after us.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slinky.bridge.annotations import SUFFIXES
from slinky.bridge.keys import OLD_SETTINGS, OWNED_ANNOTATIONS, OWNED_LABELS, SETTINGS, TASK, TASK_ENVIRONMENT
from slinky.bridge.pod_policy import has_pod_policy, needs_no_webhook, pod_policy
from slinky.bridge.settings import Settings
from slinky.kube import WebhookEndpoint

__all__ = ["CHANGES", "PODS", "WORKLOADS", "endpoint", "mutating_configuration", "others", "policy_for_pods", "validating_configuration"]

# Paths of the webhook.
PODS, CHANGES, WORKLOADS = "/pods", "/changes", "/workloads"

NAMESPACE_NAME = "kubernetes.io/metadata.name"
SUFFIX = "bridge.slinky.slurm.net"
SECONDS = 5
MOST_SEARCHED = 1000  # annotations, before and after a change together
OPPOSITE = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}

Document = dict[str, Any]
Requirement = dict[str, Any]


def mutating_configuration(settings: Settings, *, authority: str = "") -> Document:
    """Pods that are created. `authority` is base64, as `caBundle` is; where it is empty, `caBundle` is left to others.

    Pods that name the scheduler come first in the list and so are looked at before the other webhook has set that name. Both may be asked again after other webhooks
    (IfNeeded): a sidecar that was injected after us is a container of the task too.
    """
    rules = [_rule("", "v1", ["CREATE"], "pods")]
    webhooks = []
    if (elsewhere := others(settings)) is not None:
        webhooks.append(_webhook("named-pods", settings, PODS, rules, elsewhere, {"names-our-scheduler": _named(settings)}, authority))
    if (managed := _managed(settings)) is not None:
        webhooks.append(_webhook("managed-pods", settings, PODS, rules, managed, _takes_in(settings), authority))
    for webhook in webhooks:
        webhook["reinvocationPolicy"] = "IfNeeded"
        if has_pod_policy(settings):
            condition = {"name": "is-not-finished-by-the-policy", "expression": f"!({needs_no_webhook(settings)})"}
            webhook["matchConditions"].append(condition)
    return _configuration("MutatingWebhookConfiguration", settings, webhooks)


def validating_configuration(settings: Settings, *, users: Sequence[str] = (), authority: str = "") -> Document:
    """Changes to our keys and to job annotations, resizes, and what pods are made from. `users` are the bridge; they are not even asked about."""
    everywhere = _selector([_left_out(settings)])
    ours = {"names-our-scheduler": _named(settings)} | _not_by(users)
    # pods/status too: labels and annotations can be written through it.
    changes = [_rule("", "v1", ["UPDATE"], "pods", "pods/status")]
    resizes = [_rule("", "v1", ["UPDATE"], "pods/resize")]
    webhooks = [
        _webhook("changes", settings, CHANGES, changes, everywhere, ours | {"changes-our-keys": _changes_our_keys()}, authority),
        _webhook("resizes", settings, CHANGES, resizes, everywhere, ours, authority),
    ]
    if (managed := _managed(settings)) is not None:
        conditions = {"says-something": _says_something(settings), "changes-it": _changes_it()}
        webhooks.append(_webhook("workloads", settings, WORKLOADS, _workloads(), managed, conditions, authority))
    return _configuration("ValidatingWebhookConfiguration", settings, webhooks)


def policy_for_pods(settings: Settings) -> list[Document]:
    """The policy that takes in plain pods of managed namespaces, and its binding; nothing where no pod can be plain."""
    return pod_policy(settings, _managed(settings))


def others(settings: Settings) -> Document | None:
    """The namespaces that are not managed; None where all are.

    A selector of several parts has no opposite that a selector could say: then it is all namespaces, and a pod that names our scheduler in a managed one is
    sent twice, the second time to no effect.
    """
    if settings.managed_namespace_selector is None:
        names = sorted({*_names_left_out(settings), *settings.managed_namespaces})
        return _selector([{"key": NAMESPACE_NAME, "operator": "NotIn", "values": names}])
    wanted = _requirements(settings)
    if not wanted:
        return None
    opposite = [wanted[0] | {"operator": OPPOSITE.get(wanted[0]["operator"], "")}] if len(wanted) == 1 else []
    return _selector([_left_out(settings), *opposite])


def endpoint(settings: Settings) -> WebhookEndpoint:
    return WebhookEndpoint(settings.admission.service, settings.namespace or "slinky", settings.admission.url)


# Whom it is about


def _names_left_out(settings: Settings) -> list[str]:
    return sorted({*settings.never_managed, settings.namespace or "slinky"})


def _left_out(settings: Settings) -> Requirement:
    return {"key": NAMESPACE_NAME, "operator": "NotIn", "values": _names_left_out(settings)}


def _managed(settings: Settings) -> Document | None:
    """None where no namespace is managed."""
    if settings.managed_namespace_selector is not None:
        return _selector([_left_out(settings), *_requirements(settings)])
    names = sorted({*settings.managed_namespaces} - {*_names_left_out(settings)})
    return _selector([{"key": NAMESPACE_NAME, "operator": "In", "values": names}]) if names else None


def _requirements(settings: Settings) -> list[Requirement]:
    """The selector as a list, its labels too."""
    selector = settings.managed_namespace_selector
    if selector is None:
        return []
    labels = [{"key": key, "operator": "In", "values": [value]} for key, value in selector.match_labels.items()]
    return labels + [msgspec.to_builtins(wanted) for wanted in selector.match_expressions]


def _selector(requirements: list[Requirement]) -> Document:
    return {"matchExpressions": requirements}


# What it is about, in CEL. Optional fields are asked for with `?`: an expression that fails counts as a webhook that is down.

JUDGED = ("nodeName", "resourceClaims", "affinity", "topologySpreadConstraints")  # of pod templates
SCHEDULER = "object.spec.?schedulerName.orValue('default-scheduler')"
DAEMON = "object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet' && o.?controller.orValue(false))"
MIRROR = "'kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({})"


def _named(settings: Settings) -> str:
    return f"{SCHEDULER} == {_text(settings.scheduler_name)}"


def _takes_in(settings: Settings) -> dict[str, str]:
    """The same as `admission.is_ours`."""
    named = _named(settings)
    return {
        "names-no-other-scheduler": f"{SCHEDULER} == 'default-scheduler' || {named}",
        "is-not-of-a-daemonset": f"{named} || !{DAEMON}",
        "is-not-a-kubelets-own": f"{named} || !({MIRROR})",
    }


def _not_by(users: Sequence[str]) -> dict[str, str]:
    if not users:
        return {}
    return {"is-not-by-the-bridge": f"!(request.userInfo.username in [{', '.join(map(_text, sorted(users)))}])"}


def _changes_our_keys() -> str:
    """Each known key is looked up by its name. A search through all annotations costs more than an expression may where a
    tenant wrote tens of thousands of them, and then every update of the pod would fail, the kubelet's too: it finds keys that
    are not known, on pods with few annotations."""
    named = {*OWNED_ANNOTATIONS, *(TASK + key for key in TASK_ENVIRONMENT.values()), *(SETTINGS + suffix for suffix in SUFFIXES)}
    places = [("labels", key) for key in sorted(OWNED_LABELS)] + [("annotations", key) for key in sorted(named)]
    parts = [f"object.metadata.?{kind}[{_text(key)}] != oldObject.metadata.?{kind}[{_text(key)}]" for kind, key in places]
    sizes = " + ".join(f"{side}.metadata.?annotations.orValue({{}}).size()" for side in ("object", "oldObject"))
    searches = []
    for side in ("object", "oldObject"):
        differs = "object.metadata.?annotations[k] != oldObject.metadata.?annotations[k]"
        ours = f"(k.startsWith({_text(TASK)}) || k.startsWith({_text(SETTINGS)}))"
        searches.append(f"{side}.metadata.?annotations.orValue({{}}).exists(k, {ours} && {differs})")
    touched = " || ".join([*parts, f"({sizes} <= {MOST_SEARCHED} && ({' || '.join(searches)}))"])
    # Nearly all updates are a kubelet's, of the status: two comparisons tell.
    written = " || ".join(f"object.metadata.?{kind} != oldObject.metadata.?{kind}" for kind in ("labels", "annotations"))
    return f"({written}) && ({touched})"


def _says_something(settings: Settings) -> str:
    """Annotations of ours, on it or on the pod templates in it, or what a template says otherwise that may be refused. What says nothing does not wait for the webhook."""
    jobs = [_has_settings("j.?template"), *_template_says("j.?template.?spec.?template", settings)]
    group = "object.?spec.?leaderWorkerTemplate"
    parts = [
        _has_settings("object"),
        *_template_says("object.?spec.?template", settings),
        *_template_says(f"{group}.?leaderTemplate", settings),
        *_template_says(f"{group}.?workerTemplate", settings),
        f"object.?spec.?replicatedJobs.orValue([]).exists(j, {' || '.join(jobs)})",
    ]
    if any(grant.max_time_limit for grant in (settings.policy.default, *settings.policy.rules)):
        parts.append("object.?spec.?activeDeadlineSeconds.hasValue()")
    return " || ".join(parts)


def _template_says(place: str, settings: Settings) -> list[str]:
    """The same as `admission` looks at."""
    found = [_has_settings(place), *(f"{place}.?spec.?{field}.hasValue()" for field in JUDGED)]
    if settings.priority_classes:
        names = ", ".join(_text(each.name) for each in settings.priority_classes)
        found.append(f"{place}.?spec.?priorityClassName.orValue('') in [{names}]")
    return found


def _has_settings(place: str) -> str:
    """The old names too, which are warned of."""
    prefixes = " || ".join(f"k.startsWith({_text(prefix)})" for prefix in (SETTINGS, OLD_SETTINGS))
    return f"{place}.?metadata.?annotations.orValue({{}}).exists(k, {prefixes})"


def _changes_it() -> str:
    return "request.operation == 'CREATE' || object.metadata.?annotations != oldObject.metadata.?annotations || object.?spec != oldObject.?spec"


def _text(value: str) -> str:
    return json.dumps(value)


# The parts of a configuration


def _workloads() -> list[Document]:
    """Of kinds that are not installed, nothing ever comes."""
    kinds = [
        ("batch", "v1", "jobs"),
        ("jobset.x-k8s.io", "*", "jobsets"),
        ("leaderworkerset.x-k8s.io", "*", "leaderworkersets"),
        ("scheduling.x-k8s.io", "*", "podgroups"),
        ("scheduling.k8s.io", "*", "podgroups"),
        ("scheduling.k8s.io", "*", "workloads"),
    ]
    return [_rule(group, version, ["CREATE", "UPDATE"], plural) for group, version, plural in kinds]


def _rule(group: str, version: str, operations: list[str], *resources: str) -> Document:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": list(resources),
        "scope": "Namespaced",
    }


def _webhook(
    name: str, settings: Settings, path: str, rules: list[Document], namespaces: Document, conditions: Mapping[str, str], authority: str
) -> Document:
    return {
        "name": f"{name}.{SUFFIX}",
        "clientConfig": endpoint(settings).client_config(path, authority),
        "rules": rules,
        "namespaceSelector": namespaces,
        "matchConditions": [{"name": condition, "expression": expression} for condition, expression in conditions.items()],
        "failurePolicy": "Ignore" if settings.fails_open else "Fail",
        "timeoutSeconds": SECONDS,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def _configuration(kind: str, settings: Settings, webhooks: list[Document]) -> Document:
    labels = {"app.kubernetes.io/name": "slurm-bridge", "app.kubernetes.io/component": "admission"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": settings.admission.configuration, "labels": labels},
        "webhooks": webhooks,
    }
