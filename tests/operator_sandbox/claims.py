"""Volumes that each worker has of its own, on real nodes: what was written there is found again as long as the policy keeps the claim."""

from tests.operator_sandbox.cluster import Cluster

__all__ = ["a_state_folder_of_roots_is_named", "claims_are_kept_as_the_policy_says"]

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


ROOTED = """
apiVersion: slinky.slurm.net/v1beta1
kind: Controller
metadata: {name: rooted, namespace: slurm}
spec:
  clusterName: rooted
  slurmctld: {image: "sandbox/slurmctld:1"}
"""
STATE = "/var/spool/slurmctld/rooted"
OWNER = {
    "name": "own-state",
    "image": "sandbox/slurmctld:1",
    "command": ["chown", "-R", "401:401", STATE],
    "securityContext": {
        "runAsUser": 0,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_READ_SEARCH"]},
    },
    "volumeMounts": [{"name": "statesave", "mountPath": STATE}],
}


def a_state_folder_of_roots_is_named(cluster: Cluster) -> None:
    """Volumes of the default StorageClass are folders of the host, which no fsGroup changes: the Controller says whose the folder is. The init container of docs/operator-objects.md mends it."""
    cluster.kubectl("apply", "--filename=-", written=ROOTED)
    wanted = f"no access to the state folder {STATE}: it belongs to 0:0 with mode 755, and slurmctld runs as 401:401"
    cluster.until("the folder was named", lambda: wanted in cluster.condition("controller", "rooted", "Degraded")[1])
    cluster.patch("controller", "rooted", {"spec": {"template": {"spec": {"initContainers": [OWNER]}}}})
    cluster.until("slurmctld ran", lambda: cluster.condition("controller", "rooted", "Ready")[0] == "True")
    cluster.kubectl("delete", "controller", "rooted", "--wait=false")
    cluster.until("it was gone", lambda: not cluster.get("controller", "rooted"))
    cluster.kubectl("delete", "persistentvolumeclaim", "statesave-rooted-controller-0")
