"""`sweet eval`: score the answers of a run's trajectories, and report the rates with their intervals.

    request   the options of the scorer, and how pages look
    tally     what is counted of the scores
    best_of   the best of N dialogues of a task, chosen by the critic
    results   comparisons of evaluations

The scorer of the run's kind of task computes the rewards (sweet.tasks.scores): hidden tests in the sandbox, or a page's
similarity to the reference. Scores are written one row each in the trajectories' order, as soon as they are known.
A dialogue that ended by a fault (of a server, the clock, the context) scores as one without an answer and is counted
separately. A task whose own reference fails is invalid: its rows say so and no rate counts them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from pydantic_core import to_jsonable_python

from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.best_of import check_best_of, measure_best_of, settings_of
from sweet.scoring.config import EvalConfig
from sweet.scoring.function import FunctionScorer, RewardFunction, config_for
from sweet.scoring.metrics import EvalMetrics, EvalWork
from sweet.scoring.request import check_options, credit_of_turns, open_scorer
from sweet.scoring.results.comparability import check_comparable, score_again
from sweet.scoring.results.compare import measure_comparison
from sweet.scoring.results.evaluation import Evaluation, find_evaluation
from sweet.scoring.results.pass_at_k import measure_samples
from sweet.scoring.results.trained_on import TrainingRecord
from sweet.scoring.tally import Tally, cost_per_solved_task
from sweet.stages.base import Reporter, StageResult
from sweet.stages.frame import Frame
from sweet.stages.meta import RolloutsMeta, ScoresMeta
from sweet.stages.plans import Plan
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import TrajectoryScorer, with_dialogue
from sweet.tasks.trajectory import Trajectory


def run_eval(
    run: Run, config: EvalConfig, reporter: Reporter, function: RewardFunction | None = None
) -> StageResult[EvalMetrics]:
    """Score the trajectories and return the rates.

    Args:
        function: gives the rewards instead of the scorer of the kind.
    """
    kind = task_kind(run.manifest().task)
    if function is None:
        check_options(kind, config)
    else:
        config = config_for(function, config)
    critic = check_best_of(run, config, reporter)
    rollouts = run.find("rollouts", config.from_, needed_by="eval")
    baseline = None if config.compare is None else find_evaluation(config.compare, needed_by="eval --compare")
    played, credit = RolloutsMeta.of(rollouts), credit_of_turns(run, config, rollouts)
    if played.best_of is not None and played.informed:
        reporter.warn(
            f"Each reply of {rollouts.id} was chosen among {played.best_of} by a judge that sees the solution: "
            "the rates are not those of the agent alone."
        )
    opening: AbstractContextManager[TrajectoryScorer]
    if function is None:
        opening = open_scorer(run, kind, config, rollouts, reporter)
    else:
        opening = nullcontext(FunctionScorer(function, kind.rewards))
    framed = Frame("eval", run, config, reporter, inputs=[rollouts])
    with framed as frame, opening as scorer:
        frame.attempt.environment |= scorer.environment
        if baseline is not None:
            fix, allow = score_again(baseline, scorer.option), config.allow_different
            check_comparable(baseline, kind=kind.name, scorer=scorer.name, fix=fix, allow=allow)
        scoring = to_jsonable_python({**scorer.meta, "scorer": scorer.name}, fallback=str)
        rows = frame.rows("scores", ScoresMeta(scoring=scoring, rollouts=rollouts.id))
        tally = Tally(scorer.metrics, played.sim)
        with frame.progress("answers", rollouts.rows) as bar:
            for trajectory, score in scorer.score(read_jsonl(run.file(rollouts), Trajectory)):
                if credit is not None:
                    trajectory = trajectory.with_rewards(credit.turn_rewards(trajectory))
                score = with_dialogue(score, trajectory)
                rows.write(score.model_dump(mode="json"))
                tally.add(trajectory, score)
                bar.advance()
        frame.attempt.environment |= scorer.environment
        tally.warn(frame)
        trained_on = TrainingRecord(kind).count(run, rollouts)
        metrics = tally.metrics(measure_samples(tally.values, kind.rewards), scorer.environment, trained_on)
        cost = cost_per_solved_task(run, kind, rollouts, tally.scores)
        metrics = metrics.model_copy(update={"cost_per_solved_task": cost})
        if critic is not None:
            best_of = measure_best_of(run, rollouts, tally.scores, critic, settings_of(config), frame)
            metrics = metrics.model_copy(update={"best_of": best_of})
        artifact = frame.finish(rows, metrics)
        if baseline is not None:
            ours = Evaluation(run, run.manifest(), artifact)
            compared = measure_comparison(baseline, ours, flips=config.flips)
            metrics = metrics.model_copy(update={"compare": compared, "win_rate": compared.win_rate})
        metrics = metrics.model_copy(update={"seconds": frame.seconds})
        frame.record(metrics)
        return frame.result(metrics, artifact)


def plan_eval(run: Run, config: EvalConfig, reporter: Reporter) -> Plan[EvalWork]:
    """Return the work that `run_eval` would do, for --dry-run."""
    kind = task_kind(run.manifest().task)
    check_options(kind, config)
    rollouts = run.find("rollouts", config.from_, needed_by="eval")
    reporter.say(f"Counting the dialogues of {rollouts.id}.")
    dialogues = tests = 0
    tasks: dict[str, int] = {}
    answers: set[tuple[str, str]] = set()
    for trajectory in read_jsonl(run.file(rollouts), Trajectory):
        dialogues += 1
        tests += len(trajectory.task.test_cases)
        tasks[trajectory.task_id] = len(trajectory.task.test_cases)
        answers.add((trajectory.task_id, trajectory.answer))
    work = EvalWork(dialogues=dialogues, tasks=len(tasks), answers=len(answers))
    if not kind.visual:
        work = work.model_copy(update={"tests": tests, "reference_tests": sum(tasks.values())})
    return Plan(work=work, assumed=[])
