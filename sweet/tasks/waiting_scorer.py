"""Scores dialogues one by one for callers of an event loop, many in each call of the scorer.

Dialogues that arrive while others are scored wait, and are then scored together: a scorer runs the answers that it gets
at once in parallel. It runs in a thread, because scoring blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sweet.tasks.kind import TaskKind
from sweet.tasks.scores import Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory


class WaitingScorer:
    """An open scorer, for the tasks of one event loop."""

    def __init__(self, scorer: TrajectoryScorer) -> None:
        self._scorer = scorer
        self._waiting: list[tuple[Trajectory, asyncio.Future[Score]]] = []
        self._work: asyncio.Task[None] | None = None

    async def score(self, trajectory: Trajectory) -> Score:
        """Return the score of a dialogue that has ended. Raises what the scorer raised for those it was scored with."""
        future: asyncio.Future[Score] = asyncio.get_running_loop().create_future()
        self._waiting.append((trajectory, future))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._score_waiting())
        return await future

    async def aclose(self) -> None:
        """Wait until the scorer is not used any more."""
        if self._work is not None:
            with suppress(asyncio.CancelledError):
                await self._work

    async def _score_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                scores = await asyncio.to_thread(self._scores, [trajectory for trajectory, _ in batch])
            except Exception as error:  # each of the dialogues gets it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), score in zip(batch, scores, strict=True):
                if not future.done():
                    future.set_result(score)

    def _scores(self, trajectories: list[Trajectory]) -> list[Score]:
        return [score for _, score in self._scorer.score(iter(trajectories))]


@asynccontextmanager
async def open_waiting_scorer(kind: TaskKind, request: ScoringRequest) -> AsyncIterator[WaitingScorer]:
    """Open the scorer of a kind for the tasks of an event loop, for the duration of the context.

    Raises:
        SweetError: something that the scorer needs is missing.
    """
    # Opening and closing a scorer blocks, and some start an event loop of their own.
    opened = kind.open_scorer(request)
    waiting = WaitingScorer(await asyncio.to_thread(opened.__enter__))
    try:
        yield waiting
    finally:
        await waiting.aclose()
        await asyncio.to_thread(opened.__exit__, None, None, None)
