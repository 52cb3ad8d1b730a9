"""`sweet eval`: score the answers of a run's trajectories, and report the rates with their intervals.

    tally     what is counted of the scores
    best_of   the best of N dialogues of a task, chosen by the critic
    results   comparisons of evaluations

The scorer of the run's kind of task computes the rewards (sweet.tasks.scores): hidden tests in the sandbox, or a page's
similarity to the reference. Scores are written one row each in the trajectories' order, as soon as they are known.
A dialogue that ended by a fault (of a server, the clock, the context) scores as one without an answer and is counted
separately. A task whose own reference fails is invalid: its rows say so and no rate counts them.

The plan (`--dry-run`) counts the work: tests to run, or pages without a screenshot to render.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from pydantic_core import to_jsonable_python

from sweet.errors import UsageError
from sweet.hints import option
from sweet.render.page import PLACEHOLDER, RenderSettings, page_key
from sweet.render.window import choose_settings, recorded_settings, window_name
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.best_of import check_best_of, measure_best_of, settings_of
from sweet.scoring.config import EvalConfig
from sweet.scoring.metrics import EvalMetrics, EvalWork
from sweet.scoring.results.comparability import check_comparable, score_again
from sweet.scoring.results.compare import measure_comparison
from sweet.scoring.results.evaluation import Evaluation, find_evaluation
from sweet.scoring.results.pass_at_k import measure_samples
from sweet.scoring.results.trained_on import TrainingRecord
from sweet.scoring.tally import Tally, cost_per_solved_task
from sweet.stages.base import Reporter, StageResult
from sweet.stages.frame import Frame
from sweet.stages.live import PAUSE, LiveReporter
from sweet.stages.meta import RolloutsMeta, ScoresMeta
from sweet.stages.plans import Plan
from sweet.tasks.kind import TaskKind, check_scorer_option
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import SCORER_OPTIONS, Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory


def run_eval(run: Run, config: EvalConfig, reporter: Reporter) -> StageResult[EvalMetrics]:
    """Score the trajectories and return the rates."""
    kind = task_kind(run.manifest().task)
    _check_options(kind, config)
    check_best_of(run, config, reporter)
    rollouts = run.find("rollouts", config.from_, needed_by="eval")
    baseline = None if config.compare is None else find_evaluation(config.compare, needed_by="eval --compare")
    played = RolloutsMeta.of(rollouts)
    if played.best_of is not None and played.informed:
        reporter.warn(
            f"Each reply of {rollouts.id} was chosen among {played.best_of} by a judge that sees the solution: "
            "the rates are not those of the agent alone."
        )
    opening = _open_scorer(run, kind, config, rollouts, reporter)
    framed = Frame("eval", run, config, reporter, inputs=[rollouts], controls=PAUSE)
    with framed as frame, opening as scorer:
        frame.attempt.environment |= scorer.environment
        if baseline is not None:
            fix, allow = score_again(baseline, scorer.option), config.allow_different
            check_comparable(baseline, kind=kind.name, scorer=scorer.name, fix=fix, allow=allow)
        scoring = to_jsonable_python({**scorer.meta, "scorer": scorer.name}, fallback=str)
        rows = frame.rows("scores", ScoresMeta(scoring=scoring, rollouts=rollouts.id))
        tally = Tally(scorer.metrics, played.sim)
        with frame.progress("answers", rollouts.rows) as bar:
            for trajectory, score in _scored(scorer, read_jsonl(run.file(rollouts), Trajectory), frame.live):
                score = score.model_copy(update={"human": trajectory.human})
                rows.write(score.model_dump(mode="json", exclude=set() if score.human else {"human"}))
                tally.add(trajectory, score)
                bar.advance()
        frame.attempt.environment |= scorer.environment
        tally.warn(frame)
        trained_on = TrainingRecord(kind).count(run, rollouts)
        metrics = tally.metrics(measure_samples(tally.values, kind.rewards), scorer.environment, trained_on)
        if (cost := cost_per_solved_task(run, kind, rollouts, tally.scores)) is not None:
            metrics = metrics.model_copy(update={"cost_per_solved_task": cost})
        if config.best_of_by is not None:
            best_of = measure_best_of(run, rollouts, tally.scores, config.critic, settings_of(config), frame)
            metrics = metrics.model_copy(update={"best_of": best_of})
        artifact = frame.finish(rows, metrics)
        if baseline is not None:
            ours = Evaluation(run, run.manifest(), artifact)
            compared = measure_comparison(baseline, ours, flips=config.flips)
            metrics = metrics.model_copy(update={"compare": compared, "win_rate": compared.win_rate})
        metrics = metrics.model_copy(update={"seconds": frame.seconds})
        frame.record(metrics)
        return frame.result(metrics, artifact)


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


def _open_scorer(
    run: Run, kind: TaskKind, config: EvalConfig, rollouts: Artifact, reporter: Reporter
) -> AbstractContextManager[TrajectoryScorer]:
    """Open the scorer of the kind, on this machine or on the nodes of a cluster."""
    request = ScoringRequest(
        run=run.path.absolute(),
        say=reporter.say,
        **{name: getattr(config, name) for name in (*SCORER_OPTIONS, "sandbox", "workers", "device")}
        | _rendering_of(kind, config, rollouts, reporter),
    )
    if config.ray is None or kind.spreads:
        return kind.open_scorer(replace(request, ray=config.ray))
    from sweet.scoring.on_ray import open_ray_scorer

    return open_ray_scorer(config.ray, run.manifest().task, request)


def _rendering_of(kind: TaskKind, config: EvalConfig, rollouts: Artifact, reporter: Reporter) -> dict[str, str]:
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


def _check_options(kind: TaskKind, config: EvalConfig) -> None:
    """Raise UsageError if an option is given that has no effect: on this kind of task, or without another option."""
    for name in SCORER_OPTIONS:
        if getattr(config, name) != EvalConfig.model_fields[name].default:
            check_scorer_option(kind, name)
    for name in ("reference_context", "turn_tokens"):
        if getattr(config, name) is not None and config.best_of_by is None:
            raise UsageError(
                f"{option(name)} is an option of --best-of-by critic.",
                where=option(name),
                fix=f"omit {option(name)}, or --best-of-by critic",
            )


def plan_eval(run: Run, config: EvalConfig, reporter: Reporter) -> Plan[EvalWork]:
    """Return the plan of `run_eval`."""
    kind = task_kind(run.manifest().task)
    _check_options(kind, config)
    rollouts = run.find("rollouts", config.from_, needed_by="eval")
    reporter.say(f"Counting the dialogues of {rollouts.id}.")
    dialogues = tests = 0
    tasks: dict[str, int] = {}
    answers: set[tuple[str, str]] = set()
    pages: set[str] = set()
    for trajectory in read_jsonl(run.file(rollouts), Trajectory):
        dialogues += 1
        tests += len(trajectory.task.test_cases)
        tasks[trajectory.task_id] = len(trajectory.task.test_cases)
        answers.add((trajectory.task_id, trajectory.answer))
        if kind.visual:
            pages |= _pages(trajectory)
    work = EvalWork(dialogues=dialogues, tasks=len(tasks), answers=len(answers))
    if kind.visual:
        looks = _rendering_of(kind, config, rollouts, reporter)
        settings = recorded_settings(**looks) if looks else RenderSettings()
        more = {"screenshots": len(pages), "screenshots_missing": _missing(run.path, pages, settings)}
    else:
        more = {"tests": tests, "reference_tests": sum(tasks.values())}
    return Plan(work=work.model_copy(update=more), assumed=[])


def _pages(trajectory: Trajectory) -> set[str]:
    """Return the pages that are rendered to score a dialogue: the reference, and the last page if there is one."""
    from sweet.tasks.html.page import extract_page
    from sweet.tasks.html.scoring import last_page, reference_page

    return {reference_page(trajectory, extract_page)} | ({last_page(trajectory, extract_page) or ""} - {""})


def _missing(folder: Path, pages: Collection[str], settings: RenderSettings) -> int:
    """Return the number of pages that have no screenshot in the run."""
    from sweet.render.store import SCREENSHOTS, ScreenshotStore

    store = ScreenshotStore(folder / SCREENSHOTS)
    return sum(not store.has(page_key(page, settings)) for page in pages)
