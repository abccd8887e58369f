"""Every finding there is, in one table: what it means and what to change. docs/explain.md and docs/doctor.md are made from it.

What must stay true: each entry has a test that brings it about.
"""

from collections.abc import Mapping

from slinky.explain.findings import Entry, Severity

__all__ = ["AREAS", "CATALOGUE", "entry"]

NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR

# In the order in which they are told. Those from `configuration` to `clock` are looked at by the doctor, the others by explain; `sides` by both.
AREAS: Mapping[str, str] = {
    "sides": "Whether both sides answer",
    "pod": "A pod",
    "job": "A job in Slurm",
    "node": "A node",
    "configuration": "The bridge's configuration",
    "versions": "Versions",
    "token": "The Slurm token",
    "partition": "Partitions",
    "nodes": "Nodes on both sides",
    "gres": "GRES and gres.conf",
    "scheduler": "Slurm's scheduler",
    "grace": "Grace times",
    "rights": "Rights in Kubernetes (RBAC)",
    "webhooks": "Webhooks",
    "leader": "The bridge's leader",
    "clock": "Clocks",
}

# fmt: off
_ENTRIES = (
    # Both sides
    Entry("kubernetes-unreachable", "sides", ERROR, "The API server does not answer.", "check that it runs and that the kubeconfig (--kubeconfig, KUBECONFIG) names the right address"),
    Entry("kubernetes-unauthorized", "sides", ERROR, "The API server does not believe who asks.", "log in again, or give another --kubeconfig: its token or certificate is expired or revoked"),
    Entry("kubernetes-forbidden", "sides", WARNING, "Who asks may not read something, so what depends on it is not judged.", "ask as somebody who may: {what}"),
    Entry("slurm-unreachable", "sides", ERROR, "slurmrestd does not answer.", "start slurmrestd (systemctl status slurmrestd), or correct slurmRestApi, which is {url}"),
    Entry("slurm-controller-down", "sides", ERROR, "slurmrestd answers, slurmctld does not.", "start slurmctld on {host} (systemctl status slurmctld; its log says why it ended)"),
    Entry("slurm-token-unreadable", "sides", ERROR, "There is no token to ask Slurm with.", "write one where {file} is looked for (`scontrol token username=slurm lifespan=…`), or name the right file: slurm.tokenFile in the configuration"),
    Entry("slurm-token-expired", "sides", ERROR, "The Slurm token's time is up.", "renew it: `scontrol token username={user} lifespan=86400`, into {file}; it is read again by itself"),
    Entry("slurm-token-refused", "sides", ERROR, "Slurm does not believe the token.", "make it with the key that slurmctld has now (AuthAltParameters=jwt_key=…), for a user that slurmctld's host knows; the token's user is {user}"),
    Entry("slurm-forbidden", "sides", WARNING, "Slurm does not tell the token's user something, so what depends on it is not judged.", "use a token of an administrator of Slurm; this one's user is {user}"),
    # Pods
    Entry("pod-not-found", "pod", ERROR, "There is no such pod.", "look for its name: kubectl get pods -n {namespace}"),
    Entry("pod-over", "pod", NOTE, "The pod has ended.", ""),
    Entry("pod-running", "pod", NOTE, "The pod is on its node.", ""),
    Entry("pod-container-waiting", "pod", WARNING, "The pod has its node, and a container does not start there: Slurm has no part in it.", "kubectl describe pod {pod} -n {namespace}"),
    Entry("pod-leaving", "pod", NOTE, "The pod is being deleted; its job's share ends when its containers are gone.", "wait; where its node is gone for good, taint the Node node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
    Entry("pod-not-ours", "pod", NOTE, "Its namespace is not managed: Kubernetes' own scheduler places it, Slurm does not know it.", "to have Slurm schedule it: set schedulerName {scheduler}, or have namespace {namespace} managed ({managed}), and create the pod anew"),
    Entry("pod-missed-by-webhook", "pod", ERROR, "Its namespace is managed, but the webhook was not asked when the pod was made, so that another scheduler has it.", "delete the pod, so that it is made anew; `slinky doctor` tells whether the webhook is there now"),
    Entry("pod-of-daemonset", "pod", NOTE, "Pods of DaemonSets are never taken over by Slurm.", ""),
    Entry("pod-gated-by-kueue", "pod", WARNING, "Kueue holds the pod back: it goes to Slurm when Kueue admits it.", "kubectl get workloads -n {namespace}; or take the label kueue.x-k8s.io/queue-name off, as one queue is enough"),
    Entry("pod-gated", "pod", WARNING, "A scheduling gate holds the pod back: it goes to Slurm when whoever set the gate takes it off.", "ask whoever sets the gate {gate}"),
    Entry("bridge-not-running", "pod", ERROR, "No bridge leads, so nothing is submitted or bound.", "start it: kubectl -n {namespace} get pods, and the log of slurm-bridge; `slinky doctor` looks further"),
    Entry("pod-unheeded", "pod", WARNING, "A bridge leads, and says nothing about the pod, which has no job.", "look into the bridge's log for {pod}; check that its scheduler's name is the pod's"),
    Entry("pod-just-arrived", "pod", NOTE, "The bridge has not had the time to say anything.", ""),
    Entry("pod-account-unknown", "pod", ERROR, "Slurm does not take the job: no such account, or the user has no association with it.", "name another account ({key}), or make it: sacctmgr add account …, sacctmgr add user … account=…"),
    Entry("pod-qos-refused", "pod", ERROR, "Slurm does not take the job: that QoS does not exist, or the account may not use it.", "name another QoS ({key}), or allow it: sacctmgr modify account … set qos+=…"),
    Entry("pod-partition-unknown", "pod", ERROR, "Slurm does not take the job: there is no such partition, or the account may not use it.", "name another partition ({key}); there is {partitions}"),
    Entry("pod-too-large", "pod", ERROR, "No node of its partition could ever hold it.", "ask for less, or for another partition; `slinky translate` shows what is asked of a node"),
    Entry("pod-nowhere", "pod", ERROR, "Kubernetes would take it on no node of its partition.", "change its nodeSelector, affinity, tolerations or volumes, or the nodes' labels and taints (docs/bridge-eligibility.md)"),
    Entry("pod-not-allowed", "pod", ERROR, "The site's policy does not allow what the pod's annotations say.", "take the annotation off, or have policy of the bridge's configuration allow it for namespace {namespace}"),
    Entry("pod-parked", "pod", ERROR, "The job is refused; it is tried again after a minute, then more and more rarely.", "mend what the message names; the pod need not be made anew"),
    Entry("pod-window", "pod", NOTE, "Enough jobs of its namespace, or of all, wait in Slurm already.", "wait, or raise windows.namespace ({window}) or windows.total ({total}), or the rule's window"),
    Entry("pod-gathering", "pod", NOTE, "Not all pods of its gang are there: the gang is queued when they are.", "see why the others are not made: kubectl describe the Job, JobSet, LeaderWorkerSet or PodGroup; a quota may be in the way"),
    Entry("pod-waits-for-volumes", "pod", WARNING, "A volume claim keeps it from being submitted or bound.", "kubectl get pvc -n {namespace}; kubectl describe the claim that the message names"),
    Entry("pod-node-not-free", "pod", WARNING, "Slurm gave it a node on which Kubernetes still counts another pod.", "wait until that pod's containers are gone; if they never are: kubectl describe the pod that the message names"),
    Entry("pod-surplus", "pod", NOTE, "Its gang's job was submitted for fewer pods.", "wait until a slot is free; or delete a pod of the gang"),
    Entry("job-unknown", "pod", ERROR, "The pod's label names a job that Slurm does not know.", "nothing is done to the pod; if many are so, see docs/operations.md, Slurm; if only this one, it is submitted again by itself"),
    Entry("pod-lost", "pod", WARNING, "The pod runs, and Slurm has lost its job: its node may be given to others.", "let it end, or delete it; see docs/operations.md, double booking"),
    Entry("pod-job-over", "pod", NOTE, "Its job has ended in Slurm: the pod is being evicted, or queued again.", ""),
    # Jobs
    Entry("job-not-found", "job", ERROR, "Slurm does not know the job (any more).", "sacct -j {job} tells of jobs of the past"),
    Entry("job-running", "job", NOTE, "The job runs.", ""),
    Entry("job-over", "job", NOTE, "The job has ended.", ""),
    Entry("job-failed", "job", WARNING, "The job has ended, and not well.", "{advice}"),
    Entry("job-suspended", "job", WARNING, "The job is suspended; pods run on all the same.", "scontrol resume {job}"),
    Entry("job-held-admin", "job", ERROR, "An administrator holds the job, or its priority is 0.", "scontrol release {job} (an administrator; its owner cannot)"),
    Entry("job-held-user", "job", ERROR, "Its owner holds the job.", "scontrol release {job}"),
    Entry("job-dependency", "job", NOTE, "It waits for another job.", "scontrol show job of those in {dependency}; or drop it: scontrol update JobId={job} Dependency="),
    Entry("job-dependency-never", "job", ERROR, "What it waits for can never come true: the other job ended otherwise.", "drop the dependency (scontrol update JobId={job} Dependency=), or end it: {end}"),
    Entry("job-begin-time", "job", NOTE, "Its begin time has not come.", "wait, or scontrol update JobId={job} StartTime=now"),
    Entry("job-partition-down", "job", ERROR, "Its partition is not up.", "scontrol update PartitionName={partition} State=UP"),
    Entry("job-partition-limit", "job", ERROR, "It asks for more time or nodes than its partition allows.", "ask for less, or raise the partition's limit: scontrol update PartitionName={partition} MaxTime=… MaxNodes=…"),
    Entry("job-nodes-unavailable", "job", ERROR, "No node of its partition takes jobs.", "mend the nodes, then: scontrol update NodeName={nodes} State=RESUME; `slinky explain node NAME` tells of one"),
    Entry("job-some-nodes-unavailable", "job", NOTE, "Some nodes of its partition take no jobs.", "`slinky explain node NAME` tells of each"),
    Entry("job-reservation-in-the-way", "job", WARNING, "Nodes that it could have are reserved for others, now or before it could end.", "ask for a time limit that ends before the reservation begins ({begins}), or for the reservation itself; an administrator: scontrol delete ReservationName={reservation}"),
    Entry("job-reservation-not-begun", "job", NOTE, "Its own reservation has not begun, or is full.", "wait; scontrol show reservation {reservation}"),
    Entry("job-qos-limit", "job", WARNING, "A limit of its QoS is reached.", "wait until jobs of that QoS end, use another QoS, or raise the limit: sacctmgr show qos {qos}"),
    Entry("job-account-limit", "job", WARNING, "A limit of its account or user is reached.", "wait until jobs of account {account} end, use another account, or raise the limit: sacctmgr show assoc account={account}"),
    Entry("job-account-invalid", "job", ERROR, "Its account or QoS is not valid any more.", "scontrol update JobId={job} Account=… QOS=…, or bring it back: sacctmgr show assoc account={account}"),
    Entry("job-licenses", "job", NOTE, "Its licenses are in use.", "wait; scontrol show licenses"),
    Entry("job-constraints", "job", ERROR, "No node has the features that it asks for.", "change the pod's nodeSelector or affinity, or give nodes the feature; it asks for {features}"),
    Entry("job-resources", "job", NOTE, "Not enough is free yet: it is next as soon as it fits.", "wait; or ask for less, or for a shorter time, so that it fits into a gap (backfill)"),
    Entry("job-priority", "job", NOTE, "Others go first.", "wait; a shorter time limit lets it fit into gaps (backfill); sprio -j {job} shows what its priority is made of"),
    Entry("job-waits", "job", NOTE, "It waits for a reason that has no entry of its own here.", "Slurm's manual page squeue(1), JOB REASON CODES, has its meaning"),
    # Nodes
    Entry("node-not-found", "node", ERROR, "Neither side has such a node.", "kubectl get nodes; sinfo -N"),
    Entry("node-not-in-kubernetes", "node", NOTE, "Slurm has the node, Kubernetes has none of that name.", "nothing, where it is Slurm's alone; else give the Node the label slinky.slurm.net/slurm-nodename={node}"),
    Entry("node-not-registered", "node", ERROR, "Kubernetes has the node, Slurm does not: no pod of Slurm's goes there.", "{advice}"),
    Entry("node-not-ready", "node", ERROR, "The Node is not Ready.", "repair its kubelet; the bridge drains it in Slurm meanwhile and resumes it by itself"),
    Entry("node-cordoned", "node", WARNING, "The Node is cordoned.", "kubectl uncordon {node}; the bridge then resumes it in Slurm, where it drained it"),
    Entry("node-cordoned-for-slurm", "node", WARNING, "The bridge cordoned the Node, because Slurm does not use it.", "mend the cause in Slurm: scontrol update NodeName={node} State=RESUME; the cordon goes by itself"),
    Entry("node-drained", "node", WARNING, "Somebody drained the node in Slurm.", "when the reason is over: scontrol update NodeName={node} State=RESUME"),
    Entry("node-drained-by-bridge", "node", NOTE, "The bridge drained the node in Slurm, and resumes it by itself.", "mend the cause in Kubernetes, which the reason names"),
    Entry("node-down", "node", ERROR, "Slurm counts the node as down.", "mend it, then: scontrol update NodeName={node} State=RESUME"),
    Entry("node-not-responding", "node", ERROR, "slurmctld got no answer from the node, and gives it no new jobs.", "{advice}"),
    Entry("node-address-missing", "node", WARNING, "Slurm's node has its name as address: where slurmctld cannot resolve it, each allocation stalls for ten seconds.", "register it with NodeAddr={address}: take the label scheduler.slinky.slurm.net/external-node off the Node, and put it on again; or make the name resolve on slurmctld's host"),
    Entry("node-without-partition", "node", WARNING, "The node is in no partition.", "give it the feature of a NodeSet that a partition has (nodes.features, annotation scheduler.slinky.slurm.net/external-node-partitions), or add it: scontrol update PartitionName=… Nodes=+{node}"),
    Entry("node-gres-mismatch", "node", ERROR, "Kubernetes and Slurm count its devices differently.", "{advice}"),
    Entry("node-reserved", "node", NOTE, "The node is reserved.", "scontrol show reservation {reservation}"),
    Entry("node-full", "node", NOTE, "All its CPUs are given away.", ""),
    Entry("node-fine", "node", NOTE, "Both sides use the node.", ""),
    # The doctor's
    Entry("config-unreadable", "configuration", ERROR, "The configuration file is missing or wrong.", "mend {file}; docs/bridge-configuration.md has all keys; or name another with --config"),
    Entry("config-manages-nothing", "configuration", WARNING, "No namespace is managed: only pods that name the scheduler themselves go to Slurm.", "name some in managedNamespaces, or set managedNamespaceSelector and label namespaces"),
    Entry("config-namespace-missing", "configuration", WARNING, "A managed namespace does not exist.", "kubectl create namespace {namespace}, or take it out of managedNamespaces"),
    Entry("kubernetes-version", "versions", WARNING, "Kubernetes is older than what the bridge is tried with (1.35 and later).", "upgrade the cluster; some kinds of groups and labels at binding are missing until then"),
    Entry("slurm-version", "versions", ERROR, "Slurm is too old: external jobs with allocations told by REST come with 25.11, all that the bridge does with 26.05.", "upgrade slurmctld and slurmrestd to 26.05 or later"),
    Entry("token-user", "token", ERROR, "The token's user is no administrator of Slurm: jobs cannot be submitted for others, and their comments not written.", "use a token of root or SlurmUser (`scontrol token username={admin}`), or make the user one: sacctmgr modify user {user} set adminlevel=admin"),
    Entry("token-expires", "token", WARNING, "The token's time is up soon.", "renew it into {file}: `scontrol token username={user} lifespan=86400`; let a CronJob or the operator's Token do it"),
    Entry("token-without-end", "token", NOTE, "The token holds for years, or says no end.", "prefer short ones that are renewed: the operator's kind Token does that"),
    Entry("partition-missing", "partition", ERROR, "The configuration's partition does not exist.", "add to slurm.conf `NodeSet={partition} Feature={partition}` and `PartitionName={partition} Nodes={partition} State=UP`, then scontrol reconfigure; or change `partition`"),
    Entry("partition-down", "partition", ERROR, "The configuration's partition is not up.", "scontrol update PartitionName={partition} State=UP"),
    Entry("partition-empty", "partition", ERROR, "The configuration's partition has no nodes.", "label Nodes scheduler.slinky.slurm.net/external-node=true, or add nodes to the partition"),
    Entry("partition-unavailable", "partition", ERROR, "No node of the configuration's partition takes jobs.", "mend the nodes, then: scontrol update NodeName={nodes} State=RESUME"),
    Entry("nodes-unregistered", "nodes", ERROR, "Nodes are labelled for Slurm, and Slurm does not have them.", "{advice}"),
    Entry("nodes-none-labelled", "nodes", WARNING, "Nodes are to be registered, and none is labelled.", "kubectl label node NAME scheduler.slinky.slurm.net/external-node=true"),
    Entry("nodes-address-missing", "nodes", WARNING, "External nodes have their names as addresses: where slurmctld cannot resolve them, each allocation stalls for ten seconds.", "make the names resolve on slurmctld's host, or register them with NodeAddr= (`slinky bridge run` does it with the Node's InternalIP)"),
    Entry("nodes-not-responding", "nodes", ERROR, "External nodes are NOT_RESPONDING: slurmctld spoke to them and nobody answered; they take no new job.", "start a sink (docs/bridge.md, The sink) and set nodes.sink; then take the label scheduler.slinky.slurm.net/external-node off these Nodes, and put it on again when they are empty"),
    Entry("nodes-drained", "nodes", WARNING, "Nodes are drained or down, and not by the bridge.", "sinfo -R; when the reason is over: scontrol update NodeName={nodes} State=RESUME"),
    Entry("gres-type-missing", "gres", ERROR, "The configuration maps a resource to a GRES that Slurm does not know.", "add {gres} to GresTypes in slurm.conf, and restart slurmctld; or take {resource} out of `gres`"),
    Entry("gres-mismatch", "gres", ERROR, "Kubernetes and Slurm count a node's devices differently.", "external nodes: take the label scheduler.slinky.slurm.net/external-node off and put it on again; nodes with a slurmd: correct `NodeName={node} Gres=` in slurm.conf and `NodeName={node} Name={gres} File=…` in gres.conf"),
    Entry("select-type", "scheduler", ERROR, "Slurm gives away whole nodes: SelectType is not select/cons_tres.", "SelectType=select/cons_tres and SelectTypeParameters=CR_Core_Memory in slurm.conf, and restart slurmctld"),
    Entry("scheduler-delay", "scheduler", WARNING, "Slurm waits before it looks at new jobs, which every pod then waits too.", "SchedulerParameters={parameters} in slurm.conf, then scontrol reconfigure"),
    Entry("queue-depth", "scheduler", WARNING, "Slurm looks at few jobs of the queue at a time.", "add default_queue_depth=1000 (and bf_max_job_test=1000) to SchedulerParameters in slurm.conf, then scontrol reconfigure"),
    Entry("max-job-count", "scheduler", WARNING, "Slurm's job table is smaller than what the bridge may queue: submits are refused when it is full, everyone's.", "MaxJobCount={count} or more in slurm.conf, and restart slurmctld; or a smaller windows.total (it is {total})"),
    Entry("min-job-age", "scheduler", WARNING, "Slurm forgets ended jobs so soon that the bridge may miss how they ended.", "MinJobAge=300 in slurm.conf, then scontrol reconfigure"),
    Entry("no-accounting", "scheduler", NOTE, "There is no slurmdbd: how jobs ended that Slurm has forgotten cannot be found out.", "AccountingStorageType=accounting_storage/slurmdbd, with a slurmdbd"),
    Entry("grace-too-short", "grace", WARNING, "Pods ask for longer to end than Slurm gives a preempted job: Slurm gives their nodes away while they still run.", "{advice}"),
    Entry("grace-without-sink", "grace", ERROR, "A GraceTime, external nodes and no sink: after the first preemption the job's nodes turn NOT_RESPONDING for good.", "start a sink and set nodes.sink (docs/bridge.md, The sink), or set GraceTime=0"),
    Entry("rights-missing", "rights", ERROR, "The bridge may not do something that it needs to.", "kubectl apply -f examples/bridge-rbac.yaml, or add to its ClusterRole: {rule}"),
    Entry("rights-missing-optional", "rights", NOTE, "The bridge may not do something that only some features need.", "{advice}"),
    Entry("webhook-missing", "webhooks", ERROR, "A webhook configuration is not there: pods of managed namespaces go to the default scheduler.", "start `slinky bridge admission`, which writes it; or `slinky bridge webhooks | kubectl apply -f -`"),
    Entry("webhook-other", "webhooks", WARNING, "A webhook configuration is not what this configuration file says.", "restart `slinky bridge admission` with this configuration; `slinky bridge webhooks` prints what is right"),
    Entry("webhook-without-authority", "webhooks", ERROR, "A webhook has no caBundle: the API server trusts no certificate of it.", "start `slinky bridge admission`, which writes it; with cert-manager, annotate the configuration cert-manager.io/inject-ca-from"),
    Entry("webhook-wrong-authority", "webhooks", ERROR, "The webhook's caBundle did not sign its certificate: every pod of a managed namespace is refused.", "restart `slinky bridge admission`, which writes it again; with cert-manager, check inject-ca-from"),
    Entry("webhook-certificate-expired", "webhooks", ERROR, "The webhook's certificate is not valid (any more).", "kubectl -n {namespace} delete secret {secret}, and restart `slinky bridge admission`, which makes another"),
    Entry("webhook-without-endpoint", "webhooks", ERROR, "Nobody answers behind the webhook's Service: pods of managed namespaces are refused.", "start `slinky bridge admission`: kubectl -n {namespace} get pods, endpointslices"),
    Entry("leader-missing", "leader", ERROR, "There is no Lease: no bridge has ever led here.", "start `slinky bridge run` with this configuration (namespace {namespace}, leader.name {name})"),
    Entry("leader-nobody", "leader", ERROR, "The Lease is held by nobody, or by one that does not renew it: nothing is submitted or bound.", "start `slinky bridge run`: kubectl -n {namespace} get pods, and its log"),
    Entry("clock-kubernetes", "clock", WARNING, "The API server's clock and the one here differ.", "run an NTP client (chrony) on both hosts"),
    Entry("clock-slurm", "clock", ERROR, "slurmctld's clock and the one here differ: tokens are refused as not yet or no longer valid, and start times are wrong.", "run an NTP client (chrony) on both hosts"),
)
# fmt: on

CATALOGUE: Mapping[str, Entry] = {entry.code: entry for entry in _ENTRIES}


def entry(code: str) -> Entry:
    return CATALOGUE[code]
