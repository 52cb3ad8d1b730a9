"""Trajectories as rows of the published layout, with the rewards of the newest scores."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import to_json

from sweet.runs.jsonl import read_jsonl
from sweet.runs.lineage import made_of
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import IMPORTED, agent_system
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory


def newest_rewards(run: Run, rollouts: Artifact) -> dict[str, float | None]:
    """Return the rewards of the newest scores of these rollouts, by dialogue; empty where they were not scored."""
    scores = next(made_of(run.manifest(), "scores", rollouts), None)
    return {} if scores is None else rewards_of(run, scores)


def rewards_of(run: Run, scores: Artifact) -> dict[str, float | None]:
    """Return the rewards of scores by dialogue."""
    return {score.id: score.reward for score in read_jsonl(run.file(scores), Score)}


def known_system(run: Run, rollouts: Artifact) -> str | None:
    """Return the agent's system prompt in the dialogues that have none of their own; None where it is not known, as in
    an import without it."""
    if is_imported(rollouts) and RolloutsMeta.of(rollouts).agent_system is None:
        return None
    return agent_system(run, rollouts)


def is_imported(rollouts: Artifact) -> bool:
    """Return whether dialogues were played by another program."""
    return RolloutsMeta.of(rollouts).agent == IMPORTED


def task_order(name: str) -> list[str | int]:
    """Return a key by which the ids of tasks are ordered, the numbers in them as numbers."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", name))]


def published_row(trajectory: Trajectory, reward: float | None, system: str | None = None) -> dict[str, Any]:
    """Return a row of the published layout. Fields at their default are omitted, except the published ones.

    Args:
        system: the agent's system prompt where the dialogue has none of its own.
    """
    if trajectory.agent_system is None:
        trajectory = trajectory.model_copy(update={"agent_system": system})
    row = trajectory.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    published = {"id": trajectory.id, "task": row["task"], "dialogue_history": row["dialogue_history"]}
    row = published | {"answer": trajectory.answer} | row
    row.pop("reward", None)
    return row if reward is None else row | {"reward": reward}


def without_thoughts(trajectory: Trajectory) -> Trajectory:
    """Return the dialogue without the agent's thoughts: the texts, the ids of the replies that have one, and where the
    agent read its earlier thoughts, the ids of the prompts."""
    keeps_thoughts = trajectory.thoughts == "keep"
    prompts = {"prompt_token_ids": None, "prompt_shared": None} if keeps_thoughts else {}
    thought = {"thought": None, "thought_tokens": None, "token_ids": None, "logprobs": None}
    turns = tuple(
        turn.model_copy(update=prompts | (thought if turn.thought is not None else {}))
        for turn in trajectory.dialogue_history
    )
    return trajectory.model_copy(update={"dialogue_history": turns, "thoughts": None})


def published_line(row: dict[str, Any]) -> bytes:
    """Return the row as a line of JSON with its newline."""
    return to_json(row, inf_nan_mode="constants") + b"\n"
