"""An adaptive concurrency limit for the requests to a model's servers, and hedged requests.

`AdaptiveLimiter` admits requests up to a limit that adapts to the servers. The limit doubles as long as more concurrent
requests increase throughput, or latency does not increase (then the servers had spare capacity). Otherwise it returns
to the last limit that increased throughput, and tries again after a pause. If the share of dropped requests (429, 5xx,
no response) is higher than chance explains, the limit shrinks by half that share. A limit is judged only by requests
that were sent after it was set. The stage sets an upper bound, which may change at any time.

A request that takes longer than the 99th percentile of earlier ones may have been lost: a second copy is sent, and the
first response is used (hedged requests; Dean and Barroso, "The Tail at Scale", 2013). Both carry the same sampling
seed. At most one request in twenty is sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

INITIAL_LIMIT = 128
"""Initial number of concurrent requests to each server."""
MAX_DROPPED_SHARE = 0.15
"""Share of dropped requests in a window above which the limit shrinks: healthy servers drop a few by chance."""
MIN_GAIN, MAX_SLOWDOWN = 1.05, 1.5
"""A larger limit is reverted if throughput grows by less than this factor and latency by more than that one."""
HOLD_SECONDS = 10.0
MIN_WINDOW, MAX_WINDOW = 20, 256
"""Requests over which a limit is judged: as many as the limit itself, within these bounds."""

MIN_HEDGE_SECONDS = 0.5
"""Seconds before which a request is never hedged."""
LATENCY_SAMPLES, MIN_LATENCY_SAMPLES = 512, 64
HEDGED_SHARE, MIN_HEDGES = 0.05, 5


@dataclass(frozen=True)
class _Measurement:
    """What was measured at a limit: responses per second, and seconds per response."""

    limit: int
    rate: float
    seconds: float


_NO_MEASUREMENT = _Measurement(0, 0.0, 0.0)


class AdaptiveLimiter:
    """The concurrency limit of one client. Belongs to one event loop.

    Args:
        max_limit: upper bound of the limit, at least 1.
        start: the initial limit.
        clock: returns seconds; replaced in tests.
    """

    def __init__(self, max_limit: int, start: int = INITIAL_LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._max_limit = max(1, max_limit)
        self.limit = min(self._max_limit, start)
        self.in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._doubling = True
        self._best = _NO_MEASUREMENT
        self._hold_until = 0.0
        self._start_window()
        self._latencies: deque[float] = deque(maxlen=LATENCY_SAMPLES)
        self._new_samples = 0
        self._hedge_after: float | None = None
        self._requests = self._hedges = 0

    @property
    def max_limit(self) -> int:
        """The upper bound of the limit."""
        return self._max_limit

    @max_limit.setter
    def max_limit(self, value: int) -> None:
        grown = value > self._max_limit
        self._max_limit = max(1, value)
        self.limit = min(self.limit, self._max_limit)
        if grown:
            self._hold_until = 0.0
        self._admit()

    async def acquire(self) -> None:
        """Wait until a request may be sent. Each call must be followed by one of the `on_…` methods."""
        self._requests += 1
        if self.in_flight < self.limit and not self._waiting:
            self.in_flight += 1
            return
        self._saturated = True
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.in_flight -= 1
                self._admit()
            raise

    def on_success(self, seconds: float) -> None:
        """Release after a response that took `seconds`."""
        self._latencies.append(seconds)
        self._new_samples += 1
        if self._clock() >= self._window_start:
            self._window_seconds += seconds
        self._count(dropped=0)

    def on_dropped(self) -> None:
        """Release after a transient failure: 429, 5xx, no connection, no response."""
        self._count(dropped=1)

    def on_ignored(self) -> None:
        """Release after a result that says nothing about the servers' load."""
        self.in_flight -= 1
        self._admit()

    def _count(self, dropped: int) -> None:
        self.in_flight -= 1
        now = self._clock()
        if now >= self._window_start:
            self._done += 1
            self._dropped += dropped
            if self._done >= min(max(self.limit, MIN_WINDOW), MAX_WINDOW):
                self._adjust(now)
        self._admit()

    def hedge_after(self) -> float | None:
        """Seconds without a response after which a request is hedged; None if it must not be."""
        if self._new_samples >= MIN_LATENCY_SAMPLES or (
            self._hedge_after is None and len(self._latencies) >= MIN_LATENCY_SAMPLES
        ):
            self._new_samples = 0
            ordered = sorted(self._latencies)
            self._hedge_after = max(MIN_HEDGE_SECONDS, ordered[int(0.99 * (len(ordered) - 1))])
        if self._hedge_after is None or self._hedges >= MIN_HEDGES + HEDGED_SHARE * self._requests:
            return None
        return self._hedge_after

    def count_hedge(self) -> None:
        """Record that a request was hedged."""
        self._hedges += 1

    def _start_window(self, settling: float = 0.0) -> None:
        self._window_start = self._clock() + settling
        self._done = self._dropped = 0
        self._window_seconds = 0.0
        self._saturated = bool(self._waiting)

    def _adjust(self, now: float) -> None:
        share = self._dropped / self._done
        good = self._done - self._dropped
        rate, seconds = good / max(now - self._window_start, 1e-9), self._window_seconds / max(good, 1)
        before = self.limit
        if share > MAX_DROPPED_SHARE:
            self.limit = max(1, int(self.limit * (1 - share / 2)))
            self._doubling, self._best = False, _NO_MEASUREMENT
        elif self._saturated and now >= self._hold_until:
            self._grow(_Measurement(self.limit, rate, seconds), now)
        self._start_window(settling=0.0 if self.limit == before else seconds)

    def _grow(self, tried: _Measurement, now: float) -> None:
        best = self._best
        if tried.rate > MIN_GAIN * best.rate or tried.seconds < MAX_SLOWDOWN * best.seconds:
            self._best = tried if tried.rate > best.rate else replace(best, limit=tried.limit)
            self.limit = min(self._max_limit, max(self.limit + 1, int(self.limit * (2 if self._doubling else 1.25))))
        elif self.limit > best.limit:
            # No gain: revert, and forget the measurements, so that the next attempt is judged on new ones.
            self.limit, self._best, self._doubling = max(1, best.limit), _NO_MEASUREMENT, False
            self._hold_until = now + HOLD_SECONDS

    def _admit(self) -> None:
        while self._waiting and self.in_flight < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
