"""Workers that come and go under load: no job is lost, whoever wants a worker gone."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.operator_sandbox.cluster import EXAMPLES, Cluster

__all__ = [
    "a_kubernetes_node_is_drained",
    "a_new_image_under_load",
    "a_node_is_cordoned",
    "a_nodeset_is_deleted",
    "an_eviction_is_tried",
    "daemons_follow_nodes",
    "everything_is_deleted",
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
    try:
        cluster.until("the idle worker was gone", lambda: idle not in cluster.workers("compute"), 60)
        if cluster.job(job)["JobState"] == "RUNNING":
            assert busy in cluster.workers("compute")
        ended = cluster.until_job(job, "COMPLETED")
        assert (ended["Restarts"], ended["ExitCode"]) == ("0", "0:0")
        cluster.until("the busy worker was gone", lambda: not cluster.workers("compute"), 60)
        waiting = cluster.submit("true", "--partition=compute", "--nodes=2")
    finally:  # the tests after this one want them back, whatever was seen here
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
    """The budget refuses it, and says so: nothing that kubectl itself asks for is missing."""
    job = cluster.submit("sleep 600", "--nodelist=compute-0", "--partition=compute")
    cluster.until_job(job, "RUNNING")
    protect = "nodeset.slinky.slurm.net/pod-protect"
    cluster.until("the pod was protected", lambda: cluster.get("pod", "compute-0")["metadata"]["labels"].get(protect) == "true", 15)
    node = cluster.get("pod", "compute-0")["spec"]["nodeName"]
    with drain_of(cluster, node) as drain:
        cluster.until("the budget refused", lambda: "disruption budget" in drain.said(), 30)
        assert drain.is_under_way
    assert "compute-0" in cluster.workers("compute")
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.login("scancel", str(job))
    cluster.kubectl("uncordon", node)
    cluster.until_idle("compute-0", "compute-1")


def a_kubernetes_node_is_drained(cluster: Cluster) -> None:
    """`kubectl drain` of all workers on a node waits until their jobs have ended, and then ends itself; no job is lost."""
    jobs = [cluster.submit("sleep 12", f"--nodelist={name}", "--partition=compute", "--ntasks=1") for name in ("compute-0", "compute-1")]
    for job in jobs:
        cluster.until_job(job, "RUNNING")
    before = cluster.get("pod", "compute-0")
    node = before["spec"]["nodeName"]
    with drain_of(cluster, node) as drain:
        cluster.until("the budget held it up", lambda: "disruption budget" in drain.said(), 30)
        cluster.until("it ended by itself", lambda: not drain.is_under_way)
        assert drain.code == 0, drain.said()
    for ended in (cluster.until_job(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED") for job in jobs):
        assert (ended["JobState"], ended["Restarts"], ended["ExitCode"]) == ("COMPLETED", "0", "0:0")
    now = cluster.get("pod", "compute-0")
    assert now.get("metadata", {}).get("uid") != before["metadata"]["uid"]
    assert not now.get("spec", {}).get("nodeName")  # its place is on the node that is cordoned
    cluster.kubectl("uncordon", node)
    cluster.until_idle("compute-0", "compute-1")


class Drain:
    """`kubectl drain` while it is under way."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log

    def said(self) -> str:
        return self._log.read_text()

    @property
    def is_under_way(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        return self._process.poll()


@contextmanager
def drain_of(cluster: Cluster, node: str) -> Iterator[Drain]:
    """Of a NodeSet's workers there, as an administrator writes it; ended at the end."""
    words = ["drain", node, "--pod-selector=app.kubernetes.io/name=slurmd", "--delete-emptydir-data", "--timeout=120s"]
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        command = [str(cluster.sandbox.folder / "bin/kubectl"), *words]
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
        try:
            yield Drain(process, Path(log.name))
        finally:
            process.terminate()
            process.wait(10)


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


def everything_is_deleted(cluster: Cluster) -> None:
    """slurmctld, and the way to ask it, stay until the last job has ended."""
    cluster.until_idle("compute-0", "compute-1")
    short = cluster.submit("sleep 8", "--nodelist=compute-0", "--partition=compute")
    long = cluster.submit("sleep 600", "--nodelist=compute-1", "--partition=compute")
    waits = cluster.submit("true", "--nodelist=compute-1", "--partition=compute", "--exclusive")
    cluster.until_job(short, "RUNNING")
    cluster.until_job(long, "RUNNING")
    cluster.kubectl("delete", "--wait=false", f"--filename={EXAMPLES / 'cluster.yaml'}")

    def job(number: int) -> dict[str, str]:
        """As slurmctld says it: the login node is gone."""
        told = cluster.on("slurm-controller-0", "scontrol", "--oneliner", "show", "job", str(number))
        return dict(re.findall(r"(\w+)=(\S*)", told))

    cluster.until(
        "the worker that was free was gone", lambda: set(cluster.workers("compute")) == {"compute-1"} and not cluster.workers("small")
    )
    ended = job(short)
    assert (ended["JobState"], ended["Restarts"], ended["ExitCode"]) == ("COMPLETED", "0", "0:0")
    assert (job(long)["JobState"], job(waits)["JobState"]) == ("RUNNING", "PENDING")
    cluster.until(
        "the Controller said what it waits for",
        lambda: "slurmctld stays until NodeSet compute is gone" in cluster.condition("controller", "slurm", "Progressing")[1],
    )
    assert "compute" in cluster.condition("restapi", "slurm", "Progressing")[1]
    cluster.on("slurm-controller-0", "scancel", str(long))
    for kind in ("nodeset", "controller", "restapi", "accounting"):
        cluster.until(f"no {kind} was left", lambda kind=kind: not cluster.kubectl("get", kind, "--output=name").strip())  # type: ignore[misc]
    cluster.until("no daemon was left", lambda: "slurm-" not in cluster.kubectl("get", "pods", "--output=name"))
