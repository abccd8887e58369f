"""Hostlists on their own; tests/slurm_sandbox holds them against Slurm's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.slurm import ConfigurationError, compress, expand


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("a[1-3,05-07]", ["a1", "a2", "a3", "a05", "a06", "a07"]),
        ("a[1-2][01-02]x", ["a101x", "a102x", "a201x", "a202x"]),
        ("[1-3]", ["1", "2", "3"]),
        ("n[9-11],m,n[08-09]", ["n9", "n10", "n11", "m", "n08", "n09"]),
        ("a[001-2]", ["a001", "a002"]),
    ],
)
def test_expand(expression: str, names: list[str]) -> None:
    assert expand(expression) == names


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        ([], ""),
        (["a1", "a2", "a3", "a5"], "a[1-3,5]"),
        (["a3", "a1", "a2"], "a[3,1-2]"),
        (["a9", "a10"], "a[9-10]"),
        (["a9", "a010"], "a[9,010]"),
        (["a099", "a100"], "a[099-100]"),
        (["a1", "a1"], "a[1,1]"),
        (["a1b1", "a1b2", "a2b1"], "a1b[1-2],a2b1"),
        (["x", "y", "x"], "x,y,x"),
        (["1", "2"], "[1-2]"),
    ],
)
def test_compress(names: list[str], expression: str) -> None:
    assert compress(names) == expression


@pytest.mark.parametrize("expression", ["a[3-1]", "a[1-2", "a[1-a]", "a[]", "a[1,,2]", "a[[1]]", "a[1-99999999]", "a[1-999][1-999][1-999]"])
def test_what_is_no_hostlist_is_refused_by_name(expression: str) -> None:
    with pytest.raises(ConfigurationError, match="hostlist"):
        expand(expression)


@given(st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,5}(-[0-9]{1,3})?", fullmatch=True)))
def test_what_was_compressed_expands_to_the_same_names_in_the_same_order(names: list[str]) -> None:
    assert expand(compress(names)) == names
