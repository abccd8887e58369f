"""JSON Patch (RFC 6902): the difference between two documents, as operations.

Pure. In: a document before and after. Out: operations that turn the one into the other. Keys may hold `/` and `~`, as annotations do.
What must stay true: applying the patch to `before` gives `after`; equal documents give no operation. Lists are compared place by place, and what is appended
is appended: Kubernetes lists have an order, and later mutations should see ours where it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["diff", "pointer"]


def pointer(*parts: str | int) -> str:
    """`pointer("metadata", "annotations", "a/b")` is `/metadata/annotations/a~1b`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def diff(before: Any, after: Any) -> list[dict[str, Any]]:
    return list(_changes("", before, after))


def _changes(path: str, before: Any, after: Any) -> Iterator[dict[str, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _mapping(path, before, after)
    elif _is_list(before) and _is_list(after):
        yield from _list(path, before, after)
    elif type(before) is not type(after) or before != after:
        yield {"op": "replace", "path": path, "value": after}


def _mapping(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key in before:
        if key not in after:
            yield {"op": "remove", "path": path + pointer(key)}
    for key, value in after.items():
        if key not in before:
            yield {"op": "add", "path": path + pointer(key), "value": value}
        else:
            yield from _changes(path + pointer(key), before[key], value)


def _list(path: str, before: Sequence[Any], after: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for index in range(len(before) - 1, len(after) - 1, -1):
        yield {"op": "remove", "path": path + pointer(index)}
    for index, value in enumerate(after):
        if index < len(before):
            yield from _changes(path + pointer(index), before[index], value)
        else:
            yield {"op": "add", "path": path + "/-", "value": value}


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
