"""Where workers may run: apart from each other, on the node they are for, and there also when the node is cordoned or ill.

What must stay true: a node that Kubernetes loses sight of does not cost its worker its jobs: Slurm judges by its own timeout whether the worker is gone, so no worker is evicted for an unreachable node.
"""

import copy
from typing import Any

from slinky.operator import labels
from slinky.operator.kinds import NodeSet

__all__ = ["keep_apart", "on_node", "tolerations"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def keep_apart() -> dict[str, Any]:
    """One worker to a Kubernetes node: each tells Slurm of the whole node."""
    term = {"labelSelector": {"matchLabels": {labels.APP: "slurmd"}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {_REQUIRED: [term]}}


def tolerations(nodeset: NodeSet) -> list[dict[str, Any]]:
    made = [_tolerated(labels.WORKER_TAINT, "NoExecute")]
    made += [_tolerated(f"node.kubernetes.io/{ill}", "NoExecute") for ill in ("not-ready", "unreachable")]
    if nodeset.spec.is_daemon_set:
        made += [
            _tolerated(f"node.kubernetes.io/{ill}", "NoSchedule")
            for ill in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
        ]
        if nodeset.spec.template.spec.get("hostNetwork"):
            made.append(_tolerated("node.kubernetes.io/network-unavailable", "NoSchedule"))
    return made


def _tolerated(taint: str, effect: str) -> dict[str, Any]:
    return {"key": taint, "operator": "Exists", "effect": effect}


def on_node(pod: dict[str, Any], node: str, *, alone: bool) -> dict[str, Any]:
    """Nowhere but on `node`; `alone`: whatever else the pod asks of a node was judged before."""
    made = copy.deepcopy(pod)
    affinity = made.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = [] if alone else (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity[_REQUIRED] = {"nodeSelectorTerms": [term | {"matchFields": [*term.get("matchFields", []), name]} for term in terms or [{}]]}
    return made
