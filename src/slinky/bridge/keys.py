"""Every label, annotation, taint and finalizer that the bridge reads or writes, by its exact name: the public Slinky interface, and what we add to it."""

from typing import Final

from slinky.kube.objects import Pod

__all__ = [
    "ABSENCE_CONFIRMED",
    "APART",
    "CLAIM",
    "CLAIM_CONFLICT",
    "CONDITION",
    "CORDONED_FOR_SLURM",
    "DEVICES",
    "DISRUPTION_TARGET",
    "EXTERNAL_NODE",
    "EXTERNAL_NODE_PARTITIONS",
    "FINALIZER",
    "GANG",
    "JOB_ID",
    "LABELLED_UNTIL",
    "MANAGED_NODE",
    "NODE_CONDITION",
    "OLD_SETTINGS",
    "OVERRULED",
    "OWNED_ANNOTATIONS",
    "OWNED_LABELS",
    "POLICY",
    "RANK",
    "SETTINGS",
    "SIGNALLED",
    "SLURM_NODE",
    "SLURM_NODE_NAME",
    "TAKE_OVER",
    "TASK",
    "TASK_ENVIRONMENT",
    "TOPOLOGY",
    "job_id_of",
]

# What users write: annotations on the object that Slurm schedules (pod, Job, PodGroup …).
SETTINGS: Final = "slurmjob.slinky.slurm.net/"
OLD_SETTINGS: Final = "slinky.slurm.net/"  # the same before 1.0 of the original; has no effect, but is still found in examples
GANG: Final = SETTINGS + "gang"  # on a Job: all its pods start together

# What a site may write on namespaces, and its policy may heed.
POLICY: Final = "policy.slinky.slurm.net/"

# What the bridge writes on pods.
JOB_ID: Final = "scheduler.slinky.slurm.net/slurm-jobid"
FINALIZER: Final = "scheduler.slinky.slurm.net/finalizer"
SLURM_NODE: Final = "slinky.slurm.net/slurm-node"
DEVICES: Final = "scheduler.slinky.slurm.net/devices"
SIGNALLED: Final = "scheduler.slinky.slurm.net/signalled"  # for which end of its job its containers got their checkpoint signal
TASK: Final = "task.slinky.slurm.net/"  # the task's environment, by the downward API
RANK: Final = TASK + "procid"  # which a new leader reads too
CONDITION: Final = "slinky.slurm.net/Slurm"
DISRUPTION_TARGET: Final = "DisruptionTarget"  # Kubernetes' own condition of a pod that is evicted
APART: Final = "scheduler.slinky.slurm.net/apart"  # a pod of a group that has no place in the group's job: scheduled by itself

# What an administrator writes on the bridge's Lease: the alarm whose absent jobs are given up.
ABSENCE_CONFIRMED: Final = "slinky.slurm.net/absence-confirmed"
# What a leader writes there for the next one: the moment (seconds since 1970) up to which each job that it submitted has its label on a pod, and, after a slash, the highest job id that it knew.
LABELLED_UNTIL: Final = "slinky.slurm.net/labelled-until"

# On the Lease of the bridge's claim: the claim, and the foreign claim that an administrator lets it take over.
CLAIM: Final = "slinky.slurm.net/claim"
TAKE_OVER: Final = "slinky.slurm.net/take-over"
# What the leader writes there while it does nothing, for `slinky doctor`, `explain` and `top`: the job and its claim.
CLAIM_CONFLICT: Final = "slinky.slurm.net/claim-conflict"

# Nodes.
MANAGED_NODE: Final = "slinky.slurm.net/managed-node"  # taint, its value the scheduler's name
SLURM_NODE_NAME: Final = "slinky.slurm.net/slurm-nodename"
EXTERNAL_NODE: Final = "scheduler.slinky.slurm.net/external-node"
EXTERNAL_NODE_PARTITIONS: Final = "scheduler.slinky.slurm.net/external-node-partitions"
TOPOLOGY: Final = "topology.slinky.slurm.net/spec"
CORDONED_FOR_SLURM: Final = "slinky.slurm.net/cordoned-for-slurm"  # annotation: the bridge cordoned it, for what Slurm says there
OVERRULED: Final = "slinky.slurm.net/overruled"  # annotation: what the bridge did to it and somebody took back
NODE_CONDITION: Final = "slinky.slurm.net/SlurmNode"

# Keys that nobody but the bridge may set on a pod.
OWNED_LABELS: Final = frozenset({JOB_ID})
OWNED_ANNOTATIONS: Final = frozenset({SLURM_NODE, DEVICES, SIGNALLED, APART})


# What a task's container sees. Environment variable → annotation below TASK that the Binding fills; the job's id comes from its label.
TASK_ENVIRONMENT = {
    "SLURM_PROCID": "procid",
    "SLURM_LOCALID": "localid",
    "SLURM_NODEID": "nodeid",
    "SLURM_NTASKS": "ntasks",
    "SLURM_NNODES": "nnodes",
    "SLURM_JOB_NODELIST": "nodelist",
    "SLURMD_NODENAME": "nodename",
    "SLURM_TASKS_PER_NODE": "tasks-per-node",
    "SLURM_CPUS_PER_TASK": "cpus-per-task",
    "SLURM_CPUS_ON_NODE": "cpus-on-node",
    "SLURM_JOB_NAME": "job-name",
    "SLURM_JOB_PARTITION": "partition",
    "SLURM_JOB_ACCOUNT": "account",
    "SLURM_JOB_QOS": "qos",
    "SLURM_JOB_GPUS": "gpus",
}


def job_id_of(pod: Pod) -> int:
    """Return the id of the pod's Slurm job by its label, or 0. Only the bridge may write the label."""
    text = pod.metadata.labels.get(JOB_ID, "")
    return int(text) if text.isascii() and text.isdigit() else 0
