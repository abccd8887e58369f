"""Workers by number: Kubernetes' own autoscaler, and `kubectl scale`."""

import json

from tests.operator_sandbox.cluster import Cluster

__all__ = ["an_autoscaler_has_its_way"]


def an_autoscaler_has_its_way(cluster: Cluster) -> None:
    """A HorizontalPodAutoscaler (autoscaling/v2) reads and writes the scale subresource. Nobody measures pods here, so what it does by its bounds alone is what is seen."""
    scale = json.loads(cluster.kubectl("get", "--raw", "/apis/slinky.slurm.net/v1beta1/namespaces/slurm/nodesets/small/scale"))
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["replicas"]) == ("Scale", 1, 1)
    assert "app.kubernetes.io/instance=small" in scale["status"]["selector"]
    cluster.kubectl("autoscale", "nodeset", "small", "--min=2", "--max=3", "--cpu=50%")
    cluster.until("there were two workers", lambda: set(cluster.workers("small")) == {"small-0", "small-1"})
    cluster.until_idle("small-0", "small-1")
    assert cluster.condition("hpa", "small", "AbleToScale")[0] == "True"
    job = cluster.submit("sleep 15", "--partition=small", "--nodelist=small-1")
    cluster.until_job(job, "RUNNING")
    cluster.patch("hpa", "small", {"spec": {"minReplicas": 1, "maxReplicas": 1}})
    cluster.until("one of them was gone", lambda: len(cluster.workers("small")) == 1)
    ended = cluster.until_job(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED")
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")
    cluster.kubectl("delete", "hpa", "small")
    cluster.kubectl("scale", "nodeset", "small", "--replicas=0")
    cluster.until("there was none", lambda: not cluster.workers("small"))
    cluster.kubectl("scale", "nodeset", "small", "--replicas=1")
    cluster.until_idle("small-0")
