"""Words that are no parameters of Slurm's."""

from slinky.operator.conf.parameters import SLURM_PARAMETERS, SLURMDBD_PARAMETERS, unknown
from slinky.operator.conf.text import parse
from slinky.operator.validation.lines import line_problems


def test_a_slip_of_the_pen_is_told_with_what_was_meant() -> None:
    text = "SchedulerTyp=sched/backfill\nschedulertype=sched/backfill\nNonsenseOfSomeKind=1\nPartitionName=x Nodes=ALL Whatever=1\nInclude more.conf\n"
    assert list(unknown(parse(text), SLURM_PARAMETERS)) == [("SchedulerTyp", "SchedulerType"), ("NonsenseOfSomeKind", "")]
    assert list(unknown(parse("StorageParam=x"), SLURMDBD_PARAMETERS)) == [("StorageParam", "StorageParameters")]


def test_a_controller_with_a_slip_is_refused_and_says_what_would_be_right() -> None:
    told = [str(problem) for problem in line_problems("SchedulerTyp=x\nKillWait=3 MinJobAge=4\n", {}, SLURM_PARAMETERS, "spec.extraConf")]
    assert told == [
        "spec.extraConf: has KillWait and MinJobAge on one line; Slurm takes one on a line",
        "spec.extraConf: sets SchedulerTyp, which Slurm does not know; did you mean SchedulerType?",
    ]
