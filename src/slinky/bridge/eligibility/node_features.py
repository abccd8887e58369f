"""Features that a pod needs of the kubelet, and that a node must declare for that (Kubernetes 1.36 on).

Comes in: a pod, a node. Goes out: what is missing. What must stay true: a pod that uses none of them is never refused for one; a server that does not know a feature lets no pod use it.
"""

from slinky.kube.objects import Node, Pod

__all__ = ["feature_refusal", "features_needed"]

RESTART_ALL = "RestartAllContainersOnContainerExits"
USERS_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"


def features_needed(pod: Pod) -> tuple[str, ...]:
    spec, needed = pod.spec, []
    containers = (*spec.containers, *spec.init_containers)
    if any(rule.action == "RestartAllContainers" for container in containers for rule in container.restart_policy_rules):
        needed.append(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        needed.append(USERS_ON_HOST_NETWORK)
    return tuple(needed)


def feature_refusal(needed: tuple[str, ...], node: Node) -> str:
    missing = next((feature for feature in needed if feature not in node.status.declared_features), "")
    return f"node {node.metadata.name} does not declare the feature {missing}, which the pod needs" if missing else ""
