"""The bridge: pods by where they stand, the jobs that are theirs, and what it asks of both sides. Pure."""

from slinky.exporter.panels import RATE, Dashboard, Panel

__all__ = ["BRIDGE"]

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
