"""`sweet rollout`: plays dialogues and writes each as one line when it ends.

Each dialogue is one asyncio task, and there is no barrier between turns, so a slow dialogue delays no other
(sweet.rollouts.runner). A dialogue is named by (task, sample, seed), so the same command resumes with the dialogues
that are missing; while rollouts are unfinished, other settings are refused. A failure that may not come again (of a
server, by the deadline) is no result: it is logged in `logs/`, counted, and played again by the next call. A lasting
failure is kept as a dialogue with its outcome.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial

from sweet.humans.base import PICTURES
from sweet.humans.connect import open_humans
from sweet.judges.base import Judge
from sweet.judges.control import CreditScorer
from sweet.judges.critic import CriticJudge
from sweet.judges.on_ray import RayJudge
from sweet.judges.opening import ChosenJudge
from sweet.llm.connect import client_of
from sweet.llm.local import LocalServing
from sweet.render.page import RenderSettings
from sweet.render.store import SCREENSHOTS
from sweet.render.window import window_name
from sweet.rollouts.assignments import assignment_of, assignments_of, digest_of_tasks, load_tasks
from sweet.rollouts.choosing import choose_judge
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import Assignment, Rules
from sweet.rollouts.humans import PlannedHumans, plan_humans
from sweet.rollouts.metrics import RolloutMetrics
from sweet.rollouts.runner import DialogueRunner, FinishedDialogues
from sweet.rollouts.sides import (
    check_effort,
    check_playable,
    check_vision,
    models_of,
    open_agent,
    open_players,
    rendering_of,
    with_paths,
)
from sweet.runs.jsonl import JsonlWriter, scan_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import given_prompts
from sweet.stages.base import Reporter, StageResult
from sweet.stages.critics import warn_dropped_turns, warn_if_at_chance
from sweet.stages.failures import check_failures
from sweet.stages.live import PAUSE, LiveReporter
from sweet.stages.meta import RolloutsMeta
from sweet.stages.models import plan_models, record_serving
from sweet.stages.prices import given_prices, open_budget
from sweet.tasks.kind import TaskKind
from sweet.units import count


def run_rollout(run: Run, config: RolloutConfig, reporter: Reporter) -> StageResult[RolloutMetrics]:
    """Play the dialogues that are missing and return the metrics of all of them."""
    recorded, config = config, with_paths(run, config)
    prices = given_prices(config)
    kind, source, tasks, note = load_tasks(run, config, reporter)
    if note is not None:
        reporter.say(note)
    check_playable(kind, tasks, config)
    humans = plan_humans(kind, config)
    judge = choose_judge(run, config)
    models = models_of(config, judge)
    images = dict.fromkeys(humans.sims, PICTURES) if kind.visual and not config.sim_url else {}
    readers = int(judge is not None and judge.load is not None)
    local = plan_models(config, models, reporter, others=readers, images=images)
    check_vision(kind, config, local)
    tasks_digest = digest_of_tasks(tasks)
    meta = RolloutsMeta(
        task=config.task,
        tasks=source,
        split=config.split,
        tasks_digest=tasks_digest,
        agent=recorded.agent,
        sim=humans.title,
        samples=config.samples,
        max_turns=config.max_turns,
        protocol=config.protocol,
    )
    shares = {name: share for name in ("holdout", "holdout_validation") if (share := getattr(config, name)) is not None}
    meta = meta.model_copy(update=shares | humans.meta() | thinking_meta(config))
    if config.human == "spec":
        meta = meta.model_copy(update={"human": config.human})  # earlier versions had no other than code
    if config.prompts is not None:
        meta = meta.model_copy(update=given_prompts(kind, config.prompts, config.max_turns))
    settings = rendering_of(kind, config, reporter)
    looks = {} if settings is None else {"window": window_name(settings), "pictures": settings.pictures}
    if config.protocol == "upstream" or settings != RenderSettings():
        meta = meta.model_copy(update=looks)  # else earlier versions had no other, and their rollouts are continued
    if judge is not None:
        chosen = {"best_of": config.best_of, "informed": judge.informed}
        meta = meta.model_copy(update=judge.meta() | chosen)
        _say_choice(config, judge, reporter)
        if judge.critic is not None:
            warn_if_at_chance(run, judge.critic, reporter)
    environment = {"tasks_digest": tasks_digest}
    inputs = [] if judge is None or judge.critic is None else [judge.critic]
    attempted = run.attempt("rollout", recorded, inputs, environment, verify=config.verify, warn=reporter.warn)
    with attempted as attempt:
        draft = attempt.start_artifact("rollouts", meta=meta.as_json(), resume=True, allow_new=config.new)
        draft.meta |= looks
        reporter = live = LiveReporter(reporter, attempt, ("concurrency", "requeue", *PAUSE))
        rows = scan_jsonl(draft.path) if draft.path.exists() else ()
        finished = FinishedDialogues(rows, sim=humans.title)
        missing = [a for a in assignments_of(tasks, config, humans) if a.id not in finished.ids]
        if finished.ids:
            reporter.say(f"Finished already: {count(len(finished.ids), 'dialogue')}; missing: {len(missing):,}.")
        began = time.monotonic()
        with JsonlWriter(draft.path) as writer, JsonlWriter(attempt.metrics_path) as log:
            rules = Rules(
                config.max_turns,
                config.temperature,
                config.top_p,
                config.max_tokens,
                config.protocol,
                config.token_limit,
                config.best_of or 1,
                logprobs=judge is not None and judge.critic is not None,
                max_thought_tokens=config.max_thought_tokens,
                effort=config.effort,
                thoughts=config.thoughts,
            )
            find = partial(assignment_of, tasks, config, humans)
            limits = config.concurrency, config.deadline
            budget = open_budget(run, attempt, prices, config)
            runner = DialogueRunner(kind, rules, *limits, run.path, writer, log, finished, live, find, budget=budget)
            if missing:
                record_serving(local, attempt)
                local.replies = len(missing) * config.max_turns * (config.best_of or 1)
                with _open_judge(judge, kind, config, reporter) as opened:
                    playing = _play(runner, missing, config, humans, local, settings, judge, opened)
                    attempt.environment |= asyncio.run(playing)
                    if isinstance(opened, RayJudge):
                        attempt.environment |= opened.environment
                    if isinstance(opened, CriticJudge | RayJudge):
                        warn_dropped_turns(opened, reporter)
        artifact = attempt.finish_artifact(draft, rows=writer.rows)
        cost = None if budget is None else budget.cost_of(draft.id, finished.tokens())
        metrics = finished.metrics(failed=len(runner.failed), seconds=time.monotonic() - began, cost=cost)
        attempt.metrics.update(metrics.as_json())
        if metrics.choices is not None and metrics.choices.unjudged_turns:
            reporter.warn(_unjudged(metrics.choices.unjudged_turns))
        if metrics.thoughts is not None and metrics.thoughts.unfinished_thoughts:
            reporter.warn(_unfinished(metrics.thoughts.unfinished_thoughts))
        result = StageResult("rollout", run.path, metrics, [artifact], stopped=runner.draining)
        log_path = attempt.metrics_path
        check_failures(
            len(runner.failed), len(missing), config.fail_on_error, what="dialogues", log=log_path, result=result
        )
    return result


def _judges_on_ray(kind: TaskKind, config: RolloutConfig, judge: ChosenJudge | None) -> bool:
    """Return whether a critic judges on the nodes of a cluster. For a kind with pages the nodes render these."""
    return config.ray is not None and not kind.visual and judge is not None and judge.load is not None


@contextmanager
def _open_judge(
    judge: ChosenJudge | None, kind: TaskKind, config: RolloutConfig, reporter: Reporter
) -> Iterator[Judge | None]:
    """Open the judge for the duration of the block; None without one, or for a language model, which `_play` opens."""
    if judge is None:
        yield None
        return
    ray = config.ray if _judges_on_ray(kind, config, judge) else None
    with judge.open(CreditScorer(kind, config.max_turns), reporter, ray=ray, by_place=True) as opened:
        yield opened


def _say_choice(config: RolloutConfig, judge: ChosenJudge, reporter: Reporter) -> None:
    text = f"Each reply is the best of {config.best_of} by {judge.title}."
    if judge.informed:
        text += " It sees the training-time information, so the success rate is not that of the agent alone."
    reporter.say(text)


def thinking_meta(config: RolloutConfig) -> dict[str, object]:
    """Return the settings of thoughts that a rollout records: those that are not the defaults."""
    kept = config.thoughts if config.thoughts == "keep" else None
    found = {"effort": config.effort, "max_thought_tokens": config.max_thought_tokens, "thoughts": kept}
    return {name: value for name, value in found.items() if value is not None}


def _unfinished(turns: int) -> str:
    return (
        f"At {count(turns, 'turn')} the agent thought until its tokens were spent, and said nothing: allow more by "
        "--max-tokens, or end its thoughts by --max-thought-tokens."
    )


def _unjudged(turns: int) -> str:
    return (
        f"At {count(turns, 'turn')} the judge could judge no candidate: the first one was taken. Their rows say why "
        "(choice.unjudged)."
    )


async def _play(
    runner: DialogueRunner,
    missing: list[Assignment],
    config: RolloutConfig,
    humans: PlannedHumans,
    local: LocalServing,
    settings: RenderSettings | None,
    choice: ChosenJudge | None,
    judge: Judge | None,
) -> dict[str, str]:
    """Open both sides, and the language model that chooses replies if one does, and play.

    Args:
        settings: of rendering, for a human who sees pages.
        judge: opens `choice`; None where that is a language model.

    Returns:
        The names of the models, as their servers report them.
    """
    async with AsyncExitStack() as stack:
        agent = await open_agent(config, local, runner.kind, stack)
        check_effort(agent, config, runner.live)
        players = await open_players(config, humans, local, stack)
        screenshots, say = runner.folder / SCREENSHOTS, runner.live.say
        protocol, tries = config.protocol, config.human_tries
        opening = open_humans(runner.kind, players, screenshots, protocol, config.ray, say, settings, tries)
        opened = await stack.enter_async_context(opening)
        named = humans.by_name(opened)
        sims = dict.fromkeys(player.client for player in players if player.client is not None)
        clients = [agent, *sims]
        served = {"agent_model": agent.model, "human": ", ".join(human.name for human in opened)}
        if choice is not None and judge is None:
            [(model, urls)] = choice.asked
            asked = await stack.enter_async_context(client_of(config, "judge", model, urls, local))
            clients.append(asked)
            served["judge_model"] = asked.model
            judge = choice.asking(asked)
        limiters = [client.limiter for client in clients if client.limiter is not None]
        await runner.play(missing, len(missing), agent, named, limiters, judge)
        return served
