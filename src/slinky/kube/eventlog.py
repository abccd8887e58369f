"""Which Events are worth writing: repeated ones are counted, chatty objects are held back, and memory has an end.

Pure but for its own state; the caller says what time it is. In: things noted about objects. Out: writes to be made: a new Event, or a count on one that exists.
What must stay true: at most `most` kinds of Events are remembered; an object gets a burst and then a trickle; a repetition costs at most one write per `count_every`.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from slinky.kube.objects import ObjectReference

__all__ = ["EventLog", "Noted", "Write"]


@dataclass(frozen=True, slots=True)
class Noted:
    """What was noted, and of what: equal ones are one Event."""

    regarding: ObjectReference
    type: str
    reason: str
    note: str
    action: str


@dataclass(slots=True)
class _Series:
    count: int = 0
    last: float = 0.0
    written_count: int = 0
    written_at: float = 0.0
    name: str = ""  # of the Event at the server; empty until it was written
    queued: bool = False


@dataclass(frozen=True)
class Write:
    """A new Event where `name` is empty, else a new `count` for the one of that name. `last`: when it was last noted."""

    noted: Noted
    count: int
    last: float
    name: str


@dataclass
class _Bucket:
    tokens: float
    at: float


@dataclass
class EventLog:
    """After client-go's correlator: 25 at once and one every 5 minutes per object; a series is one where no more than 6 minutes pass between repetitions."""

    most: int = 4096
    burst: float = 25.0
    refill_seconds: float = 300.0
    series_seconds: float = 360.0
    count_every: float = 30.0
    dropped: int = 0
    _series: OrderedDict[Noted, _Series] = field(default_factory=OrderedDict)
    _due: OrderedDict[Noted, None] = field(default_factory=OrderedDict)
    _buckets: OrderedDict[str, _Bucket] = field(default_factory=OrderedDict)

    def note(self, noted: Noted, now: float) -> bool:
        """Whether there is something to write for it, now or later."""
        series = self._series.get(noted)
        if series is not None and now - series.last > self.series_seconds and not series.queued:
            del self._series[noted]
            series = None
        if series is None:
            if not self._allowed(noted.regarding, now):
                self.dropped += 1
                return False
            series = self._remember(noted)
        series.count += 1
        series.last = now
        self._series.move_to_end(noted)
        series.queued = True
        self._due[noted] = None
        if noted.type == "Warning":
            self._due.move_to_end(noted, last=False)  # before the news that all is well
        return True

    def take(self, now: float) -> Write | None:
        """The next write that is due."""
        for noted in self._due:
            series = self._series[noted]
            if not series.name or now - series.written_at >= self.count_every:
                del self._due[noted]
                series.queued = False
                series.written_count, series.written_at = series.count, now
                return Write(noted, series.count, series.last, series.name)
        return None

    def next_due(self) -> float | None:
        """When `take` has something; a moment in the past means now."""
        moments = [self._series[noted].written_at + self.count_every if self._series[noted].name else 0.0 for noted in self._due]
        return min(moments, default=None)

    def written(self, noted: Noted, name: str) -> None:
        """It is called `name` at the server now; an empty name: it is not there (any more), begin anew."""
        if noted in self._series:
            self._series[noted].name = name

    def lost(self, write: Write) -> None:
        """The write failed for good."""
        self.dropped += 1
        if not write.name and write.noted in self._series and not self._series[write.noted].queued:
            del self._series[write.noted]

    @property
    def waiting(self) -> int:
        return len(self._due)

    def __len__(self) -> int:
        return len(self._series)

    def _remember(self, noted: Noted) -> _Series:
        if len(self._series) >= self.most:
            oldest, series = self._series.popitem(last=False)
            if series.queued:
                del self._due[oldest]
                self.dropped += 1
        self._series[noted] = series = _Series()
        return series

    def _allowed(self, regarding: ObjectReference, now: float) -> bool:
        key = regarding.uid or f"{regarding.kind}/{regarding.namespace}/{regarding.name}"
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self.most:
                self._buckets.popitem(last=False)
            bucket = self._buckets[key] = _Bucket(self.burst, now)
        self._buckets.move_to_end(key)
        bucket.tokens = min(self.burst, bucket.tokens + (now - bucket.at) / self.refill_seconds)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
