"""How often to look: fast while things change, slower and slower while nothing does. Pure."""

import msgspec

__all__ = ["Pace"]

LONGEST_REST = 30.0


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between two looks: `fastest` after a change, then each time `slower` times as long, up to `slowest`.

    `whole`: how often all nodes are asked for, not only whether one has changed: slurmctld (26.05) does not count it as a change that one was deleted. `share`: at most this share of the time is spent looking, however often things change; what a look costs so makes the next one wait, for half a minute at most.
    """

    fastest: float = 0.25
    slowest: float = 5.0
    slower: float = 1.5
    whole: float = 60.0
    share: float = 1.0

    def next(self, last: float, changed: bool) -> float:
        return self.fastest if changed else min(max(last, self.fastest) * self.slower, self.slowest)

    def rest(self, pause: float, cost: float) -> float:
        """The pause, or a longer one where the last look took `cost` seconds."""
        return max(pause, min(cost / self.share - cost, LONGEST_REST))
