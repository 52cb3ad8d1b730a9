"""`sweet rollout`: many dialogues at once, each on its own, written one line each as they end.

One asyncio task a dialogue and no barrier between turns: a slow dialogue holds nobody (sweet.rollouts.runner). One
writer appends a finished dialogue as one line. A dialogue is named by (task, sample, seed), so the same command goes
on with what is missing; other settings than those a dialogue set was begun with are refused until it is finished. What
may pass when tried again (a server's failure, the deadline) is not a result: it is logged in `logs/`, counted, and
left for the next call. What cannot pass is kept with its outcome.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Literal

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.humans.base import PICTURES
from sweet.humans.connect import open_human
from sweet.llm.base import ChatClient
from sweet.llm.local import LocalServing
from sweet.llm.scripted import SCRIPTED, ScriptedClient
from sweet.render.store import SCREENSHOTS
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import Assignment, Rules
from sweet.rollouts.metrics import RolloutMetrics, RolloutWork
from sweet.rollouts.runner import Book, Crew
from sweet.runs.jsonl import JsonlWriter, scan_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult, digest_of
from sweet.stages.failures import check_failures
from sweet.stages.meta import RolloutsMeta
from sweet.stages.models import belongs_to, gpus_held, plan_models
from sweet.stages.plans import Plan
from sweet.stages.rates import GPUS
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind, system_prompt
from sweet.tasks.registry import task_kind


def run_rollout(run: Run, config: RolloutConfig, reporter: Reporter) -> StageResult[RolloutMetrics]:
    """Play the dialogues that are missing and return the metrics of all of them."""
    kind, source, tasks = _played(config)
    _check_playable(kind, tasks, config)
    speakers = _speakers(config)
    seen = {config.sim: PICTURES} if kind.visual and not config.sim_url else {}
    local = plan_models(config, speakers, reporter, images=seen)
    _check_sight(kind, config, local)
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
        texts = [file.read_text("utf-8") for file in sorted(config.prompts.glob("*.txt"))]
        own = {"agent_system": system_prompt(kind, config.max_turns), "prompts_digest": digest_of(texts)}
        meta = meta.model_copy(update=own)
    environment = {"tasks_digest": tasks_digest, GPUS: gpus_held(config.device, [urls for _, urls in speakers])}
    with run.attempt("rollout", config, environment=environment) as attempt:
        draft = attempt.start_artifact("rollouts", meta=meta.as_json(), resume=True, anew=config.new)
        book = Book(scan_jsonl(draft.path) if draft.path.exists() else ())
        missing = [a for a in _assignments(tasks, config) if a.id not in book.ids]
        if book.ids:
            reporter.say(f"{len(book.ids)} dialogues are there already, {len(missing)} to go.")
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
            crew = Crew(kind, rules, config.concurrency, config.deadline, run.path, writer, log, book, reporter)
            if missing:
                attempt.environment.update(asyncio.run(_play(crew, missing, config, belongs_to(local, attempt))))
        artifact = attempt.finish_artifact(draft, rows=writer.rows)
        metrics = book.metrics(failed=crew.failed, seconds=time.monotonic() - began)
        attempt.metrics.update(metrics.as_json())
        result = StageResult("rollout", run.path, metrics, [artifact])
        log_path = attempt.metrics_path
        check_failures(crew.failed, len(missing), config.fail_on_error, what="dialogues", log=log_path, result=result)
    return result


def plan_rollout(run: Run | None, config: RolloutConfig, reporter: Reporter) -> Plan[RolloutWork]:
    """Return the plan of `run_rollout`; `run` is None where there is no run yet."""
    from sweet.rollouts.plan import plan_dialogues

    kind, source, tasks = _played(config)
    there: set[str] = set()
    if run is not None:
        digest = _tasks_digest(tasks)
        mine = [a for a in run.manifest().of_kind("rollouts") if RolloutsMeta.of(a).tasks_digest == digest]
        began = {attempt.id for attempt in run.manifest().attempts if attempt.digest == config.digest()}
        draft = next((run.file(a) for a in reversed(mine) if a.attempt in began and run.file(a).exists()), None)
        there = set(Book(scan_jsonl(draft)).ids) if draft is not None else there
        reporter.say(f"{len(there)} of the dialogues are there already.")
    wanted = [assignment.id for assignment in _assignments(tasks, config)]
    gpus = gpus_held(config.device, [urls for _, urls in _speakers(config)])
    return plan_dialogues(run, config, kind, source, tasks, there, wanted, gpus)


def _played(config: RolloutConfig) -> tuple[TaskKind, str, list[Task]]:
    """The kind of task, the dataset, and the tasks of it that are played."""
    kind = task_kind(config.task)
    if config.prompts is not None:
        kind = kind.with_prompts(config.prompts)
    source = config.tasks or kind.default_tasks()
    return kind, source, _chosen(kind.load(source, config.split), config)


def _tasks_digest(tasks: Iterable[Task]) -> str:
    return digest_of([task.model_dump(mode="json") for task in tasks])


def _speakers(config: RolloutConfig) -> list[tuple[str, list[str]]]:
    """The sides that are models, with their addresses."""
    sides = ((config.agent, config.agent_url), (config.sim, config.sim_url))
    return [(model, urls) for model, urls in sides if model != SCRIPTED]


async def _play(crew: Crew, missing: list[Assignment], config: RolloutConfig, local: LocalServing) -> dict[str, Any]:
    """Open both sides, play, and give what played them."""
    async with AsyncExitStack() as stack:
        agent = await _agent(config, local, crew.kind, stack)
        player = None if config.sim == SCRIPTED else await stack.enter_async_context(_client(config, local, "sim"))
        looks = open_human(crew.kind, player, crew.folder / SCREENSHOTS, config.recipe, config.ray, crew.reporter.say)
        human = await stack.enter_async_context(looks)
        served = {"agent_model": agent.model, "human": human.name}
        await crew.play(missing, len(missing), agent, human)
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


def _chosen(tasks: list[Task], config: RolloutConfig) -> list[Task]:
    """The first tasks, or those that the seed draws, in their order."""
    if not config.draw_tasks or config.num_tasks is None:
        return tasks[: config.num_tasks]
    drawn = sorted(tasks, key=lambda task: digest_of([config.seed, "task", task.id]))[: config.num_tasks]
    ids = {task.id for task in drawn}
    return [task for task in tasks if task.id in ids]


def _check_playable(kind: TaskKind, tasks: list[Task], config: RolloutConfig) -> None:
    if config.agent == SCRIPTED:
        _check_here("agent", config.agent_url, "agent_url", Hint("leave ", option("agent_url"), " out"))
        if kind.scripted_agent is None:
            raise UsageError(
                f"There is no scripted agent for {kind.name} tasks.",
                where=option("agent", "scripted"),
                fix=option("agent", "micro"),
            )
    elif config.agent == "micro" and kind.visual:
        raise UsageError(
            f"The packaged agent micro writes no pages, as {kind.name} tasks want them.",
            where=option("agent", "micro"),
            fix=Hint(option("agent", "scripted"), ", or ", option("agent", "MODEL")),
        )
    if config.sim == SCRIPTED:
        fix = Hint("leave ", option("sim_url"), " out, or name the served model: ", option("sim", "scripted-human"))
        _check_here("human", config.sim_url, "sim_url", Hint(fix, " for serve-sim's scripted engine"))
        kind.check_scripted_human(tasks)
    if config.ray is not None and not kind.visual:
        raise UsageError(
            f"Dialogues on {kind.name} tasks have no pages to render.", where=option("ray"), fix="leave it out"
        )
    if kind.visual and config.ray is None:
        from sweet.render.requirements import check_rendering

        check_rendering((task.ground_truth for task in tasks), any_page=config.agent != SCRIPTED)


def _check_sight(kind: TaskKind, config: RolloutConfig, local: LocalServing) -> None:
    if not kind.visual or config.sim == SCRIPTED or config.sim_url:
        return
    choice = local.choose(config.sim)
    if choice.build is None:
        raise UsageError(
            f"The human of {kind.name} tasks must see pages. {config.sim} would be run by the embedded engine, "
            f"which runs models of text ({choice.why}).",
            where=option("sim", config.sim),
            fix=Hint(
                option("sim_url", "URL"),
                " of a vision model's server, ",
                option("engine", "vllm"),
                " where vllm is installed, or ",
                option("sim", "scripted"),
            ),
        )


def _check_here(who: str, urls: list[str], field: str, fix: str) -> None:
    if urls:
        raise UsageError(
            f"The scripted {who} runs in this process, and a server was named for it.", where=option(field), fix=fix
        )


def _assignments(tasks: Iterable[Task], config: RolloutConfig) -> Iterator[Assignment]:
    """Sample by sample, so that an interrupted rollout has covered many tasks rather than few."""
    tasks = list(tasks)
    for sample in range(config.samples):
        for task in tasks:
            yield Assignment(task, sample, config.seed)
