"""An object as it is once admission has had its say: for those who look at pods that never went through the webhook. Pure."""

from collections.abc import Mapping
from typing import Any

from slinky.bridge.admission import Verdict

__all__ = ["admitted"]


def admitted(document: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    """A copy with what the verdict adds: all of it is `add`, into mappings and at the end of lists."""
    found = dict(document)
    for patch in verdict.patches:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in patch["path"].split("/")[1:])
        place: Any = found
        for part in path:
            index: Any = int(part) if isinstance(place, list) else part
            inner = place[index] if isinstance(place, list) else place.get(index, {})
            place[index] = list(inner) if isinstance(inner, list) else dict(inner)
            place = place[index]
        if isinstance(place, list):
            place.append(patch["value"])
        else:
            place[last] = patch["value"]
    return found
