"""Labels are harmless and few, and no sum changes by it."""

from hypothesis import given
from hypothesis import strategies as st

from slinky.exporter.labels import LONGEST, bounded, clean, top, weights

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
