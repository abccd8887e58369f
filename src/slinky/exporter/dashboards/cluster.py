"""The cluster: whether Slurm answers, nodes and what of them is in use, the schedulers, slurmctld's messages, licenses, reservations. Pure."""

from slinky.exporter.panels import RATE, Dashboard, Panel

__all__ = ["CLUSTER"]

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
