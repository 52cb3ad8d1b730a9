"""A server of OpenEnv on loopback, where a digit is to be guessed: `python openenv_server.py PORT`."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    number: int


class Seen(Observation):
    text: str = ""


class Guessing(Environment[Guess, Seen, State]):
    """Gives 0.5 for the number, 0.125 for one beside it, else -0.25; ends at the number or after four guesses."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self._number = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Seen:
        self._state, self._number = State(episode_id=episode_id, step_count=0), (seed or 0) * 7 % 10
        return Seen(text=f"Guess a digit; it is {'even' if self._number % 2 == 0 else 'odd'}.")

    def step(self, action: Guess, timeout_s: float | None = None, **options: Any) -> Seen:
        self._state.step_count += 1
        distance = abs(action.number - self._number)
        reward = 0.5 if not distance else 0.125 if distance == 1 else -0.25
        return Seen(text=f"off by {distance}", reward=reward, done=not distance or self._state.step_count >= 4)

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    app = create_fastapi_app(Guessing, Guess, Seen, max_concurrent_envs=8)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
