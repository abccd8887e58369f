"""How long a workload has waited for its volumes, and when that is worth an Event. Pure, but for what it notes."""

from slinky.bridge.memory import Known

__all__ = ["is_to_be_told", "next_look", "wait_for", "wait_no_more"]

LONG_SECONDS = 10.0  # a claim that is made together with its pod is bound sooner


def wait_for(known: Known, why: str, now: float, until: float = 0.0) -> None:
    """`until` is a deadline, where there is one."""
    if not known.waits:
        known.waits_since, known.waits_told = now, False
    known.waits, known.waits_until = why, until


def wait_no_more(known: Known) -> None:
    known.waits, known.waits_since, known.waits_until, known.waits_told = "", 0.0, 0.0, False


def is_to_be_told(known: Known, now: float) -> bool:
    """Once, when it has taken long."""
    if not known.waits or known.waits_told or now < known.waits_since + LONG_SECONDS:
        return False
    known.waits_told = True
    return True


def next_look(known: Known) -> float:
    """0 where nothing but a change can help."""
    if not known.waits:
        return 0.0
    return known.waits_until if known.waits_told else known.waits_since + LONG_SECONDS
