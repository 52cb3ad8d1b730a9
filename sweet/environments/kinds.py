"""Environments of other libraries as kinds of tasks: `verifiers:NAME`, and what others derive from `EnvironmentKind`.

A dialogue is an episode, which its toolbox holds. The score is the reward that the environment gave: it is part of the
state in which the toolbox leaves the dialogue, and the scorer only reads it. The libraries are imported where needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from sweet.errors import SweetError, UsageError
from sweet.tasks import prompts
from sweet.tasks.base import Move, ProtocolName, Task
from sweet.tasks.kind import TaskKind, opening
from sweet.tasks.scores import DialogueScorer, RewardRule, ScoringRequest, Verdict
from sweet.tasks.tools import Toolbox
from sweet.tasks.trajectory import Trajectory

UNKNOWN = "Only the environment knows it."
"""The reference of a task whose environment shows none."""


class Prompts(prompts.Prompts):
    """No human is asked, so only the agent's text is read."""

    texts: ClassVar[Mapping[str, str]] = {
        "agent": "You act in an environment by calls of its tools, until it tells you that the episode has ended or "
        "you have nothing more to do. Then say so in one sentence.",
        "human": "{request}\n{reference}\n{dialogue}",
    }


class RecordedScorer(DialogueScorer):
    """Reads the reward that the environment gave."""

    metrics = RewardRule(solved=None).metrics()

    def verdict(self, trajectory: Trajectory) -> Verdict:
        state = trajectory.tool_state
        if not isinstance(state, dict) or not isinstance(reward := state.get("reward"), int | float):
            what = "The dialogue has no reward of its environment: it was not played there."
            raise SweetError(what, where=trajectory.id, fix="score only what sweet rollout has played")
        return Verdict(float(reward), 0, 0, "passed", state)


class EnvironmentKind(TaskKind):
    """What kinds whose dialogues are episodes have in common."""

    texts = Prompts
    rewards = RewardRule(solved=None, margin=0.1)
    metrics = RecordedScorer.metrics

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        """Accept all tasks: no human is asked."""

    def move(self, output: str, *, last: bool, protocol: ProtocolName = "paper") -> Move:
        """The environment says when the dialogue ends."""
        return Move(content=output, answer=output, ends=False)

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[RecordedScorer]:
        yield RecordedScorer(self.name)

    def unfit(self, what: str) -> UsageError:
        """Return the error of an environment that cannot be played."""
        fix = "install the library (docs/environments.md), or name another environment"
        return UsageError(what, where=f"--task {self.name}", fix=fix)


class VerifiersKind(EnvironmentKind):
    """Episodes of an installed environment of verifiers, by its interface v1."""

    name = "verifiers"
    takes = "NAME"

    @property
    def offers_tools(self) -> bool:
        self._data()  # that it is installed
        from sweet.environments.verifiers_episode import has_tools

        return has_tools(self.source)

    def drawn(self, tasks: str, split: str) -> list[Task]:
        rows = self._data()
        if any(not isinstance(data.prompt, str) or not data.prompt for data in rows):
            raise self.unfit("A task has no prompt that is a text, so that a dialogue cannot begin with it.")
        answers = [str(getattr(data, "answer", None) or UNKNOWN) for data in rows]
        names = [f"{self.source}-{data.id or data.idx}" for data in rows]
        return [
            Task(id=name, problem_description=data.prompt, ground_truth=answer, **{"idx": data.idx})
            for name, data, answer in zip(names, rows, answers, strict=True)
        ]

    def _data(self) -> list[Any]:
        try:
            from sweet.environments.verifiers_episode import tasks_of

            return [task.data for task in tasks_of(self.source)]
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise self.unfit(f"verifiers has no environment {self.source!r} that can be played: {error}.") from error

    def agent_system(self) -> str:
        """Return the system prompt of the tasks, which must be one and the same."""
        systems = {data.system_prompt or "" for data in self._data()}
        if len(systems) > 1:
            raise self.unfit(f"The tasks have {len(systems)} system prompts, and an agent has one here.")
        return systems.pop()

    def toolbox(self, task: Task) -> Toolbox:
        from sweet.environments.verifiers_episode import VerifiersTools

        return VerifiersTools(self.source, task, len(opening(self, task)))
