"""Whether an sbatch belongs to the configured Slurm: only what is proven counts."""

import pytest

from slinky.explain.same_cluster import Told, beside, told_by_scontrol, why_not

SAID = """Configuration data as of 2026-11-19T04:31:42
BOOT_TIME               = 2026-11-19T04:11:25
ClusterName             = sandbox
SlurmctldHost[0]        = head(198.18.2.2)
"""
OURS = Told("sandbox", 1795061485)
URL = "http://head:6820"


def reason(ours: Told | None, theirs: Told | None) -> str:
    return why_not(ours, theirs, URL, "scontrol")


def test_the_same_cluster_is_asked() -> None:
    assert told_by_scontrol(SAID) == OURS
    assert reason(OURS, told_by_scontrol(SAID)) == ""


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (OURS, Told("lab", 1795061485), "it belongs to cluster lab, and http://head:6820 serves"),
        (OURS, Told("sandbox", 1), "started at different times (1970-01-01 00:00:01 UTC and 2026"),
        (None, OURS, "does not say which cluster it serves"),
        (OURS, None, "`scontrol show config` does not say"),
    ],
)
def test_another_cluster_and_what_is_not_known_is_not(ours: Told | None, theirs: Told | None, words: str) -> None:
    assert words in reason(ours, theirs)


@pytest.mark.parametrize("output", ["", "ClusterName = a", SAID.replace("2026-11-19T04:11:25", "soon")])
def test_what_scontrol_does_not_say_is_not_known(output: str) -> None:
    assert told_by_scontrol(output) is None


def test_the_scontrol_beside_an_sbatch() -> None:
    assert beside(["sbatch"]) == ["scontrol"]
    assert beside(["/opt/slurm/bin/sbatch"]) == ["/opt/slurm/bin/scontrol"]
    kubectl = ["kubectl", "exec", "deploy/slurm-login", "--"]
    assert beside([*kubectl, "sbatch"]) == [*kubectl, "scontrol"]
    assert beside(["my-batch"]) == []
    assert beside([]) == []
