"""The work of an evaluation, for `sweet eval --dry-run`: tests to run, or pages without a screenshot to render."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sweet.render.page import RenderSettings
from sweet.render.window import recorded_settings
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.metrics import EvalWork
from sweet.scoring.request import check_options, rendering_of
from sweet.stages.base import Reporter
from sweet.stages.plans import Plan
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory


def plan_eval(run: Run, config: EvalConfig, reporter: Reporter) -> Plan[EvalWork]:
    """Return the plan of `run_eval`."""
    kind = task_kind(run.manifest().task)
    check_options(kind, config)
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
        looks = rendering_of(kind, config, rollouts, reporter)
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
    from sweet.render.page import page_key
    from sweet.render.store import SCREENSHOTS, ScreenshotStore

    store = ScreenshotStore(folder / SCREENSHOTS)
    return sum(not store.has(page_key(page, settings)) for page in pages)
