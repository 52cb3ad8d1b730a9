"""The environment of an exported package as a server of OpenEnv: a dialogue an episode, text in, text out.

It is the environment for Gymnasium (`sweet.environments.gymnasium_env`) with OpenEnv's names: an action has the agent's
raw reply, an observation what the human says and the whole dialogue as chat messages, and the last one the reward.
`reset(seed=N)` draws a task, `reset(task=ID)` names one. Each session of a client has an environment of its own.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

from sweet.environments.gymnasium_env import SweetEnv

SESSIONS = 16
"""Sessions at once; each has a human and a scorer with a jail."""


class Reply(Action):  # type: ignore[misc, unused-ignore]
    text: str
    """The agent's raw reply."""


class Said(Observation):  # type: ignore[misc, unused-ignore]
    text: str = ""
    """What the human says; empty where the dialogue has ended."""
    messages: list[dict[str, Any]] = []  # noqa: RUF012 (pydantic copies it)
    """The dialogue as the agent reads it, its system prompt first."""
    task: str = ""
    truncated: bool = False
    """Whether a fault of the human ended the dialogue."""


class SweetEnvironment(Environment[Reply, Said, State]):  # type: ignore[misc, unused-ignore]
    """Arguments are those of `SweetEnv`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, folder: str | Path, **settings: Any) -> None:
        super().__init__()
        self._env, self._state = SweetEnv(folder, **settings), State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Said:
        """Begin a dialogue; see `SweetEnv.reset`."""
        text, info = self._env.reset(seed=seed, options=options)
        self._state = State(episode_id=episode_id, step_count=0)
        return Said(text=text, messages=info["messages"], task=info["task"])

    def step(self, action: Reply, timeout_s: float | None = None, **options: Any) -> Said:
        """Take the agent's reply; see `SweetEnv.step`."""
        text, reward, ended, truncated, info = self._env.step(action.text)
        self._state.step_count += 1
        observation = {"text": text, "messages": info["messages"], "task": info["task"], "truncated": truncated}
        return Said(**observation, reward=reward, done=ended or truncated)

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        self._env.close()


def app(folder: str | Path, **settings: Any) -> Any:
    """Return the server's application, for uvicorn."""
    environment = partial(SweetEnvironment, folder, **settings)
    return create_fastapi_app(environment, Reply, Said, max_concurrent_envs=SESSIONS)
