"""A list cut into its items, however it arrives."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.slurm import BadAnswerError
from slinky.slurm import streams as streams_module
from slinky.slurm.streams import Splitter

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.sampled_from('ab"\\{}[],:\n é')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"]{', max_size=3), inner, max_size=3),
    max_leaves=6,
)
items = st.lists(st.dictionaries(st.sampled_from(["jobs", "name", "x"]), values, max_size=3), max_size=6)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(items, values, st.lists(st.integers(0, 10_000), max_size=8), st.sampled_from([None, 2]))
def test_the_items_come_out_whole(jobs: list[dict[str, Any]], other: Any, places: list[int], indent: int | None) -> None:
    document = json.dumps({"before": other, "jobs": jobs, "after": {"jobs": jobs}}, indent=indent, ensure_ascii=False).encode()
    splitter = Splitter("jobs")
    found = [json.loads(text) for piece in cut(document, places) for text in splitter.feed(piece)]
    assert found == jobs
    assert splitter.complete


@given(items.filter(bool), st.integers(1, 10_000))
def test_a_document_that_ends_in_the_middle_is_not_complete(jobs: list[dict[str, Any]], place: int) -> None:
    document = json.dumps({"jobs": jobs}).encode()
    splitter = Splitter("jobs")
    list(splitter.feed(document[: -(1 + place % (len(document) - 1))]))
    assert not splitter.complete


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "LARGEST_ITEM", 1000)
    splitter = Splitter("jobs")
    list(splitter.feed(b'{"jobs": ['))
    for _ in range(1000):  # a long list of small items is fine
        assert list(splitter.feed(b'{"a": 1}, ')) == [b'{"a": 1}']
        assert len(splitter._buffer) < 100
    with pytest.raises(BadAnswerError, match="larger"):
        list(splitter.feed(b'{"a": "' + b"x" * 2000))
