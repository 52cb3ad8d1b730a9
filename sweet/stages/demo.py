"""`sweet demo`: the whole pipeline on a bare machine, by the stages a user would call one after the other.

Zero-shot evaluation on unseen tasks, offline dialogues on training tasks, scores, preferences, critic, candidates,
pairs, actor, and the same evaluation of the trained actor. Everything lands in one run directory that stays behind.
The sizes are the smallest that show learning reliably with the micro agent on two CPU cores within a few minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pydantic import Field

from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.sandbox.tiers import TierChoice
from sweet.stages.base import OPERATIONAL, Reporter, StageConfig, StageResult
from sweet.stages.evaluate import EvalConfig, run_eval
from sweet.stages.label import LabelConfig, run_label
from sweet.stages.pair import PairConfig, run_pair
from sweet.stages.rank import RankConfig, run_rank
from sweet.stages.rollout import RolloutConfig, run_rollout
from sweet.stages.train import TrainActorConfig, TrainCriticConfig, run_train_actor, run_train_critic


class DemoConfig(StageConfig):
    seed: int = Field(default=0, ge=0)
    """Seed of sampling and training."""
    train_tasks: int = Field(default=300, ge=1)
    """Training tasks that dialogues are collected on."""
    samples: int = Field(default=6, ge=2)
    """Dialogues for each training task."""
    eval_tasks: int = Field(default=512, ge=1)
    """Unseen tasks of the evaluation before and after."""
    candidates: int = Field(default=16, ge=2)
    """Replies sampled and ranked at each turn."""
    fraction: float = Field(default=0.1, gt=0, le=1)
    """Share of the turns that are ranked."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Jail of the code that the agent writes."""


def run_demo(run: Run, config: DemoConfig, reporter: Reporter) -> StageResult:
    """Run the pipeline and return success before and after, the seconds of each step and every artifact."""
    demo = _Demo(run, config, reporter)
    before = demo.evaluate("zero-shot agent on unseen tasks", agent="micro")
    demo.collect()
    demo.learn()
    after = demo.evaluate("trained actor on the same tasks", agent=str(demo.actor()))
    metrics: dict[str, Any] = {"tasks": config.eval_tasks}
    for name, scores in (("before", before), ("after", after)):
        for rate in ("success", "tests"):
            source = {"success": "success_rate", "tests": "tests_passed"}[rate]
            metrics[f"{rate}_{name}"] = scores[source]
            metrics[f"{rate}_{name}_ci_low"] = scores[f"{source}_ci_low"]
            metrics[f"{rate}_{name}_ci_high"] = scores[f"{source}_ci_high"]
    metrics["sandbox"] = after["sandbox"]
    metrics["seconds"] = round(sum(seconds for _, seconds in demo.steps), 1)
    metrics["steps"] = dict(demo.steps)
    return StageResult("demo", run.path, metrics, demo.artifacts)


class _Demo:
    def __init__(self, run: Run, config: DemoConfig, reporter: Reporter) -> None:
        self.run, self.config, self.reporter = run, config, reporter
        self.steps: list[tuple[str, float]] = []
        self.artifacts: list[Artifact] = []

    def evaluate(self, title: str, agent: str) -> dict[str, Any]:
        config = self.config
        play = RolloutConfig(
            tasks="micro", split="test", agent=agent, num_tasks=config.eval_tasks, seed=config.seed, max_tokens=256
        )
        self._step(f"rollout: {title}", lambda: run_rollout(self.run, play, self.reporter))
        return self._score(f"eval: {title}")

    def collect(self) -> None:
        config = self.config
        play = RolloutConfig(
            tasks="micro",
            split="train",
            num_tasks=config.train_tasks,
            samples=config.samples,
            seed=config.seed,
            max_tokens=256,
        )
        self._step("rollout: dialogues to learn from", lambda: run_rollout(self.run, play, self.reporter))
        self._score("eval: dialogues to learn from")

    def learn(self) -> None:
        run, reporter, seed = self.run, self.reporter, self.config.seed
        rank = RankConfig(candidates=self.config.candidates, fraction=self.config.fraction, seed=seed, max_tokens=256)
        self._step("label", lambda: run_label(run, LabelConfig(), reporter))
        self._step("train-critic", lambda: run_train_critic(run, TrainCriticConfig(seed=seed), reporter))
        self._step("rank", lambda: run_rank(run, rank, reporter))
        self._step("pair", lambda: run_pair(run, PairConfig(seed=seed), reporter))
        self._step("train-actor", lambda: run_train_actor(run, TrainActorConfig(seed=seed), reporter))

    def actor(self) -> Any:
        return self.run.file(self.run.find("actor", needed_by="demo"))

    def _score(self, title: str) -> dict[str, Any]:
        config = EvalConfig(sandbox=self.config.sandbox)
        return self._step(title, lambda: run_eval(self.run, config, self.reporter)).metrics

    def _step(self, title: str, stage: Callable[[], StageResult]) -> StageResult:
        self.reporter.say(title)
        began = time.monotonic()
        result = stage()
        self.steps.append((title, round(time.monotonic() - began, 1)))
        self.artifacts.extend(result.artifacts)
        return result
