"""The queue: jobs by state, partition, account, user and QoS; why they wait, and for how long; fair share. Pure."""

from slinky.exporter.panels import Dashboard, Panel, Variable

__all__ = ["QUEUE"]

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
