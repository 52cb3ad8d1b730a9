"""`sweet eval`: score the answers of a run's trajectories, and report the rates with their intervals.

The scorer of the run's kind of task computes the rewards (sweet.tasks.scores): hidden tests in the sandbox, or a page's
similarity to the reference. Scores are written one row each in the trajectories' order, as soon as they are known.
A dialogue that ended by a fault (of a server, the clock, the context) scores as one without an answer and is counted
separately. A task whose own reference fails is invalid: its rows say so and no rate counts them.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_core import to_jsonable_python

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.render.page import PLACEHOLDER
from sweet.render.window import choose_settings, window_name
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.best_of import NEEDED_BY, JudgedDialogues, measure_best_of, measure_best_of_by_model
from sweet.scoring.config import EvalConfig
from sweet.scoring.metrics import BestOfMetrics, EvalMetrics, HumanRates
from sweet.scoring.results.comparability import check_comparable, score_again
from sweet.scoring.results.compare import measure_comparison
from sweet.scoring.results.evaluation import Evaluation, Values, find_evaluation
from sweet.scoring.results.metrics import SamplesMetrics
from sweet.scoring.results.pass_at_k import measure_samples
from sweet.scoring.results.trained_on import TaskKeys, TrainingRecord, task_keys
from sweet.stages.base import Reporter, StageResult
from sweet.stages.critics import check_reference, check_turn_tokens, warn_if_at_chance
from sweet.stages.leaks import LeakTally, model_plays
from sweet.stages.live import PAUSE, LiveReporter
from sweet.stages.meta import RolloutsMeta, ScoresMeta
from sweet.stages.prices import given_prices, open_budget
from sweet.stages.record import UnknownRate
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind, check_scorer_option
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import SCORER_OPTIONS, Metric, Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import FAULTS, Trajectory
from sweet.units import count


def run_eval(run: Run, config: EvalConfig, reporter: Reporter) -> StageResult[EvalMetrics]:
    """Score the trajectories and return the rates."""
    kind = task_kind(run.manifest().task)
    check_options(kind, config)
    prices = given_prices(config)
    if config.best_of_by == "critic":
        critic = run.find("critic", config.critic, needed_by=NEEDED_BY)
        check_reference(critic, None, config.reference_context)
        check_turn_tokens(critic, None, config.turn_tokens)
        warn_if_at_chance(run, critic, reporter)
    rollouts = run.find("rollouts", config.from_, needed_by="eval")
    baseline = None if config.compare is None else find_evaluation(config.compare, needed_by="eval --compare")
    request = ScoringRequest(
        run=run.path.absolute(),
        say=reporter.say,
        **{name: getattr(config, name) for name in (*SCORER_OPTIONS, "sandbox", "workers", "device")}
        | rendering_of(kind, config, rollouts, reporter),
    )
    played = RolloutsMeta.of(rollouts)
    if played.best_of is not None and played.informed:
        reporter.warn(
            f"Each reply of {rollouts.id} was chosen among {played.best_of} by a judge that sees the solution: "
            "the rates are not those of the agent alone."
        )
    began = time.monotonic()
    attempted = run.attempt("eval", config, inputs=[rollouts], verify=config.verify, warn=reporter.warn)
    with attempted as attempt, _open_scorer(run, kind, config, request) as scorer:
        attempt.environment |= scorer.environment
        if baseline is not None:
            fix = score_again(baseline, scorer.option)
            allow = config.allow_different
            check_comparable(baseline, kind=run.manifest().task, scorer=scorer.name, fix=fix, allow=allow)
        meta = ScoresMeta(
            scoring=to_jsonable_python({**scorer.meta, "scorer": scorer.name}, fallback=str), rollouts=rollouts.id
        )
        draft = attempt.start_artifact("scores", meta=meta.as_json(), restart=True)
        tally = _Tally(scorer.metrics, lambda task: task_keys(kind, played.tasks, task), played.sim)
        reporter = live = LiveReporter(reporter, attempt, PAUSE)
        with JsonlWriter(draft.path) as writer, reporter.progress("answers", rollouts.rows) as bar:
            for trajectory, score in _scored(scorer, read_jsonl(run.file(rollouts), Trajectory), live):
                score = score.model_copy(update={"human": trajectory.human})
                writer.write(score.model_dump(mode="json", exclude=set() if score.human else {"human"}))
                tally.add(trajectory, score)
                bar.advance()
        attempt.environment |= scorer.environment
        _warn(tally, reporter)
        trained_on = TrainingRecord(kind).count(run, rollouts, tally.tasks.values)
        metrics = tally.metrics(measure_samples(tally.values, kind.rewards), scorer.environment, trained_on)
        if (cost := _cost_per_solved_task(run, kind, rollouts, tally.scores)) is not None:
            metrics = metrics.model_copy(update={"cost_per_solved_task": cost})
        if config.best_of_by == "llm":
            budget = open_budget(run, attempt, prices, config)
            with JsonlWriter(attempt.metrics_path) as log:
                recorded = partial(JudgedDialogues, run, draft.id, config, rows=log)
                best_of = measure_best_of_by_model(run, rollouts, tally.scores, config, reporter, recorded, budget)
            if budget is not None:
                best_of = best_of.model_copy(update={"cost": budget.cost_of(draft.id)})
            metrics = metrics.model_copy(update={"best_of": best_of})
        elif config.best_of_by == "critic":
            best_of = _chosen_by_critic(run, rollouts, tally.scores, config, reporter)
            metrics = metrics.model_copy(update={"best_of": best_of})
        attempt.metrics.update(metrics.as_json())
        artifact = attempt.finish_artifact(draft, rows=len(tally.scores))
        if baseline is not None:
            ours = Evaluation(run, run.manifest(), artifact)
            compared = measure_comparison(baseline, ours, flips=config.flips)
            metrics = metrics.model_copy(update={"compare": compared, "win_rate": compared.win_rate})
        metrics = metrics.model_copy(update={"seconds": round(time.monotonic() - began, 3)})
        attempt.metrics.update(metrics.as_json())
    return StageResult("eval", run.path, metrics, [artifact])


def _cost_per_solved_task(run: Run, kind: TaskKind, rollouts: Artifact, scores: Sequence[Score]) -> float | None:
    """Return what the dialogues cost for each task that one of them solved; None if their cost is not recorded, no task
    was solved, or tasks of this kind never are."""
    attempt = run.manifest().attempt(rollouts.attempt)
    cost = None if attempt is None else attempt.metrics.get("cost")
    least = kind.rewards.solved
    if least is None or isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    solved = {score.task_id for score in scores if score.reward is not None and score.reward >= least}
    return round(cost / len(solved), 6) if solved else None


def _scored(
    scorer: TrajectoryScorer, trajectories: Iterator[Trajectory], live: LiveReporter
) -> Iterator[tuple[Trajectory, Score]]:
    """Yield each trajectory with its score. In a pause nothing is under way, as what runs there has a limit of time:
    the scorer gets the trajectories in portions, each of which ends where a pause begins."""
    left = True

    def portion() -> Iterator[Trajectory]:
        nonlocal left
        while not live.paused:
            trajectory = next(trajectories, None)
            if trajectory is None:
                left = False
                return
            yield trajectory
            live.poll()

    while left:
        live.wait_while_paused()
        yield from scorer.score(portion())


def _chosen_by_critic(
    run: Run, rollouts: Artifact, scores: Sequence[Score], config: EvalConfig, reporter: Reporter
) -> BestOfMetrics:
    """Return the success of the best of N dialogues, chosen by the critic."""
    return measure_best_of(
        run,
        rollouts,
        scores,
        config.critic,
        config.device,
        reporter,
        reference_context=config.reference_context,
        turn_tokens=config.turn_tokens,
    )


def _open_scorer(
    run: Run, kind: TaskKind, config: EvalConfig, request: ScoringRequest
) -> AbstractContextManager[TrajectoryScorer]:
    """Open the scorer of the kind, on this machine or on the nodes of a cluster."""
    if config.ray is None or kind.spreads:
        return kind.open_scorer(replace(request, ray=config.ray))
    from sweet.scoring.on_ray import open_ray_scorer

    return open_ray_scorer(config.ray, run.manifest().task, request)


def rendering_of(kind: TaskKind, config: EvalConfig, rollouts: Artifact, reporter: Reporter) -> dict[str, str]:
    """Return how pages are rendered, the fields of the scoring request; empty for a kind without these options.

    Without an option pages look as in the dialogues, or with the scorer `upstream` as in the published code.
    """
    if not {"window", "pictures"} <= kind.scorer_options:
        return {}
    upstream, played = config.scorer == "upstream", RolloutsMeta.of(rollouts)
    window, pictures = config.window, config.pictures
    if not upstream:
        recorded = played.rendering
        window = window or window_name(recorded)
        pictures = pictures or ("placeholder" if recorded.pictures == PLACEHOLDER else "photo")
    settings = choose_settings(window, pictures, upstream=upstream, say=reporter.say)
    return {"window": window_name(settings), "pictures": settings.pictures}


def check_options(kind: TaskKind, config: EvalConfig) -> None:
    """Raise UsageError if an option is given that has no effect: on this kind of task, or without another option."""
    for name in SCORER_OPTIONS:
        if getattr(config, name) != EvalConfig.model_fields[name].default:
            check_scorer_option(kind, name)
    for name, chosen_by in _CHOSEN_BY.items():
        if getattr(config, name) not in (None, []) and config.best_of_by != chosen_by:
            raise UsageError(
                Hint(option(name), " is an option of ", option("best_of_by", chosen_by), "."),
                where=option(name),
                fix=Hint("omit ", option(name), ", or ", option("best_of_by", chosen_by)),
            )
    if config.best_of_by == "llm" and config.judge_model is None:
        raise UsageError(
            "A language model chooses, and none is named.",
            where=option("best_of_by", "llm"),
            fix=option("judge_model", "MODEL"),
        )


_CHOSEN_BY = {
    **dict.fromkeys(("reference_context", "turn_tokens"), "critic"),
    **dict.fromkeys(("judge_model", "judge_url", "judge_prompt", "prices", "max_cost"), "llm"),
}
"""Options of what chooses the best of N dialogues, and the value of `best_of_by` that they belong to."""


class _Tally:
    """The scores so far, the keys of their tasks, and the counts of leaks, faults and invalid tasks."""

    def __init__(self, figures: Mapping[str, Metric], keys_of: Callable[[Task], TaskKeys], sim: str | None) -> None:
        self.figures, self.sim = figures, sim
        self.leaks = LeakTally()
        self.scores: list[Score] = []
        self.values = Values(figures)
        self.faults: Counter[str] = Counter()
        self.human_faults: Counter[str] = Counter()
        self.invalid: dict[str, str] = {}
        self.tasks: dict[str, TaskKeys] = {}
        self._keys_of = keys_of

    def add(self, trajectory: Trajectory, score: Score) -> None:
        self.scores.append(score.model_copy(update={"detail": {}}))
        self.values.add(score)
        if trajectory.task_id not in self.tasks:
            self.tasks[trajectory.task_id] = self._keys_of(trajectory.task)
        if model_plays(trajectory.human or self.sim, self.sim):
            self.leaks.add(trajectory.task_id, trajectory.leaks)
        if trajectory.outcome in FAULTS:
            self.faults[trajectory.outcome] += 1
        if trajectory.fault is not None and trajectory.human is not None:
            self.human_faults[trajectory.human] += 1
        if score.outcome == "invalid":
            self.invalid[score.task_id] = str(score.detail.get("why", ""))

    def metrics(
        self, samples: SamplesMetrics, scored_by: Mapping[str, Any], trained_on_tasks: int | None
    ) -> EvalMetrics:
        rates = self.values.rates()
        outcomes = Counter(score.outcome for score in self.scores)
        humans = {name: self._of_human(name, values) for name, values in sorted(self.values.humans.items())}
        named: dict[str, Any] = {"humans": humans} if humans else {}
        return EvalMetrics(
            trajectories=len(self.scores),
            tasks=len({score.task_id for score in self.scores}),
            trained_on_tasks=trained_on_tasks,
            rates={name: UnknownRate() if (rate := rates[name]) is None else rate.rate() for name in self.figures},
            leaks=self.leaks.metrics(),
            outcomes=dict(sorted(outcomes.items())),
            faults=self.faults.total(),
            invalid_tasks=len(self.invalid),
            samples=samples,
            scored_by=to_jsonable_python(dict(scored_by), fallback=str),
            **named,
        )

    def _of_human(self, name: str, values: Values) -> HumanRates:
        rates = values.rates()
        return HumanRates(
            dialogues=sum(map(len, values.ids.values())),
            tasks=len(values.ids),
            faults=self.human_faults[name],
            rates={name: UnknownRate() if (rate := rates[name]) is None else rate.rate() for name in self.figures},
        )


def _warn(tally: _Tally, reporter: Reporter) -> None:
    for task, why in itertools.islice(tally.invalid.items(), 5):
        reporter.warn(f"Task {task} is invalid and counts in no rate: {why}.")
    if len(tally.invalid) > 5:
        reporter.warn(f"Also invalid: {count(len(tally.invalid) - 5, 'more task')}; the rows of the scores say why.")
    if tally.faults:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(tally.faults.items()))
        reporter.warn(f"Dialogues that ended by a fault count as unsolved: {counts}.")
