"""The steps of one seed's run: each method is a recipe of `sweet train`, and learns in one round of its loop.

All methods of a seed have one run, and a step that several of them need is found there (`sweet.pipeline.steps`), so it
is done once. Two things differ from a round of `sweet train`: the replies of a turn are sampled before they are judged,
so that all judges judge the same ones; and a rule that learns from recorded dialogues and online is trained as the
method says.

What a method costs is counted as if it ran alone, so a step that several methods share counts in full for each. The
tokens are all that the agent's model wrote to learn from: dialogues, replies that were sampled at a turn and judged,
the dialogues of an online training, and thoughts. Evaluations are not counted; they are the same for all methods. Nor
is the validation during an online training, which does not choose its actor: it only gives the learning curve.

The work of a seed is in parts: a part is a method or a piece of a figure. Parts share the steps of the run, so their
order only decides which are done first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from sweet.credit.registry import rule_class
from sweet.errors import UsageError
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.algorithm import MADE_BY, ONLINE, Algorithm
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.loop import Loop, PlayedRound
from sweet.pipeline.recipe import Recipe
from sweet.pipeline.steps import ReadOnlyStepCache, Step, StepCache, StepMissing
from sweet.ranking.config import SAMPLING_OPTIONS, RankConfig
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.statistics import powers_of_two
from sweet.stages.base import Reporter, Silent, StageConfig
from sweet.study.settings import CRITICS, CURVES, METHODS, TURN_JUDGES, Method, Options, StudySizes
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TRAIN, VALIDATION
from sweet.units import count

S = TypeVar("S", bound=StageConfig)
T = TypeVar("T")

SAMPLED, GREEDY = 1.0, 0.0
"""The temperatures at which actors are evaluated."""
REPLIES = "replies"
"""The title of the step that samples replies."""
RATE = "success_rate"
"""The metric of an evaluation."""
TOKENS = "completion_tokens"
"""The metric of every stage that samples from the agent."""


def generated_tokens(steps: Iterable[Step]) -> int | None:
    """Return the tokens that the agent wrote in these steps; None where a server did not report them."""
    counts = [step.metrics.get(TOKENS, 0) for step in steps]
    return None if None in counts else sum(map(int, counts))


def seconds(steps: Iterable[Step]) -> float:
    """Return the seconds of these steps, one after the other, without validation."""
    return sum(step.seconds - float(step.metrics.get("validation_seconds", 0.0)) for step in steps)


class Round(Loop):
    """The round by which a method learns, from the agent that all methods start from."""

    def __init__(self, method: Method, recipe: Recipe, sizes: StudySizes, cache: StepCache) -> None:
        algorithm = Algorithm(rule_class(recipe.train.algorithm), method.online, method.judge or "critic")
        super().__init__(recipe, cache, cache.reporter, algorithm)
        self.method, self.sizes = method, sizes
        self.rounds.append(PlayedRound(0, sizes.agent))

    def play_tasks(self, split: str, **changes: Any) -> Step:
        """Return dialogues; `changes` are options in which they differ from those of the recipe."""
        return self.cache.do(self.rollout(split, self.sizes.agent, 1).model_copy(update=changes), "")

    def score(self, rollouts: Step) -> Step:
        return self.cache.do(self._stage_config(EvalConfig, "eval", from_=rollouts.id), "")

    def sample(self, rollouts: Step, **changes: Any) -> Step:
        """Sample replies at turns of dialogues. The judge is random, which needs no model."""
        sizes = self.sizes
        config = self._stage_config(
            RankConfig,
            "rank",
            judge="random",
            rollouts=rollouts.id,
            agent=sizes.agent,
            max_tokens=sizes.reply_tokens,
            seed=self.config.seed,
        )
        return self.cache.do(config.model_copy(update=changes), "")

    def judge(self, replies: Step, critic: Step | None) -> Step:
        """Return the replies as the method's judge judges them."""
        if self.method.judge == "random":
            return replies
        options = self._options_of_ranking(sampling=False)
        options |= {"judge": self.method.judge} if critic is None else {"from_": critic.id}
        return self.cache.do(self._stage_config(RankConfig, replies=replies.id, seed=self.config.seed, **options), "")

    def online(self) -> TrainOnlineConfig:
        """Return the online training, which may play all training tasks."""
        return super().online().model_copy(update={"num_tasks": None})

    def _rank(self, agent: str, number: int) -> None:
        steps = self.rounds[-1].steps
        steps[REPLIES] = self.sample(steps[MADE_BY["rollouts"]], **self._options_of_ranking(sampling=True))
        steps["rank"] = self.judge(steps[REPLIES], steps.get("train-critic"))

    def _options_of_ranking(self, *, sampling: bool) -> dict[str, Any]:
        """Return the method's options of sampling replies, or those of judging them."""
        return {name: value for name, value in self.method.rank.items() if (name in SAMPLING_OPTIONS) is sampling}

    def _stage_config(self, config: type[S], *tables: str, defaults: dict[str, Any] | None = None, **decided: Any) -> S:
        device = {"device": self.sizes.device} if "device" in config.model_fields else {}
        return super()._stage_config(config, *tables, defaults=(defaults or {}) | device, **decided)


class StudySteps:
    """The steps of one run.

    Args:
        cache: of the run.
        seed: of data, training and sampling.
    """

    def __init__(self, cache: StepCache, sizes: StudySizes, seed: int) -> None:
        self.cache, self.sizes, self.seed = cache, sizes, seed
        self._sweet = self._round(METHODS["sweet"])
        """Plays and samples what several methods share."""

    def _round(self, method: Method) -> Round:
        """Return the round of a method. One that learns from whole dialogues gets more of them, and an online training
        ends when the agent has written as many tokens as for `sweet`."""
        sizes, training = self.sizes, {"train-actor": method.actor}
        train_tasks, samples = sizes.train_tasks, sizes.samples
        if method.online:
            online: Options = {
                "generated_tokens": self._online_tokens(method),
                "validate_every": sizes.curve_steps,
                "validation_tasks": sizes.curve_tasks,
                "keep": "last",
            }
            training = {ONLINE: {**online, **method.actor}}
        elif method.judge is None and method.learns != "nothing":
            train_tasks, samples = self._more_dialogues()
        recipe = Recipe(
            train=LoopConfig(
                algorithm="sweet" if method.learns == "nothing" else method.learns,
                task=sizes.kind,
                tasks=sizes.tasks,
                agent=sizes.agent,
                train_tasks=train_tasks,
                samples=samples,
                seed=self.seed,
                redo=True,
            ),
            options={
                "rollout": {"max_turns": sizes.turns, "max_tokens": sizes.reply_tokens, "draw_tasks": True},
                "evaluation": {"draw_tasks": False, "temperature": 1.0},
                "eval": {"sandbox": sizes.sandbox},
                "train-critic": method.critic,
                "rank": {"candidates": sizes.candidates, "fraction": sizes.fraction},
                "pair": method.pair,
                **training,
            },
        )
        return Round(method, recipe, sizes, self.cache)

    def making(self, method: Method) -> list[Step]:
        """Return every step that the method needs when it runs alone, from its dialogues to the actor, the last step;
        empty where nothing is learned."""
        if method.learns == "nothing":
            return []
        round = self._round(method)
        round.learn(1)
        return list({step.attempt.id: step for step in round.rounds[-1].steps.values()}.values())

    def evaluate(self, method: Method, temperature: float) -> Step:
        """Return the scores of the method's actor on the tasks of the evaluation."""
        return self.scores_of(self.making(method), self.sizes.split, self.sizes.eval_tasks, temperature)

    def validated(self, method: Method, divisor: int = 1) -> tuple[list[Step], Step]:
        """Return every step that the method needs with a part of the training tasks, and its scores on the validation
        tasks of the learning curves, at temperature 1; for a method that learns nothing those of the agent."""
        part = StudySteps(self.cache, self.sizes.part(divisor), self.seed)
        making = part.making(method)
        return making, self.scores_of(making, VALIDATION, self.sizes.curve_tasks, 1.0)

    def budget(self) -> int:
        """Return the tokens that the agent generates for `sweet`: its dialogues and the sampled replies.

        Raises:
            UsageError: the agent's server does not report them.
        """
        offline = self._offline()
        tokens = generated_tokens([offline, self._sweet.sample(offline)])
        if tokens is None:
            raise UsageError(
                "The server of the agent does not report the tokens that it generates.",
                where=self.sizes.agent,
                fix="a server that reports `usage`",
            )
        return tokens

    def best_of_turns(self, method: Method) -> dict[int, Step]:
        """Return, for N = 1, 2, 4, …, the scores of dialogues on validation tasks in which the method's judge chose the
        best of N replies of the starting model at each turn.

        With one reply nothing is chosen: these are the dialogues that `best_of` chooses among, several for each task.
        """
        critic = {"critic": self.critic(method).id} if method.judge == "critic" else {}
        steps = {1: self._sweet.score(self._validation())}
        for n in powers_of_two(self.sizes.best_replies)[1:]:
            choice = {"num_tasks": self.sizes.best_tasks, "best_of": n, "judge": method.judge, **critic}
            steps[n] = self._sweet.score(self._sweet.play_tasks(VALIDATION, **choice))
        return steps

    def best_of(self, method: Method) -> Step:
        """Return the scores of the starting model's dialogues on validation tasks; their metrics have the success of
        the best of N by the method's critic."""
        config = EvalConfig(
            from_=self._validation().id,
            best_of_by="critic",
            critic=self.critic(method).id,
            sandbox=self.sizes.sandbox,
            device=self.sizes.device,
        )
        return self.cache.do(config, matching=("best_of_by", "critic"))

    def credit(self, method: Method) -> Step:
        """Return replies at turns of these dialogues, judged by the method's critic; their metrics have advantage and
        agreement by kind of turn."""
        replies = self._sweet.sample(self._validation(), fraction=1.0, limit=self.sizes.credit_turns)
        return self._round(method).judge(replies, self.critic(method))

    def scores_of(self, making: list[Step], split: str, tasks: int, temperature: float) -> Step:
        """Return the scores of the actor that these steps end with; of the agent without any."""
        agent = making[-1].id if making else self.sizes.agent
        changes = {"agent": agent, "num_tasks": tasks, "temperature": temperature, "samples": 1}
        return self._sweet.score(self._sweet.play_tasks(split, **changes))

    def _online_tokens(self, method: Method) -> int:
        """Return the tokens of an online training: as many as of `sweet`, of which the dialogues count that a critic
        learns from, if the rule asks one."""
        offline = int(self._offline().metrics[TOKENS])
        return self.budget() - (offline if rule_class(method.learns).asks_critic else 0)

    def _more_dialogues(self) -> tuple[int, int]:
        """Return the tasks and the dialogues for each of methods that learn from whole dialogues: for as many tokens as
        `sweet` generates, on more tasks, and with more dialogues for each once there are no more tasks."""
        sizes = self.sizes
        dialogues = self.budget() / max(1, int(self._offline().metrics[TOKENS])) * sizes.train_tasks * sizes.samples
        tasks = min(number_of_tasks(sizes.kind, sizes.tasks), round(dialogues / sizes.samples))
        return tasks, max(sizes.samples, round(dialogues / tasks))

    def _offline(self) -> Step:
        return self._sweet.play_tasks(TRAIN)

    def _validation(self) -> Step:
        return self._sweet.play_tasks(VALIDATION, num_tasks=self.sizes.best_tasks, samples=self.sizes.best_samples)

    def critic(self, method: Method) -> Step:
        """Return the critic of a method."""
        return next(step for step in self.making(method) if step.attempt.stage == "train-critic")


@cache
def number_of_tasks(kind: str, dataset: str) -> int:
    """Return the number of training tasks of a dataset."""
    return len(task_kind(kind).load(dataset, TRAIN))


Part = Callable[[StudySteps], object]
"""A part of the work of a seed: finds or does the steps of a method or of a piece of a figure."""


class SeedJob(BaseModel):
    """The work of one process.

    Attributes:
        folder: of the study.
        methods: whose actors are evaluated.
        validates: evaluate them on validation tasks instead.
        figures: whether the figures of these methods are made too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    seed: int
    sizes: StudySizes
    methods: tuple[Method, ...]
    figures: bool = True
    validates: bool = False

    @property
    def run(self) -> str:
        """The name of the seed's own run."""
        return f"seed-{self.seed}"

    def open(self) -> Run:
        """Return the seed's own run, which is created where it does not exist."""
        return Run.open_or_create(self.folder / self.run, self.sizes.kind)

    def parts(self) -> dict[str, Part]:
        """Return all parts by the name by which they are reported, the methods first."""
        parts: dict[str, Part] = {method.name: partial(self._evaluate, method=method) for method in self.methods}
        return {**parts, **self._figures()} if self.figures else parts

    def _evaluate(self, steps: StudySteps, *, method: Method) -> None:
        if self.validates:
            steps.validated(method)
            return
        for temperature in (SAMPLED, GREEDY):
            steps.evaluate(method, temperature)

    def _figures(self) -> dict[str, Part]:
        by_name = {method.name: method for method in self.methods}
        parts: dict[str, Part] = {}
        for name in CRITICS.values():
            if name in by_name:
                parts[f"best of N dialogues by {name}"] = partial(StudySteps.best_of, method=by_name[name])
                parts[f"credit by {name}"] = partial(StudySteps.credit, method=by_name[name])
        for name in TURN_JUDGES.values():
            if name in by_name:
                parts[f"best of N replies by {name}"] = partial(StudySteps.best_of_turns, method=by_name[name])
        for divisor in (*self.sizes.parts, 1):
            tasks = count(self.sizes.part(divisor).train_tasks, "task")
            for name in CURVES:
                if name in by_name and divisor in self.sizes.divisors(by_name[name]):
                    validated = partial(StudySteps.validated, method=by_name[name], divisor=divisor)
                    parts[f"learning curve of {name}, {tasks}"] = validated
        if "zero-shot" in by_name:
            parts["start of the learning curves"] = partial(StudySteps.validated, method=by_name["zero-shot"])
        return parts

    def is_done(self) -> bool:
        """Return whether every step of all parts is finished."""
        try:
            for do in self.parts().values():
                self.read(do)
        except StepMissing:
            return False
        return True

    def read(self, read: Callable[[StudySteps], T]) -> T:
        """Read something from the finished steps; raise StepMissing where one is not finished."""
        if not (self.folder / self.run).is_dir():
            raise StepMissing
        return read(self.steps(ReadOnlyStepCache, Silent()))

    def steps(self, cache: type[StepCache], reporter: Reporter) -> StudySteps:
        return StudySteps(cache(self.open(), reporter), self.sizes, self.seed)


def read_seeds(jobs: Sequence[SeedJob], read: Callable[[StudySteps], T]) -> dict[int, T]:
    """Read something from the finished steps of each seed; the values by seed, without those where one is missing."""
    by_seed = {}
    for job in jobs:
        with suppress(StepMissing):
            by_seed[job.seed] = job.read(read)
    return by_seed
