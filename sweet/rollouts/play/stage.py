"""The stage `play`: opens the other side, plays with the person, and writes each dialogue as one line when it ends.

The rollouts are finished whenever the person leaves, with the dialogues that there are; the same command goes on with
them. The settings that decide the dialogues, the person's name and role make the rollouts: another name has others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import Any

from sweet.hints import Hint, stage
from sweet.humans.base import PICTURES, Human
from sweet.humans.connect import open_humans
from sweet.llm.scripted import SCRIPTED
from sweet.render.page import RenderSettings
from sweet.render.store import SCREENSHOTS
from sweet.render.window import window_name
from sweet.rollouts.assignments import assignments_of, digest_of_tasks, load_tasks
from sweet.rollouts.dialogue import Rules
from sweet.rollouts.humans import PlannedHumans, plan_humans
from sweet.rollouts.play.config import PlayConfig
from sweet.rollouts.play.interface import Actions, Interface, Session
from sweet.rollouts.play.metrics import PlayMetrics, PlayWork
from sweet.rollouts.play.player import Player
from sweet.rollouts.play.saved import Saved
from sweet.rollouts.runner import FinishedDialogues
from sweet.rollouts.sides import (
    check_agent,
    check_effort,
    check_human,
    check_vision,
    models_of,
    open_agent,
    open_players,
    rendering_of,
    with_paths,
)
from sweet.rollouts.stage import thinking_meta
from sweet.runs.jsonl import JsonlWriter, scan_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import given_prompts, person
from sweet.stages.base import Progress, Reporter, StageResult
from sweet.stages.meta import RolloutsMeta
from sweet.stages.models import plan_models, record_serving
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import Trajectory, dump
from sweet.units import count


def run_play(run: Run, config: PlayConfig, reporter: Reporter, interface: Interface) -> StageResult[PlayMetrics]:
    """Play the missing dialogues with a person until the last or until the person leaves.

    Raises:
        UsageError: the sides do not fit the tasks, or someone plays under this name already.
        InputError: the dialogue under way cannot be read.
        ServerError: the other side's server cannot be reached when it is opened.
    """
    rollout = with_paths(run, config.rollout())
    kind, source, tasks, note = load_tasks(run, rollout, reporter)
    if note is not None:
        reporter.say(note)
    is_human = config.as_ == "human"
    humans = plan_humans(kind, rollout)
    if is_human:
        check_agent(kind, rollout)
    else:
        check_human(kind, tasks, rollout)
    if kind.visual:
        from sweet.render.requirements import check_rendering

        models_write = is_human and rollout.agent != SCRIPTED
        check_rendering((task.ground_truth for task in tasks), any_page=models_write)
    settings = rendering_of(kind, rollout, reporter)
    shown = _Shown(reporter, interface)
    images = dict.fromkeys(humans.sims, PICTURES) if kind.visual and not rollout.sim_url else {}
    local = plan_models(rollout, models_of(rollout, None), shown, images=images)
    if not is_human:
        check_vision(kind, rollout, local)
    meta = _meta(kind, source, config, humans, digest_of_tasks(tasks), settings)
    began = time.monotonic()
    environment = {"tasks_digest": meta.tasks_digest}
    with run.attempt("play", config, [], environment, warn=reporter.warn) as attempt:
        draft = attempt.start_artifact("rollouts", meta=meta.as_json(), resume=True)
        saved = Saved.beside(draft.path)
        finished = FinishedDialogues(scan_jsonl(draft.path) if draft.path.exists() else (), sim=str(meta.sim))
        before = len(finished.ids)
        requested = list(assignments_of(tasks, rollout, humans))
        if is_human:
            requested = [replace(assignment, human=config.name) for assignment in requested]
        left_out = frozenset() if config.skipped else saved.skipped
        missing = [one for one in requested if one.id not in finished.ids and one.id not in left_out]
        missing.sort(key=lambda one: one.id != saved.dialogue)  # the one under way first
        rules = Rules(
            rollout.max_turns,
            rollout.temperature,
            rollout.top_p,
            rollout.max_tokens,
            rollout.protocol,
            max_thought_tokens=rollout.max_thought_tokens,
            effort=rollout.effort,
            thoughts=rollout.thoughts,
        )
        with JsonlWriter(draft.path) as writer:

            def finish(trajectory: Trajectory) -> None:
                row = dump(trajectory)
                writer.write(row)
                finished.add(row)

            async def play(actions: Actions) -> None:
                async with AsyncExitStack() as stack:
                    agent = await open_agent(rollout, local, kind, stack) if is_human else None
                    if agent is not None:
                        check_effort(agent, rollout, shown)
                    opened: list[Human] = []
                    renderer = None
                    if not is_human:
                        players = await open_players(rollout, humans, local, stack)
                        places = run.path / SCREENSHOTS, rollout.protocol, None, shown.say, settings
                        opening = open_humans(kind, players, *places, rollout.human_tries)
                        opened = await stack.enter_async_context(opening)
                    elif kind.visual:
                        from sweet.render.on_ray import open_renderer

                        renderer = await stack.enter_async_context(
                            open_renderer(run.path / SCREENSHOTS, 1, say=shown.say, settings=settings)
                        )
                    other = agent.model if agent is not None else ", ".join(human.name for human in opened)
                    attempt.environment["agent_model" if is_human else "human"] = other
                    session = Session(config.as_, config.name, kind, rollout.protocol, rollout.max_turns, settings)
                    pairs = zip(humans.humans, opened, strict=not is_human)
                    named = {planned.name if humans.named else None: human for planned, human in pairs}
                    player = Player(session, rules, interface, saved, agent, named, renderer)
                    await player.play(missing, len(requested) - len(left_out), actions, finish)

            if missing:
                record_serving(local, attempt)
                with shown.on_screen():
                    interface.run(play)
            else:
                reporter.say(f"All {count(len(requested), 'dialogue')} are finished or skipped.")
            rows = writer.rows
        artifact = attempt.finish_artifact(draft, rows=rows)
        skipped = saved.skipped - finished.ids
        metrics = PlayMetrics(
            episodes=len(finished.ids),
            played=len(finished.ids) - before,
            skipped=len(skipped),
            missing=sum(one.id not in finished.ids and one.id not in skipped for one in requested),
            under_way=saved.dialogue if saved.has_steps else None,
            turns=finished.sums["turns"],
            outcomes=dict(sorted(finished.outcomes.items())),
            seconds=round(time.monotonic() - began, 3),
        )
        attempt.metrics.update(metrics.as_json())
    if metrics.missing:
        reporter.say(Hint("To go on: ", stage("play", run.path, resume=True)))
    return StageResult("play", run.path, metrics, [artifact])


def plan_play(run: Run | None, config: PlayConfig, reporter: Reporter) -> PlayWork:
    """Return the plan of `run_play`."""
    rollout = config.rollout() if run is None else with_paths(run, config.rollout())
    _, _, tasks, note = load_tasks(run, rollout, reporter)
    if note is not None:
        reporter.say(note)
    return PlayWork(tasks=len(tasks), dialogues=len(tasks) * config.samples)


def _meta(
    kind: TaskKind,
    source: str,
    config: PlayConfig,
    humans: PlannedHumans,
    tasks_digest: str,
    settings: RenderSettings | None,
) -> RolloutsMeta:
    is_human = config.as_ == "human"
    meta = RolloutsMeta(
        task=config.task,
        tasks=source,
        split=config.split,
        tasks_digest=tasks_digest,
        agent=config.agent if is_human else person(config.name),
        sim=person(config.name) if is_human else humans.title,
        samples=config.samples,
        max_turns=config.max_turns,
        protocol=config.protocol,
    )
    more: dict[str, Any] = {
        name: share for name in ("holdout", "holdout_validation") if (share := getattr(config, name)) is not None
    }
    more |= thinking_meta(config.rollout())
    more |= {"humans": [config.name]} if is_human else humans.meta()
    if config.prompts is not None:
        more |= given_prompts(kind.with_prompts(config.prompts), config.prompts, config.max_turns)
    if settings is not None:
        more |= {"window": window_name(settings), "pictures": settings.pictures}
    return meta.model_copy(update=more)


class _Shown:
    """A reporter whose messages the interface shows while it has the screen."""

    def __init__(self, reporter: Reporter, interface: Interface) -> None:
        self._reporter, self._interface = reporter, interface
        self._on_screen = False

    @contextmanager
    def on_screen(self) -> Iterator[None]:
        self._on_screen = True
        try:
            yield
        finally:
            self._on_screen = False

    def say(self, text: str) -> None:
        (self._interface if self._on_screen else self._reporter).say(text)

    def warn(self, text: str) -> None:
        if self._on_screen:
            self._interface.say(text)
        else:
            self._reporter.warn(text)

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progress]:
        if self._on_screen:
            self._interface.say(title)
            yield _NoBar()
        else:
            with self._reporter.progress(title, total) as bar:
                yield bar


class _NoBar:
    def advance(self, by: int = 1) -> None:
        pass

    def note(self, **figures: object) -> None:
        pass
