"""A user's view: my jobs and what they have, my fair share, what is free now. Pure."""

from slinky.exporter.panels import Dashboard, Panel, Variable

__all__ = ["USER"]

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
