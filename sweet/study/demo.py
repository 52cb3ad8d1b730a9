"""`sweet demo`: the whole pipeline on a bare machine, by the same stages that a user would call.

Zero-shot evaluation on unseen tasks, offline dialogues on training tasks, scores, preferences, critic, candidates,
pairs, actor, and the same evaluation of the trained actor. Everything is written to one run directory, which is kept.
With more than one round, the next round learns from the actor's own dialogues on the training tasks. Each actor is
trained from the packaged agent on the pairs of all rounds so far, and each critic on the preferences of all rounds: an
actor that is trained from the actor before it, on the newest pairs alone, forgets what they do not repeat, such as how
to answer, and exploits the replies that its critic overrates. Apart from that each stage uses the newest inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import Field

from sweet.preferences.config import LabelConfig, PairConfig
from sweet.preferences.label import run_label
from sweet.preferences.pair import run_pair
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.metrics import EvalMetrics
from sweet.scoring.stage import run_eval
from sweet.stages.base import Reporter, StageResult
from sweet.stages.record import Record
from sweet.study.metrics import DemoMetrics, RoundMetrics
from sweet.study.settings import PAIRS, Sizes
from sweet.tasks.micro.family import MICRO
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import run_train_actor, run_train_critic

M = TypeVar("M", bound=Record)

START = "micro"
"""The packaged agent, which everything starts from."""

SUCCESS, TESTS = "success_rate", "tests_passed"
"""Rates of an evaluation that the demo reports."""

ROUND_SEEDS = 1000
"""Difference between the seeds of two rounds, so large that demos with consecutive seeds share none."""


class DemoConfig(Sizes):
    seed: int = Field(default=0, ge=0)
    """Seed of sampling and training."""
    eval_tasks: int = Field(default=512, ge=1)
    """Unseen tasks of the evaluation before and after."""
    rounds: int = Field(default=1, ge=1)
    """Actors trained one after the other: the second also learns from the first one's dialogues, and so on."""
    critic: Literal["same", "retrained"] = "retrained"
    """The critic from the second round on: retrained on the actors' dialogues too, or still the first, which overrates
    what later actors learn to say."""


def run_demo(run: Run, config: DemoConfig, reporter: Reporter) -> StageResult[DemoMetrics]:
    """Run the pipeline and return success before and after, the seconds of each step and every artifact."""
    demo = _Demo(run, config, reporter)
    before = demo.evaluate("zero-shot agent on unseen tasks")
    rounds = [demo.play_round(number) for number in range(1, config.rounds + 1)]
    after = rounds[-1]
    metrics = DemoMetrics(
        tasks=config.eval_tasks,
        success_before=before.rates[SUCCESS],
        tests_before=before.rates[TESTS],
        success_after=after.rates[SUCCESS],
        tests_after=after.rates[TESTS],
        rounds=[
            RoundMetrics(round=number, success=scores.rates[SUCCESS], tests=scores.rates[TESTS])
            for number, scores in enumerate(rounds, 1)
        ],
        sandbox=str(after.scored_by["sandbox"]),
        seconds=round(sum(seconds for _, seconds in demo.steps), 1),
        steps=dict(demo.steps),
    )
    return StageResult("demo", run.path, metrics, demo.artifacts)


class _Demo:
    """A running demo.

    Attributes:
        agent: the model that plays: the packaged agent, then the newest actor.
        round: number of the current round; 0 before the first.
    """

    def __init__(self, run: Run, config: DemoConfig, reporter: Reporter) -> None:
        self.run, self.config, self.reporter = run, config, reporter
        self.agent, self.round = START, 0
        self.steps: list[tuple[str, float]] = []
        self.artifacts: list[Artifact] = []

    def play_round(self, number: int) -> EvalMetrics:
        """Play the training tasks, learn from that, and return the metrics of the new actor's evaluation."""
        self.round = number
        self.collect()
        self.learn()
        self.agent = str(self.run.file(self.run.find("actor", needed_by="demo")))
        return self.evaluate("trained actor on the same tasks")

    @property
    def seed(self) -> int:
        """Seed of sampling and training in this round; the next round ranks other turns of other dialogues."""
        return self.config.seed + ROUND_SEEDS * max(0, self.round - 1)

    def evaluate(self, title: str) -> EvalMetrics:
        return self._play(title, "test", self.config.eval_tasks, seed=self.config.seed)

    def collect(self) -> None:
        config = self.config
        self._play("dialogues to learn from", "train", config.train_tasks, seed=self.seed, samples=config.samples)

    def learn(self) -> None:
        run, reporter, seed = self.run, self.reporter, self.seed
        rank = RankConfig(
            candidates=self.config.candidates, fraction=self.config.fraction, seed=seed, max_tokens=MICRO.reply_tokens
        )
        pair = PairConfig.model_validate({**PAIRS, "seed": seed})
        if self.round == 1 or self.config.critic == "retrained":
            self._step("label", lambda: run_label(run, LabelConfig(), reporter))
            critic = TrainCriticConfig(model=START, from_=self._all("preferences"), seed=seed)
            self._step("train-critic", lambda: run_train_critic(run, critic, reporter))
        self._step("rank", lambda: run_rank(run, rank, reporter))
        self._step("pair", lambda: run_pair(run, pair, reporter))
        actor = TrainActorConfig(model=START, from_=self._all("pairs"), seed=seed)
        self._step("train-actor", lambda: run_train_actor(run, actor, reporter))

    def _all(self, kind: Kind) -> list[str]:
        """Return the artifacts of a kind that this demo has made, in all rounds."""
        return [artifact.id for artifact in self.artifacts if artifact.kind == kind]

    def _play(self, title: str, split: str, tasks: int, *, seed: int, samples: int = 1) -> EvalMetrics:
        """Let the agent play, score its dialogues, and return the metrics of the scores."""
        play = RolloutConfig(
            tasks=MICRO.name,
            split=split,
            agent=self.agent,
            num_tasks=tasks,
            samples=samples,
            seed=seed,
            max_turns=MICRO.turns,
            max_tokens=MICRO.reply_tokens,
        )
        score = EvalConfig(sandbox=self.config.sandbox)
        self._step(f"rollout: {title}", lambda: run_rollout(self.run, play, self.reporter))
        result = self._step(f"eval: {title}", lambda: run_eval(self.run, score, self.reporter))
        return result.metrics

    def _step(self, title: str, stage: Callable[[], StageResult[M]]) -> StageResult[M]:
        title = title if self.round < 2 else f"{title} (round {self.round})"
        self.reporter.say(title)
        start = time.monotonic()
        result = stage()
        self.steps.append((title, round(time.monotonic() - start, 1)))
        self.artifacts.extend(result.artifacts)
        return result
