"""One run of a study: the stage calls of every method and figure, as steps of a ledger (`sweet.study.step_cache`).

Each method says what it needs from the beginning; what several need is a step with the same settings, and so is done
once. Every step names what it reads, so that nothing is taken because it is the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweet.preferences.config import LabelConfig, PairConfig
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.scoring.config import EvalConfig
from sweet.stages.base import StageConfig
from sweet.study.settings import Method, Options, StudySizes
from sweet.study.step_cache import Ledger, Step
from sweet.training.config import TrainActorConfig, TrainCriticConfig


class Lab:
    """The steps of one run.

    Args:
        seed: of data, training and sampling.
    """

    def __init__(self, ledger: Ledger, sizes: StudySizes, seed: int) -> None:
        self.ledger, self.sizes, self.seed = ledger, sizes, seed

    def evaluate(self, method: Method, temperature: float) -> Step:
        """Scores of the method's actor on the tasks of the evaluation."""
        making = self.making(method)
        agent = str(self.ledger.file(making[-1])) if making else self.sizes.agent
        played = self._play(self.sizes.split, self.sizes.eval_tasks, agent=agent, temperature=temperature)
        return self._score(played)

    def making(self, method: Method) -> list[Step]:
        """The steps from the offline dialogues to the actor, which is made by the last one; none where nothing is
        learned."""
        if method.learns == "nothing":
            return []
        if method.learns == "rft":
            return [self._train(method, self._offline_scores())]
        if method.learns == "multi-turn-dpo":
            preferences = self._preferences()
            return [preferences, self._train(method, preferences)]
        judging = self._judging(method, self._replies())
        pairs = self._do(PairConfig(from_=judging[-1].id, seed=self.seed, **_options(method.pair)))
        return [*judging, pairs, self._train(method, pairs)]

    def best_of(self, method: Method) -> Step:
        """Scores of the start's dialogues on validation tasks, with the success of the best of N by the method's
        critic in the metrics."""
        config = EvalConfig(
            from_=self._validation().id,
            best_of="critic",
            critic=self._critic(method.critic).id,
            sandbox=self.sizes.sandbox,
        )
        return self._do(config, told=("best_of", "critic"))

    def credit(self, method: Method) -> Step:
        """Replies at turns of these dialogues, judged by the method's critic; the metrics tell advantage and agreement
        by kind of turn."""
        replies = self._sample(self._validation(), fraction=1.0, limit=self.sizes.credit_turns)
        return self._judging(method, replies)[-1]

    def _do(self, config: StageConfig, *, told: Sequence[str] = ()) -> Step:
        """The finished step, on the device that the sizes name."""
        if "device" in type(config).model_fields:
            config = config.model_copy(update={"device": self.sizes.device})
        return self.ledger.do(config, told=told)

    def _offline(self) -> Step:
        return self._play("train", self.sizes.train_tasks, samples=self.sizes.samples)

    def _offline_scores(self) -> Step:
        return self._score(self._offline())

    def _preferences(self) -> Step:
        return self._do(LabelConfig(from_=self._offline_scores().id))

    def _validation(self) -> Step:
        return self._play("validation", self.sizes.best_tasks, samples=self.sizes.best_samples)

    def _critic(self, options: Options) -> Step:
        return self._do(
            TrainCriticConfig(model=self.sizes.agent, from_=self._preferences().id, seed=self.seed, **_options(options))
        )

    def _train(self, method: Method, source: Step) -> Step:
        options = _options(method.actor) | {"method": method.learns}
        return self._do(TrainActorConfig(model=self.sizes.agent, from_=source.id, seed=self.seed, **options))

    def _replies(self) -> Step:
        """The replies that every judge judges."""
        return self._sample(self._offline(), fraction=self.sizes.fraction)

    def _sample(self, rollouts: Step, *, fraction: float, limit: int | None = None) -> Step:
        """Replies at turns of dialogues, judged at random, which needs nobody."""
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

    def _judging(self, method: Method, replies: Step) -> list[Step]:
        """The steps to the judged replies, which the last one makes."""
        if method.judge == "random":
            return [replies]
        if method.judge != "critic":
            return [replies, self._do(RankConfig(judge=method.judge, replies=replies.id, seed=self.seed))]
        critic = self._critic(method.critic)
        return [critic, replies, self._do(RankConfig(from_=critic.id, replies=replies.id, seed=self.seed))]

    def _play(
        self, split: str, tasks: int, *, samples: int = 1, agent: str | None = None, temperature: float = 1.0
    ) -> Step:
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
            )
        )

    def _score(self, rollouts: Step) -> Step:
        return self._do(EvalConfig(from_=rollouts.id, sandbox=self.sizes.sandbox))


def _options(options: Options) -> dict[str, Any]:
    """As pydantic takes them, which checks them."""
    return dict(options)
