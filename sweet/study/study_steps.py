"""The steps of one run of a study: the stage calls of every method and figure (`sweet.pipeline.steps`).

Each method names everything that it needs from the beginning. Several methods that need the same step get it from the
cache, so it is done once. Every step names its inputs, so none depends on which artifact is the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sweet.credit.registry import rule_class
from sweet.errors import UsageError
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.steps import Step, StepCache
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.statistics import powers_of_two
from sweet.stages.base import StageConfig
from sweet.study.accounting import TOKENS, generated_tokens
from sweet.study.settings import Method, Options, StudySizes
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TRAIN
from sweet.training.config import TrainActorConfig, TrainCriticConfig


class StudySteps:
    """The steps of one run.

    Args:
        cache: of the run.
        seed: of data, training and sampling.
    """

    def __init__(self, cache: StepCache, sizes: StudySizes, seed: int) -> None:
        self.cache, self.sizes, self.seed = cache, sizes, seed
        self._used: dict[str, Step] = {}
        """By attempt, what was asked for since `making` was called."""

    def evaluate(self, method: Method, temperature: float) -> Step:
        """Return the scores of the method's actor on the tasks of the evaluation."""
        return self._scores_of(self.making(method), self.sizes.split, self.sizes.eval_tasks, temperature)

    def validated(self, method: Method) -> tuple[list[Step], Step]:
        """Return every step that the method needs, and its scores on the validation tasks of the learning curves, at
        temperature 1; for a method that learns nothing those of the agent."""
        making = self.making(method)
        return making, self._scores_of(making, "validation", self.sizes.curve_tasks, 1.0)

    def making(self, method: Method) -> list[Step]:
        """Return every step that the method needs when it runs alone, from its dialogues to the actor, the last step;
        empty where nothing is learned."""
        self._used.clear()
        if method.learns != "nothing":
            self._online(method) if method.online else self._actor(method)
        return list(self._used.values())

    def budget(self) -> int:
        """Return the tokens that the agent generates for `sweet`: its dialogues and the sampled replies.

        Raises:
            UsageError: the agent's server does not report them.
        """
        steps = StudySteps(self.cache, self.sizes, self.seed)  # what is asked for here is not a step of the method
        tokens = generated_tokens([steps._offline(), steps._replies()], self.cache)
        if tokens is None:
            raise UsageError(
                "The server of the agent does not report the tokens that it generates.",
                where=self.sizes.agent,
                fix="make the offline dialogues equal, not the tokens",
            )
        return tokens

    def _actor(self, method: Method) -> Step:
        if method.judge is not None:
            judged = self._judged(method, self._replies())
            if rule_class(method.learns).reads == "candidates":
                return self._train(method, judged)
            pairs = self._do(PairConfig(from_=judged.id, seed=self.seed, **_options(method.pair)))
            return self._train(method, pairs)
        return self._train(method, self._whole_dialogues_read(method))

    def _online(self, method: Method) -> Step:
        """Return the actor that has played its own dialogues, until the tokens are used up.

        A rule that asks a critic has one of the offline dialogues, whose tokens count. Validation only gives the points
        of the learning curve: the last weights are the actor, as for all other methods.
        """
        sizes, options = self.sizes, _options(method.actor)
        offline = int(StudySteps(self.cache, sizes, self.seed)._offline().metrics[TOKENS])
        tokens = offline if sizes.equal == "dialogues" else self.budget()
        if rule_class(method.learns).asks_critic:
            options["critic"] = self._critic(method.critic).id
            tokens -= 0 if sizes.equal == "dialogues" else offline
        return self._do(
            TrainOnlineConfig(
                algorithm=method.learns,
                agent=sizes.agent,
                tasks=sizes.tasks,
                generated_tokens=tokens,
                max_turns=sizes.turns,
                max_tokens=sizes.reply_tokens,
                validate_every=sizes.curve_steps,
                validation_tasks=sizes.curve_tasks,
                keep="last",
                sandbox=sizes.sandbox,
                seed=self.seed,
                **options,
            )
        )

    def _whole_dialogues_read(self, method: Method) -> Step:
        """Return what the method's rule reads of whole dialogues."""
        dialogues, reads = self._whole_dialogues(), rule_class(method.learns).reads
        if reads == "rollouts":
            return dialogues
        return self._preferences(dialogues) if reads == "preferences" else self._score(dialogues)

    def _scores_of(self, making: Sequence[Step], split: str, tasks: int, temperature: float) -> Step:
        """Return the scores of the actor that these steps end with; of the agent without any."""
        agent = str(self.cache.file(making[-1])) if making else self.sizes.agent
        return self._score(self._play(split, tasks, agent=agent, temperature=temperature))

    def best_of_turns(self, method: Method) -> dict[int, Step]:
        """Return, for N = 1, 2, 4, …, the scores of dialogues on validation tasks in which the method's judge chose the
        best of N replies of the starting model at each turn.

        With one reply nothing is chosen: these are the dialogues that `best_of` chooses among, several for each task.
        """
        judge: Options = {"critic": self._critic(method.critic).id} if method.judge == "critic" else {}
        steps = {}
        for n in powers_of_two(self.sizes.best_replies):
            choice = {"best_of": n, "judge": method.judge, **judge}
            played = self._play("validation", self.sizes.best_tasks, choice=choice) if n > 1 else self._validation()
            steps[n] = self._score(played)
        return steps

    def best_of(self, method: Method) -> Step:
        """Return the scores of the starting model's dialogues on validation tasks; their metrics have the success of
        the best of N by the method's critic."""
        config = EvalConfig(
            from_=self._validation().id,
            best_of="critic",
            critic=self._critic(method.critic).id,
            sandbox=self.sizes.sandbox,
        )
        return self._do(config, matching=("best_of", "critic"))

    def credit(self, method: Method) -> Step:
        """Return replies at turns of these dialogues, judged by the method's critic; their metrics have advantage and
        agreement by kind of turn."""
        replies = self._sample(self._validation(), fraction=1.0, limit=self.sizes.credit_turns)
        return self._judged(method, replies)

    def _do(self, config: StageConfig, *, matching: Sequence[str] = ()) -> Step:
        """Return the finished step, on the device that the sizes name."""
        if "device" in type(config).model_fields:
            config = config.model_copy(update={"device": self.sizes.device})
        step = self.cache.do(config, matching=matching)
        self._used[step.attempt.id] = step
        return step

    def _offline(self) -> Step:
        return self._play("train", self.sizes.train_tasks, samples=self.sizes.samples)

    def _whole_dialogues(self) -> Step:
        """Return the dialogues of methods that learn from nothing else: for as many tokens as `sweet` generates, on
        more tasks, and with more dialogues for each once there are no more tasks."""
        sizes = self.sizes
        if sizes.equal == "dialogues":
            return self._offline()
        offline = StudySteps(self.cache, sizes, self.seed)._offline()
        wanted = self.budget() / max(1, int(offline.metrics[TOKENS])) * sizes.train_tasks * sizes.samples
        tasks = min(number_of_tasks(sizes.tasks), round(wanted / sizes.samples))
        return self._play("train", tasks, samples=max(sizes.samples, round(wanted / tasks)))

    def _preferences(self, dialogues: Step) -> Step:
        return self._do(LabelConfig(from_=self._score(dialogues).id))

    def _validation(self) -> Step:
        return self._play("validation", self.sizes.best_tasks, samples=self.sizes.best_samples)

    def _critic(self, options: Options) -> Step:
        return self._do(
            TrainCriticConfig(
                model=self.sizes.agent,
                from_=self._preferences(self._offline()).id,
                seed=self.seed,
                **_options(options),
            )
        )

    def _train(self, method: Method, source: Step) -> Step:
        """Return the actor that learns from a step."""
        options = _options(method.actor) | {"method": method.learns}
        return self._do(TrainActorConfig(model=self.sizes.agent, from_=source.id, seed=self.seed, **options))

    def _replies(self) -> Step:
        """Return the replies that all judges judge."""
        return self._sample(self._offline(), fraction=self.sizes.fraction)

    def _sample(self, rollouts: Step, *, fraction: float, limit: int | None = None) -> Step:
        """Sample replies at turns of dialogues. The judge is random, which needs no model."""
        return self._do(
            RankConfig(
                judge="random",
                rollouts=rollouts.id,
                candidates=self.sizes.candidates,
                fraction=fraction,
                limit=limit,
                agent=self.sizes.agent,
                max_tokens=self.sizes.reply_tokens,
                seed=self.seed,
            )
        )

    def _judged(self, method: Method, replies: Step) -> Step:
        """Return the judged replies."""
        if method.judge == "random":
            return replies
        if method.judge != "critic":
            return self._do(RankConfig(judge=method.judge, replies=replies.id, seed=self.seed))
        critic = self._critic(method.critic)
        options = _options(method.rank)
        return self._do(RankConfig(from_=critic.id, replies=replies.id, seed=self.seed, **options))

    def _play(
        self,
        split: str,
        tasks: int,
        *,
        samples: int = 1,
        agent: str | None = None,
        temperature: float = 1.0,
        choice: Options | None = None,
    ) -> Step:
        """Play dialogues.

        Args:
            choice: options by which one of several replies is chosen at each turn.
        """
        return self._do(
            RolloutConfig(
                tasks=self.sizes.tasks,
                split=split,
                agent=agent or self.sizes.agent,
                num_tasks=tasks,
                draw_tasks=split == "train",
                samples=samples,
                temperature=temperature,
                max_turns=self.sizes.turns,
                max_tokens=self.sizes.reply_tokens,
                seed=self.seed,
                new=True,
                **_options(choice or {}),
            )
        )

    def _score(self, rollouts: Step) -> Step:
        return self._do(EvalConfig(from_=rollouts.id, sandbox=self.sizes.sandbox))


@cache
def number_of_tasks(dataset: str) -> int:
    """Return the number of training tasks of a dataset."""
    return len(task_kind("code").load(dataset, TRAIN))


def _options(options: Options) -> dict[str, Any]:
    """Return the options as keyword arguments, which pydantic checks."""
    return dict(options)
