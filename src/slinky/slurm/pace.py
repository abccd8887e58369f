"""How often to look: fast while things change, slower and slower while nothing does. Pure."""

import msgspec

__all__ = ["Pace"]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between two looks: `fastest` after a change, then each time `slower` times as long, up to `slowest`."""

    fastest: float = 0.25
    slowest: float = 5.0
    slower: float = 1.5

    def next(self, last: float, changed: bool) -> float:
        return self.fastest if changed else min(max(last, self.fastest) * self.slower, self.slowest)
