"""The pods that are scheduled in every scenario: as a user writes them, for whichever scheduler.

The bridge's own pods go through its webhook, as they do at a site; where a scenario measures something else than the way
in, they are sent as admission would leave them.
"""

import copy
from collections.abc import Iterable
from typing import Any

from slinky.bridge.admission import admit_pod
from slinky.bridge.settings import Settings
from slinky.bridge.workload import COSCHEDULING_LABEL

__all__ = ["NAMESPACE", "admitted", "changed", "for_another", "pod", "pod_group"]

NAMESPACE = "bench"


def pod(name: str, *, group: str = "", annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """As a user writes it: 1 CPU, 100 MiB."""
    resources = {"cpu": "1", "memory": "100Mi"}
    labels = {COSCHEDULING_LABEL: group} if group else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "none", "resources": {"requests": resources, "limits": resources}}],
        },
    }


def admitted(sent: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """As admission leaves it."""
    verdict = admit_pod(sent, settings, managed=True)
    if verdict.refusal:
        raise ValueError(f"admission refuses the benchmark's pod: {verdict.refusal}")
    return changed(sent, verdict.patches)


def changed(sent: dict[str, Any], patches: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """A copy with admission's patches."""
    after = copy.deepcopy(sent)
    for patch in patches:
        _add(after, patch)
    return after


def for_another(sent: dict[str, Any], scheduler: str) -> dict[str, Any]:
    """As the user wrote it, for another scheduler: nothing that the bridge adds is in it."""
    return sent | {"spec": sent["spec"] | {"schedulerName": scheduler}}


def pod_group(name: str, members: int) -> dict[str, Any]:
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta, "spec": {"minMember": members}}


def _add(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 6902, as far as admission uses it."""
    if patch["op"] != "add":
        raise ValueError(f"admission's patch is a {patch['op']!r}, and only 'add' is known here")
    *path, last = patch["path"].split("/")[1:]
    place: Any = document
    for part in path:
        place = place[int(part)] if isinstance(place, list) else place[part.replace("~1", "/")]
    if last == "-":
        place.append(patch["value"])
    else:
        place[last] = patch["value"]
