"""Slurm's files as text: what is written can be read again, and what an administrator wrote wins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.operator.conf.text import LISTS, Line, Pair, UnwritableValueError, join_items, joined, line, pairs_of, parse, render

KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda key: key.lower() != "include")
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12).filter(
    lambda text: not text.startswith('"')
)
SPACED = st.lists(VALUES, min_size=2, max_size=3).map(" ".join).filter(lambda text: '"' not in text)
PAIRS = st.builds(Pair, KEYS, VALUES | SPACED, st.just("") | st.just("+"))
LINES = st.builds(lambda pairs: Line(tuple(pairs)), st.lists(PAIRS, min_size=1, max_size=3))
ITEMS = st.from_regex(r"[A-Za-z_]{1,6}(=[A-Za-z0-9/]{1,4})?", fullmatch=True)


@given(st.lists(LINES, max_size=5))
def test_what_is_written_is_read_again(lines: list[Line]) -> None:
    assert parse(render(lines)) == lines


@given(st.lists(st.tuples(KEYS, VALUES), max_size=5), st.lists(st.tuples(KEYS, VALUES), max_size=5))
def test_the_administrators_value_is_the_only_one_left(ours: list[tuple[str, str]], theirs: list[tuple[str, str]]) -> None:
    theirs = [(key, value) for key, value in theirs if key.lower() not in LISTS]
    text = render(Line((Pair(key, value),)) for key, value in theirs)
    made = joined([line(**{key: value}) for key, value in ours], text)
    for key in {key.lower() for key, _ in theirs} - {
        "prolog",
        "epilog",
        "nodename",
        "nodeset",
        "partitionname",
        "downnodes",
        "frontendname",
    }:
        said = [pair.value for pair in pairs_of(parse(made)) if pair.key.lower() == key]
        assert said == [value for name, value in theirs if name.lower() == key]


@given(st.lists(ITEMS, max_size=4), st.lists(ITEMS, max_size=4))
def test_a_list_holds_every_item_once_and_theirs_as_they_spelt_it(ours: list[str], theirs: list[str]) -> None:
    text = f"SlurmctldParameters={','.join(theirs)}\n" if theirs else ""
    made = joined([line(SlurmctldParameters=",".join(ours))] if ours else [], text)
    said = [pair.value for pair in pairs_of(parse(made)) if pair.key == "SlurmctldParameters"]
    assert len(said) == (1 if ours or theirs else 0)
    items = said[0].split(",") if said else []
    names = [item.split("=")[0].lower() for item in items]
    assert sorted(names) == sorted({item.split("=")[0].lower() for item in (*ours, *theirs)})
    last = {item.split("=")[0].lower(): item for item in theirs}
    assert set(last.values()) <= set(items)


def test_comments_continuations_quotes_and_escapes_are_read_as_slurm_reads_them() -> None:
    text = 'ReturnToService= \\ # a comment before the end\n 1\nMailDomain=x\\#y\\\\z # more\nTaskProlog=p"q\nLaunchParameters="a b"\nMinJobAge = 123\nResumeProgram=/bin/a#b\n'
    assert {pair.key: pair.value for pair in pairs_of(parse(text))} == {
        "ReturnToService": "1",
        "MailDomain": "x#y\\z",
        "TaskProlog": 'p"q',
        "LaunchParameters": "a b",
        "MinJobAge": "123",
        "ResumeProgram": "/bin/a",
    }


def test_a_list_over_several_lines_becomes_one_and_keeps_its_case() -> None:
    made = joined(
        [line(SlurmctldParameters="enable_configless")],
        "SlurmctldParameters=Cloud_DNS,\\\nnode_reg_mem_percent=95\nslurmctldparameters=enable_configless\n",
    )
    assert made == "SlurmctldParameters=enable_configless,Cloud_DNS,node_reg_mem_percent=95\n"


def test_a_partition_of_the_administrators_takes_the_place_of_ours_and_other_records_stay() -> None:
    ours = [line(NodeSet="w", Feature="w"), line(PartitionName="w", Nodes="w"), line(PartitionName="x", Nodes="x")]
    made = joined(ours, "PartitionName=w Nodes=ALL MaxTime=5\n")
    assert made.splitlines() == ["NodeSet=w Feature=w", "PartitionName=x Nodes=x", "", "PartitionName=w Nodes=ALL MaxTime=5"]


def test_what_an_included_file_says_counts_as_the_administrators() -> None:
    ours = [line(ReturnToService=2), line(AuthInfo="use_client_ids"), line(MaxNodeCount=1024)]
    made = joined(
        ours,
        "Include site.conf\n",
        {"site.conf": "returntoservice=0\nAuthInfo=ttl=900\nInclude site.conf\nInclude deeper.conf\n", "deeper.conf": "MaxNodeCount=7"},
    )
    assert made == "Include site.conf\n\nAuthInfo=use_client_ids,ttl=900\n"


def test_scripts_of_both_are_kept() -> None:
    assert joined([line(Prolog="ours.sh")], "Prolog=/theirs.sh").splitlines() == ["Prolog=ours.sh", "", "Prolog=/theirs.sh"]


def test_a_line_that_is_no_setting_is_left_for_slurm_to_judge() -> None:
    assert joined([line(A=1)], "B=2 whatever this is\n").splitlines() == ["A=1", "", "B=2 whatever this is"]


@pytest.mark.parametrize("value", ["a\nb", '"a', 'a "b" c'])
def test_a_value_that_no_file_of_slurms_can_hold_is_refused(value: str) -> None:
    with pytest.raises(UnwritableValueError):
        render([line(StoragePass=value)])


def test_a_later_item_takes_the_place_of_an_earlier_one_of_its_name() -> None:
    assert join_items(["ttl=60,use_client_ids", "TTL=900"]) == "TTL=900,use_client_ids"
