"""The rounds of `sweet train`.

The starting agent is evaluated on the test tasks. In each round the newest agent plays the training tasks, its
dialogues are scored and labelled, a critic is trained, ranks candidates, these are paired, and an actor is trained and
evaluated on the same test tasks. Each critic is trained from the starting model on the preferences of all rounds, and
each actor from the starting model on the pairs of all rounds: an actor that is trained from the actor before it, on the
newest pairs alone, forgets what they do not repeat, and exploits the replies that its critic overrates.

With `--algorithm` a round learns by another credit rule (`sweet.pipeline.algorithm`); one that learns online has one
round of many steps, which play their own dialogues.

With several rounds each agent also plays the validation tasks. They alone decide when training ends and which actor is
kept, so the test tasks stay unseen by that choice.

Every stage is a step (`sweet.pipeline.steps`) that names its inputs, so a call repeats nothing that is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from sweet.errors import TooManyFailures, UsageError
from sweet.hints import option
from sweet.judges.options import LOOKAHEAD, RUN_CRITICS, VALUE_TARGETS
from sweet.llm.scripted import SCRIPTED
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.algorithm import MADE_BY, ONLINE, SWEET, Algorithm
from sweet.pipeline.metrics import LoopMetrics, LoopRound, Usage
from sweet.pipeline.recipe import MANAGED, Recipe
from sweet.pipeline.steps import Step, StepCache
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.preferences.label import NoPreference
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.manifest import Artifact
from sweet.runs.stages import ROUND_SEEDS
from sweet.runs.tokens import total
from sweet.scoring.config import EvalConfig
from sweet.stages.base import Reporter, StageConfig, seed_after
from sweet.stages.failures import FAILED_AGAIN, REFUSED
from sweet.stages.record import AnyRate, Rate, rate_of
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TEST, TRAIN, VALIDATION, Holdout, load_split, names_no_split
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.units import count, metric_name, rate

S = TypeVar("S", bound=StageConfig)

FEW = 20
"""Validation tasks below which their choice of an actor is mostly chance."""

LEAKS = "leak_rate"
"""The metric of evaluations that says how often the human leaked."""

TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1
"""What is held out of a file of tasks that says nothing of splits."""

AS_ROLLOUT = (RolloutConfig.model_fields.keys() & TrainOnlineConfig.model_fields.keys()).difference(
    MANAGED["rollout"], ("seed", "max_length", "turn_tokens")
)
"""Options of [rollout] by which an online training plays too, unless its own table says otherwise."""
AS_EVAL = frozenset(("sandbox", "workers", "similarity"))
"""Options of [eval] by which it scores."""


def step_name(number: int, title: str) -> str:
    """Return a step of a round as it is shown."""
    return f"round {number}: {title}" if number else f"start: {title}"


@dataclass
class PlayedRound:
    """A round that was played.

    Attributes:
        agent: as rollouts name it: the starting model, or the id of an actor.
        rates: of its evaluations, by split.
        leaks: share of the dialogues on test tasks in which the human leaked; None where no model plays it.
        steps: of the round, by title.
        actor: that it trained; None of the starting agent.
    """

    number: int
    agent: str
    rates: dict[str, AnyRate] = field(default_factory=dict)
    leaks: AnyRate | None = None
    steps: dict[str, Step] = field(default_factory=dict)
    actor: Step | None = None


class Loop:
    """The rounds of one run.

    Args:
        cache: finds and does steps; a read-only one raises `StepMissing` at the first that is not finished.
        algorithm: in the place of the recipe's, which is checked.

    Attributes:
        rounds: those played so far; the first is that of the starting agent.
    """

    def __init__(
        self, recipe: Recipe, cache: StepCache, reporter: Reporter, algorithm: Algorithm | None = None
    ) -> None:
        self.recipe, self.cache, self.reporter = recipe, cache, reporter
        self.config = recipe.train
        self.algorithm = algorithm or recipe.algorithm
        self.kind: TaskKind = task_kind(self.config.task)
        self.source = self.config.tasks or self.kind.tasks_for(self.config.agent, scripted=SCRIPTED in self.config.sims)
        self.holdout = self._holdout()
        self.metric = next(iter(self.kind.metrics))
        self.rounds: list[PlayedRound] = []

    @property
    def artifacts(self) -> list[Artifact]:
        """Those of all steps so far, in their order."""
        return [step.artifact for played in self.rounds for step in played.steps.values()]

    def play(self, on_metrics: Callable[[LoopMetrics], object] = lambda _: None) -> LoopMetrics:
        """Play all rounds.

        Args:
            on_metrics: receives what is known whenever an agent has been evaluated.
        """
        selects = self.selects
        self.rounds.append(PlayedRound(0, self.config.agent))
        self.evaluate(self.config.agent)
        best, waited, ended = 0, 0, False
        on_metrics(self._metrics(best, ended))
        for number in range(1, self.config.rounds + 1):
            actor = self.learn(number)
            self.evaluate(actor.id)
            if not selects or self._is_better(number, best):
                best, waited = number, 0
            else:
                waited += 1
            on_metrics(self._metrics(best, ended))
            if selects and waited >= self.config.patience and number < self.config.rounds:
                self.reporter.say(f"Round {number} is not better on the validation tasks than round {best}: ending.")
                ended = True
                break
        return self._metrics(best, ended)

    @cached_property
    def selects(self) -> bool:
        """Whether validation tasks decide which actor is kept."""
        if self.config.rounds == 1 or not self.config.early_stop:
            return False
        tasks = self.tasks_of(VALIDATION)
        if 0 < tasks < FEW:
            what = f"Only {count(tasks, 'validation task')} will decide which actor is kept"
            self.reporter.warn(f"{what}: give a larger --holdout-validation, more tasks, or --no-early-stop.")
        if tasks:
            return True
        self.reporter.say("There are no validation tasks, so all rounds are played and the last actor is kept.")
        return False

    def tasks_of(self, split: str) -> int:
        """Return the number of tasks of a split; 0 if there is no such split."""
        try:
            return len(load_split(self.kind, self.source, split, self.holdout).tasks)
        except UsageError:
            return 0

    def evaluate(self, agent: str) -> None:
        """Evaluate the agent that the newest round ends with."""
        played = self.rounds[-1]
        played.agent = agent
        for split in (TEST, *([VALIDATION] if self.selects else [])):
            scores = self._play(split, agent, played.number)
            played.rates[split] = rate_of(scores.metrics, self.metric)
            if isinstance(played.rates[split], Rate):
                self.reporter.say(f"{' '.join(*self.known_rates(split).items())}.")
            if split == TEST and LEAKS in scores.metrics:
                self._look_at_leaks(rate_of(scores.metrics, LEAKS))
            if trained_on := scores.metrics.get("trained_on_tasks"):
                self.reporter.warn(f"{agent} was trained on {trained_on} of the {split} tasks: its rate is too high.")

    def known_rates(self, split: str = TEST) -> dict[str, str]:
        """Return the rates of all agents on a split so far, under the name of the metric; nothing without any:
        `{"success rate": "on test tasks: micro 6.4 % [4.5, 8.6], actor-1 65.0 % [60.9, 68.9]"}`."""
        rates = [(played.agent, played.rates.get(split)) for played in self.rounds]
        texts = [f"{agent} {rate(one.value, one.ci_low, one.ci_high)}" for agent, one in rates if isinstance(one, Rate)]
        return {metric_name(self.metric): f"on {split} tasks: {', '.join(texts)}"} if texts else {}

    def _look_at_leaks(self, leaks: AnyRate) -> None:
        """Record how often the human leaked in the newest round, and warn where that is certainly more than at the
        start: then the agent may have learned what makes the human leak, which no success rate distinguishes from
        better questions."""
        self.rounds[-1].leaks = leaks
        first, number = self.rounds[0].leaks, self.rounds[-1].number
        if isinstance(first, Rate) and isinstance(leaks, Rate) and leaks.ci_low > first.ci_high:
            now, before = (rate(share.value, share.ci_low, share.ci_high) for share in (leaks, first))
            self.reporter.warn(
                f"Round {number}: the human leaked the solution in {now} of the dialogues on test tasks, in {before} "
                "at the start. The agent may be learning to make it leak: look at dialogues before you trust its rate."
            )

    def learn(self, number: int) -> Step:
        """Let the newest agent play the training tasks, learn from that, and return the actor."""
        agent, seed = self.rounds[-1].agent, self.seed(number)
        played = PlayedRound(number, agent)
        self.rounds.append(played)
        todo = self.algorithm.steps(number, self.config.retrain_critic)
        if "train-actor" in todo or "train-critic" in todo:
            scores = self._play(TRAIN, agent, number)
        if "label" in todo:
            self._label(scores)
        if "train-critic" in todo:
            # A value function learns from rewards, which are in the scores.
            value = {"variant": "regression", "target": "real"} if self.algorithm.judge == "value" else {}
            outcomes = (value | self.recipe.of("train-critic")).get("target") in VALUE_TARGETS
            critic = self._stage_config(
                TrainCriticConfig,
                "train-critic",
                defaults={"model": self.config.agent, "seed": seed} | value,
                from_=self._made_by(MADE_BY["scores"] if outcomes else "label"),
                resume=True,
            )
            self._do("train-critic", critic)
        if "rank" in todo:
            self._rank(agent, number)
        if "pair" in todo:
            pair = self._stage_config(PairConfig, "pair", defaults={"seed": seed}, from_=played.steps["rank"].id)
            self._do("pair", pair)
        played.actor = self._train_online() if ONLINE in todo else self._train_actor(seed)
        return played.actor

    def _train_online(self) -> Step:
        actor = self._do(ONLINE, self.online())
        if actor.metrics.get("updates") == 0:
            self.reporter.warn(
                "No step of the online training taught anything, so the actor is the agent. Dialogues of a task must "
                f"differ: easier tasks, a better agent, or --set {ONLINE}.group=DIALOGUES."
            )
        return actor

    def _rank(self, agent: str, number: int) -> None:
        rank = self._stage_config(
            RankConfig,
            "rank",
            defaults={"seed": self.seed(number)},
            **self._of_judge(),
            rollouts=self.rounds[-1].steps[MADE_BY["rollouts"]].id,
            agent_url=self._agent_urls(self.recipe.of("rank").get("agent", agent) if number == 1 else agent),
        )
        if number > 1:  # a recipe's agent of the ranking takes the place of the starting agent
            rank = rank.model_copy(update={"agent": None})
        self._do("rank", rank)

    def _of_judge(self) -> dict[str, Any]:
        """Return what the judge of the ranking reads: the critic, or the human that it asks."""
        if self.algorithm.judge in RUN_CRITICS:
            return {"from_": self._made_by("train-critic")[-1]}
        return {"sim": self.config.sim, "sim_url": self.config.sim_url} if self.algorithm.judge == LOOKAHEAD else {}

    def _train_actor(self, seed: int) -> Step:
        algorithm = self.algorithm
        overrides = {} if algorithm.rule.name == SWEET else {"algorithm": algorithm.rule.name}
        in_recipe = self.recipe.of("train-actor").get("algorithm", algorithm.rule.name)
        if overrides and in_recipe != algorithm.rule.name:
            where = f"[train-actor] algorithm = {in_recipe!r}, {option('algorithm', algorithm.rule.name)}"
            raise UsageError("Two rules are named for the actor.", where=where, fix="name one")
        actor = self._stage_config(
            TrainActorConfig,
            "train-actor",
            defaults={"model": self.config.agent, "seed": seed},
            from_=self._made_by(MADE_BY[algorithm.rule.reads]),
            critic=self._critic(),
            resume=True,
            **overrides,
        )
        return self._do("train-actor", actor)

    def online(self) -> TrainOnlineConfig:
        """Return the configuration of the online training. It plays as [rollout] and scores as [eval] say."""
        config = self.config
        as_others = {
            name: value
            for table, names in (("rollout", AS_ROLLOUT), ("eval", AS_EVAL))
            for name, value in self.recipe.of(table).items()
            if name in names
        }
        validation = {} if config.eval_tasks is None else {"validation_tasks": config.eval_tasks}
        return self._stage_config(
            TrainOnlineConfig,
            ONLINE,
            defaults={"seed": config.seed} | validation | as_others,
            **self._played_by(config.agent),
            algorithm=config.algorithm,
            num_tasks=config.train_tasks,
            critic=self._critic(),
            resume=True,
        )

    def _critic(self) -> str | None:
        """Return the id of the critic that the rule itself asks; None if it asks none, or there is none yet."""
        ids = self._made_by("train-critic") if self.algorithm.rule.asks_critic else []
        return ids[-1] if ids else None

    def _made_by(self, title: str) -> list[str]:
        """Return the ids of the artifacts of a step in all rounds that had it."""
        return [played.steps[title].id for played in self.rounds if title in played.steps]

    def _label(self, scores: Step) -> None:
        try:
            self._do("label", self._stage_config(LabelConfig, "label", from_=scores.id))
        except NoPreference as error:
            twice = f"--samples {2 * self.config.samples} --redo"
            error.fix = f"more dialogues a task ({twice}), easier or more tasks, or an agent that solves some of them"
            raise

    def seed(self, number: int) -> int:
        """Return the seed of sampling and training in a round; the next ranks other turns of other dialogues."""
        return seed_after(self.config.seed, ROUND_SEEDS * max(0, number - 1))

    def _play(self, split: str, agent: str, number: int) -> Step:
        """Let an agent play a split and return the scores of its dialogues."""
        rollouts = self._do(f"rollout {split}", self.rollout(split, agent, number))
        return self._do(f"eval {split}", self._stage_config(EvalConfig, "eval", from_=rollouts.id))

    def rollout(self, split: str, agent: str, number: int) -> RolloutConfig:
        """Return the configuration of the dialogues of an agent on a split.

        Args:
            number: the round. All evaluations have the same seed.
        """
        config, evaluates = self.config, split != TRAIN
        return self._stage_config(
            RolloutConfig,
            *("rollout", "evaluation") if evaluates else ("rollout",),
            defaults={"seed": config.seed if evaluates else self.seed(number)},
            **self._played_by(agent),
            split=split,
            num_tasks=config.eval_tasks if evaluates else config.train_tasks,
            samples=config.eval_samples if evaluates else config.samples,
            new=config.redo,
        )

    def _played_by(self, agent: str) -> dict[str, Any]:
        """Return the options of all dialogues of an agent, whatever they are played for."""
        shared = {name: getattr(self.config, name) for name in ("task", "harness", "harness_jail", "sim", "sim_url")}
        held_out = {"holdout": self.holdout.test, "holdout_validation": self.holdout.validation}
        return {"tasks": self.source, "agent": agent, "agent_url": self._agent_urls(agent), **shared, **held_out}

    def _holdout(self) -> Holdout:
        """Return the shares of the tasks that are held out: by default of a file whose rows name no split."""
        configured = Holdout(self.config.holdout, self.config.holdout_validation)
        if configured.given or not names_no_split(self.kind, self.source):
            return configured
        return Holdout(TEST_SHARE, VALIDATION_SHARE)

    def _agent_urls(self, agent: str) -> list[str]:
        return list(self.config.agent_url) if agent == self.config.agent else []

    def _stage_config(self, config: type[S], *tables: str, defaults: dict[str, Any] | None = None, **decided: Any) -> S:
        """Return the configuration of a stage: defaults, the recipe's tables, and what the loop decides."""
        overrides = {name: value for name, value in decided.items() if value is not None}
        return config.model_validate(
            (defaults or {}) | self.recipe.of(*tables) | overrides | {"verify": self.config.verify}
        )

    def _do(self, title: str, config: StageConfig) -> Step:
        played = self.rounds[-1]
        try:
            step = self.cache.do(config, step_name(played.number, title))
        except TooManyFailures as error:  # `sweet train` has the options of its stages as --set
            if error.fix != REFUSED:
                allowed = option("set_", f"{title.split()[0]}.fail-on-error=SHARE")
                error.fix = f"{FAILED_AGAIN}, or allow them: {allowed}"
            raise
        played.steps[title] = step
        return step

    def _is_better(self, number: int, best: int) -> bool:
        """Return whether a round is better on validation tasks than another; also where one of them has no rate."""
        now, before = (self.rounds[index].rates[VALIDATION] for index in (number, best))
        return not (isinstance(now, Rate) and isinstance(before, Rate)) or now.value > before.value

    def _metrics(self, best: int, ended: bool) -> LoopMetrics:
        rounds = [self._round(played) for played in self.rounds]
        best_round = self.rounds[best]
        steps = {
            step_name(played.number, title): round(step.seconds, 1)
            for played in self.rounds
            for title, step in played.steps.items()
        }
        prices = self.recipe.prices
        return LoopMetrics(
            algorithm=self.algorithm.rule.name,
            metric=self.metric,
            rounds=rounds,
            best=best_round.agent,
            best_path=None if best_round.actor is None else str(self.cache.file(best_round.actor)),
            before=self.rounds[0].rates[TEST],
            after=best_round.rates[TEST],
            ended_early=ended,
            steps=steps,
            seconds=round(sum(steps.values()), 1),
            cost=None if prices is None else prices.cost(self.cache.tokens()),
        )

    def _round(self, played: PlayedRound) -> LoopRound:
        prices, steps = self.recipe.prices, played.steps
        return LoopRound(
            round=played.number,
            agent=played.agent,
            test=played.rates[TEST],
            validation=played.rates.get(VALIDATION),
            leak_rate=played.leaks,
            usage=_usage(played),
            artifacts={title: step.id for title, step in steps.items()},
            cost=None if prices is None else prices.cost(total(map(self.cache.tokens, steps.values()))),
            cost_per_solved_task=steps[f"eval {TEST}"].metrics.get("cost_per_solved_task"),
        )


def _usage(played: PlayedRound) -> Usage:
    counts = {name: 0 for name in Usage.model_fields if name not in ("dialogues", "seconds")}
    dialogues = 0
    for title, step in played.steps.items():
        if title.startswith("rollout") or title == ONLINE:
            dialogues += int(step.metrics.get("episodes") or 0)
        counts["completion_tokens"] += int(step.metrics.get("validation_tokens") or 0)
        for name in counts:
            counts[name] += int(step.metrics.get(name) or 0)
    seconds = round(sum(step.seconds for step in played.steps.values()), 1)
    return Usage(dialogues=dialogues, seconds=seconds, **counts)
