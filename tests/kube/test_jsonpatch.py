"""Differences, applied by a plain reading of RFC 6902, give the document after."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.kube.admission import diff, pointer

KEYS = st.text("ab/~", max_size=3)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("x", max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def applied(document: Any, patch: list[dict[str, Any]]) -> Any:
    document = copy.deepcopy(document)
    for operation in patch:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        if not parts:
            document = operation["value"]
            continue
        place = document
        for part in parts[:-1]:
            place = place[int(part) if isinstance(place, list) else part]
        last: Any = parts[-1]
        if isinstance(place, list) and last != "-":
            last = int(last)
        match operation["op"]:
            case "remove":
                del place[last]
            case "add" if last == "-":
                place.append(operation["value"])
            case "replace":
                assert place[last] is not KeyError
                place[last] = operation["value"]
            case "add":
                place[last] = operation["value"]
    return document


@given(DOCUMENTS, DOCUMENTS)
def test_a_patch_leads_from_before_to_after(before: Any, after: Any) -> None:
    assert repr(applied(before, diff(before, after))) == repr(after) or applied(before, diff(before, after)) == after
    assert diff(after, after) == []


def test_true_is_not_one() -> None:
    assert diff({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]


@pytest.mark.parametrize(("parts", "path"), [(("a", "b/c"), "/a/b~1c"), (("x~y", 0), "/x~0y/0"), ((), "")])
def test_pointers(parts: tuple[str | int, ...], path: str) -> None:
    assert pointer(*parts) == path
