"""Quantities are exact, and rounded up."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.kube.quantities import QuantityError, mebibytes, quantity, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("250m", Fraction(1, 4)),
        ("1.5Gi", 1610612736),
        ("2e3", 2000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("100n", Fraction(1, 10**7)),
        (".5", Fraction(1, 2)),
        ("1k", 1000),
        ("-1", -1),
    ],
)
def test_values(text: str, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "1GB", "Gi", "1 Gi", "ten", "1e999", "0x10", "1ki"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(QuantityError):
        quantity(text)


@given(st.integers(0, 10**15), st.sampled_from(["m", "", "k", "Ki", "Mi", "Gi"]))
def test_rounding_is_up_and_by_less_than_one(number: int, suffix: str) -> None:
    value = quantity(f"{number}{suffix}")
    assert 0 <= whole(value) - value < 1
    assert 0 <= mebibytes(value) * 1048576 - value < 1048576
    assert (whole(value) == 0) == (mebibytes(value) == 0) == (number == 0)
