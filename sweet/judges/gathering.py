"""One judge for many dialogues under way: what they ask at the same time is judged in one call.

A call is started as soon as the judge is free (`Judge.max_calls`), with all turns that wait then, at most
`Judge.batch_size`. So no turn waits for a batch to become full, and while the judge is busy the next batch gathers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from sweet.judges.base import Judge, JudgedTurn, SampledTurn


class GatheringJudge:
    """Judges single turns by calls of `judge` on several."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._waiting: deque[tuple[SampledTurn, asyncio.Future[JudgedTurn]]] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself refers to tasks only weakly

    async def judge(self, turn: SampledTurn) -> JudgedTurn:
        """Judge the replies of one turn.

        Raises:
            sweet.errors.ServerError: the judge cannot be reached.
        """
        answer: asyncio.Future[JudgedTurn] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, answer))
        if self._running < self._judge.max_calls:
            self._running += 1
            task = asyncio.create_task(self._call_until_none_waits())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _call_until_none_waits(self) -> None:
        while batch := list(self._next_batch()):
            try:
                judged = await self._judge.judge([turn for turn, _ in batch])
            except Exception as error:  # whoever waits for it handles it
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for (_, answer), of_turn in zip(batch, judged, strict=True):
                    if not answer.done():
                        answer.set_result(of_turn)
        self._running -= 1

    def _next_batch(self) -> Iterator[tuple[SampledTurn, asyncio.Future[JudgedTurn]]]:
        """Take the turns that wait, without those whose dialogues were stopped meanwhile."""
        taken = 0
        while self._waiting and taken < self._judge.batch_size:
            turn, answer = self._waiting.popleft()
            if not answer.done():
                taken += 1
                yield turn, answer
