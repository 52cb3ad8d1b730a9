"""What plays and scores the dialogues of an environment: the human, the rules and the scorer of an exported folder."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from sweet.environments.episode import Episode
from sweet.environments.settings import PROMPTS, TASKS, EnvironmentSettings
from sweet.errors import SweetError, UsageError
from sweet.humans.base import Human
from sweet.llm.base import ChatClient
from sweet.llm.connect import client_of
from sweet.render.store import SCREENSHOTS
from sweet.render.window import window_name
from sweet.rollouts.assignments import PlannedHumans, plan_humans
from sweet.rollouts.dialogue import Assignment, Rules
from sweet.rollouts.prepare import Dialogues
from sweet.rollouts.sides import check_human, check_vision, rendering_of
from sweet.stages.base import Silent
from sweet.stages.frame import AskedModel, plan_serving
from sweet.tasks.async_scorer import AsyncScorer, open_async_scorer
from sweet.tasks.base import Task
from sweet.tasks.files import load_task_file
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score, ScoringRequest
from sweet.tasks.trajectory import Trajectory


def kind_of(settings: EnvironmentSettings, folder: Path) -> TaskKind:
    """Return the kind of an environment's tasks, with the prompts of its folder.

    Raises:
        UsageError: the package of the kind is not installed.
        InputError: a prompt is invalid.
    """
    kind = task_kind(settings.rollout.task)
    if (folder / PROMPTS).is_dir():
        kind = kind.with_prompts(folder / PROMPTS)
    return kind.with_specifications() if settings.rollout.human == "spec" else kind


def read_tasks(kind: TaskKind, folder: Path) -> list[Task]:
    """Return the tasks of an environment's folder. Raises InputError if a row is invalid."""
    return load_task_file(folder / TASKS, kind.fields)


class World:
    """The open human and scorer.

    Attributes:
        kind: of the tasks, with the environment's prompts.
        rules: of the dialogues.
    """

    def __init__(
        self,
        kind: TaskKind,
        rules: Rules,
        planned: PlannedHumans,
        humans: Mapping[str | None, Human],
        scorer: AsyncScorer,
    ) -> None:
        self.kind, self.rules = kind, rules
        self._planned, self._humans, self._scorer = planned, humans, scorer

    def episode(self, task: Task, place: int = 0, sample: int = 0) -> Episode:
        """Return a new dialogue on a task.

        Args:
            place: of the task among all; it chooses the human where there are several.
            sample: number of the dialogue among those on the task.
        """
        name = self._planned.of(place, sample)
        return Episode(Assignment(task, sample, 0, name), self._humans[name], self.kind, self.rules)

    async def score(self, trajectory: Trajectory) -> Score:
        """Return the score of a dialogue that has ended, as `sweet eval` computes it."""
        return await self._scorer.submit(trajectory)


def reward_of(score: Score) -> float:
    """Return the reward of a score. Raises SweetError if the task is invalid, so that there is none."""
    if score.reward is None:
        why = score.detail.get("why", "")
        raise SweetError(f"Task {score.task_id} is invalid: {why}.", fix="sweet data check")
    return score.reward


@asynccontextmanager
async def open_world(folder: Path, settings: EnvironmentSettings, tasks: list[Task]) -> AsyncIterator[World]:
    """Open the human and the scorer of an environment's folder, for the duration of the context.

    Args:
        tasks: those that will be played, which are checked.

    Raises:
        SweetError: something that they need is missing, or a setting does not fit the tasks.
    """
    reporter = Silent()
    kind, config, scoring = kind_of(settings, folder), settings.rollout, settings.eval
    if scoring.scorer != "strict" and "scorer" not in kind.scorer_options:
        what = f"Tasks of the kind {kind.name} have one scorer."
        raise UsageError(what, where="scorer", fix="leave scorer out of environment.json")
    check_human(kind, tasks, config)
    planned = plan_humans(kind, config)
    rendering = rendering_of(kind, config, reporter)
    looks: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweet-environment-")))
        if rendering is not None:
            from sweet.render.shared import open_shared_browsers

            browsers = open_shared_browsers(temporary / SCREENSHOTS, scoring.workers, rendering)
            renderer = stack.enter_context(browsers)
            looks = {"window": window_name(rendering), "pictures": rendering.pictures, "renderer": renderer}
        serving = plan_serving(config, planned.models(kind, config.sim_url), reporter)
        check_vision(kind, config, serving)

        def opens(model: AskedModel) -> AbstractAsyncContextManager[ChatClient]:
            return client_of(config, model.role, model.name, model.urls, serving)

        dialogues = Dialogues(config, kind, "", tasks, planned, None, rendering)
        humans = await dialogues.open_simulated_humans(opens, reporter, stack, temporary, looks.get("renderer"))
        chosen = {"scorer": scoring.scorer, "tolerance": scoring.tolerance, "similarity": scoring.similarity}
        looks |= {name: value for name, value in chosen.items() if name in kind.scorer_options}
        request = ScoringRequest(
            run=temporary, say=reporter.say, sandbox=scoring.sandbox, workers=scoring.workers, **looks
        )
        scorer = await stack.enter_async_context(open_async_scorer(kind, request))
        yield World(kind, dialogues.rules(), planned, humans, scorer)
