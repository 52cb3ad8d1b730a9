"""What plays and scores the dialogues of an environment: the human, the rules and the scorer of an exported folder."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.environments.episode import Episode
from sweet.environments.settings import EnvironmentSettings
from sweet.errors import SweetError, UsageError
from sweet.humans.base import Human
from sweet.llm.base import ChatClient
from sweet.llm.connect import client_of
from sweet.render.store import SCREENSHOTS
from sweet.render.window import window_name
from sweet.rollouts.dialogue import Assignment
from sweet.rollouts.prepare import Dialogues, load_dialogues
from sweet.rollouts.sides import check_human, check_no_tools, check_vision
from sweet.stages.base import Silent
from sweet.stages.frame import AskedModel, plan_serving
from sweet.tasks.base import Task
from sweet.tasks.scores import AsyncScorer, Score, ScoringRequest, for_event_loop
from sweet.tasks.trajectory import Trajectory


@dataclass(frozen=True)
class World:
    """The open human and scorer.

    Attributes:
        dialogues: on the environment's tasks.
        humans: that play them, by name.
    """

    dialogues: Dialogues
    humans: Mapping[str | None, Human]
    scorer: AsyncScorer

    def episode(self, task: Task, place: int = 0, sample: int = 0) -> Episode:
        """Return a new dialogue on a task.

        Args:
            place: of the task among all; it chooses the human where there are several.
            sample: number of the dialogue among those on the task.
        """
        name = self.dialogues.humans.name_of(place, sample)
        human, rules = self.humans[name], self.dialogues.rules()
        return Episode(Assignment(task, sample, 0, name), human, self.dialogues.kind, rules)

    async def score(self, trajectory: Trajectory) -> Score:
        """Return the score of a dialogue that has ended, as `sweet eval` computes it."""
        return await self.scorer.submit(trajectory)


def reward_of(score: Score) -> float:
    """Return the reward of a score. Raises SweetError if the task is invalid, so that there is none."""
    if score.reward is None:
        why = score.detail.get("why", "")
        raise SweetError(f"Task {score.task_id} is invalid: {why}.", fix="sweet data check FILE")
    return score.reward


@asynccontextmanager
async def open_world(settings: EnvironmentSettings) -> AsyncIterator[World]:
    """Read the tasks of an environment, and open its human and its scorer for the duration of the context.

    Raises:
        SweetError: something that they need is missing, a task is invalid, or a setting does not fit the tasks.
    """
    reporter = Silent()
    dialogues = load_dialogues(None, settings.rollout, reporter)
    kind, config, scoring = dialogues.kind, dialogues.config, settings.eval
    if scoring.scorer != "strict" and "scorer" not in kind.scorer_options:
        what = f"Tasks of the kind {kind.name} have one scorer."
        raise UsageError(what, where="scorer", fix="leave scorer out of environment.json")
    check_human(kind, dialogues.tasks, config)
    check_no_tools(kind, dialogues.tasks, "an agent outside of sweet", "the package", "sweet rollout")
    looks: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweet-environment-")))
        if (rendering := dialogues.rendering) is not None:
            from sweet.render.browsers import open_shared_browsers

            browsers = open_shared_browsers(temporary / SCREENSHOTS, scoring.workers, rendering)
            renderer = stack.enter_context(browsers)
            looks = {"window": window_name(rendering), "pictures": rendering.pictures, "renderer": renderer}
        serving = plan_serving(config, dialogues.humans.models(kind, config.sim_url), reporter)
        check_vision(kind, config, serving)

        def opens(model: AskedModel) -> AbstractAsyncContextManager[ChatClient]:
            return client_of(config, model.role, model.name, model.urls, serving)

        humans = await dialogues.open_simulated_humans(opens, stack, temporary, looks.get("renderer"))
        scoring_options = {"scorer": scoring.scorer, "tolerance": scoring.tolerance, "similarity": scoring.similarity}
        looks |= {name: value for name, value in scoring_options.items() if name in kind.scorer_options}
        request = ScoringRequest(
            run=temporary, say=reporter.say, sandbox=scoring.sandbox, workers=scoring.workers, **looks
        )
        scorer = await stack.enter_async_context(for_event_loop(kind.open_scorer(request)))
        yield World(dialogues, humans, scorer)
