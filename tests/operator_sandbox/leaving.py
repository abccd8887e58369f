"""Workers that come and go under load: no job is lost, whoever wants a worker gone."""

from tests.operator_sandbox.cluster import Cluster

__all__ = [
    "a_kubernetes_node_is_drained",
    "a_new_image_under_load",
    "a_node_is_cordoned",
    "a_nodeset_is_deleted",
    "an_eviction_is_tried",
    "daemons_follow_nodes",
    "scaled_to_zero_and_back",
]

EVERYWHERE = """
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata: {name: everywhere, namespace: slurm}
spec:
  controllerRef: {name: slurm}
  scalingMode: DaemonSet
  slurmd: {image: "sandbox/slurmd:1"}
  oversubscribeNode: true
  partition: {enabled: true}
  template: {spec: {nodeSelector: {pool: extra}, hostname: daemon-}}
"""


def scaled_to_zero_and_back(cluster: Cluster) -> None:
    job = cluster.submit("sleep 12", "--partition=compute")
    busy = cluster.until_job(job, "RUNNING")["NodeList"]
    idle = "compute-1" if busy == "compute-0" else "compute-0"
    cluster.kubectl("scale", "nodeset", "compute", "--replicas=0")
    cluster.until("the idle worker was gone", lambda: idle not in cluster.workers("compute"), 60)
    if cluster.job(job)["JobState"] == "RUNNING":
        assert busy in cluster.workers("compute")
    ended = cluster.until_job(job, "COMPLETED")
    assert (ended["Restarts"], ended["ExitCode"]) == ("0", "0:0")
    cluster.until("the busy worker was gone", lambda: not cluster.workers("compute"), 60)
    waiting = cluster.submit("true", "--partition=compute", "--nodes=2")
    cluster.kubectl("scale", "nodeset", "compute", "--replicas=2")
    cluster.until_job(waiting, "COMPLETED")


def a_new_image_under_load(cluster: Cluster) -> None:
    cluster.until_idle("compute-0", "compute-1")
    jobs = [cluster.submit("sleep 4", "--partition=compute", "--ntasks=1") for _ in range(8)]
    cluster.patch("nodeset", "compute", {"spec": {"slurmd": {"image": "sandbox/slurmd:2"}}})

    def all_new() -> bool:
        images = [pod["spec"]["containers"][0]["image"] for pod in cluster.workers("compute").values()]
        return images == ["sandbox/slurmd:2"] * 2

    cluster.until("all workers had the new image", all_new, 180)
    for job in jobs:
        ended = cluster.until_job(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", seconds=180)
        assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")
    cluster.until("the NodeSet said so", lambda: cluster.get("nodeset", "compute")["status"]["updatedReplicas"] == 2)
    cluster.until_idle("compute-0", "compute-1")


def a_node_is_cordoned(cluster: Cluster) -> None:
    """A drain of the administrator's own is left alone."""
    cluster.until_idle("compute-0", "compute-1")
    node = cluster.get("pod", "compute-0")["spec"]["nodeName"]
    cluster.login("scontrol", "update", "NodeName=compute-1", "State=DRAIN", "Reason=mine")
    cluster.kubectl("cordon", node)
    cluster.until("Slurm drained compute-0", lambda: cluster.states()["compute-0"] in ("drained", "draining"), 15)
    status, reason = cluster.condition("pod", "compute-0", "SlurmNodeStateDrain")
    cluster.until("its pod said so", lambda: cluster.condition("pod", "compute-0", "SlurmNodeStateDrain")[0] == "True", 15)
    assert "slurm-operator: " in cluster.login("scontrol", "show", "node", "compute-0"), (status, reason)
    cluster.kubectl("uncordon", node)
    cluster.until_idle("compute-0", seconds=20)
    assert cluster.states()["compute-1"] == "drained"
    cluster.login("scontrol", "update", "NodeName=compute-1", "State=RESUME")
    cluster.until_idle("compute-1")


def an_eviction_is_tried(cluster: Cluster) -> None:
    job = cluster.submit("sleep 600", "--nodelist=compute-0", "--partition=compute")
    cluster.until_job(job, "RUNNING")
    protect = "nodeset.slinky.slurm.net/pod-protect"
    cluster.until("the pod was protected", lambda: cluster.get("pod", "compute-0")["metadata"]["labels"].get(protect) == "true", 15)
    node = cluster.get("pod", "compute-0")["spec"]["nodeName"]
    refused = cluster.kubectl(
        "drain", node, "--pod-selector=nodeset.slinky.slurm.net/pod-name=compute-0", "--force", "--timeout=4s", check=False
    )
    assert "compute-0" in cluster.workers("compute"), refused
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.login("scancel", str(job))
    cluster.kubectl("uncordon", node)
    cluster.until_idle("compute-0")


def a_kubernetes_node_is_drained(cluster: Cluster) -> None:
    """`kubectl drain` waits until the job has ended, and then ends itself."""
    job = cluster.submit("sleep 12", "--nodelist=compute-0", "--partition=compute")
    cluster.until_job(job, "RUNNING")
    node = cluster.get("pod", "compute-0")["spec"]["nodeName"]
    cluster.kubectl("drain", node, "--pod-selector=nodeset.slinky.slurm.net/pod-name=compute-0", "--force", "--timeout=100s")
    ended = cluster.job(job)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")
    cluster.kubectl("uncordon", node)
    cluster.until_idle("compute-0")


def daemons_follow_nodes(cluster: Cluster) -> None:
    cluster.kubectl("label", "node", "node-0", "pool=extra")
    cluster.kubectl("apply", "--filename=-", written=EVERYWHERE)
    cluster.until("node-0 had its worker", lambda: [p["spec"]["nodeName"] for p in cluster.workers("everywhere").values()] == ["node-0"])
    cluster.kubectl("label", "node", "node-1", "pool=extra")
    cluster.until("node-1 too", lambda: {p["spec"]["nodeName"] for p in cluster.workers("everywhere").values()} == {"node-0", "node-1"}, 20)
    cluster.until("both ran a job", lambda: cluster.login("srun", "--partition=daemon", "--nodes=2", "--immediate=5", "hostname"))
    cluster.kubectl("label", "node", "node-1", "pool-")
    cluster.until("node-1 lost it", lambda: [p["spec"]["nodeName"] for p in cluster.workers("everywhere").values()] == ["node-0"], 60)


def a_nodeset_is_deleted(cluster: Cluster) -> None:
    job = cluster.submit("sleep 8", "--partition=small")
    cluster.until_job(job, "RUNNING")
    cluster.kubectl("delete", "nodeset", "small", "--wait=false")
    ended = cluster.until_job(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED")
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0")
    cluster.until("the NodeSet was gone", lambda: not cluster.get("nodeset", "small"))
    cluster.until("its partition was gone", lambda: "small" not in cluster.partitions(), 120)
    cluster.until("slurmctld ran on", lambda: cluster.login("scontrol", "ping"))
