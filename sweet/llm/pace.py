"""How hard a model's servers are asked: how many requests at once, and when one is asked a second time.

`Pace` admits requests up to a limit that finds itself. It doubles as long as more requests at once bring more answers a
second, then stays where the answers stopped growing, and tries for more now and then. Where a share of the answers are
refusals (429, 5xx, no answer) that the servers do not get over by themselves, it shrinks by half that share. Whoever
runs the rollout sets the ceiling, at any time.

A request that takes far longer than nearly all before it has probably been lost: a second one is sent beside it, and
the first answer counts (Dean and Barroso, "The Tail at Scale", 2013). Both carry the same sampling seed. At most one
request in twenty is sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

START = 64
"""Requests at once that are tried first."""
TROUBLE = 0.15
"""Share of refusals in a window above which the limit shrinks: some fail by chance on healthy servers."""
GROWTH = 1.02
"""A step up that brings less than this much more was one too many."""
HOLD_SECONDS = 10.0
SHORTEST_WINDOW, LONGEST_WINDOW, FEWEST = 0.2, 5.0, 20
"""Seconds, and answers, over which a limit is judged."""

SLOW = 2.0
"""A request is asked again after so many times the 99th percentile of the answers' seconds."""
SHORTEST_WAIT = 1.0
SAMPLES, ENOUGH_SAMPLES = 512, 64
SPARE_SHARE, SPARE_LEAST = 0.05, 5


class Pace:
    """The pace of one client. Belongs to one event loop."""

    def __init__(self, ceiling: int, start: int = START, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ceiling = max(1, ceiling)
        self.limit = min(self._ceiling, start)
        self.under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._doubling = True
        self._best = (0, 0.0)
        self._hold_until = 0.0
        self._open_window()
        self._seconds: deque[float] = deque(maxlen=SAMPLES)
        self._fresh = 0
        self._slow: float | None = None
        self._asked = self._spared = 0

    @property
    def ceiling(self) -> int:
        """Requests at once at most."""
        return self._ceiling

    @ceiling.setter
    def ceiling(self, value: int) -> None:
        grown = value > self._ceiling
        self._ceiling = max(1, value)
        self.limit = min(self.limit, self._ceiling)
        if grown:
            self._hold_until = 0.0
        self._admit()

    async def enter(self) -> None:
        """Wait for a place; `leave` gives it back."""
        self._asked += 1
        if self.under_way < self.limit and not self._waiting:
            self.under_way += 1
            return
        self._pressed = True
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.under_way -= 1
                self._admit()
            raise

    def leave(self, seconds: float) -> None:
        """Give the place back after an answer that took `seconds`."""
        self._seconds.append(seconds)
        self._fresh += 1
        self._count(refused=0)

    def refused(self) -> None:
        """Give the place back after a refusal that may pass: 429, 5xx, no connection, no answer."""
        self._count(refused=1)

    def withdraw(self) -> None:
        """Give the place back after what says nothing of the servers' load."""
        self.under_way -= 1
        self._admit()

    def _count(self, refused: int) -> None:
        self.under_way -= 1
        self._done += 1
        self._refused += refused
        now = self._clock()
        typical = self._seconds[-1] if self._seconds else LONGEST_WINDOW
        shortest = min(max(SHORTEST_WINDOW, typical), LONGEST_WINDOW)
        if now - self._opened >= shortest and self._done >= min(self.limit, FEWEST):
            self._adjust(now)
        self._admit()

    def patience(self, tries: int) -> float | None:
        """Seconds after which a request that has been sent `tries` times is sent once more; None where never."""
        if self._fresh >= ENOUGH_SAMPLES or (self._slow is None and len(self._seconds) >= ENOUGH_SAMPLES):
            self._fresh = 0
            ordered = sorted(self._seconds)
            self._slow = max(SHORTEST_WAIT, SLOW * ordered[int(0.99 * (len(ordered) - 1))])
        if self._slow is None or self._spared >= SPARE_LEAST + SPARE_SHARE * self._asked:
            return None
        return self._slow * 2.0 ** (tries - 1)

    def spare(self) -> None:
        """Count a request that is sent a second time."""
        self._spared += 1

    def _open_window(self) -> None:
        self._opened = self._clock()
        self._done = self._refused = 0
        self._pressed = bool(self._waiting)

    def _adjust(self, now: float) -> None:
        share = self._refused / self._done
        rate = (self._done - self._refused) / (now - self._opened)
        if share > TROUBLE:
            self.limit = max(1, int(self.limit * (1 - share / 2)))
            self._doubling, self._best = False, (0, 0.0)
        elif self._pressed and now >= self._hold_until:
            self._grow(rate, now)
        self._open_window()

    def _grow(self, rate: float, now: float) -> None:
        limit, best = self._best
        if rate > GROWTH * best:
            self._best = (self.limit, rate)
            self.limit = min(self._ceiling, max(self.limit + 1, int(self.limit * (2 if self._doubling else 1.25))))
        elif self.limit > limit:
            # More at once brought no more: go back, and forget how it was, so that a later try is judged afresh.
            self.limit, self._best, self._doubling = max(1, limit), (0, 0.0), False
            self._hold_until = now + HOLD_SECONDS

    def _admit(self) -> None:
        while self._waiting and self.under_way < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.under_way += 1
                turn.set_result(None)
