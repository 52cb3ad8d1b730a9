"""A small rollout: the options of twelve short dialogues, the rows that it wrote, and replies that come too late."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sweet.llm.embedded import EmbeddedClient
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run

TASKS, SAMPLES = 6, 2
TOO_SHORT = 0.01
"""The deadline of a reply that never comes, in seconds."""


def config(**changes: Any) -> RolloutConfig:
    return RolloutConfig(**{"num_tasks": TASKS, "samples": SAMPLES, "max_tokens": 64, "max_turns": 4, **changes})


def rows(run: Run, number: int = 1) -> list[dict[str, Any]]:
    path = run.file(run.artifact(f"rollouts-{number}"))
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def late_replies() -> Iterator[None]:
    """Models in this process sample their replies, which never arrive. However short a deadline is, a real reply may
    come before it is looked at."""
    chat = EmbeddedClient.chat

    async def late(*asked: Any) -> None:
        await chat(*asked)
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedClient, "chat", late)
        yield
