"""Node labels as Slurm features, where the site maps them, and what a pod asks of labels as a Slurm constraint. Pure.

Comes in: the map (label → prefix), a node's labels; a pod's nodeSelector and required node affinity, and the features that Slurm's nodes have. Goes out: the node's features; a `Constraint`: what can be said in features, as a text that Slurm
reads and as a test of a node's features. What must stay true: a constraint never keeps out a node that Kubernetes would accept: what cannot be said in features (NotIn, Gt, a label that is not mapped) is left out of it, and the nodes that
it would have kept out are excluded by name instead.

Slurm reads `(a|b)&c` and `(a&b)|(c&d)`; it refuses a feature that no node has, and knows no "not".
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

import msgspec

from slinky.bridge.eligibility import label_rules
from slinky.bridge.eligibility.selectors import Requirement
from slinky.kube.objects import Pod

__all__ = ["ANYWHERE", "Constraint", "constraint_of", "features_from", "is_plain"]

_VALUE = re.compile(r"[A-Za-z0-9_.-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/=+-]*(&[A-Za-z0-9_][A-Za-z0-9_.:/=+-]*)*")

Choice = frozenset[str]  # one of these features


class Constraint(msgspec.Struct, frozen=True):
    """`ways`: one of these; each is a list of choices, all of which must hold. No way at all is a constraint that no node meets; a way without choices one that all meet."""

    ways: tuple[tuple[Choice, ...], ...] = ((),)

    @property
    def is_anything(self) -> bool:
        return any(not way for way in self.ways)

    @property
    def is_impossible(self) -> bool:
        return not self.ways

    def holds(self, features: Collection[str]) -> bool:
        return any(all(not choice.isdisjoint(features) for choice in way) for way in self.ways)

    def text(self) -> str:
        """As Slurm reads it; empty where it says nothing."""
        if self.is_anything or self.is_impossible:
            return ""
        if len(self.ways) == 1:
            return "&".join(sorted(_choice(choice) for choice in self.ways[0]))
        return "|".join(f"({'&'.join(sorted(_one(choice) for choice in way))})" for way in self.ways)


ANYWHERE = Constraint()


def features_from(labels: Mapping[str, str], mapped: Mapping[str, str]) -> list[str]:
    """Those of a node, in the order of the map. A value that cannot stand in a feature is left out: pods that ask for it find their nodes by name."""
    return [_feature(prefix, labels[label]) for label, prefix in mapped.items() if _VALUE.fullmatch(labels.get(label, ""))]


def constraint_of(pod: Pod, mapped: Mapping[str, str], features: Collection[str]) -> Constraint:
    """What of the pod's nodeSelector and required node affinity can be said in `features`, which are those that Slurm's nodes have."""
    rules = label_rules(pod) if mapped else None
    if rules is None:
        return ANYWHERE
    # Terms repeat each other, and all of them the nodeSelector.
    told = cache(lambda wish: _said(wish, mapped, features))
    found = [_way([told(wish) for wish in alternative.labels]) for alternative in rules]
    possible = tuple(way for way in found if way is not None)
    if len(possible) > 1 and any(
        len(choice) > 1 for way in possible for choice in way
    ):  # Slurm reads no choice within alternatives: what all have in common can be said
        everywhere = frozenset.intersection(*(frozenset(alternative.labels) for alternative in rules))
        return Constraint((_way([told(wish) for wish in rules[0].labels if wish in everywhere]) or (),))
    return Constraint(possible)


def is_plain(text: str) -> bool:
    """Whether a user's constraint is features joined by `&`, so that more can be joined to it."""
    return _PLAIN.fullmatch(text) is not None


def _said(wish: Requirement, mapped: Mapping[str, str], features: Collection[str]) -> Choice | None:
    """The features of which a node must have one; None where it cannot be said."""
    prefix = mapped.get(wish.key)
    if prefix is None:
        return None
    if wish.operator == "Exists":
        return frozenset(feature for feature in features if feature.startswith(_feature(prefix, "")))
    if wish.operator != "In" or not all(_VALUE.fullmatch(value) for value in wish.values):
        return None
    return frozenset(feature for value in wish.values if (feature := _feature(prefix, value)) in features)


def _way(choices: Sequence[Choice | None]) -> tuple[Choice, ...] | None:
    """All that can be said; None where one of them has nothing to choose from."""
    said: Iterable[Choice] = dict.fromkeys(choice for choice in choices if choice is not None)
    found = tuple(said)
    return None if any(not choice for choice in found) else found


def _choice(choice: Choice) -> str:
    return _one(choice) if len(choice) == 1 else f"({'|'.join(sorted(choice))})"


def _one(choice: Choice) -> str:
    return next(iter(choice))


def _feature(prefix: str, value: str) -> str:
    return f"{prefix}={value}"
