"""A judge as the options of a stage choose it: the models it needs, what is recorded of it, and how it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from sweet.judges.base import FunctionJudge, Judge, ScoreReplies
from sweet.judges.control import CreditScorer, OracleJudge, RandomJudge
from sweet.judges.critic import CriticJudge, RayJudge, load_critic_judge, open_ray_judge
from sweet.judges.llm import JudgePrompt, LLMJudge
from sweet.judges.lookahead import AskedHuman, LookaheadJudge, open_lookahead
from sweet.judges.options import CRITIC_JUDGES, ReplyJudgeConfig
from sweet.llm.pretrained import absolute_name
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.critics import (
    CriticSettings,
    check_settings,
    used_reference_context,
    used_turn_tokens,
    warn_dropped_turns,
)
from sweet.stages.frame import AskedModel, Frame
from sweet.stages.meta import JudgedMeta, TrainedMeta
from sweet.tasks.base import CRITIC_TURN_TOKENS

NO_JUDGE: dict[str, object] = dict.fromkeys(JudgedMeta.model_fields)
"""What the meta of an artifact records where nothing was judged."""


def critic_settings(config: ReplyJudgeConfig, **options: Any) -> CriticSettings:
    """Return how a critic judges by these options; `options` are those that not every stage has."""
    shared = ("device", "max_length", "turn_tokens", "reference", "reference_context")
    by_service = getattr(config, "local_engine", None) == "tinker"
    return CriticSettings(**{name: getattr(config, name) for name in shared}, service=by_service, **options)


@dataclass(frozen=True)
class ChosenJudge:
    """A judge that is not opened yet.

    Attributes:
        name: critic, llm, oracle, random, untrained or lookahead, or that of a Python function.
        config: the options of the stage.
        settings: how a model of the judge is computed.
        critic: the artifact that judges; None for another judge.
        start: the model that judges `untrained` or `lookahead`; None for another judge.
        human: the simulated human that `lookahead` asks; None for another judge.
        function: judges in the place of a model; None for another judge.

    Raises:
        UsageError: the critic does not accept the settings.
        InputError: the file of the prompt cannot be used.
    """

    name: str
    config: ReplyJudgeConfig
    settings: CriticSettings
    critic: Artifact | None = None
    start: str | None = None
    human: AskedHuman | None = None
    function: ScoreReplies | None = None

    def __post_init__(self) -> None:
        if self.critic is not None:
            check_settings(self.critic, self.settings)
        if self.name == "llm":
            self.prompt  # noqa: B018 - read before the work begins, and once, so that the recorded prompt is the used one

    @cached_property
    def prompt(self) -> JudgePrompt:
        """The prompt of the language model that judges."""
        return JudgePrompt.of(self.config.judge_prompt)

    @property
    def computed(self) -> int:
        """Number of models of the judge that this program computes, and does not ask through a client."""
        return int(self.critic is not None or self.start is not None)

    @property
    def title(self) -> str:
        """Who judges, for messages."""
        return self.critic.id if self.critic else self.config.judge_model or f"the judge {self.name}"

    @property
    def informed(self) -> bool:
        """Whether it sees the training-time information."""
        if self.critic is not None:
            return TrainedMeta.of(self.critic).variant != "no-info"
        if self.name == "llm":
            return self.prompt.informed
        return self.name != "random"

    @property
    def asked(self) -> list[AskedModel]:
        """The language model that is asked for scores, or that plays the human of `lookahead`; empty for another
        judge."""
        if self.human is not None:
            return [] if self.human.model is None else [self.human.model]
        model, urls = self.config.judge_model, self.config.judge_url
        return [] if model is None else [AskedModel("judge", model, urls)]

    def reader(self, run: Run | None) -> str | None:
        """Return the model by whose tokens the judge reads replies; None for a judge that reads none here."""
        return self.start if self.critic is None or run is None else str(run.file(self.critic))

    def meta(self) -> dict[str, object]:
        """Return what the meta of an artifact records of the judge (`sweet.stages.meta.JudgedMeta`)."""
        recorded: dict[str, object] = {**NO_JUDGE, "judge": self.name, "informed": self.informed}
        if self.critic is not None:
            recorded |= {
                "critic": self.critic.id,
                "reference_context": used_reference_context(self.critic, self.settings),
                "turn_tokens": used_turn_tokens(self.critic, self.settings),
            }
        if self.name == "llm":
            recorded |= {"judge_model": self.config.judge_model, "judge_prompt": self.prompt.digest}
        if self.start is not None:
            recorded["reference"] = self.start
        if self.name == "untrained":
            recorded["turn_tokens"] = self.config.turn_tokens or CRITIC_TURN_TOKENS
        return recorded

    @asynccontextmanager
    async def open(
        self, frame: Frame, scorer: CreditScorer, *, ray: str | None = None, by_place: bool = False
    ) -> AsyncIterator[Judge]:
        """Open the judge for the duration of the block.

        Args:
            scorer: knows the kind of the tasks, and the turns of a dialogue.
            ray: the Ray cluster on whose nodes a critic judges; None for this machine.
            by_place: for `random`, see `RandomJudge`.
        """
        async with AsyncExitStack() as stack:
            judge = await self._open(frame, scorer, ray, by_place, stack)
            yield judge
            if isinstance(judge, CriticJudge | LookaheadJudge):
                warn_dropped_turns(judge.reader.dropped, judge.reader.max_length, frame)
            if isinstance(judge, RayJudge):
                warn_dropped_turns(judge.dropped, judge.max_length, frame)
                frame.attempt.environment |= judge.environment

    async def _open(
        self, frame: Frame, scorer: CreditScorer, ray: str | None, by_place: bool, stack: AsyncExitStack
    ) -> Judge:
        config = self.config
        if self.function is not None:
            return FunctionJudge(self.function)
        if self.name in CRITIC_JUDGES:
            critic = None if self.critic is None else self.critic.id
            start = None if self.start is None else absolute_name(self.start)
            load = partial(load_critic_judge, frame.run.path.absolute(), critic, start, self.settings)
            if ray is not None:
                return stack.enter_context(open_ray_judge(ray, load, config.device, frame.say))
            return await asyncio.to_thread(load, frame)
        if self.name == "oracle":
            return OracleJudge(scorer)
        if self.name == "random":
            return RandomJudge(config.seed, by_place=by_place)
        clients = [await stack.enter_async_context(frame.client(model)) for model in self.asked]
        if self.human is None:
            return LLMJudge(clients[0], self.prompt, concurrency=config.concurrency, max_tokens=config.judge_tokens)
        assert self.start is not None
        client = next(iter(clients), None)
        judging = open_lookahead(frame, self.human, client, self.start, self.settings, scorer, config.concurrency)
        return await stack.enter_async_context(judging)
