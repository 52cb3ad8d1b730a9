"""`sweet compare A B` and `sweet eval B --compare A`: compare two evaluations of the same tasks, paired by task.

Every difference is B - A. A task's value on a side is the mean over its dialogues there, a side's metric the mean over
the tasks that both have, so the two metrics differ by exactly the reported difference. Intervals are by bootstrap over
tasks; the p-value is McNemar's exact test for metrics of 0 and 1 if both sides have one dialogue per task, the paired
permutation test otherwise. Nothing is written: the result comes from the manifests and the rows of scores.
What is compared is said by `ComparisonMetrics` (sweet.scoring.results.metrics).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import Field

from sweet.errors import UsageError
from sweet.hints import option
from sweet.runs.jsonl import scan_jsonl
from sweet.runs.manifest import Manifest
from sweet.runs.run import Run
from sweet.scoring.results.comparability import check_comparable, score_again, scorer_options, unfairness
from sweet.scoring.results.evaluation import REWARD, Evaluation, Values, distinct, evaluations, find_evaluation
from sweet.scoring.results.metrics import (
    Caveat,
    ComparedHuman,
    ComparedHumans,
    ComparedLeaks,
    ComparedMetric,
    ComparedSide,
    ComparedStyle,
    ComparisonMetrics,
    FlippedTask,
    FlippedTasks,
    Flips,
    RepeatsOfBoth,
)
from sweet.scoring.results.pass_at_k import compare_samples
from sweet.scoring.results.repeats import measure_repeats, other_seeds
from sweet.scoring.results.run_result import RunResult
from sweet.scoring.results.statistics import compare, differences, mean_difference
from sweet.scoring.results.style import figures, speech, told_apart
from sweet.scoring.results.trained_on import TrainingRecord, trained_on
from sweet.stages.artifacts import agent_name
from sweet.stages.base import MarkdownConfig, StageResult
from sweet.stages.intervals import clustered_mean
from sweet.stages.leaks import LeakTally, model_plays
from sweet.stages.options import FLIPS, ComparisonConfig
from sweet.stages.record import AnyRate, UnknownRate
from sweet.tasks.scores import RewardRule
from sweet.tasks.trajectory import leaks_of
from sweet.units import rate

_SOLVED = 0.5
"""A task is solved on a side if more than this share of its dialogues solve it."""


class CompareConfig(ComparisonConfig, MarkdownConfig):
    repeat_run: list[Path] = Field(default_factory=list)
    """A further run whose evaluations count as repeats if they differ only in the seed; may be given several times."""


def run_compare(a: str | Path, b: str | Path, config: CompareConfig) -> StageResult[ComparisonMetrics]:
    """Compare B with A, each given as RUN, RUN:scores-2 or RUN:rollouts-1.

    Raises:
        UsageError: a side does not exist; both are the same, not comparable or share no valid task; or a further run
            has no repeat.
    """
    baseline, other = (find_evaluation(reference, needed_by="compare") for reference in (a, b))
    options = scorer_options(other)
    fix = score_again(other, scorer_options(baseline) or "") if options is None else score_again(baseline, options)
    check_comparable(baseline, kind=other.manifest.task, scorer=other.scorer, fix=fix, allow=config.allow_different)
    runs = [Run.open(path) for path in config.repeat_run]
    for run in runs:
        if not other_seeds(baseline, run) and not other_seeds(other, run):
            what = "No evaluation in this run differs only in the seed from one of the two."
            raise UsageError(what, where=option("repeat_run", run.path), fix=f"its settings: sweet status {run.path}")
    metrics = measure_comparison(baseline, other, flips=config.flips, runs=runs)
    return StageResult("compare", other.run.path, metrics)


def measure_comparison(
    a: Evaluation, b: Evaluation, *, flips: int = FLIPS, runs: Sequence[Run] = ()
) -> ComparisonMetrics:
    """Return the metrics of the comparison.

    Args:
        flips: number of flipped tasks to list in each direction.
        runs: further runs to search for repeats, besides those of A and B.

    Raises:
        UsageError: both are the same scores, or they share no valid task.
    """
    if a.same_as(b):
        raise _same(a)
    values = a.values(), b.values()
    shared = shared_tasks(*values)
    if not shared:
        raise UsageError(
            f"{a.name} and {b.name} share no valid task.",
            where=a.run.path,
            fix="; ".join(dict.fromkeys(f"{side.run.path} has {_evaluations_in_words(side.run)}" for side in (a, b))),
        )
    paired = pair_figures(*values)
    rule = b.kind.rewards
    everywhere = [a.run, b.run, *runs]
    record = TrainingRecord(b.kind)
    leaks = compare_leaks(a, b, shared)
    return ComparisonMetrics(
        a=_side(a, values[0], shared, record),
        b=_side(b, values[1], shared, record),
        tasks=len(shared),
        win_rate=paired[REWARD].win_rate,
        figures=paired,
        flips=_flips(*values, shared, rule, flips),
        samples=compare_samples(*values, rule, shared),
        leaks=leaks,
        repeats=RepeatsOfBoth(
            a=measure_repeats(a, values[0], everywhere),
            b=measure_repeats(b, values[1], everywhere),
        ),
        by_human=compare_humans(a, b, *values),
        style=compare_style(a, b, values, shared),
        warnings=[*leak_caveats(leaks), *unfairness(a, b, values, shared)],
    )


def paired_figures(run: Run, manifest: Manifest, result: RunResult) -> dict[str, ComparedMetric]:
    """Return the metrics of the result of a run (B) and of its first agent (A), paired by task; empty where the first
    agent has no scores on these tasks, or both share no valid task.

    Raises:
        InputError: a row of the scores is damaged.
    """
    if result.before is None:
        return {}
    values = [Evaluation(run, manifest, scores).values() for scores in (result.before, result.scores)]
    return distinct(pair_figures(*values)) if shared_tasks(*values) else {}


def _same(evaluation: Evaluation) -> UsageError:
    """Both sides are the same scores; the error proposes others."""
    other_evaluations = [candidate for candidate in evaluations(evaluation.run) if not candidate.same_as(evaluation)]
    digest = evaluation.played.get("tasks_digest")
    same_tasks = [candidate for candidate in other_evaluations if candidate.played.get("tasks_digest") == digest]
    if same_tasks:
        first, second = sorted((same_tasks[-1], evaluation), key=lambda candidate: candidate.scores.number)
        fix = shlex.join(["sweet", "compare", first.name, second.name])
    else:
        fix = "name another run as A, or play and score once more in this one"
    return UsageError(
        f"Both sides are {evaluation.scores.id}. The run has {_evaluations_in_words(evaluation.run)}.",
        where=evaluation.run.path,
        fix=fix,
    )


def _evaluations_in_words(run: Run) -> str:
    """Return the evaluations of a run, in words."""
    words = []
    for evaluation in evaluations(run):
        rollouts, played = evaluation.rollouts, evaluation.played
        dialogues = "unknown dialogues" if rollouts is None else rollouts.id
        settings = [str(played[key]) for key in ("agent", "tasks", "split") if played.get(key) is not None]
        words.append(f"{evaluation.scores.id} (of {': '.join(filter(None, (dialogues, ', '.join(settings))))})")
    return ", ".join(words)


def _side(evaluation: Evaluation, values: Values, shared: Sequence[str], record: TrainingRecord) -> ComparedSide:
    played, rollouts = evaluation.played, evaluation.rollouts
    return ComparedSide(
        run=str(evaluation.run.path),
        scores=evaluation.scores.id,
        rollouts=None if rollouts is None else rollouts.id,
        agent=(rollouts and agent_name(evaluation.manifest, rollouts)) or played.get("agent"),
        split=played.get("split"),
        seed=played.get("seed"),
        temperature=played.get("temperature"),
        scorer=evaluation.scorer,
        tasks=len(values.ids),
        dialogues=sum(map(len, values.ids.values())),
        trained_on_tasks=trained_on(evaluation, record, shared),
    )


def shared_tasks(a: Values, b: Values) -> list[str]:
    """Return the valid tasks that both sides have."""
    return sorted(a.ids.keys() & b.ids.keys())


def pair_figures(a: Values, b: Values) -> dict[str, ComparedMetric]:
    """Return each metric that both sides have, over the valid tasks that both have, the rewards first."""
    both = {name: list(zip(a.bounds(name), b.bounds(name), strict=True)) for name in a.figures if name in b.figures}
    compared = {name: pair_values(a.of(name), b.of(name), (min(low), max(high))) for name, (low, high) in both.items()}
    return {name: figure for name, figure in compared.items() if figure is not None}


def pair_values(
    a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]], bounds: tuple[float, float]
) -> ComparedMetric | None:
    """Return the comparison of two sides over the tasks that both have; None without one.

    Args:
        a, b: the values of each task's dialogues, by task.
        bounds: the least and the greatest possible value.
    """
    tasks = sorted(a.keys() & b.keys())
    if not tasks:
        return None
    ours, theirs = ({task: fmean(side[task]) for task in tasks} for side in (a, b))
    single = all(len(side[task]) == 1 for side in (a, b) for task in tasks)
    result = compare(theirs, ours, single=single, span=bounds[1] - bounds[0])
    means = [clustered_mean(list(side.values()), tasks, bounds=bounds) for side in (ours, theirs)]
    return ComparedMetric(
        tasks=len(tasks),
        a=means[0].rate(),
        b=means[1].rate(),
        difference=result.difference.rate(),
        p_value=float(f"{result.p_value:.6g}"),
        test=result.test,
        win_rate=result.win_rate.rate(),
        wins=result.wins,
        losses=result.losses,
        ties=result.ties,
    )


def _flips(a: Values, b: Values, shared: Sequence[str], rule: RewardRule, most: int) -> Flips:
    """Return the tasks that only A, and only B, solves; if rewards are degrees, those that fell and those that rose."""
    worth = [{task: [rule.worth(reward) for reward in side.of(REWARD)[task]] for task in shared} for side in (a, b)]
    means = [{task: fmean(row) for task, row in side.items()} for side in worth]
    lost: list[str] = []
    gained: list[str] = []
    for task, change in differences(means[1], means[0]).items():
        before, after = means[0][task] > _SOLVED, means[1][task] > _SOLVED
        if change and (rule.solved is None or before != after):
            (lost if change < 0 else gained).append(task)

    def flipped(tasks: list[str], sign: int) -> FlippedTasks:
        tasks.sort(key=lambda task: (sign * (means[1][task] - means[0][task]), task))
        rows = [
            FlippedTask(
                task=task,
                a=round(means[0][task], 6),
                b=round(means[1][task], 6),
                a_ids=_by_reward(a.ids[task], a.of(REWARD)[task], best_first=sign > 0),
                b_ids=_by_reward(b.ids[task], b.of(REWARD)[task], best_first=sign < 0),
            )
            for task in tasks[:most]
        ]
        return FlippedTasks(count=len(tasks), tasks=rows)

    by: Literal["solved", "reward"] = "reward" if rule.solved is None else "solved"
    return Flips(by=by, lost=flipped(lost, 1), gained=flipped(gained, -1))


def _by_reward(ids: Sequence[str], rewards: Sequence[float], *, best_first: bool) -> list[str]:
    """Return a task's dialogues, the one that best shows why the task flipped first."""
    order = sorted(zip(ids, rewards, strict=True), key=lambda row: (-row[1] if best_first else row[1], row[0]))
    return [id for id, _ in order]


def compare_humans(a: Evaluation, b: Evaluation, ours: Values, theirs: Values) -> ComparedHumans | None:
    """Return the first metric by human; None where the dialogues of neither side name their human.

    Humans play different tasks in one rollout (`--spread tasks`), so two humans of one side are not paired: one human
    on both sides is, over the tasks that both played with it. A side that names no human is all of its one human.
    """
    if not (ours.humans or theirs.humans):
        return None
    sides = [values.by_human(str(side.played.get("sim"))) for side, values in ((a, ours), (b, theirs))]
    figure = next(name for name in b.kind.metrics if name in ours.figures and name in theirs.figures)
    bounds = ours.bounds(figure)
    means = [{human: values.means(figure) for human, values in side.items()} for side in sides]
    humans = sorted(means[0].keys() | means[1].keys())
    return ComparedHumans(
        figure=figure,
        humans={human: _compared_human(means[0].get(human, {}), means[1].get(human, {}), bounds) for human in humans},
    )


def _compared_human(a: Mapping[str, float], b: Mapping[str, float], bounds: tuple[float, float]) -> ComparedHuman:
    """Return the comparison of two sides, by the mean of each of their tasks."""
    diffs = list(differences(b, a).values())
    difference: AnyRate = mean_difference(diffs, span=bounds[1] - bounds[0]).rate() if diffs else UnknownRate()
    return ComparedHuman(
        a_tasks=len(a), b_tasks=len(b), a=_mean(a, bounds), b=_mean(b, bounds), tasks=len(diffs), difference=difference
    )


def _mean(tasks: Mapping[str, float], bounds: tuple[float, float]) -> AnyRate:
    return clustered_mean(list(tasks.values()), list(tasks), bounds=bounds).rate() if tasks else UnknownRate()


def compare_style(
    a: Evaluation, b: Evaluation, values: Sequence[Values], shared: Collection[str]
) -> ComparedStyle | None:
    """Return how the humans of both sides speak; None where they are the same, or one never replies.

    Raises:
        InputError: a row of the dialogues is damaged.
    """
    sims = [str(side.played.get("sim")) for side in (a, b)]
    humans = [set(side.by_human(sim)) for side, sim in zip(values, sims, strict=True)]
    if humans[0] == humans[1]:
        return None
    ours, theirs = (speech(side, set(shared)) for side in (a, b))
    if not (tasks := ours.keys() & theirs.keys()):
        return None
    of_a, of_b = ({task: rows[task] for task in tasks} for rows in (ours, theirs))
    sides = figures(of_a, of_b), figures(of_b, of_a)
    highest = {name: max(v for side in sides for row in side[name].values() for v in row) for name in sides[0]}
    pairs = {name: pair_values(sides[0][name], sides[1][name], (0.0, highest[name] or 1.0)) for name in sides[0]}
    compared, accuracy = {name: pair for name, pair in pairs.items() if pair is not None}, told_apart(sides)
    return ComparedStyle(figures=compared, told_apart=UnknownRate() if accuracy is None else accuracy.rate())


def compare_leaks(a: Evaluation, b: Evaluation, shared: Collection[str]) -> ComparedLeaks | None:
    """Return the leaks of both sides; None where no model plays the human of both, or dialogues are missing.

    An agent that is trained against a simulated human finds what makes it say the solution before it finds better
    questions. A success rate that rises together with the leak rate is then no better agent.

    Raises:
        InputError: a row of the dialogues is damaged.
    """
    if not all(model_plays(side.played.get("sim")) for side in (a, b)):
        return None
    tallies = [_tally(side, set(shared)) for side in (a, b)]
    ours, theirs = (tally.metrics() for tally in tallies)
    rates = [tally.by_task() for tally in tallies]
    if ours is None or theirs is None or not rates[0].keys() & rates[1].keys():
        return None
    paired = compare(rates[1], rates[0])
    p_value = float(f"{paired.p_value:.6g}")
    return ComparedLeaks(a=ours, b=theirs, difference=paired.difference.rate(), p_value=p_value, test=paired.test)


def leak_caveats(leaks: ComparedLeaks | None) -> list[Caveat]:
    """Return the warning that the human leaks more often on one side, if the interval of the difference excludes 0."""
    if leaks is None or leaks.difference.ci_low <= 0 <= leaks.difference.ci_high:
        return []
    rates = [side.leak_rate for side in (leaks.a, leaks.b)]
    in_words = [rate(leak_rate.value, leak_rate.ci_low, leak_rate.ci_high) for leak_rate in rates]
    text = f"Dialogues in which the human leaked the solution: {in_words[0]} in A, {in_words[1]} in B."
    return [Caveat(about="leak_rate", text=text, a=rates[0].value, b=rates[1].value)]


def _tally(side: Evaluation, task_ids: set[str]) -> LeakTally:
    tally = LeakTally()
    if side.rollouts is None or not (path := side.run.file(side.rollouts)).is_file():
        return tally
    for row in scan_jsonl(path):
        task = row.get("task")
        task_id = task.get("id") if isinstance(task, dict) else None
        if isinstance(task_id, str) and task_id in task_ids and model_plays(row.get("human") or side.played.get("sim")):
            tally.add(task_id, leaks_of(row))
    return tally
