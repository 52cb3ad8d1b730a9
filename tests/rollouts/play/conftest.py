"""A person that is a program: it sees situations and decides, in the event loop of the player."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweet.rollouts.play.config import PlayConfig, PlayMetrics
from sweet.rollouts.play.interface import Action, Actions, Play, Situation
from sweet.rollouts.play.stage import run_play
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent, StageResult
from sweet.tasks.trajectory import Trajectory

Decide = Callable[[Situation], Action | None]


class Scripted:
    """Answers each situation in which something is to be done by the next of some actions, and then leaves.

    Attributes:
        seen: the situations. said: the messages.
    """

    def __init__(self, actions: Iterable[Action] = (), decide: Decide | None = None) -> None:
        self._left: Iterator[Action] = iter(actions)
        self._decide = decide or (lambda _: next(self._left, Action("leave")))
        self.seen: list[Situation] = []
        self.said: list[str] = []

    def run(self, play: Play) -> None:
        async def work() -> None:
            self._queue: Actions = asyncio.Queue()
            await asyncio.wait_for(play(self._queue), 60)

        asyncio.run(work())

    def show(self, situation: Situation) -> None:
        self.seen.append(situation)
        self._act(situation)

    def say(self, text: str) -> None:
        self.said.append(text)
        if self.seen:
            self._act(self.seen[-1])

    def _act(self, situation: Situation) -> None:
        if situation.state != "waiting" and (action := self._decide(situation)) is not None:
            self._queue.put_nowait(action)

    def yours(self) -> list[Situation]:
        return [one for one in self.seen if one.state == "yours"]


def every(text: str) -> Decide:
    """Return a person who says the same at every turn and keeps every dialogue."""
    return lambda situation: Action("next") if situation.state == "finished" else Action("send", text)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def play(run: Run, person: Scripted, **settings: Any) -> StageResult[PlayMetrics]:
    shown: dict[str, Any] = {"name": "ada", "num_tasks": 2, "max_turns": 4, "max_tokens": 64}
    return run_play(run, PlayConfig(**shown | settings), Silent(), person)


def rows(run: Run, number: int = 1) -> list[Trajectory]:
    return list(read_jsonl(run.file(run.artifact(f"rollouts-{number}")), Trajectory))
