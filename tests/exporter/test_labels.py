"""Labels are harmless and few, and no sum changes by it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.exporter.labels import LONGEST, bounded, clean, top, weights
from slinky.slurm.tres import GresKind, Resources, read_gres, read_tres

names = st.text(alphabet="abcdef", max_size=2)
sums = st.dictionaries(st.tuples(st.sampled_from(["running", "pending"]), names, names), st.integers(1, 9).map(float), max_size=60)


@given(st.text())
def test_any_name_can_be_written_out(name: str) -> None:
    made = clean(name)
    made.encode()
    assert len(made) <= LONGEST
    assert not any(letter in made for letter in "\n\r\0\x7f\u2028\x85")


def test_a_plain_name_stays_as_it_is() -> None:
    assert clean('Zoë "the\\ boss"') == 'Zoë "the\\ boss"'
    assert clean("a" * 500) == "a" * (LONGEST - 1) + "…"


@given(sums, st.integers(0, 5), st.integers(0, 5), st.integers(2, 40))
def test_the_sum_stays_and_the_number_of_samples_is_bounded(many: dict[tuple[str, ...], float], first: int, second: int, most: int) -> None:
    [found] = bounded([many], [(1, first), (2, second)], lambda place: weights(many, place), most)
    assert sum(found.values()) == sum(many.values())
    assert len(found) <= most
    for place, limit in ((1, first), (2, second)):
        assert len({labels[place] for labels in found} - {"other"}) <= limit


def test_the_heaviest_are_kept_and_of_equals_the_same_each_time() -> None:
    assert top({"a": 1, "b": 3, "c": 1, "d": 1}, 3) == {"b", "a", "c"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", Resources()),
        ("cpu=4,mem=4G,node=2,billing=4", Resources(4, 4 * 1024**3, 2)),
        ("cpu=1,mem=512", Resources(1, 512 * 1024**2)),
        ("gres/gpu=2,gres/gpu:h100=2,gres/hca:x=1", Resources(gres={"gpu": 2, "hca": 1})),
        ("cpu=,mem=lots,=,x", Resources()),
    ],
)
def test_tres(text: str, found: Resources) -> None:
    assert read_tres(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("(null)", {}),
        ("gpu:8", {GresKind("gpu"): 8}),
        ("gpu", {GresKind("gpu"): 1}),
        ("gpu:h100:2(IDX:0,3-4),hca:1(IDX:0)", {GresKind("gpu", "h100"): 2, GresKind("hca"): 1}),
        ("mig:1g.10gb:7(S:0-1)", {GresKind("mig", "1g.10gb"): 7}),
        ("gpu:a:2,gpu:a:3", {GresKind("gpu", "a"): 5}),
        ("bandwidth:4K", {GresKind("bandwidth"): 4096}),
    ],
)
def test_gres(text: str, found: dict[GresKind, float]) -> None:
    assert read_gres(text) == found
