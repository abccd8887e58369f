"""What workers have beside their pods: the headless Service under which their names resolve and the budget that protects those with jobs, one each for a cluster, and of a NodeSet with ssh its sshd_config.

What must stay true: the Service and the budget belong to the Controller, so no NodeSet that comes or goes touches them.
"""

from typing import Any

from slinky.operator import labels, names
from slinky.operator.conf.sshd import worker_sshd_config
from slinky.operator.kinds import NodeSet
from slinky.operator.objects.meta import metadata, resource
from slinky.operator.objects.services import headless
from slinky.operator.objects.view import ClusterView

__all__ = ["cluster_worker_objects", "nodeset_objects"]

MORE_THAN_THERE_ARE = 2**31 - 1


def cluster_worker_objects(site: ClusterView) -> list[dict[str, Any]]:
    """For all NodeSets of a cluster; `controller_objects` has them."""
    selector = dict(labels.cluster_workers(site.name))
    everyone = selector | {labels.COMPONENT: "worker"}
    # Not maxUnavailable: 0, which Kubernetes counts from the NodeSets' replicas: while one is scaled in, its workers with jobs are more than those, and as many of all workers could be evicted.
    budget = {"minAvailable": MORE_THAN_THERE_ARE, "selector": {"matchLabels": selector | {labels.POD_PROTECT: "true"}}}
    return [
        headless(site.controller, names.worker_service(site.name), everyone, selector, daemon="slurmd", port=names.SLURMD_PORT),
        resource("policy/v1", "PodDisruptionBudget", metadata(site.controller, names.worker_budget(site.name), everyone), spec=budget),
    ]


def nodeset_objects(nodeset: NodeSet, _site: ClusterView) -> list[dict[str, Any]]:
    """For one NodeSet, beside its pods."""
    if not nodeset.spec.ssh.enabled:
        return []
    meta = metadata(nodeset, names.ssh_config(nodeset.metadata.name), labels.worker_labels(nodeset))
    return [resource("v1", "ConfigMap", meta, data={"sshd_config": worker_sshd_config(nodeset)})]
