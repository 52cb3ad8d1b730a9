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
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Literal

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.humans.base import PICTURES
from sweet.humans.connect import open_human
from sweet.llm.base import ChatClient
from sweet.llm.local import LocalServing
from sweet.llm.scripted import SCRIPTED, ScriptedClient
from sweet.render.page import RenderSettings
from sweet.render.store import SCREENSHOTS
from sweet.render.window import choose_settings, window_name
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import Assignment, Rules
from sweet.rollouts.metrics import RolloutMetrics, RolloutWork
from sweet.rollouts.runner import DialogueRunner, FinishedDialogues
from sweet.runs.jsonl import JsonlWriter, scan_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import given_prompts
from sweet.stages.base import Reporter, StageResult, digest_of
from sweet.stages.failures import check_failures
from sweet.stages.meta import RolloutsMeta
from sweet.stages.models import gpus_held, plan_models, record_serving
from sweet.stages.plans import Plan
from sweet.stages.rates import GPUS, STARTUP
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind


def run_rollout(run: Run, config: RolloutConfig, reporter: Reporter) -> StageResult[RolloutMetrics]:
    """Play the dialogues that are missing and return the metrics of all of them."""
    kind, source, tasks = _load_tasks(config)
    _check_playable(kind, tasks, config)
    models = _models(config)
    images = {config.sim: PICTURES} if kind.visual and not config.sim_url else {}
    local = plan_models(config, models, reporter, images=images)
    _check_vision(kind, config, local)
    tasks_digest = _tasks_digest(tasks)
    meta = RolloutsMeta(
        task=config.task,
        tasks=source,
        split=config.split,
        tasks_digest=tasks_digest,
        agent=config.agent,
        sim=config.sim,
        samples=config.samples,
        max_turns=config.max_turns,
        recipe=config.recipe,
    )
    if config.prompts is not None:
        meta = meta.model_copy(update=given_prompts(kind, config.prompts, config.max_turns))
    settings = _rendering(kind, config, reporter)
    if settings is not None:
        meta = meta.model_copy(update={"window": window_name(settings), "pictures": settings.pictures})
    environment = {"tasks_digest": tasks_digest, GPUS: gpus_held(config.device, [urls for _, urls in models])}
    with run.attempt("rollout", config, environment=environment) as attempt:
        draft = attempt.start_artifact("rollouts", meta=meta.as_json(), resume=True, allow_new=config.new)
        finished = FinishedDialogues(scan_jsonl(draft.path) if draft.path.exists() else ())
        missing = [a for a in _assignments(tasks, config) if a.id not in finished.ids]
        if finished.ids:
            reporter.say(f"{len(finished.ids)} dialogues are finished already, {len(missing)} are missing.")
        began = time.monotonic()
        with JsonlWriter(draft.path) as writer, JsonlWriter(attempt.metrics_path) as log:
            rules = Rules(
                config.max_turns,
                config.temperature,
                config.top_p,
                config.max_tokens,
                config.recipe,
                config.token_limit,
            )
            runner = DialogueRunner(
                kind, rules, config.concurrency, config.deadline, run.path, writer, log, finished, reporter
            )
            if missing:
                local = record_serving(local, attempt)
                attempt.environment.update(asyncio.run(_play(runner, missing, config, local, settings)))
        artifact = attempt.finish_artifact(draft, rows=writer.rows)
        metrics = finished.metrics(failed=runner.failed, seconds=time.monotonic() - began)
        attempt.metrics.update(metrics.as_json())
        result = StageResult("rollout", run.path, metrics, [artifact])
        log_path = attempt.metrics_path
        check_failures(runner.failed, len(missing), config.fail_on_error, what="dialogues", log=log_path, result=result)
    return result


def plan_rollout(run: Run | None, config: RolloutConfig, reporter: Reporter) -> Plan[RolloutWork]:
    """Return the plan of `run_rollout`; `run` is None where there is no run yet."""
    from sweet.rollouts.plan import plan_dialogues

    kind, source, tasks = _load_tasks(config)
    existing: set[str] = set()
    if run is not None:
        digest = _tasks_digest(tasks)
        same = [a for a in run.manifest().of_kind("rollouts") if RolloutsMeta.of(a).tasks_digest == digest]
        attempts = {attempt.id for attempt in run.manifest().attempts if attempt.digest == config.digest()}
        draft = next((run.file(a) for a in reversed(same) if a.attempt in attempts and run.file(a).exists()), None)
        existing = set(FinishedDialogues(scan_jsonl(draft)).ids) if draft is not None else existing
        reporter.say(f"{len(existing)} of the dialogues are finished already.")
    requested = [assignment.id for assignment in _assignments(tasks, config)]
    gpus = gpus_held(config.device, [urls for _, urls in _models(config)])
    return plan_dialogues(run, config, kind, source, tasks, existing, requested, gpus)


def _load_tasks(config: RolloutConfig) -> tuple[TaskKind, str, list[Task]]:
    """Return the kind of task, the dataset, and the tasks that are played."""
    kind = task_kind(config.task)
    if config.prompts is not None:
        kind = kind.with_prompts(config.prompts)
    source = config.tasks or kind.default_tasks()
    return kind, source, _selected(kind.load(source, config.split), config)


def _tasks_digest(tasks: Iterable[Task]) -> str:
    return digest_of([task.model_dump(mode="json") for task in tasks])


def _models(config: RolloutConfig) -> list[tuple[str, list[str]]]:
    """Return the models that play, with their addresses."""
    sides = ((config.agent, config.agent_url), (config.sim, config.sim_url))
    return [(model, urls) for model, urls in sides if model != SCRIPTED]


async def _play(
    runner: DialogueRunner,
    missing: list[Assignment],
    config: RolloutConfig,
    local: LocalServing,
    settings: RenderSettings | None,
) -> dict[str, str | float]:
    """Open both sides and play.

    Args:
        settings: of rendering, for a human who sees pages.

    Returns:
        For the attempt's environment: the names of the models, as their servers report them, and `STARTUP`.
    """
    start = time.monotonic()
    async with AsyncExitStack() as stack:
        agent = await _agent(config, local, runner.kind, stack)
        player = None if config.sim == SCRIPTED else await stack.enter_async_context(_client(config, local, "sim"))
        screenshots, say = runner.folder / SCREENSHOTS, runner.reporter.say
        opening = open_human(runner.kind, player, screenshots, config.recipe, config.ray, say, settings)
        human = await stack.enter_async_context(opening)
        clients = [agent] if player is None else [agent, player]
        limiters = [client.limiter for client in clients if client.limiter is not None]
        startup = round(time.monotonic() - start, 3)
        served: dict[str, str | float] = {"agent_model": agent.model, "human": human.name, STARTUP: startup}
        await runner.play(missing, len(missing), agent, human, limiters)
        return served


def _client(
    config: RolloutConfig, local: LocalServing, role: Literal["agent", "sim"]
) -> AbstractAsyncContextManager[ChatClient]:
    from sweet.llm.connect import open_client

    return open_client(
        *((config.agent, config.agent_url) if role == "agent" else (config.sim, config.sim_url)),
        concurrency=config.concurrency,
        role=role,
        retry_timeout=config.retry_timeout,
        device=config.device,
        local=local,
    )


async def _agent(config: RolloutConfig, local: LocalServing, kind: TaskKind, stack: AsyncExitStack) -> ChatClient:
    if config.agent == SCRIPTED and kind.scripted_agent is not None:
        return ScriptedClient(kind.scripted_agent)
    return await stack.enter_async_context(_client(config, local, "agent"))


def _selected(tasks: list[Task], config: RolloutConfig) -> list[Task]:
    """Return the first tasks, or those that the seed draws, in their order."""
    if not config.draw_tasks or config.num_tasks is None:
        return tasks[: config.num_tasks]
    drawn = sorted(tasks, key=lambda task: digest_of([config.seed, "task", task.id]))[: config.num_tasks]
    ids = {task.id for task in drawn}
    return [task for task in tasks if task.id in ids]


def _check_playable(kind: TaskKind, tasks: list[Task], config: RolloutConfig) -> None:
    if config.agent == SCRIPTED:
        _check_no_server("agent", config.agent_url, "agent_url", Hint("leave ", option("agent_url"), " out"))
        if kind.scripted_agent is None:
            raise UsageError(
                f"There is no scripted agent for {kind.name} tasks.",
                where=option("agent", "scripted"),
                fix=option("agent", "micro"),
            )
    elif config.agent == "micro" and kind.visual:
        raise UsageError(
            f"The packaged agent micro writes no pages, which {kind.name} tasks require.",
            where=option("agent", "micro"),
            fix=Hint(option("agent", "scripted"), ", or ", option("agent", "MODEL")),
        )
    if config.sim == SCRIPTED:
        fix = Hint("leave ", option("sim_url"), " out, or name the served model: ", option("sim", "scripted-human"))
        _check_no_server("human", config.sim_url, "sim_url", Hint(fix, " for serve-sim's scripted engine"))
        kind.check_scripted_human(tasks)
    if config.ray is not None and not kind.visual:
        raise UsageError(
            f"Dialogues on {kind.name} tasks have no pages to render.", where=option("ray"), fix="leave it out"
        )
    if kind.visual and config.ray is None:
        from sweet.render.requirements import check_rendering

        check_rendering((task.ground_truth for task in tasks), any_page=config.agent != SCRIPTED)


def _rendering(kind: TaskKind, config: RolloutConfig, reporter: Reporter) -> RenderSettings | None:
    """Return the settings of rendering; None for tasks without pages."""
    if kind.visual:
        upstream = config.recipe == "upstream"
        return choose_settings(config.window, config.pictures, upstream=upstream, say=reporter.say)
    for name in ("window", "pictures"):
        if getattr(config, name) is not None:
            what = f"Dialogues on {kind.name} tasks have no pages to render."
            raise UsageError(what, where=option(name), fix=Hint("leave ", option(name), " out"))
    return None


def _check_vision(kind: TaskKind, config: RolloutConfig, local: LocalServing) -> None:
    if not kind.visual or config.sim == SCRIPTED or config.sim_url:
        return
    choice = local.choose(config.sim)
    if choice.build is None:
        raise UsageError(
            f"The human of {kind.name} tasks must see pages. {config.sim} would be run by the embedded engine, "
            f"which runs text models only ({choice.why}).",
            where=option("sim", config.sim),
            fix=Hint(
                option("sim_url", "URL"),
                " of a vision model's server, ",
                option("engine", "vllm"),
                " where vllm is installed, or ",
                option("sim", "scripted"),
            ),
        )


def _check_no_server(side: str, urls: list[str], field: str, fix: str) -> None:
    if urls:
        raise UsageError(
            f"The scripted {side} runs in this process, but a server was given for it.", where=option(field), fix=fix
        )


def _assignments(tasks: Iterable[Task], config: RolloutConfig) -> Iterator[Assignment]:
    """Yield sample by sample, so that an interrupted rollout covers many tasks rather than few."""
    tasks = list(tasks)
    for sample in range(config.samples):
        for task in tasks:
            yield Assignment(task, sample, config.seed)
