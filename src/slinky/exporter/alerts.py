"""Alert rules over the exporter's metrics and the bridge's own: as a rule file of Prometheus, and as a PrometheusRule.

Pure. What must stay true: every alert fires in a test (promtool, and some on a real Slurm); an annotation says what is wrong, and what to look at.
"""

from typing import Any

import msgspec

__all__ = ["ALERTS", "Alert", "prometheus_rule", "rule_file"]

OUT = "down|error|failing|not_responding|invalid"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    expr: str
    lasting: str = "0m"
    severity: str = "warning"
    summary: str
    description: str


ALERTS = (
    Alert(
        name="SlurmExporterAbsent",
        expr="absent(slurm_up)",
        lasting="5m",
        severity="critical",
        summary="No exporter of Slurm is scraped.",
        description="Nothing is known of Slurm. Look whether the exporter runs, and whether Prometheus has it as a target.",
    ),
    Alert(
        name="SlurmDown",
        expr="slurm_up == 0",
        lasting="2m",
        severity="critical",
        summary="Slurm does not answer {{ $labels.instance }}.",
        description="slurmrestd or slurmctld is down, or the exporter's token is not believed: the exporter's log says which. What other panels show is as old as slurm_exporter_snapshot_age_seconds.",
    ),
    Alert(
        name="SlurmSnapshotOld",
        expr="slurm_exporter_snapshot_age_seconds > 120 and on (job, instance) slurm_up == 1",
        lasting="5m",
        summary="What is told of Slurm is {{ $value | humanizeDuration }} old.",
        description="Looks at Slurm take too long (slurm_exporter_look_seconds). slurmrestd may be overloaded; snapshot.share lets looks take more of the time.",
    ),
    Alert(
        name="SlurmPartMissing",
        expr="slurm_exporter_part_up == 0",
        lasting="15m",
        summary="Of Slurm, {{ $labels.part }} cannot be read.",
        description="The rest is told. The exporter's user may not see it, or slurmrestd does not offer it (shares need accounting): `slinky exporter once` says why.",
    ),
    Alert(
        name="SlurmNodesDown",
        expr=f'sum by (job, instance) (slurm_cluster_nodes{{state=~"{OUT}"}}) > 0',
        lasting="10m",
        summary="{{ $value }} nodes are down.",
        description="`sinfo --list-reasons` names them and says why.",
    ),
    Alert(
        name="SlurmManyNodesOut",
        expr=f'sum by (job, instance) (slurm_cluster_nodes{{state=~"{OUT}|drained|draining"}}) / sum by (job, instance) (slurm_cluster_nodes) > 0.2',
        lasting="10m",
        severity="critical",
        summary="{{ $value | humanizePercentage }} of the nodes take no jobs.",
        description="They are down or drained. `sinfo --list-reasons` names them and says why.",
    ),
    Alert(
        name="SlurmPartitionDown",
        expr="slurm_partition_up == 0",
        lasting="30m",
        summary="Partition {{ $labels.partition }} starts no jobs.",
        description="It is DOWN, DRAIN or INACTIVE: `scontrol show partition` says which.",
    ),
    Alert(
        name="SlurmJobsWaitLong",
        expr="slurm_queue_longest_wait_seconds > 86400",
        lasting="10m",
        severity="info",
        summary="A job of partition {{ $labels.partition }} has been waiting for {{ $value | humanizeDuration }}.",
        description="slurm_queue_pending_jobs says why jobs of that partition wait; `squeue --start` what Slurm expects.",
    ),
    Alert(
        name="SlurmJobsFailWithNodes",
        expr='sum by (job, instance) (slurm_queue_jobs{state=~"node_fail|boot_fail"}) > 0',
        summary="{{ $value }} jobs have ended because their node failed.",
        description="Told as long as slurmctld remembers them. `sacct --state=NODE_FAIL,BOOT_FAIL` names them and their nodes.",
    ),
    Alert(
        name="SlurmSchedulerSlow",
        expr='rate(slurm_scheduler_cycle_seconds_total{scheduler="main"}[10m]) / rate(slurm_scheduler_cycles_total{scheduler="main"}[10m]) > 2',
        lasting="10m",
        summary="A cycle of the main scheduler takes {{ $value | humanizeDuration }}.",
        description="Jobs start late, and commands of users wait. See default_queue_depth, sched_min_interval and max_rpc_cnt in SchedulerParameters, and `sdiag`.",
    ),
    Alert(
        name="SlurmBackfillStalled",
        expr="time() - slurm_scheduler_last_backfill_timestamp_seconds > 900 and on (job, instance) sum by (job, instance) (slurm_queue_pending_jobs) > 0",
        lasting="10m",
        summary="The backfill scheduler has not run for {{ $value | humanizeDuration }}, and jobs wait.",
        description="slurmctld is busy with other things, or backfill was switched off: `sdiag`.",
    ),
    Alert(
        name="SlurmAccountingBehind",
        expr="slurm_controller_dbd_queue_messages > 1000",
        lasting="10m",
        summary="{{ $value }} messages wait for slurmdbd.",
        description="slurmdbd or its database is down or slow. At MaxDBDMsgs slurmctld begins to lose accounting.",
    ),
    Alert(
        name="SlurmAgentQueueLong",
        expr="slurm_controller_agent_queue_messages > 100",
        lasting="10m",
        summary="{{ $value }} messages of slurmctld to nodes are to be sent again.",
        description="Nodes do not answer, or the network does not reach them.",
    ),
    Alert(
        name="SlurmRpcsDropped",
        expr="sum by (job, instance) (rate(slurm_controller_rpcs_dropped_total[10m])) > 0",
        lasting="5m",
        summary="slurmctld turns requests away.",
        description="Somebody asks more often than rl_enable allows: `slurm_controller_user_rpcs_total` says who.",
    ),
    Alert(
        name="SlurmLicensesExhausted",
        expr='slurm_licenses{state="free"} == 0 and on (job, instance, license) slurm_licenses_configured > 0',
        lasting="30m",
        severity="info",
        summary="All licenses of {{ $labels.license }} are in use.",
        description="Jobs that ask for it wait (reason Licenses).",
    ),
    Alert(
        name="SlurmBridgeNotLed",
        expr="max by (lease) (slinky_leader) == 0",
        lasting="2m",
        severity="critical",
        summary="Nobody leads for {{ $labels.lease }}.",
        description="Processes run, and none of them holds the Lease: no pod is scheduled meanwhile. Their logs say why.",
    ),
    Alert(
        name="SlurmBridgePodsNotBound",
        expr='sum(slinky_bridge_pods{state="starting"}) > 0',
        lasting="15m",
        summary="{{ $value }} pods have a running job, and are not bound.",
        description="Their nodes are not free by Kubernetes' count, or a volume is not bound: the pods' condition slinky.slurm.net/Slurm says which.",
    ),
    Alert(
        name="SlurmBridgeJobsAbsent",
        expr="max(slinky_bridge_absence_alarm) == 1",
        severity="critical",
        summary="Many jobs that pods run for are unknown to Slurm.",
        description="Slurm has lost its state, or came back with an old one. The bridge deletes nothing meanwhile: docs/operations.md.",
    ),
    Alert(
        name="SlurmBridgePodsLost",
        expr='sum(slinky_bridge_pods{state="lost"}) > 0',
        lasting="10m",
        summary="{{ $value }} pods run for jobs that Slurm does not know.",
        description="Their nodes are in use, and Slurm does not know: docs/operations.md, Double booking after a loss.",
    ),
    Alert(
        name="SlurmBridgeClaimConflict",
        expr="max(slinky_bridge_claim_conflict) == 1",
        severity="critical",
        summary="The bridge does nothing: another copy of its cluster claims jobs in this Slurm.",
        description=(
            "Pods that run go on; no pod is submitted, bound or evicted. `slinky doctor` and the bridge's /readyz name the job"
            " and the command that lets the bridge take over: docs/operations.md, Kubernetes."
        ),
    ),
    Alert(
        name="SlurmBridgeClockUnsteady",
        expr="min by (clock) (slinky_bridge_clock_steady) == 0",
        lasting="5m",
        summary="The bridge cannot rely on the clock of {{ $labels.clock }}.",
        description=(
            "No pod is evicted for a time limit meanwhile. The clock jumps, or is not read: run an NTP client that slews it."
            " The Event ClockUnsteady on the bridge's Lease says more."
        ),
    ),
    Alert(
        name="SlurmBridgeLoopBlocked",
        # The metric is the longest block since the process started: the alert fires for an hour after a new one.
        expr=(
            "slinky_loop_longest_block_seconds > 1 unless slinky_loop_longest_block_seconds offset 1h >= slinky_loop_longest_block_seconds"
        ),
        summary="The event loop of {{ $labels.instance }} was blocked for {{ $value | humanizeDuration }}.",
        description=(
            "Nothing else happens in a process whose loop is blocked: above 1 s, bindings and evictions are late, and at some"
            " seconds the Lease may be lost. See slinky_loop_lag_seconds, CPU limits of the pod, and report what it did then."
        ),
    ),
    Alert(
        name="SlurmClusterUnavailable",
        expr='min by (namespace, name) (slinky_operator_object_available{kind="Controller"}) == 0',
        lasting="2m",
        severity="critical",
        summary="Slurm cluster {{ $labels.namespace }}/{{ $labels.name }} cannot be used.",
        description=(
            "Its slurmctld does not run or does not answer. The Controller's conditions name the pod, the"
            " Kubernetes node and what to do:"
            " `kubectl -n {{ $labels.namespace }} describe controller {{ $labels.name }}`;"
            " docs/operator-running.md, When a Kubernetes node is lost."
        ),
    ),
    Alert(
        name="SlurmObjectDegraded",
        expr="max by (kind, namespace, name, reason) (slinky_operator_object_degraded) == 1",
        lasting="10m",
        summary=("{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }} is degraded: {{ $labels.reason }}."),
        description=(
            "Its condition Degraded says what is wrong, and what to do:"
            " `kubectl -n {{ $labels.namespace }} describe {{ $labels.kind }} {{ $labels.name }}`."
        ),
    ),
    Alert(
        name="SlurmRequestsFail",
        expr='sum by (job, instance) (rate(slinky_slurm_requests_total{outcome!="ok"}[5m])) / sum by (job, instance) (rate(slinky_slurm_requests_total[5m])) > 0.1',
        lasting="10m",
        summary="{{ $value | humanizePercentage }} of {{ $labels.instance }}'s requests to slurmrestd fail.",
        description="slinky_slurm_requests_total says which, and how.",
    ),
)


def rule_file() -> dict[str, Any]:
    """As Prometheus' `rule_files` are."""
    return {"groups": [{"name": "slurm", "rules": [_rule(alert) for alert in ALERTS]}]}


def prometheus_rule(name: str = "slurm") -> dict[str, Any]:
    """As the Prometheus operator takes it."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "slinky"}},
        "spec": rule_file(),
    }


def _rule(alert: Alert) -> dict[str, Any]:
    lasting = {} if alert.lasting == "0m" else {"for": alert.lasting}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **lasting,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.description},
    }
