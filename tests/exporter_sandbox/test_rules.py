"""promtool's checks: the metrics' names and format, the rules; and every alert fires, and is silent where all is well."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from slinky.exporter.alerts import ALERTS
from slinky.sandbox.prometheus import promtool

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[2]
AT = 'job="slurm",instance="a"'

# An alert → series (with their values, one a minute) in which it fires.
FIRES: dict[str, dict[str, str]] = {
    "SlurmExporterAbsent": {f"up{{{AT}}}": "0x60"},
    "SlurmDown": {f"slurm_up{{{AT}}}": "1x5 0x60"},
    "SlurmSnapshotOld": {f"slurm_exporter_snapshot_age_seconds{{{AT}}}": "0+60x60", f"slurm_up{{{AT}}}": "1x60"},
    "SlurmPartMissing": {f'slurm_exporter_part_up{{{AT},part="shares"}}': "0x60"},
    "SlurmNodesDown": {f'slurm_cluster_nodes{{{AT},state="down"}}': "1x60", f'slurm_cluster_nodes{{{AT},state="idle"}}': "99x60"},
    "SlurmManyNodesOut": {f'slurm_cluster_nodes{{{AT},state="drained"}}': "30x60", f'slurm_cluster_nodes{{{AT},state="idle"}}': "70x60"},
    "SlurmPartitionDown": {f'slurm_partition_up{{{AT},partition="p"}}': "0x60"},
    "SlurmJobsWaitLong": {f'slurm_queue_longest_wait_seconds{{{AT},partition="p"}}': "90000+60x60"},
    "SlurmJobsFailWithNodes": {f'slurm_queue_jobs{{{AT},state="node_fail"}}': "0x30 1x30"},
    "SlurmSchedulerSlow": {
        f'slurm_scheduler_cycle_seconds_total{{{AT},scheduler="main"}}': "0+30x60",
        f'slurm_scheduler_cycles_total{{{AT},scheduler="main"}}': "0+10x60",
    },
    "SlurmBackfillStalled": {
        f"slurm_scheduler_last_backfill_timestamp_seconds{{{AT}}}": "0x60",
        f'slurm_queue_pending_jobs{{{AT},reason="Priority",partition="p"}}': "3x60",
    },
    "SlurmAccountingBehind": {f"slurm_controller_dbd_queue_messages{{{AT}}}": "5000x60"},
    "SlurmAgentQueueLong": {f"slurm_controller_agent_queue_messages{{{AT}}}": "500x60"},
    "SlurmRpcsDropped": {f'slurm_controller_rpcs_dropped_total{{{AT},message_type="REQUEST_JOB_INFO"}}': "0+5x60"},
    "SlurmLicensesExhausted": {
        f'slurm_licenses{{{AT},license="matlab",state="free"}}': "0x60",
        f'slurm_licenses_configured{{{AT},license="matlab"}}': "20x60",
    },
    "SlurmBridgeNotLed": {
        'slinky_leader{lease="slurm-bridge",instance="a"}': "0x60",
        'slinky_leader{lease="slurm-bridge",instance="b"}': "0x60",
    },
    "SlurmBridgePodsNotBound": {'slinky_bridge_pods{state="starting"}': "2x60"},
    "SlurmBridgeJobsAbsent": {"slinky_bridge_absence_alarm": "1x60"},
    "SlurmBridgePodsLost": {'slinky_bridge_pods{state="lost"}': "1x60"},
    "SlurmBridgeClaimConflict": {'slinky_bridge_claim_conflict{instance="a"}': "0x30 1x30"},
    "SlurmBridgeClockUnsteady": {
        'slinky_bridge_clock_steady{clock="slurm"}': "1x20 0x40",
        'slinky_bridge_clock_steady{clock="kubernetes"}': "1x60",
    },
    "SlurmBridgeLoopBlocked": {f"slinky_loop_longest_block_seconds{{{AT}}}": "0.1x30 1.5x30"},
    "SlurmClusterUnavailable": {
        'slinky_operator_object_available{kind="Controller",namespace="a",name="c",instance="x"}': ("1x20 0x40"),
    },
    "SlurmObjectDegraded": {
        'slinky_operator_object_degraded{kind="NodeSet",namespace="a",name="w",reason="Refused"}': ("0x20 1x40"),
    },
    "SlurmRequestsFail": {
        f'slinky_slurm_requests_total{{{AT},call="GET slurm/jobs",outcome="ok"}}': "0+10x60",
        f'slinky_slurm_requests_total{{{AT},call="GET slurm/jobs",outcome="UnavailableError"}}': "0+10x60",
    },
}

# All is well.
QUIET = {
    f"slurm_up{{{AT}}}": "1x60",
    f"slurm_exporter_snapshot_age_seconds{{{AT}}}": "5x60",
    f'slurm_exporter_part_up{{{AT},part="shares"}}': "1x60",
    f'slurm_cluster_nodes{{{AT},state="down"}}': "0x60",
    f'slurm_cluster_nodes{{{AT},state="drained"}}': "1x60",
    f'slurm_cluster_nodes{{{AT},state="idle"}}': "99x60",
    f'slurm_partition_up{{{AT},partition="p"}}': "1x60",
    f'slurm_queue_longest_wait_seconds{{{AT},partition="p"}}': "0+60x60",
    f'slurm_queue_jobs{{{AT},state="node_fail"}}': "0x60",
    f'slurm_queue_pending_jobs{{{AT},reason="Priority",partition="p"}}': "3x60",
    f'slurm_scheduler_cycle_seconds_total{{{AT},scheduler="main"}}': "0+1x60",
    f'slurm_scheduler_cycles_total{{{AT},scheduler="main"}}': "0+100x60",
    f"slurm_scheduler_last_backfill_timestamp_seconds{{{AT}}}": "0+60x60",
    f"slurm_controller_dbd_queue_messages{{{AT}}}": "0x60",
    f"slurm_controller_agent_queue_messages{{{AT}}}": "0x60",
    f'slurm_controller_rpcs_dropped_total{{{AT},message_type="REQUEST_JOB_INFO"}}': "5x60",
    f'slurm_licenses{{{AT},license="matlab",state="free"}}': "1x60",
    f'slurm_licenses_configured{{{AT},license="matlab"}}': "20x60",
    'slinky_leader{lease="slurm-bridge",instance="a"}': "0x60",
    'slinky_leader{lease="slurm-bridge",instance="b"}': "1x60",
    'slinky_bridge_pods{state="starting"}': "0x60",
    'slinky_bridge_pods{state="lost"}': "0x60",
    "slinky_bridge_absence_alarm": "0x60",
    "slinky_bridge_claim_conflict": "0x60",
    'slinky_bridge_clock_steady{clock="slurm"}': "1x20 0x3 1x40",
    "slinky_loop_longest_block_seconds": "0.2x30 0.9x30",
    'slinky_operator_object_available{kind="Controller",namespace="a",name="c"}': "1x20 0x1 1x40",
    'slinky_operator_object_available{kind="NodeSet",namespace="a",name="w"}': "1x60",
    'slinky_operator_object_degraded{kind="NodeSet",namespace="a",name="w",reason=""}': "0x60",
    f'slinky_slurm_requests_total{{{AT},call="GET slurm/jobs",outcome="ok"}}': "0+100x60",
    f'slinky_slurm_requests_total{{{AT},call="GET slurm/jobs",outcome="UnavailableError"}}': "3x60",
}


def case(series: dict[str, str], expr: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": "50m", "exp_samples": samples}],
    }


def test_every_alert_fires_and_none_while_all_is_well(programs: Path, tmp_path: Path) -> None:
    assert set(FIRES) == {alert.name for alert in ALERTS}
    cases = [
        case(
            series,
            f'count by (alertname) (ALERTS{{alertname="{name}",alertstate="firing"}})',
            [{"labels": f'{{alertname="{name}"}}', "value": 1}],
        )
        for name, series in FIRES.items()
    ]
    cases.append(case(QUIET, 'ALERTS{alertstate=~"firing|pending"}', []))
    path = tmp_path / "alerts.test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ROOT / "monitoring/rules.yaml")], "evaluation_interval": "1m", "tests": cases}))
    done = promtool(programs, "test", "rules", str(path))
    assert done.returncode == 0, done.stdout


def test_a_block_of_the_loop_is_told_for_an_hour(programs: Path, tmp_path: Path) -> None:
    """The metric never falls while the process runs; a longer block is told again."""
    series = {f"slinky_loop_longest_block_seconds{{{AT}}}": "1.5x150 3x150"}
    firing = 'count(ALERTS{alertname="SlurmBridgeLoopBlocked",alertstate="firing"})'
    cases = []
    for minute, fires in ((30, True), (120, False), (170, True), (240, False)):
        found = case(series, firing, [{"labels": "{}", "value": 1}] if fires else [])
        found["promql_expr_test"][0]["eval_time"] = f"{minute}m"
        cases.append(found)
    path = tmp_path / "alerts.test.yaml"
    rules = {"rule_files": [str(ROOT / "monitoring/rules.yaml")], "evaluation_interval": "1m", "tests": cases}
    path.write_text(yaml.safe_dump(rules))
    done = promtool(programs, "test", "rules", str(path))
    assert done.returncode == 0, done.stdout


def test_the_rules_are_valid(programs: Path) -> None:
    done = promtool(programs, "check", "rules", str(ROOT / "monitoring/rules.yaml"))
    assert (done.returncode, f"{len(ALERTS)} rules found" in done.stdout) == (0, True), done.stdout


@pytest.mark.parametrize("name", ["small", "bounded"])
def test_promtool_has_nothing_to_say_about_our_metrics(programs: Path, name: str) -> None:
    done = promtool(programs, "check", "metrics", stdin=(ROOT / f"tests/exporter/golden/{name}.prom").read_bytes())
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["small", "bounded"])
def test_the_originals_names_can_be_read_though_they_break_conventions(programs: Path, name: str) -> None:
    done = promtool(programs, "check", "metrics", stdin=(ROOT / f"tests/exporter/golden/{name}-original.prom").read_bytes())
    assert done.returncode == 3, done.stdout  # 3: read, with remarks
    remarks = [line for line in done.stdout.splitlines() if line and not line.endswith('should not have "_total" suffix')]
    assert not [line for line in remarks if "error" in line.lower()], remarks
