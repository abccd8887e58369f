"""What the benchmark makes of what it measured: ratios, goals, Slurm's word on when a job started, the picture. No server is needed."""

import xml.etree.ElementTree as ET

import pytest
from bench.bridge.ground import STARTED
from bench.bridge.plot import picture
from bench.bridge.pods import admitted, for_another, pod
from bench.bridge.rates import percentile
from bench.rows import Row, against

from slinky.bridge.keys import FINALIZER
from slinky.bridge.settings import Settings


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    """In the slow second round both were slow: the ratio does not see it."""
    row = against("bridge", [90.0, 45.0, 80.0], [100.0, 50.0, 100.0], "pods/s", at_least=0.7)
    assert (row.figure, row.limit, row.ratio, row.met) == (80.0, 100.0, 0.9, True)


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Row("a figure", 4.0, "calls", at_most=3.0), False),
        (Row("a ratio, whatever the figure", 4.0, "calls", at_most=1.2, limit=4.0, ratio=1.0), True),
        (Row("no goal", 4.0, "calls"), None),
    ],
)
def test_a_goal_is_for_the_ratio_where_there_is_one(row: Row, met: bool | None) -> None:
    assert row.met is met
    assert row.as_dict()["met"] is met


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-15T07:41:42.010] sched: Allocate JobId=17 NodeList=kwok-000 #CPUs=1 Partition=bridge",
        "[2026-11-15T07:41:42.010] sched/backfill: _start_job: Started JobId=17 in bridge on kwok-000",
    ],
)
def test_a_start_is_found_whichever_scheduler_it_was(line: str) -> None:
    before = "[2026-11-15T07:41:41.948] _slurm_rpc_submit_batch_job: JobId=17 SLUID=s1 InitPrio=200000 usec=9521"
    assert STARTED.findall(f"{before}\n{line}\n") == [("2026-11-15T07:41:42.010", "17")]


def test_others_pods_are_as_the_user_wrote_them() -> None:
    sent = pod("p")
    theirs = for_another(sent, "default-scheduler")
    assert theirs == sent | {"spec": sent["spec"] | {"schedulerName": "default-scheduler"}}
    assert "schedulerName" not in sent["spec"]
    assert FINALIZER in admitted(sent, Settings())["metadata"]["finalizers"]


def test_percentiles_of_few() -> None:
    assert [percentile([1.0, 2.0, 3.0], share) for share in (0.0, 0.5, 0.99)] == [1.0, 2.0, 3.0]


def test_the_picture_is_svg_and_says_its_figures() -> None:
    drawn = picture([("Slurm & alone", 400.0, None), ("bridge", 300.0, True)], {"in a burst": [0.01, 0.2, 40.0], "nothing": []})
    assert ET.fromstring(drawn).tag.endswith("svg")
    for text in ("Slurm &amp; alone", ">300<", "p50 200 ms", "&gt; 30 s"):
        assert text in drawn
