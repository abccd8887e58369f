"""Counts what code does, so that tests can say how work grows without a clock."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["calls"]


def calls(act: Callable[[], object]) -> int:
    """How many functions are called, Python's and C's."""
    count = 0

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # what a collection runs, of other tests' objects and of hypothesis, is not the work's
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count
