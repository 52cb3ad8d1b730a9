"""The stage `play`: opens the other side, plays with the person, and writes each dialogue as one line when it ends.

The rollouts are finished whenever the person leaves, with the dialogues that there are; the same command goes on with
them. The settings that decide the dialogues, the person's name and role make the rollouts: another name has others.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from sweet.hints import stage
from sweet.llm.scripted import SCRIPTED
from sweet.render.requirements import check_rendering
from sweet.rollouts.assignments import assignments_of
from sweet.rollouts.play.config import PlayConfig, PlayMetrics, PlayWork
from sweet.rollouts.play.interface import Actions, Interface, Session
from sweet.rollouts.play.player import Player
from sweet.rollouts.play.sides import Saved, open_other_side
from sweet.rollouts.prepare import Dialogues, load_dialogues
from sweet.rollouts.runner import FinishedDialogues
from sweet.rollouts.sides import check_agent, check_human, check_no_tools
from sweet.runs.jsonl import scan_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import person
from sweet.stages.base import Reporter, Silent, StageResult
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.trajectory import Trajectory, dump
from sweet.units import count


def run_play(run: Run, config: PlayConfig, reporter: Reporter, interface: Interface) -> StageResult[PlayMetrics]:
    """Play the missing dialogues with a person until the last or until the person leaves.

    Raises:
        UsageError: the sides do not fit the tasks, or someone plays under this name already.
        InputError: the dialogue under way cannot be read.
        ServerError: the other side's server cannot be reached when it is opened.
    """
    dialogues, is_human = load_dialogues(run, config.rollout(), reporter), config.as_ == "human"
    _check(dialogues, is_human=is_human)
    screen_reporter = _ScreenReporter(reporter, interface)
    meta = _meta(dialogues, config)
    with dialogues.frame("play", run, config, screen_reporter) as frame:
        rows = frame.rows("rollouts", meta, Trajectory)
        saved = Saved.beside(rows.path)
        finished = FinishedDialogues(scan_jsonl(rows.path), sim=str(meta.sim))
        before = len(finished.ids)
        requested = list(assignments_of(dialogues.tasks, dialogues.config, dialogues.humans))
        if is_human:
            requested = [replace(assignment, human=config.name) for assignment in requested]
        left_out = frozenset() if config.skipped else frozenset(saved.skipped)
        done = finished.ids | left_out
        missing = [assignment for assignment in requested if assignment.id not in done]
        missing.sort(key=lambda assignment: assignment.id != saved.dialogue)  # the one under way first

        def write(trajectory: Trajectory) -> None:
            row = dump(trajectory)
            rows.write(row)
            finished.add(row)

        async def play(actions: Actions) -> None:
            async with AsyncExitStack() as stack:
                other = await open_other_side(frame, dialogues, stack, is_human=is_human)
                rules = dialogues.rules()
                session = Session(
                    config.as_, config.name, dialogues.kind, rules.protocol, rules.max_turns, dialogues.rendering
                )
                player = Player(session, rules, interface, saved, *other)
                await player.play(missing, len(requested) - len(left_out), actions, write)

        if missing:
            screen_reporter.on_screen = True
            try:
                interface.run(play)
            finally:
                screen_reporter.on_screen = False
        else:
            frame.say(f"All {count(len(requested), 'dialogue')} are finished or skipped.")
        skipped = {*saved.skipped} - finished.ids
        metrics = PlayMetrics(
            episodes=len(finished.ids),
            played=len(finished.ids) - before,
            skipped=len(skipped),
            missing=sum(assignment.id not in finished.ids and assignment.id not in skipped for assignment in requested),
            under_way=saved.dialogue if saved.steps else None,
            turns=finished.sums["turns"],
            outcomes=dict(sorted(finished.outcomes.items())),
            seconds=frame.seconds,
        )
        artifact = frame.finish(rows, metrics)
        if metrics.missing:
            frame.say(f"To go on: {stage('play', run.path, resume=True)}")
        return frame.result(metrics, artifact)


def plan_play(run: Run | None, config: PlayConfig, reporter: Reporter) -> PlayWork:
    """Return the plan of `run_play`."""
    tasks = load_dialogues(run, config.rollout(), reporter).tasks
    return PlayWork(tasks=len(tasks), dialogues=len(tasks) * config.samples)


def _check(dialogues: Dialogues, *, is_human: bool) -> None:
    """Check that the other side can play the tasks, and that their pages can be rendered."""
    config, kind, tasks = dialogues.config, dialogues.kind, dialogues.tasks
    if is_human:
        check_agent(kind, config)
    else:
        check_human(kind, tasks, config)
        check_no_tools(kind, tasks, "a person", "--as agent", "--as human")
    if kind.visual:
        check_rendering((task.ground_truth for task in tasks), any_page=is_human and config.agent != SCRIPTED)


def _meta(dialogues: Dialogues, config: PlayConfig) -> RolloutsMeta:
    """Return the `meta` of the rollouts, with the person on one side."""
    if config.as_ == "agent":
        return dialogues.meta(person(config.name))
    human = {"sim": person(config.name), "humans": [config.name]}
    return dialogues.meta(config.agent).model_copy(update=human)


class _ScreenReporter:
    """A reporter whose messages the interface shows while it has the screen."""

    def __init__(self, reporter: Reporter, interface: Interface) -> None:
        self._reporter, self._interface = reporter, interface
        self.on_screen = False

    def say(self, text: str) -> None:
        (self._interface if self.on_screen else self._reporter).say(text)

    def warn(self, text: str) -> None:
        (self._interface.say if self.on_screen else self._reporter.warn)(text)

    def progress(self, title: str, total: int | None) -> Any:
        if not self.on_screen:
            return self._reporter.progress(title, total)
        self._interface.say(title)
        return Silent().progress(title, total)
