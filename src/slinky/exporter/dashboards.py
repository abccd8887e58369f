"""The dashboards: the cluster, the queue, the bridge, and a user's view.

Pure. Goes out: Grafana's JSON, kept in monitoring/dashboards (`slinky exporter dashboards --directory monitoring/dashboards`). What must stay true: every query returns something on a Slurm with jobs, a reservation, licenses and a bridge; a test asks a real Prometheus.
"""

from typing import Any

from slinky.exporter.panels import Dashboard, Panel, Variable, as_json

__all__ = ["DASHBOARDS", "dashboards"]

RATE = "[$__rate_interval]"

CLUSTER = Dashboard(
    "slurm-cluster",
    "Slurm: cluster",
    (
        (
            Panel(
                "Slurm answers",
                "stat",
                (("min(slurm_up)", ""),),
                help="1 while it does. While it does not, everything else is as old as shown beside.",
            ),
            Panel("Age of what is shown", "stat", (("max(slurm_exporter_snapshot_age_seconds)", ""),), "s"),
            Panel("Nodes", "stat", (("sum(slurm_cluster_nodes)", ""),)),
            Panel(
                "Nodes that take no jobs",
                "stat",
                (('sum(slurm_cluster_nodes{state=~"down|error|failing|not_responding|invalid|drained|draining"})', ""),),
            ),
            Panel("CPUs in use", "stat", (('sum(slurm_cluster_cpus{state="allocated"}) / sum(slurm_cluster_cpus)', ""),), "percentunit"),
            Panel(
                "GPUs in use",
                "stat",
                (('sum(slurm_cluster_gres{gres="gpu",state="allocated"}) / sum(slurm_cluster_gres{gres="gpu"})', ""),),
                "percentunit",
            ),
        ),
        (
            Panel("Nodes by state", "timeseries", (("sum by (state) (slurm_cluster_nodes) > 0", "{{state}}"),), stack=True),
            Panel(
                "CPUs",
                "timeseries",
                (("sum by (state) (slurm_cluster_cpus)", "{{state}}"),),
                stack=True,
                help="Other: of nodes that take no jobs, or kept by Slurm.",
            ),
            Panel("Memory", "timeseries", (("sum by (state) (slurm_cluster_memory_bytes)", "{{state}}"),), "bytes", stack=True),
        ),
        (
            Panel(
                "GPUs and other GRES",
                "timeseries",
                (("sum by (gres, type, state) (slurm_cluster_gres)", "{{gres}} {{type}} {{state}}"),),
                stack=True,
            ),
            Panel(
                "CPUs in use by partition",
                "timeseries",
                (
                    (
                        'sum by (partition) (slurm_partition_capacity_cpus{state="allocated"}) / sum by (partition) (slurm_partition_capacity_cpus)',
                        "{{partition}}",
                    ),
                ),
                "percentunit",
            ),
            Panel("Nodes by partition", "table", (("sum by (partition, state) (slurm_partition_capacity_nodes)", ""),)),
        ),
        (
            Panel(
                "Scheduler: time of a cycle",
                "timeseries",
                ((f"rate(slurm_scheduler_cycle_seconds_total{RATE}) / (rate(slurm_scheduler_cycles_total{RATE}) > 0)", "{{scheduler}}"),),
                "s",
            ),
            Panel("Scheduler: last cycle", "timeseries", (("slurm_scheduler_last_cycle_seconds", "{{scheduler}}"),), "s"),
            Panel(
                "Jobs started and ended",
                "timeseries",
                ((f"sum by (event) (rate(slurm_controller_job_events_total{RATE}))", "{{event}}"),),
                "ops",
            ),
        ),
        (
            Panel(
                "Messages to slurmctld by kind",
                "timeseries",
                ((f"topk(10, sum by (message_type) (rate(slurm_controller_rpcs_total{RATE})))", "{{message_type}}"),),
                "ops",
            ),
            Panel(
                "Time in messages by user",
                "timeseries",
                ((f"topk(10, sum by (user) (rate(slurm_controller_user_rpc_seconds_total{RATE})))", "{{user}}"),),
                "s",
            ),
            Panel(
                "slurmctld's queues",
                "timeseries",
                (
                    ("slurm_controller_agent_queue_messages", "to nodes"),
                    ("slurm_controller_dbd_queue_messages", "to slurmdbd"),
                    ("slurm_controller_threads", "threads"),
                ),
            ),
        ),
        (
            Panel("Licenses", "table", (("sum by (license, state) (slurm_licenses)", ""),)),
            Panel(
                "Reservations",
                "table",
                (
                    ("sum by (reservation) (slurm_reservation_nodes)", ""),
                    ("max by (reservation) (slurm_reservation_end_timestamp_seconds) * 1000", ""),
                ),
                help="Nodes, and when they end.",
            ),
            Panel(
                "Looks at Slurm",
                "timeseries",
                (
                    ("slurm_exporter_look_seconds", "time of the last"),
                    (f"sum by (outcome) (rate(slurm_exporter_looks_total{RATE}))", "{{outcome}} per second"),
                ),
            ),
        ),
    ),
)

PICKED = '{partition=~"$partition",account=~"$account"}'

QUEUE = Dashboard(
    "slurm-queue",
    "Slurm: queue",
    (
        (
            Panel(
                "Running",
                "stat",
                (('sum(slurm_queue_jobs{state="running",partition=~"$partition",account=~"$account"}) or vector(0)', ""),),
            ),
            Panel(
                "Pending",
                "stat",
                (('sum(slurm_queue_jobs{state="pending",partition=~"$partition",account=~"$account"}) or vector(0)', ""),),
            ),
            Panel(
                "CPUs asked for by pending jobs",
                "stat",
                (('sum(slurm_queue_cpus{state="pending",partition=~"$partition",account=~"$account"}) or vector(0)', ""),),
            ),
            Panel("Held", "stat", (('sum(slurm_queue_jobs_flagged{flag="held"})', ""),), help="Of all partitions."),
            Panel("Longest wait", "stat", (('max(slurm_queue_longest_wait_seconds{partition=~"$partition"})', ""),), "s"),
        ),
        (
            Panel(
                "Jobs by state",
                "timeseries",
                ((f"sum by (state) (slurm_queue_jobs{PICKED}) > 0", "{{state}}"),),
                stack=True,
                help="Jobs that are over are told as long as slurmctld remembers them (MinJobAge).",
            ),
            Panel(
                "Why jobs wait",
                "timeseries",
                (('sum by (reason) (slurm_queue_pending_jobs{partition=~"$partition"})', "{{reason}}"),),
                stack=True,
            ),
        ),
        (
            Panel(
                "Running jobs by partition",
                "timeseries",
                (('sum by (partition) (slurm_queue_jobs{state="running",partition=~"$partition",account=~"$account"})', "{{partition}}"),),
                stack=True,
            ),
            Panel(
                "Pending jobs by partition",
                "timeseries",
                (('sum by (partition) (slurm_queue_jobs{state="pending",partition=~"$partition",account=~"$account"})', "{{partition}}"),),
                stack=True,
            ),
            Panel(
                "Jobs by QoS",
                "timeseries",
                ((f'sum by (qos, state) (slurm_queue_jobs{PICKED[:-1]},state=~"running|pending"}})', "{{qos}} {{state}}"),),
                stack=True,
            ),
        ),
        (
            Panel(
                "CPUs by account",
                "timeseries",
                (
                    (
                        'topk(15, sum by (account) (slurm_queue_cpus{state="running",partition=~"$partition",account=~"$account"}))',
                        "{{account}}",
                    ),
                ),
                stack=True,
            ),
            Panel(
                "CPUs by user",
                "timeseries",
                (('topk(15, sum by (user) (slurm_queue_cpus{state="running",partition=~"$partition",account=~"$account"}))', "{{user}}"),),
                stack=True,
            ),
            Panel(
                "GPUs by user",
                "timeseries",
                (
                    (
                        'topk(15, sum by (user) (slurm_queue_gres{gres="gpu",state="running",partition=~"$partition",account=~"$account"}))',
                        "{{user}}",
                    ),
                ),
                stack=True,
            ),
        ),
        (
            Panel(
                "Fair share: use against shares, by account",
                "table",
                (
                    ('sum by (account) (slurm_fairshare_usage_ratio{user=""})', ""),
                    ('sum by (account) (slurm_fairshare_shares_ratio{user=""})', ""),
                ),
            ),
            Panel("Fair-share factor, lowest users", "table", (("bottomk(20, slurm_fairshare_factor)", ""),)),
        ),
    ),
    (Variable("partition", "slurm_queue_jobs", "partition"), Variable("account", "slurm_queue_jobs", "account")),
)

BRIDGE = Dashboard(
    "slurm-bridge",
    "Slurm: bridge",
    (
        (
            Panel("Somebody leads", "stat", (("max(slinky_leader)", ""),)),
            Panel("Pods running", "stat", (('sum(slinky_bridge_pods{state="running"})', ""),)),
            Panel("Pods waiting in Slurm", "stat", (('sum(slinky_bridge_pods{state="pending"})', ""),)),
            Panel("Jobs absent from Slurm", "stat", (("sum(slinky_bridge_absent_jobs)", ""),)),
            Panel("Nodes", "stat", (("sum(slinky_bridge_nodes) or vector(0)", ""),), help="Of Kubernetes, in Slurm."),
        ),
        (
            Panel("Pods by where they stand", "timeseries", (("sum by (state) (slinky_bridge_pods)", "{{state}}"),), stack=True),
            Panel("Pods bound", "timeseries", ((f"sum(rate(slinky_bridge_pods_bound_total{RATE}))", "bound"),), "ops"),
            Panel(
                "Time in each stage",
                "timeseries",
                (
                    (
                        f"sum by (stage) (rate(slinky_bridge_stage_seconds_sum{RATE})) / (sum by (stage) (rate(slinky_bridge_stage_seconds_count{RATE})) > 0)",
                        "{{stage}}",
                    ),
                ),
                "s",
                help="Submit, queue, bind, end; the mean.",
            ),
        ),
        (
            Panel(
                "Their jobs, by namespace",
                "timeseries",
                (("sum by (kubernetes_cluster, namespace, state) (slurm_bridge_jobs)", "{{kubernetes_cluster}} {{namespace}} {{state}}"),),
                stack=True,
                help="As Slurm tells them, by the bridge's marker.",
            ),
            Panel(
                "Their pods, by namespace",
                "timeseries",
                (
                    (
                        'sum by (kubernetes_cluster, namespace) (slurm_bridge_pods{state=~"pending|running"})',
                        "{{kubernetes_cluster}} {{namespace}}",
                    ),
                ),
                stack=True,
            ),
            Panel("Pods and their jobs", "table", (("slurm_bridge_pod_job", ""),)),
        ),
        (
            Panel(
                "Requests to slurmrestd",
                "timeseries",
                ((f"sum by (call, outcome) (rate(slinky_slurm_requests_total{RATE}))", "{{call}} {{outcome}}"),),
                "ops",
            ),
            Panel(
                "Requests to slurmrestd: 99th percentile",
                "timeseries",
                ((f"histogram_quantile(0.99, sum by (le) (rate(slinky_slurm_request_seconds_bucket{RATE})))", "p99"),),
                "s",
            ),
            Panel(
                "Requests to Kubernetes",
                "timeseries",
                ((f"sum by (method, outcome) (rate(slinky_kube_requests_total{RATE}))", "{{method}} {{outcome}}"),),
                "ops",
            ),
            Panel("Work that waits", "timeseries", (("sum by (queue, state) (slinky_workqueue_keys)", "{{queue}} {{state}}"),)),
        ),
    ),
)

MINE = '{user=~"$user"}'

USER = Dashboard(
    "slurm-user",
    "Slurm: a user's view",
    (
        (
            Panel("My running jobs", "stat", (('sum(slurm_queue_jobs{user=~"$user",state="running"}) or vector(0)', ""),)),
            Panel("My pending jobs", "stat", (('sum(slurm_queue_jobs{user=~"$user",state="pending"}) or vector(0)', ""),)),
            Panel("My CPUs", "stat", (('sum(slurm_queue_cpus{user=~"$user",state="running"}) or vector(0)', ""),)),
            Panel("My memory", "stat", (('sum(slurm_queue_memory_bytes{user=~"$user",state="running"}) or vector(0)', ""),), "bytes"),
            Panel("My GPUs", "stat", (('sum(slurm_queue_gres{user=~"$user",gres="gpu",state="running"}) or vector(0)', ""),)),
        ),
        (
            Panel("My jobs by state", "timeseries", ((f"sum by (state) (slurm_queue_jobs{MINE})", "{{state}}"),), stack=True),
            Panel(
                "My CPUs by partition",
                "timeseries",
                ((f"sum by (partition, state) (slurm_queue_cpus{MINE})", "{{partition}} {{state}}"),),
                stack=True,
            ),
            Panel("My jobs by account and QoS", "table", ((f"sum by (account, qos, state) (slurm_queue_jobs{MINE})", ""),)),
        ),
        (
            Panel(
                "My fair share",
                "timeseries",
                ((f"slurm_fairshare_factor{MINE}", "{{account}}"),),
                "percentunit",
                help="1: nothing used of what is due; 0.5 and less: others go first.",
            ),
            Panel(
                "My use against my shares",
                "timeseries",
                ((f"slurm_fairshare_usage_ratio{MINE}", "used {{account}}"), (f"slurm_fairshare_shares_ratio{MINE}", "due {{account}}")),
                "percentunit",
            ),
        ),
        (
            Panel(
                "What is free now",
                "table",
                (
                    ('sum by (partition) (slurm_partition_capacity_cpus{state="idle"})', ""),
                    ('sum by (partition, gres, type) (slurm_partition_capacity_gres{state="idle"})', ""),
                ),
                help="CPUs and GRES, by partition.",
            ),
            Panel("How long others wait", "timeseries", (("max by (partition) (slurm_queue_longest_wait_seconds)", "{{partition}}"),), "s"),
        ),
    ),
    (Variable("user", "slurm_queue_jobs", "user", many=False),),
)

DASHBOARDS = (CLUSTER, QUEUE, BRIDGE, USER)


def dashboards() -> dict[str, dict[str, Any]]:
    """By the name of their file."""
    return {dashboard.name: as_json(dashboard) for dashboard in DASHBOARDS}
