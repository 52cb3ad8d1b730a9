"""The work of an evaluation, for `sweet eval --dry-run`: tests to run, or pages without a screenshot to render."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from sweet.device import CORES
from sweet.render.page import RenderSettings
from sweet.runs.environment import NODES
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.metrics import EvalWork
from sweet.stages.plans import Plan, PlanBuilder
from sweet.stages.rates import GPU, EarlierAttempt, share, times
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import Trajectory


def plan_scoring(
    run: Run,
    config: EvalConfig,
    kind: TaskKind,
    trajectories: Iterable[Trajectory],
    *,
    gpus: int | None,
    machines: Sequence[int],
    settings: RenderSettings | None = None,
) -> Plan[EvalWork]:
    """Return the plan of an evaluation.

    Args:
        machines: the cores of each machine that is used.
        settings: of rendering, for pages; None for the defaults.
    """
    builder = PlanBuilder(
        "eval",
        run,
        config.rates,
        kind=kind.name,
        settings=config.model_dump(mode="json"),
        gpus=gpus,
        decides=("scorer", "similarity", "window", "pictures", "best_of", GPU),
        compared=("workers", "sandbox", "device", "tolerance"),
    )
    dialogues = tests = 0
    tasks: dict[str, int] = {}
    answers: set[tuple[str, str]] = set()
    pages: set[str] = set()
    for trajectory in trajectories:
        dialogues += 1
        tests += len(trajectory.task.test_cases)
        tasks[trajectory.task_id] = len(trajectory.task.test_cases)
        answers.add((trajectory.task_id, trajectory.answer))
        if kind.visual:
            pages |= _pages(trajectory)
    work = EvalWork(dialogues=dialogues, tasks=len(tasks), answers=len(answers))
    if kind.visual:
        more = {
            "screenshots": len(pages),
            "screenshots_missing": _missing(run.path, pages, settings or RenderSettings()),
        }
    else:
        more = {"tests": tests, "reference_tests": sum(tasks.values())}
    work = work.model_copy(update=more)
    if config.best_of is not None:
        builder.assumed.append("The operations of the critic for --best-of are not counted.")

    def speedup(earlier: EarlierAttempt) -> float:
        """Compare the workers where they were given both times, the cores where they were given neither time."""
        workers, nodes, cores = (_number(earlier.facts.get(name)) for name in ("workers", NODES, CORES))
        if config.workers and workers and nodes:
            return config.workers * len(machines) / (workers * nodes)
        return sum(machines) / cores if cores and not (config.workers or workers) else 1.0

    seconds = builder.seconds_per("dialogue", lambda earlier: earlier.metric("trajectories"), speedup)
    size = builder.rate("bytes", "a dialogue", lambda earlier: share(earlier.size, earlier.rows))
    return builder.build(work, seconds=times(dialogues, seconds), size=times(dialogues, size))


def _pages(trajectory: Trajectory) -> set[str]:
    """Return the pages that are rendered to score a dialogue: the reference, and the last page if there is one."""
    from sweet.tasks.html.page import extract_page
    from sweet.tasks.html.scoring import last_page, reference_page

    return {reference_page(trajectory, extract_page)} | ({last_page(trajectory, extract_page) or ""} - {""})


def _missing(folder: Path, pages: Collection[str], settings: RenderSettings) -> int:
    """Return the number of pages that have no screenshot in the run."""
    from sweet.render.page import page_key
    from sweet.render.store import SCREENSHOTS, ScreenshotStore

    store = ScreenshotStore(folder / SCREENSHOTS)
    return sum(not store.has(page_key(page, settings)) for page in pages)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None
