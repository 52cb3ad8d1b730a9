"""What an evaluation asks of the scorer of its kind of task: the options that it has, and how pages look."""

from __future__ import annotations

from contextlib import AbstractContextManager

from sweet.errors import UsageError
from sweet.hints import option
from sweet.judges.control import CREDIT, CreditScorer, check_credit_known
from sweet.llm.base import Reply
from sweet.render.page import PLACEHOLDER
from sweet.render.window import choose_settings, window_name
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.stages.base import Reporter
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.kind import TaskKind, check_scorer_option
from sweet.tasks.scores import SCORER_OPTIONS, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory


def open_scorer(
    run: Run, kind: TaskKind, config: EvalConfig, rollouts: Artifact, reporter: Reporter
) -> AbstractContextManager[TrajectoryScorer]:
    """Open the scorer of the kind, on this machine or on the nodes of a cluster."""
    request = ScoringRequest(
        run=run.path.absolute(),
        say=reporter.say,
        **{name: getattr(config, name) for name in (*SCORER_OPTIONS, "sandbox", "workers", "device")}
        | rendering_of(kind, config, rollouts, reporter)
        | ({"scorer": "strict"} if config.scorer == CREDIT else {}),
    )
    if config.ray is None:
        return kind.open_scorer(request)
    if kind.visual:
        what = f"The pages of {kind.name} tasks are rendered on this machine."
        raise UsageError(what, where=option("ray", config.ray), fix="leave it out")
    from sweet.scoring.on_ray import open_ray_scorer

    return open_ray_scorer(config.ray, run.manifest().task, request)


def credit_of_turns(run: Run, config: EvalConfig, rollouts: Artifact) -> CreditScorer | None:
    """Return what rewards turns by the tasks' own knowledge, if the options ask for it.

    Raises:
        UsageError: the tasks know the credit of no turn.
    """
    if config.scorer != CREDIT:
        return None
    credit, rows = CreditScorer.for_rollouts(run, rollouts), read_jsonl(run.file(rollouts), Trajectory)
    replies = ((d.task, d.observation(i, None), Reply.of(d.dialogue_history[i])) for d in rows for i in d.agent_turns)
    check_credit_known(credit, replies, f"--scorer {CREDIT}")
    return credit


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
        if getattr(config, name) not in (EvalConfig.model_fields[name].default, CREDIT):
            check_scorer_option(kind, name)
    for name in ("reference_context", "turn_tokens"):
        if getattr(config, name) is not None and config.best_of_by is None:
            raise UsageError(
                f"{option(name)} is an option of --best-of-by critic.",
                where=option(name),
                fix=f"omit {option(name)}, or --best-of-by critic",
            )
