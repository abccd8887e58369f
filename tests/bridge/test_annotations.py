"""Annotations: what is right is read, what is wrong is met with a sentence that says what would be right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.annotation_values import Moment, Signal, Switches
from slinky.bridge.annotations import SUFFIXES, AnnotationError, JobSettings, old_names, read_settings

P = "slurmjob.slinky.slurm.net/"


@pytest.mark.parametrize(
    ("suffix", "text", "settings"),
    [
        ("account", "physics", JobSettings(account="physics")),
        ("constraints", "a100&(rack1|rack2)", JobSettings(constraints="a100&(rack1|rack2)")),
        ("cpu-per-task", "4", JobSettings(cpus_per_task=4)),
        ("cpu-per-task", "1500m", JobSettings(cpus_per_task=2)),
        ("exclusive", "true", JobSettings(exclusive="none")),
        ("exclusive", " False ", JobSettings(exclusive="")),
        ("exclusive", "user", JobSettings(exclusive="user")),
        ("gang", "true", JobSettings(gang=True)),
        ("gres", "gpu:h100:2,shard:4", JobSettings(gres="gpu:h100:2,shard:4")),
        ("gres", "gres/gpu=4,gres:hca", JobSettings(gres="gpu:4,hca:1")),
        ("job-name", "my job", JobSettings(job_name="my job")),
        ("licenses", "matlab:2", JobSettings(licenses="matlab:2")),
        ("mem-per-node", "1Gi", JobSettings(memory_per_node=1024)),
        ("mem-per-node", "1", JobSettings(memory_per_node=1)),
        ("partition", "a,b", JobSettings(partition="a,b")),
        ("priority", "0", JobSettings(priority=0)),
        ("timelimit", "90", JobSettings(time_limit=90)),
        ("timelimit", "1:30:00", JobSettings(time_limit=90)),
        ("timelimit", "2-12", JobSettings(time_limit=3600)),
        ("timelimit", "0:30", JobSettings(time_limit=1)),
        ("user-id", "alice", JobSettings(user_id="alice")),
        ("begin", "2027-01-31T18:00", JobSettings(begin=Moment(1801418400))),
        ("begin", "2027-01-31T18:00:00+01:00", JobSettings(begin=Moment(1801414800))),
        ("begin", "now", JobSettings(begin=Moment(0, relative=True))),
        ("begin", "now+90", JobSettings(begin=Moment(90, relative=True))),
        ("begin", "now+1hour", JobSettings(begin=Moment(3600, relative=True))),
        ("deadline", "now+2days", JobSettings(deadline=Moment(172800, relative=True))),
        ("deadline", "1801418400", JobSettings(deadline=Moment(1801418400))),
        ("comment", "for the paper, please", JobSettings(comment="for the paper, please")),
        ("contiguous", "true", JobSettings(contiguous=True)),
        ("dependency", "afterok:17", JobSettings(dependency="afterok:17")),
        ("dependency", "after:17+5:18", JobSettings(dependency="after:17+5:18")),
        ("dependency", "afterany:17:18_3,singleton", JobSettings(dependency="afterany:17:18_3,singleton")),
        ("dependency", "afterok:1?AfterNotOk:2", JobSettings(dependency="afterok:1?afternotok:2")),
        ("exclude", "n[08-10],login,n09", JobSettings(exclude="n[08-10],login,n09")),
        ("nice", "-5", JobSettings(nice=-5)),
        ("nice", "100", JobSettings(nice=100)),
        ("ntasks-per-node", "4", JobSettings(tasks_per_node=4)),
        ("prefer", "a100&nvlink", JobSettings(prefer="a100&nvlink")),
        ("segment", "8", JobSettings(segment=8)),
        ("signal", "USR1", JobSettings(signal=Signal("USR1", 60))),
        ("signal", "SIGTERM@300", JobSettings(signal=Signal("TERM", 300))),
        ("signal", "10@5", JobSettings(signal=Signal("USR1", 5))),
        ("switches", "1", JobSettings(switches=Switches(1))),
        ("switches", "2@1:30:00", JobSettings(switches=Switches(2, 5400))),
        ("licenses", "matlab@srv:2,idl", JobSettings(licenses="matlab@srv:2,idl")),
    ],
)
def test_what_is_right_is_read(suffix: str, text: str, settings: JobSettings) -> None:
    assert read_settings({P + suffix: text, "other.org/account": "x"}) == settings


@pytest.mark.parametrize(
    ("suffix", "text", "right"),
    [
        ("account", "a b", "a name of letters"),
        ("cpu-per-task", "0", "a number of CPUs above zero, such as 4"),
        ("cpu-per-task", "many", "a number of CPUs above zero"),
        ("exclusive", "maybe", "true .whole nodes., false"),
        ("gres", "gpu:2;rm", "generic resources per node as Slurm writes them"),
        ("gres", "gpu:1,gpu:1,gpu:1,gpu:1", "generic resources .* .gpu is named twice, and Slurm would count only the last one"),
        ("gres", "gpu:1,gres/gpu:1", "generic resources .* .gpu is named twice"),
        ("job-name", "two\nlines", "a text of one line"),
        ("max-nodes", "-1", "a whole number from 1 on"),
        ("mem-per-node", "0", "an amount of memory above zero, such as 16Gi"),
        ("partition", "gpu,long,gpu", "a name, or several separated by commas, each of them once"),
        ("reservation", "a,a", "a name, or several separated by commas, each of them once"),
        ("priority", "-5", "a whole number from 0"),
        ("priority", "4294967295", "a whole number from 0"),
        ("timelimit", "0", "a time above zero"),
        ("timelimit", "soon", "minutes, or a time such as 90"),
        ("wckey", "x" * 2000, "at most 1024 characters"),
        ("begin", "tomorrow", "a time such as 2027-01-31T18:00"),
        ("begin", "now-1hour", "a time such as"),
        ("deadline", "17", "a time such as"),
        ("deadline", "2150-01-01", "a time such as"),
        ("comment", "é" * 600, "a text of one line and at most 1024 bytes"),
        ("contiguous", "yes", "true or false"),
        ("dependency", "afterok", "after:JOB"),
        ("dependency", "expand:17", "after:JOB"),
        ("dependency", "afterok:1,afterok:2?singleton", "after:JOB"),
        ("dependency", "afterok:17+5", "after:JOB"),
        ("exclude", "n[1-", "names of Slurm's nodes such as n1,n2"),
        ("exclude", "n[1-99999]", "at most 10,000 nodes; it names more"),
        ("exclude", "n[1-999999]", "at most 10,000 nodes; it names more"),
        ("exclude", "n[1-5000],m[1-5001]", "at most 10,000 nodes; it names more"),
        ("exclude", "-w n1", "names of Slurm's nodes"),
        ("licenses", "matlab:x", "licences as Slurm writes them"),
        ("nice", "high", "a whole number from -"),
        ("nice", "2147483647", "a whole number from -"),
        ("ntasks-per-node", "0", "a whole number from 1 on"),
        ("prefer", "", "a text of one line"),
        ("segment", "x", "a whole number from 1 on"),
        ("signal", "B:USR1@60", "a signal, and the seconds before the end"),
        ("signal", "USR3", "a signal, and"),
        ("signal", "KILL@60", "a signal, and"),
        ("switches", "1@soon", "a number of switches"),
        ("switches", "0", "a number of switches"),
    ],
)
def test_what_is_wrong_is_refused_with_what_would_be_right(suffix: str, text: str, right: str) -> None:
    with pytest.raises(AnnotationError, match=f"annotation {P}{suffix} is .* and must be {right}"):
        read_settings({P + suffix: text})


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(AnnotationError) as caught:
        read_settings({P + "timelimit": "x", P + "min-nodes": "4", P + "max-nodes": "2", P + "acount": "me"})
    assert [problem.split(" is ")[0] for problem in caught.value.problems] == [
        f"annotation {P}timelimit",
        f"annotation {P}acount",
        f"annotation {P}min-nodes",
    ]
    assert f"did you mean {P}account?" in str(caught.value)


def test_the_names_from_before_are_pointed_out() -> None:
    warned = old_names({"slinky.slurm.net/account": "x", "slinky.slurm.net/slurm-node": "n", P + "account": "y"})
    assert warned == [f"annotation slinky.slurm.net/account has no effect: since 1.0 its name is {P}account"]


@given(
    st.dictionaries(
        st.sampled_from([*sorted(SUFFIXES), "nonsense"]).map(P.__add__), st.text() | st.from_regex(r"[\w+@:,\[\]-]{1,12}", fullmatch=True)
    )
)
def test_any_text_is_read_or_refused(annotations: dict[str, str]) -> None:
    try:
        settings = read_settings(annotations)
    except AnnotationError as error:
        assert error.problems
    else:
        assert settings.memory_per_node != 0
        assert settings.time_limit != 0
