"""What Ctrl-C does wherever it arrives in a call."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from sweet import collector


def interrupts(call: Callable[[], object]) -> int:
    """Do a call with an interrupt at each line of Python that it comes to, in turn, until it ends without one.

    Returns:
        How many there were. Each was raised as KeyboardInterrupt; another error is raised here, and one that was
        ignored ends the count early.
    """
    call()  # what Python keeps of the first call is not done again
    count = 0
    while _is_interrupted(call, count):
        count += 1
    return count


def lines(call: Callable[[], object]) -> int:
    """How many lines of Python a call comes to."""
    call()
    return _traced(call, lambda number: None)


def _is_interrupted(call: Callable[[], object], number: int) -> bool:
    def arrives(at: int) -> None:
        if at == number:
            raise KeyboardInterrupt

    try:
        _traced(call, arrives)
    except KeyboardInterrupt:
        return True
    return False


def _traced(call: Callable[[], object], event: Callable[[int], None]) -> int:
    count = 0

    def trace(frame: FrameType, *_: Any) -> Any:
        nonlocal count
        if frame.f_code.co_flags & inspect.CO_GENERATOR:  # Python ignores what is raised while it deletes one
            return None
        event(count)
        count += 1
        return trace

    before = sys.gettrace()
    with collector.paused():  # what others let it call at a collection, as Hypothesis does, is no part of the call
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)
    return count
