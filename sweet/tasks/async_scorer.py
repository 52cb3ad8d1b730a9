"""Scores dialogues one by one for callers of an event loop, many in each call of the scorer.

A scorer runs the answers that it gets at once in parallel. It runs in a thread, because scoring blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sweet.gathering import Gathering
from sweet.tasks.kind import TaskKind
from sweet.tasks.scores import Score, ScoringRequest
from sweet.tasks.trajectory import Trajectory

AsyncScorer = Gathering[Trajectory, Score]
"""An open scorer, for the tasks of one event loop."""


@asynccontextmanager
async def open_async_scorer(kind: TaskKind, request: ScoringRequest) -> AsyncIterator[AsyncScorer]:
    """Open the scorer of a kind for the tasks of an event loop, for the duration of the context.

    Raises:
        SweetError: something that the scorer needs is missing.
    """
    # Opening and closing a scorer blocks, and some start an event loop of their own.
    opened = kind.open_scorer(request)
    scorer = await asyncio.to_thread(opened.__enter__)

    async def scores(trajectories: Sequence[Trajectory]) -> list[Score]:
        return await asyncio.to_thread(lambda: [score for _, score in scorer.score(iter(trajectories))])

    gathering = Gathering(scores)
    try:
        yield gathering
    finally:
        await gathering.aclose()
        await asyncio.to_thread(opened.__exit__, None, None, None)
