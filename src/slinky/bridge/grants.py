"""The namespaces' grants, kept as namespaces and their labels come and go: the thin edge between the watch of namespaces and `policy`.

What must stay true: no grant rests on labels that are not known; a namespace that the watch has not shown yet has none, unless labels make no difference.
"""

from collections.abc import Callable

from slinky.bridge.policy import Grant, Policy
from slinky.kube import Cache, Change, Namespace

__all__ = ["Grants"]


class Grants:
    """`changed(namespace)` is called when a namespace's labels are others than before."""

    def __init__(self, policy: Policy, namespaces: Cache[Namespace], changed: Callable[[str], None] = lambda _: None) -> None:
        self._policy = policy
        self._namespaces = namespaces
        self._changed = changed
        self._known: dict[str, Grant] = {}
        namespaces.subscribe(self._namespace_changed)

    def of(self, namespace: str) -> Grant | None:
        """None where the namespace is not known (yet): to be asked again."""
        if (found := self._known.get(namespace)) is not None:
            return found
        held = self._namespaces.get(namespace)
        if held is None and self._policy.needs_labels:
            return None
        grant = self._policy.grant(namespace, held.metadata.labels if held else {})
        if held is not None:  # or what is long gone would be kept for ever
            self._known[namespace] = grant
        return grant

    def window(self, namespace: str) -> int:
        """How many jobs of it may wait; of one that is not known, one."""
        grant = self.of(namespace)
        return grant.window if grant else 1

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        name = change.key.name
        if change.old is not None and change.new is not None and change.old.metadata.labels == change.new.metadata.labels:
            return
        self._known.pop(name, None)
        if change.new is not None:
            self._changed(name)
