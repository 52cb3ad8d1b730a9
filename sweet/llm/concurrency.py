"""How hard a model's servers are asked: how many requests at once, and when one is asked a second time.

`Pace` admits requests up to a limit that finds itself. It doubles as long as more requests at once bring more answers a
second, or answers take no longer (then the servers had room); where neither holds it goes back to the last limit that
brought more, and tries again now and then. Where a share of the answers are refusals (429, 5xx, no answer) that chance
does not explain, it shrinks by half that share. A limit is judged by the answers after those that were under way when
it was set. Whoever runs the rollout sets the ceiling, at any time.

A request that takes longer than 99 in 100 before it may have been lost: a second one is sent beside it, and the first
answer counts (Dean and Barroso, "The Tail at Scale", 2013). Both carry the same sampling seed. At most one request in
twenty is sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

START = 128
"""Requests at once to each server that are tried first."""
TROUBLE = 0.15
"""Share of refusals in a window above which the limit shrinks: some fail by chance on healthy servers."""
GROWTH, SLOWER = 1.05, 1.5
"""A step up that brings less than this much more, and answers that take this much longer, was one too many."""
HOLD_SECONDS = 10.0
FEWEST, MOST = 20, 256
"""Answers over which a limit is judged: as many as it allows at once, within these."""

SHORTEST_WAIT = 0.5
"""Seconds after which a request is sent again at the earliest."""
SAMPLES, ENOUGH_SAMPLES = 512, 64
SPARE_SHARE, SPARE_LEAST = 0.05, 5


@dataclass(frozen=True)
class _Limit:
    """What a limit brought: answers a second, and how long one took."""

    limit: int
    rate: float
    seconds: float


_NOTHING = _Limit(0, 0.0, 0.0)


class Pace:
    """The pace of one client. Belongs to one event loop."""

    def __init__(self, ceiling: int, start: int = START, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ceiling = max(1, ceiling)
        self.limit = min(self._ceiling, start)
        self.under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._doubling = True
        self._best = _NOTHING
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
        if self._clock() >= self._opened:
            self._took += seconds
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
        now = self._clock()
        if now >= self._opened:
            self._done += 1
            self._refused += refused
            if self._done >= min(max(self.limit, FEWEST), MOST):
                self._adjust(now)
        self._admit()

    def patience(self) -> float | None:
        """Seconds without an answer after which a request is sent once more; None where it is not."""
        if self._fresh >= ENOUGH_SAMPLES or (self._slow is None and len(self._seconds) >= ENOUGH_SAMPLES):
            self._fresh = 0
            ordered = sorted(self._seconds)
            self._slow = max(SHORTEST_WAIT, ordered[int(0.99 * (len(ordered) - 1))])
        if self._slow is None or self._spared >= SPARE_LEAST + SPARE_SHARE * self._asked:
            return None
        return self._slow

    def spare(self) -> None:
        """Count a request that is sent a second time."""
        self._spared += 1

    def _open_window(self, settling: float = 0.0) -> None:
        self._opened = self._clock() + settling
        self._done = self._refused = 0
        self._took = 0.0
        self._pressed = bool(self._waiting)

    def _adjust(self, now: float) -> None:
        share = self._refused / self._done
        good = self._done - self._refused
        rate, seconds = good / max(now - self._opened, 1e-9), self._took / max(good, 1)
        before = self.limit
        if share > TROUBLE:
            self.limit = max(1, int(self.limit * (1 - share / 2)))
            self._doubling, self._best = False, _NOTHING
        elif self._pressed and now >= self._hold_until:
            self._grow(_Limit(self.limit, rate, seconds), now)
        self._open_window(settling=0.0 if self.limit == before else seconds)

    def _grow(self, tried: _Limit, now: float) -> None:
        best = self._best
        if tried.rate > GROWTH * best.rate or tried.seconds < SLOWER * best.seconds:
            self._best = tried if tried.rate > best.rate else replace(best, limit=tried.limit)
            self.limit = min(self._ceiling, max(self.limit + 1, int(self.limit * (2 if self._doubling else 1.25))))
        elif self.limit > best.limit:
            # More at once brought no more: go back, and forget how it was, so that a later try is judged afresh.
            self.limit, self._best, self._doubling = max(1, best.limit), _NOTHING, False
            self._hold_until = now + HOLD_SECONDS

    def _admit(self) -> None:
        while self._waiting and self.under_way < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.under_way += 1
                turn.set_result(None)
