"""The environment of an exported package for Gymnasium: one dialogue an episode, text in, text out.

An action is the agent's raw reply, and the observation is what the human says, first its request. `info["messages"]`
has the whole dialogue as the agent reads it in `sweet rollout`, with its system prompt. The reward is 0 until the
dialogue ends, and then that of `sweet eval`. `terminated` says that the agent answered or that its turns are used up;
`truncated`, that a fault of the human ended the dialogue.

Gymnasium's environments are called from ordinary code, while the human and the scorer run in an event loop: each
environment has one in a thread of its own.
"""

from __future__ import annotations

import asyncio
import string
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
from gymnasium import spaces

from sweet.environments.episode import Episode
from sweet.environments.settings import EnvironmentSettings
from sweet.environments.world import open_world, reward_of
from sweet.errors import UsageError
from sweet.gathering import opened_in_thread
from sweet.suggestions import did_you_mean
from sweet.tasks.base import Message

LONGEST = 1_000_000
"""Characters of an action and of an observation at most."""

T = TypeVar("T")


class AnyText(spaces.Text):
    """Text of any characters; samples are of printable ASCII.

    A reply of a model may contain every character, and `spaces.Text` requires that all are listed.
    """

    def __init__(self, max_length: int = LONGEST, seed: int | None = None) -> None:
        super().__init__(max_length=max_length, min_length=0, charset=string.printable, seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return text of at most 100 characters."""
        length = int(self.np_random.integers(0, 100))
        return "".join(self.np_random.choice(list(string.printable), size=length))


class SweetEnv(gymnasium.Env[str, str]):
    """One dialogue after the other.

    Args:
        folder: of the exported package, with its settings and tasks.
        settings: that replace those of the package: `sim`, `sim_url`, `persona`, `human_tries`, `sandbox`, `workers`.

    Raises:
        SweetError: something that the human or the scorer needs is missing, or a setting is invalid.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, folder: str | Path, render_mode: str | None = None, **settings: Any) -> None:
        self.render_mode = render_mode
        self.action_space, self.observation_space = AnyText(), AnyText()
        configured = EnvironmentSettings.read(Path(folder), settings)
        self._episode: Episode | None = None
        self._samples: dict[str, int] = {}
        self._messages: list[Message] = []
        self._stack = ExitStack()
        self._world, self._loop = self._stack.enter_context(opened_in_thread(open_world(configured)))
        self.tasks = self._world.dialogues.tasks
        self._place = {task.id: place for place, task in enumerate(self.tasks)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin a dialogue on a task that the seed draws, or on `options["task"]`, the id of one.

        Raises:
            UsageError: there is no such task.
        """
        super().reset(seed=seed)
        name = (options or {}).get("task")
        if name is None:
            place = int(self.np_random.integers(len(self.tasks)))
        elif name in self._place:
            place = self._place[name]
        else:
            what = f"There is no task {name!r}.{did_you_mean(str(name), self._place)}"
            raise UsageError(what, where='options["task"]', fix="one of the ids in tasks.jsonl")
        task = self.tasks[place]
        if self._episode is not None:
            self._wait(self._episode.aclose())
        sample = self._samples.get(task.id, 0)
        self._samples[task.id] = sample + 1
        self._episode = self._world.episode(task, place=place, sample=sample)
        self._messages = self._wait(self._episode.start())
        return self._messages[-1].content, self._info()

    def step(self, action: object) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take the agent's raw reply.

        Raises:
            UsageError: there is no dialogue under way.
            SweetError: the human's server failed, or the task is invalid.
        """
        episode = self._episode
        if episode is None or episode.over:
            raise UsageError("There is no dialogue under way.", where="step", fix="call reset first")
        if not isinstance(action, str):
            raise UsageError(f"An action is text, not {type(action).__name__}.", where="step", fix="the agent's reply")
        messages = self._wait(episode.reply(action))
        if messages is not None:
            self._messages = messages
            return messages[-1].content, 0.0, False, False, self._info()
        trajectory = episode.trajectory
        assert trajectory is not None
        score = self._wait(self._world.score(trajectory))
        reward = reward_of(score)
        last = trajectory.dialogue_history[-1]
        self._messages = trajectory.messages(self._messages[0].content)
        facts = {
            "outcome": trajectory.outcome,
            "answer": trajectory.answer,
            "passed": score.passed,
            "total": score.total,
        }
        fault = trajectory.ended_by_fault
        observation = last.content if last.role == "user" else ""
        return observation, reward, not fault, fault, {**self._info(), **facts}

    def render(self) -> str | None:
        """Return the dialogue so far as text (`render_mode="ansi"`)."""
        if self.render_mode != "ansi":
            return None
        names = {"assistant": "agent", "user": "human", "system": "system"}
        return "\n\n".join(f"{names[message.role]}: {message.content}" for message in self._messages)

    def close(self) -> None:
        """Close the human and the scorer."""
        if self._episode is not None and not self._loop.is_closed():
            self._wait(self._episode.aclose())
        self._stack.close()

    def _info(self) -> dict[str, Any]:
        rows = [message.model_dump(exclude_none=True) for message in self._messages]
        assert self._episode is not None
        return {"messages": rows, "task": self._episode.task_id}

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise UsageError("The environment is closed.", where="gymnasium", fix="make it again")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
