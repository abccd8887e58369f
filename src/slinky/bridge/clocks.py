"""What time it is at Slurm and at the API server, told by this process's monotonic clock.

Slurm's times (a job's end, its start) mean something only by slurmctld's own clock, which may differ from this host's by
any amount. So each answer that tells a server's time bounds the difference between that clock and our monotonic one, and
Slurm's times are compared with Slurm's time. This host's wall clock is compared with nothing; it serves to report a skew.

*Invariants:* where readings contradict each other, no time is told until several in a row agree again; nor is one told
that rests on old readings.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from slinky.kube import Client, EventRecorder, KubeError, ObjectReference

__all__ = ["SKEW_SECONDS", "ClockGauges", "ClockWatch", "RemoteClock", "read_kube_clock"]

log = logging.getLogger(__name__)

DRIFT = 1e-3  # seconds a second by which two clocks may part: twice what NTP slews at most
SLACK_SECONDS = 2.0  # a step of less is no news: every deadline has a larger margin
WIDEST_SECONDS = 5.0  # bounds further apart than this tell no time
OLDEST_SECONDS = 30.0  # nor does a reading older than this
AGREEING_READINGS = 3  # after a contradiction, so many readings must agree ...
AGREEING_SECONDS = 5.0  # ... over so many seconds
SKEW_SECONDS = 10.0  # a difference from this host's clock that is worth a warning

LOOK_SECONDS = 1.0
KUBE_SECONDS = 20.0  # between two readings of the API server's clock


class RemoteClock:
    """A server's clock, from answers that tell it in whole seconds. Pure but for its own state: the caller says what time it is here."""

    def __init__(self, *, oldest: float = OLDEST_SECONDS) -> None:
        self._oldest = oldest
        self._low = self._high = 0.0  # server's time = ours + something between the two
        self._agreeing = 0  # readings in a row
        self._since = 0.0  # the first of them
        self._last = float("-inf")
        self.contradictions = 0

    def note(self, said: float, sent: float, received: float) -> None:
        """The server said `said`, a whole second, in an answer to a request that was under way from `sent` to `received`."""
        low, high = said - received, said + 1.0 - sent
        drift = DRIFT * max(0.0, received - self._last) if self._agreeing else 0.0
        gap = max(low - (self._high + drift), (self._low - drift) - high)
        self._last = received
        if self._agreeing and gap > SLACK_SECONDS:
            self.contradictions += 1
            self._agreeing = 0
        if not self._agreeing:
            self._low, self._high, self._since = low, high, received
        elif gap > 0:
            self._low, self._high = low, high
        else:
            self._low, self._high = max(low, self._low - drift), min(high, self._high + drift)
        self._agreeing += 1

    def is_steady(self, now: float) -> bool:
        """Whether it can be told what time it is there."""
        if not self._agreeing or now - self._last > self._oldest or self._high - self._low > WIDEST_SECONDS:
            return False
        confirmed = self._agreeing >= AGREEING_READINGS and self._last - self._since >= AGREEING_SECONDS
        return confirmed or not self.contradictions

    def time(self, now: float) -> float | None:
        """Seconds since 1970 by the server's clock; None where that cannot be told."""
        return now + (self._low + self._high) / 2 if self.is_steady(now) else None

    def ahead_of(self, other: "RemoteClock", now: float) -> float:
        """By how many seconds it is ahead of another; 0 where that cannot be told, or is within what whole seconds can tell."""
        here, there = self.time(now), other.time(now)
        ahead = here - there if here is not None and there is not None else 0.0
        return ahead if abs(ahead) > SLACK_SECONDS else 0.0


async def read_kube_clock(kube: Client, clock: RemoteClock) -> None:
    """Ask the API server what time it is. A failure is logged: the clock tells no time when its readings are old."""
    loop = asyncio.get_running_loop()
    sent = loop.time()
    try:
        said = await kube.server_time(seconds=10.0)
    except KubeError as error:
        log.info("the API server's clock cannot be read: %s; again in %g s", error, KUBE_SECONDS)
        return
    if said is not None:
        clock.note(said.timestamp(), sent, loop.time())


class ClockGauges:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._ahead = Gauge(
            "slinky_bridge_clock_skew_seconds",
            "Seconds by which a server's clock (slurm, kubernetes) is ahead of this host's clock",
            ["clock"],
            registry=registry,
        )
        self._steady = Gauge(
            "slinky_bridge_clock_steady",
            "1 while a server's clock (slurm, kubernetes) can be relied on, 0 while no pod is evicted for a time limit",
            ["clock"],
            registry=registry,
        )

    def show(self, name: str, ahead: float | None) -> None:
        self._steady.labels(name).set(0 if ahead is None else 1)
        if ahead is not None:
            self._ahead.labels(name).set(ahead)

    def clear(self) -> None:
        self._ahead.clear()
        self._steady.clear()


class _Seen(msgspec.Struct):
    """What was last reported of a clock."""

    contradictions: int = 0
    unsteady: bool = False
    skewed: bool = False


class ClockWatch:
    """Reports skews and steps of the servers' clocks: in the log, as metrics, and as Events on the bridge's Lease.

    `readers` are clocks that nothing else reads, and how. Without `events` (shadow mode) there are no Events.
    """

    def __init__(
        self,
        clocks: Mapping[str, RemoteClock],
        readers: Sequence[Callable[[], Awaitable[None]]],
        gauges: ClockGauges,
        events: EventRecorder | None,
        lease: tuple[str, str],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clocks = clocks
        self._readers = readers
        self._gauges = gauges
        self._events = events
        self._lease = lease
        self._wall = wall
        self._seen = {name: _Seen() for name in clocks}

    async def run(self) -> None:
        """Until cancelled."""
        loop, read_at = asyncio.get_running_loop(), float("-inf")
        try:
            while True:
                if loop.time() - read_at >= KUBE_SECONDS:
                    read_at = loop.time()
                    for read in self._readers:
                        await read()
                for name, clock in self._clocks.items():
                    self._look(name, clock, loop.time())
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._gauges.clear()

    def _look(self, name: str, clock: RemoteClock, now: float) -> None:
        there, seen = clock.time(now), self._seen[name]
        ahead = there - self._wall() if there is not None else None
        self._gauges.show(name, ahead)
        server = "slurmctld" if name == "slurm" else "the API server"
        contradicted, seen.contradictions = clock.contradictions > seen.contradictions, clock.contradictions
        if contradicted and not seen.unsteady:
            seen.unsteady = True
            effect = "No pod is evicted for a time limit" if name == "slurm" else "The bridge does not use object times"
            self._say(
                "ClockUnsteady",
                f"{server}'s clock jumped, or this host was suspended. {effect} until {AGREEING_READINGS} readings in a row"
                " agree. Check NTP on both hosts",
            )
        elif seen.unsteady and ahead is not None:
            seen.unsteady = False
            self._say("ClockSteady", f"{server}'s clock is consistent again", warning=False)
        if ahead is None:
            return
        if abs(ahead) > SKEW_SECONDS and not seen.skewed:
            seen.skewed = True
            self._say(
                "ClockSkew",
                f"{server}'s clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this host's clock."
                f" The bridge uses {server}'s clock for {'time limits' if name == 'slurm' else 'object times'}."
                " Run an NTP client (chrony) on both hosts",
            )
        elif abs(ahead) < SKEW_SECONDS / 2:
            seen.skewed = False

    def _say(self, reason: str, text: str, *, warning: bool = True) -> None:
        log.log(logging.WARNING if warning else logging.INFO, "%s", text)
        if self._events is not None:
            namespace, name = self._lease
            about = ObjectReference(api_version="coordination.k8s.io/v1", kind="Lease", namespace=namespace, name=name)
            self._events.record(about, reason, text, warning=warning)
