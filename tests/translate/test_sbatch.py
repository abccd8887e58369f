"""The command line of a job description: nothing of it is forgotten, and a shell reads it back as it was meant."""

import shlex

import pytest

from slinky.bridge.sbatch import OPTIONS, TOGETHER, UNTOLD, sbatch_line, untold
from slinky.slurm import INFINITE, JobDescription


def test_every_field_of_a_description_is_told_or_known_to_be_untold() -> None:
    """Who adds one to JobDescription says here what sbatch calls it."""
    assert set(JobDescription.__struct_fields__) - {"other"} <= OPTIONS.keys() | UNTOLD.keys() | TOGETHER


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (JobDescription(minimum_nodes=2, maximum_nodes=2), ["--nodes=2"]),
        (JobDescription(minimum_nodes=1, maximum_nodes=4), ["--nodes=1-4"]),
        (JobDescription(minimum_nodes=2, tasks=8), ["--ntasks=8", "--nodes=2-8"]),
        (JobDescription(maximum_nodes=3), ["--nodes=1-3"]),
        (JobDescription(tres_per_node="gres/gpu:h100:2,gres/nvme:1"), ["--gres=gpu:h100:2,nvme:1"]),
        (JobDescription(shared=["none"]), ["--exclusive"]),
        (JobDescription(shared=["user"]), ["--exclusive=user"]),
        (JobDescription(kill_warning_signal="USR1", kill_warning_delay=300), ["--signal=USR1@300"]),
        (JobDescription(kill_on_node_fail=False, hold=True, requeue=False), ["--hold", "--no-requeue", "--no-kill"]),
        (JobDescription(excluded_nodes=["n1", "n2"], time_limit=INFINITE), ["--exclude=n1,n2", "--time=INFINITE"]),
        (JobDescription(name="a b; 'c' $(d)"), ["--job-name=a b; 'c' $(d)"]),
        (JobDescription(flags=["EXTERNAL_JOB", "SPREAD_JOB"]), ["--spread-job"]),
        (JobDescription(contiguous=True), ["--contiguous"]),
        (JobDescription(required_switches=2, wait_for_switch=90), ["--switches=2@1:30"]),
        (JobDescription(begin_time=1800000000, deadline=1800003600), ["--begin=uts1800000000", "--deadline=uts1800003600"]),
    ],
)
def test_in_sbatchs_words(job: JobDescription, words: list[str]) -> None:
    assert shlex.split(sbatch_line([job])) == ["sbatch", "--external", *words]


def test_components_are_separated_by_colons() -> None:
    assert sbatch_line([JobDescription(tasks=1), JobDescription(tasks=4)]) == "sbatch --external --ntasks=1 : --external --ntasks=4"


def test_what_no_option_says_is_named() -> None:
    job = JobDescription(name="a", environment=["A=B"], flags=["STRANGE"], other={"new_field": 1})
    assert untold([job]) == ["flags: STRANGE", "new_field: no option says it"]
