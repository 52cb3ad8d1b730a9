"""The environment of an exported package for the library verifiers, by its interface v1.

The package names a taskset, an environment and a harness, which are the classes here with the package's folder. The
taskset yields the tasks; the environment plays the human between the turns of the one agent, and records the score; the
harness asks the model, in this process.

With this harness the agent reads exactly what it reads in `sweet rollout`: of its own earlier replies the part that the
human saw. Where that is not the whole reply, verifiers records another branch of the trace. With another harness
(`--env.agent.harness.id null`) it reads its replies as they were.

The reward is that of `sweet eval`. A dialogue that a fault ended has the reward 0, as there, and the metric `fault` 1;
a server of the human that fails makes the episode an error, which has no reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

import httpx
import verifiers.v1 as vf
from pydantic import Field

from sweet.environments.episode import Episode
from sweet.environments.settings import EnvironmentSettings
from sweet.environments.world import World, open_world, reward_of
from sweet.errors import SweetError
from sweet.rollouts.prepare import load_dialogues
from sweet.stages.base import Silent
from sweet.tasks.base import Task, chat_rows
from sweet.tasks.kind import opening
from sweet.tasks.trajectory import Outcome, Trajectory

AGENT_SECONDS = 3600.0
"""Seconds that one reply of the agent's model may take."""

_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")
"""The limits of verifiers that end a dialogue."""


class SweetTasksetConfig(vf.TasksetConfig):
    """The taskset has no options of its own."""


class SweetData(vf.TaskData):
    """A task on the wire.

    Attributes:
        row: the task as in `tasks.jsonl`, with its hidden information and tests, which the agent does not see.
    """

    row: dict[str, Any] = Field(default_factory=dict)


class SweetTask(vf.Task[SweetData, vf.State, vf.TaskConfig]):
    """A task; the environment scores it."""


class SweetTaskset(vf.Taskset[SweetTask, SweetTasksetConfig]):
    """The tasks of the package.

    Attributes:
        folder: with its settings and tasks.
    """

    folder: ClassVar[Path]

    def load(self) -> Iterator[SweetTask]:
        settings = EnvironmentSettings.read(self.folder)
        dialogues = load_dialogues(None, settings.rollout, Silent())
        for task in dialogues.tasks:
            system, request = opening(dialogues.kind, task, settings.rollout.max_turns)
            data = SweetData(
                id=task.id,
                name=task.id,
                prompt=request.content,
                system_prompt=system.content or None,
                row=task.model_dump(mode="json", exclude_defaults=True),
            )
            yield SweetTask(data, self.config.task)


class SweetEnvConfig(vf.EnvConfig):
    """The options of the environment (`--env.sim`, …); one that is not given is that of the package."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    sim: str | None = None
    """The model that plays the human; `scripted` needs none."""
    sim_url: list[str] | None = None
    """Its OpenAI-compatible servers."""
    persona: list[str] | None = None
    """How the human speaks."""
    human_tries: int | None = None
    """Replies that the human's model is asked for until one does not leak the solution."""
    sandbox: str | None = None
    """Tier of the sandbox that runs answers."""
    workers: int | None = None
    """Answers that are run in parallel."""


class SweetEnv(vf.Env[SweetEnvConfig]):
    """The human, between the turns of the agent."""

    _stack: AsyncExitStack | None = None
    _world: World | None = None

    async def start(self) -> None:
        folder = type(self.taskset).folder
        names = ("sim", "sim_url", "persona", "human_tries", "sandbox", "workers")
        settings = EnvironmentSettings.read(folder, {name: getattr(self.config, name) for name in names})
        self._stack = AsyncExitStack()
        self._world = await self._stack.enter_async_context(open_world(settings))

    async def stop(self) -> None:
        self._world = None
        if self._stack is not None:
            await self._stack.aclose()

    async def run(self, task: Any, agents: Any) -> None:
        assert self._world is not None, "verifiers starts an environment before its first episode"
        world = self._world
        episode = world.episode(Task.model_validate(task.data.row), place=task.data.idx or 0)
        try:
            async with agents.agent.interaction(task) as interaction:
                trajectory = await self._play(episode, interaction, isinstance(agents.agent.harness, SweetHarness))
            trace = interaction.trace
            if not trace.ok:  # the agent's model failed: verifiers records the error, and there is nothing to score
                return
            score = await world.score(trajectory)
        finally:
            await episode.aclose()
        reward = reward_of(score)
        trace.record_reward("reward", reward)
        passed = {"passed": float(score.passed), "total": float(score.total)} if score.total else {}
        rewards = world.dialogues.kind.rewards
        solved = rewards.worth(reward) if rewards.solved is not None else None
        trace.record_metrics(
            {"fault": float(trajectory.ended_by_fault), **passed, **({} if solved is None else {"solved": solved})}
        )
        trace.info["sweet"] = _record(trajectory)

    async def _play(self, episode: Episode, interaction: Any, exact: bool) -> Trajectory:
        """Play the dialogue to its end.

        Args:
            exact: whether the harness sends what it is given, and not the replies as they were.
        """
        await episode.start()
        segment = await interaction.turn()
        while not segment.terminated:
            last = next(message for message in reversed(segment.messages) if isinstance(message, vf.AssistantMessage))
            messages = await episode.reply(last.content or "", last.reasoning_content)
            if messages is None:
                assert episode.trajectory is not None
                return episode.trajectory
            segment = await interaction.turn(chat_rows(messages) if exact else messages[-1].content)
        trace = interaction.trace
        limited: Outcome = "token_limit" if str(trace.stop_condition) in _LIMITS else "agent_error"
        outcome: Outcome = "deadline" if trace.is_timeout else limited
        if outcome == "agent_error" and not trace.errors:
            raise SweetError(f"The harness gave no reply ({trace.stop_condition}).", where=str(trace.task.data.id))
        return await episode.stop(outcome, f"verifiers ended it ({trace.stop_condition})")


class SweetHarnessConfig(vf.HarnessConfig):
    """The harness has no options of its own."""


class SweetHarness(vf.Harness[SweetHarnessConfig]):
    """Asks the model for one reply to the messages that it is given. It runs no program."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> Any:
        system, prompt = self.resolve_prompt(data)
        head = [{"role": "system", "content": system}] if system else []
        return await self._ask(ctx, endpoint, secret, [*head, {"role": "user", "content": prompt}])

    async def resume(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
        messages: Any,
        tool_interception_url: str | None = None,
    ) -> Any:
        """Ask for the reply to `messages`, which are the whole dialogue and not its last message alone."""
        return await self._ask(ctx, endpoint, secret, [message.model_dump(exclude_none=True) for message in messages])

    async def _ask(
        self, ctx: Any, endpoint: str, secret: str, messages: list[dict[str, Any]], tools: Sequence[Any] = ()
    ) -> Any:
        body = {"model": ctx.model, "messages": messages} | ({"tools": tools} if tools else {})
        async with httpx.AsyncClient(timeout=AGENT_SECONDS, trust_env=False) as client:
            answer = await client.post(
                f"{endpoint.rstrip('/')}/chat/completions", json=body, headers={"Authorization": f"Bearer {secret}"}
            )
        failed = answer.status_code >= 400
        return vf.ProgramResult(exit_code=int(failed), stdout="", stderr=answer.text[-2000:] if failed else "")


def _record(trajectory: Trajectory) -> dict[str, Any]:
    """Return what `sweet data import` needs of a dialogue besides its messages and its task."""
    fields = {
        "outcome": trajectory.outcome,
        "fault": trajectory.fault,
        "human": trajectory.human,
        "answer": trajectory.answer,
    }
    return {name: value for name, value in fields.items() if value is not None}
