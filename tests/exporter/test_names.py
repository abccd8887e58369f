"""Names that follow Prometheus' conventions and clash with nobody's; what is made from the code is what the code would make."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from slinky.bridge.marker import comment_for
from slinky.bridge.metrics import BridgeMetrics
from slinky.cli.manifests import as_yaml
from slinky.exporter.alerts import ALERTS, prometheus_rule, rule_file
from slinky.exporter.dashboards import DASHBOARDS, dashboards
from slinky.exporter.exporter import OWN
from slinky.exporter.marked import PodsOfJob, read_marker
from slinky.exporter.panels import queries
from slinky.exporter.reference import metrics_reference
from slinky.exporter.samples import DESCRIBED
from slinky.exporter.settings import Limits, Settings, load_settings, settings_reference
from slinky.kube import KubeMetrics
from slinky.operator.metrics import ObjectMetrics
from slinky.settings import SettingsError
from tests.exporter.test_golden import load, settings_of, snapshot_of, told

ROOT = Path(__file__).parents[2]
OURS = {metric.name: metric for metric in (*OWN, *DESCRIBED)}
# What slurmctld 26.05 itself tells under /metrics/…, as far as a name of ours might be the same.
NATIVE = set((Path(__file__).parent / "native_names.txt").read_text().split())
# Told by the bridge, and made elsewhere than in the two classes below.
BRIDGE = {
    "slinky_bridge_absence_alarm",
    "slinky_bridge_absent_jobs",
    "slinky_bridge_claim_conflict",
    "slinky_bridge_clock_steady",
    "slinky_bridge_nodes",
}


def originals() -> set[str]:
    document = load("small")
    ours = set(re.findall(r"^# TYPE (\S+)", told(snapshot_of(document), settings_of(document)), re.MULTILINE))
    return set(re.findall(r"^# TYPE (\S+)", told(snapshot_of(document), settings_of(document, original=True)), re.MULTILINE)) - ours


def test_names_follow_the_conventions() -> None:
    assert len(OURS) == len((*OWN, *DESCRIBED)), "a name is described twice"
    for name, metric in OURS.items():
        assert re.fullmatch(r"slurm_[a-z_]+", name)
        assert name.endswith("_total") == (metric.kind == "counter"), name
        assert not re.search(r"(micro|milli)seconds|_(mb|kb|count|sum|bucket|info)$", name), name
        assert set(metric.labels).isdisjoint({"job", "instance", "le", "quantile"}), name
        assert metric.help


def test_no_name_of_ours_is_somebody_elses() -> None:
    assert NATIVE.isdisjoint(OURS)
    assert originals().isdisjoint(OURS)


@pytest.mark.parametrize(
    "name",
    [
        *("slurm_nodes_total", "slurm_nodes_notresponding_total", "slurm_node_cpus_effective_total", "slurm_node_memory_bytes"),
        *("slurm_jobs_total", "slurm_jobs_outofmemory_total", "slurm_jobs_hold_total", "slurm_jobs_memory_alloc_bytes"),
        *("slurm_account_jobs_running_total", "slurm_user_jobs_cpus_alloc_total", "slurm_partition_jobs_pending_maxnodecount_total"),
        *("slurm_partition_nodes_total", "slurm_partition_nodes_memory_free_bytes", "slurm_partition_nodes_cpus_total"),
        *("slurm_scheduler_cycle_sum_seconds_total", "slurm_bfscheduler_active_bool", "slurm_scheduler_dbdagentqueue_total"),
    ],
)
def test_the_originals_names_are_there_on_request(name: str) -> None:
    assert name in originals()


def test_the_originals_dashboard_finds_what_it_asks_for() -> None:
    """The number of its metrics: nodes 16, per node 8, jobs 20 each by all, account and user, partitions 21 and 24, schedulers 56."""
    assert len(originals()) == 16 + 8 + 3 * 20 + 21 + 24 + 56


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/exporter-configuration.md", settings_reference()),
        ("docs/exporter-metrics.md", metrics_reference()),
    ],
)
def test_generated_files_are_up_to_date(path: str, text: str) -> None:
    assert (ROOT / path).read_text() == text, "slinky exporter settings|metrics writes it anew"


def known() -> set[str]:
    registry = CollectorRegistry()
    BridgeMetrics(registry)
    ObjectMetrics(registry)
    KubeMetrics(registry)
    found = set(OURS) | BRIDGE
    for family in registry.collect():
        found |= {family.name, *(f"{family.name}{end}" for end in ("_total", "_sum", "_count", "_bucket"))}
    return found


@pytest.mark.parametrize(
    "expr", [*(expr for one in DASHBOARDS for _, expr in queries(one)), *(alert.expr for alert in ALERTS)], ids=lambda expr: expr[:60]
)
def test_panels_and_alerts_ask_for_metrics_that_there_are(expr: str) -> None:
    asked = set(re.findall(r"\b(?:slurm|slinky)_[a-z_]+", expr))
    assert asked
    assert asked <= known()


@pytest.mark.parametrize("dashboard", dashboards().values(), ids=lambda one: str(one["title"]))
def test_a_dashboard_is_whole(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        where = panel["gridPos"]
        squares = {(x, y) for x in range(where["x"], where["x"] + where["w"]) for y in range(where["y"], where["y"] + where["h"])}
        assert not squares & taken, "panels do not overlap"
        assert where["x"] + where["w"] <= 24
        taken |= squares
        assert panel["title"]
        assert panel["targets"]


def test_what_the_bridge_writes_is_read() -> None:
    comment = comment_for("prod", "w", [("lab", "a"), ("lab", "b")], ["u1", "u2"])
    assert read_marker(comment) == PodsOfJob("prod", 2, ("lab/a", "lab/b"))
    for other in ("", "hello", "{", "[]", '{"pods":["x"]}', '{"slinky":2,"marker":"m"}'):
        assert read_marker(other) is None


def test_an_empty_file_is_the_defaults_and_the_example_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("")
    assert load_settings(path) == Settings()
    path.write_text(settings_reference().split("```")[1].removeprefix("yaml\n"))
    assert load_settings(path).limits == Limits(users=200)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("userz: 3", "userz is not a setting (docs/exporter-configuration.md lists them)"),
        ("limits: {users: -1}", "limits.users is -1; it must be 0 or more"),
        ("limits: {jobSeries: 5}", "limits.jobSeries is 5; it must be 100 or more"),
        ("snapshot: {lookSeconds: 0}", "snapshot.lookSeconds is 0; it must be more than 0"),
        ("snapshot: {share: 2}", "snapshot.share is 2; it must be more than 0 and at most 1"),
        ("slurmRestApi: ' '", "slurmRestApi is empty"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(said)):
        load_settings(path)


def test_the_rules_are_the_same_for_both() -> None:
    assert prometheus_rule()["spec"] == yaml.safe_load(as_yaml([rule_file()]))
