"""Objects as YAML, as people write them."""

from collections.abc import Iterable
from typing import Any

import yaml

__all__ = ["as_yaml"]


def as_yaml(documents: Iterable[dict[str, Any]]) -> str:
    """One after another. What is said twice is written twice, without anchors."""
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=160, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True
