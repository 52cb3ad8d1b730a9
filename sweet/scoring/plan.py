"""The work of an evaluation, for `sweet eval --dry-run`."""

from __future__ import annotations

from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.metrics import EvalWork
from sweet.scoring.request import check_options
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
    for trajectory in read_jsonl(run.file(rollouts), Trajectory):
        dialogues += 1
        tests += len(trajectory.task.test_cases)
        tasks[trajectory.task_id] = len(trajectory.task.test_cases)
        answers.add((trajectory.task_id, trajectory.answer))
    work = EvalWork(dialogues=dialogues, tasks=len(tasks), answers=len(answers))
    if not kind.visual:
        work = work.model_copy(update={"tests": tests, "reference_tests": sum(tasks.values())})
    return Plan(work=work, assumed=[])
