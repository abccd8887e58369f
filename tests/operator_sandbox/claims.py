"""Volumes that each worker has of its own, on real nodes: what was written there is found again as long as the policy keeps the claim."""

from tests.operator_sandbox.cluster import Cluster

__all__ = ["claims_are_kept_as_the_policy_says"]

WITH_SCRATCH = """
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata: {name: scratchy, namespace: slurm}
spec:
  controllerRef: {name: slurm}
  replicas: 1
  oversubscribeNode: true
  partition: {enabled: true}
  persistentVolumeClaimRetentionPolicy: {whenScaled: Retain, whenDeleted: Delete}
  volumeClaimTemplates:
    - metadata: {name: scratch}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  slurmd:
    image: "sandbox/slurmd:1"
    volumeMounts: [{name: scratch, mountPath: /scratch}]
"""
CLAIM, WORKER, NOTE = "scratch-scratchy-0", "scratchy-0", "/scratch/note"


def claims_are_kept_as_the_policy_says(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--filename=-", written=WITH_SCRATCH)
    cluster.until_idle(WORKER)
    cluster.on(WORKER, "sh", "-c", f"echo first > {NOTE}")
    claim = cluster.get("persistentvolumeclaim", CLAIM)
    assert claim["status"]["phase"] == "Bound"
    _again(cluster)
    assert cluster.on(WORKER, "cat", NOTE).strip() == "first"
    assert cluster.get("persistentvolumeclaim", CLAIM)["metadata"]["uid"] == claim["metadata"]["uid"], "what is retained stays"
    cluster.patch("nodeset", "scratchy", {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}})
    _scaled(cluster, 0)
    cluster.until("the claim was gone", lambda: not cluster.get("persistentvolumeclaim", CLAIM))
    cluster.until("its volume was gone", lambda: not cluster.get("persistentvolume", claim["spec"]["volumeName"]))
    _scaled(cluster, 1)
    cluster.until_idle(WORKER)
    assert cluster.on(WORKER, "ls", "/scratch").strip() == ""
    cluster.kubectl("delete", "nodeset", "scratchy", "--wait=false")
    cluster.until("the NodeSet was gone", lambda: not cluster.get("nodeset", "scratchy"))
    cluster.until("its claim was gone too", lambda: not cluster.get("persistentvolumeclaim", CLAIM))


def _again(cluster: Cluster) -> None:
    """Scaled away and back."""
    _scaled(cluster, 0)
    _scaled(cluster, 1)
    cluster.until_idle(WORKER)


def _scaled(cluster: Cluster, count: int) -> None:
    cluster.kubectl("scale", "nodeset", "scratchy", f"--replicas={count}")
    cluster.until(f"there were {count} workers", lambda: len(cluster.workers("scratchy")) == count)
