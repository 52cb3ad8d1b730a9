"""Opens and checks the two sides of a rollout: the agent, and the simulated humans.

What can be checked before a server is asked is checked first: whether the sides can play these tasks, whether a model
can see images, and whether an address belongs to a side that has a model.
"""

from __future__ import annotations

import shlex
from contextlib import AsyncExitStack

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.humans.connect import Player
from sweet.judges.opening import ChosenJudge
from sweet.judges.options import CRITIC_JUDGES
from sweet.llm.base import ChatClient
from sweet.llm.connect import EFFORT_IGNORED, client_of, effort_is_ignored, servers_of_models
from sweet.llm.local import LocalServing
from sweet.llm.scripted import ATTACK, SCRIPTED, ScriptedClient, has_model
from sweet.render.page import RenderSettings
from sweet.render.window import choose_settings
from sweet.rollouts.choosing import check_choosing, judge_name
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.extraction.attacks import attacker, check_attacker, open_attacker
from sweet.rollouts.humans import PlannedHumans
from sweet.runs.run import Run
from sweet.stages.artifacts import given_model
from sweet.stages.base import Reporter
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.micro import PACKAGED
from sweet.units import count


def with_paths(run: Run, config: RolloutConfig) -> RolloutConfig:
    """Return the configuration with the path of an agent that was given by its id; what is recorded is the id."""
    return config.model_copy(update={"agent": given_model(run, config.agent)})


def models_of(config: RolloutConfig, judge: ChosenJudge | None) -> list[tuple[str, list[str]]]:
    """Return the models that play, and one that is asked for scores, with their addresses."""
    sides = ((config.agent, config.agent_url), *((sim, config.sim_url) for sim in config.sims))
    played = [(model, urls) for model, urls in sides if has_model(model)]
    return played if judge is None else [*played, *judge.asked]


async def open_players(
    config: RolloutConfig, humans: PlannedHumans, local: LocalServing, stack: AsyncExitStack
) -> list[Player]:
    """Open the models that play humans, each once, and return who plays each human."""
    urls = {sim: list(config.sim_url) for sim in humans.sims}
    if len(urls) > 1 and config.sim_url:
        urls = await servers_of_models(
            list(urls),
            config.sim_url,
            role="sim",
            retry_timeout=config.retry_timeout,
            request_timeout=config.request_timeout,
            follow_redirects=config.follow_redirects,
        )
    clients: dict[str, ChatClient] = {}
    for sim, addresses in urls.items():
        clients[sim] = await stack.enter_async_context(client_of(config, "sim", sim, addresses, local))
    return [Player(clients.get(human.sim), human.persona) for human in humans.humans]


async def open_agent(config: RolloutConfig, local: LocalServing, kind: TaskKind, stack: AsyncExitStack) -> ChatClient:
    if config.agent == SCRIPTED and kind.scripted_agent is not None:
        return ScriptedClient(kind.scripted_agent)
    if config.agent.startswith(ATTACK):
        return open_attacker(attacker(config.agent.removeprefix(ATTACK)), config.max_turns)
    return await stack.enter_async_context(client_of(config, "agent", config.agent, config.agent_url, local))


def check_effort(client: ChatClient, config: RolloutConfig, reporter: Reporter) -> None:
    """Warn if the agent's model does not learn how much to think."""
    if effort_is_ignored(client, config.effort):
        reporter.warn(EFFORT_IGNORED)


def check_playable(kind: TaskKind, tasks: list[Task], config: RolloutConfig) -> None:
    check_agent(kind, config)
    check_human(kind, tasks, config)
    check_choosing(kind, tasks, config)
    if config.ray is not None and not kind.visual and not (config.best_of and judge_name(config) in CRITIC_JUDGES):
        raise UsageError(
            f"Dialogues on {kind.name} tasks have no pages to render, and no critic judges them.",
            where=option("ray"),
            fix="leave it out",
        )
    if kind.visual and config.ray is None:
        from sweet.render.requirements import check_rendering

        check_rendering((task.ground_truth for task in tasks), any_page=config.agent != SCRIPTED)


def check_agent(kind: TaskKind, config: RolloutConfig) -> None:
    """Raise UsageError if the agent cannot play these tasks, or a server was given that it does not use."""
    if not has_model(config.agent):
        _check_no_server("agent", config.agent_url, "agent_url", Hint("leave ", option("agent_url"), " out"))
    if config.agent.startswith(ATTACK):
        check_attacker(config.agent, kind)
    elif config.agent == SCRIPTED:
        if kind.scripted_agent is None:
            raise UsageError(
                f"There is no scripted agent for {kind.name} tasks.",
                where=option("agent", "scripted"),
                fix=option("agent", "micro"),
            )
    else:
        check_writes_pages(kind, config.agent, Hint(option("agent", "scripted"), ", or ", option("agent", "MODEL")))


def check_writes_pages(kind: TaskKind, agent: str, fix: str) -> None:
    """Raise UsageError if the agent is a packaged model, and the tasks require pages."""
    if agent in PACKAGED and kind.visual:
        what = f"The packaged agent {agent} writes no pages, which {kind.name} tasks require."
        raise UsageError(what, where=option("agent", agent), fix=fix)


def check_human(kind: TaskKind, tasks: list[Task], config: RolloutConfig) -> None:
    """Raise UsageError if the simulated human cannot play these tasks, or a server was given that it does not use."""
    if SCRIPTED in config.sims:
        fix = Hint("leave ", option("sim_url"), " out, or name the served model: ", option("sim", "scripted-human"))
        if config.sims == [SCRIPTED]:
            _check_no_server("human", config.sim_url, "sim_url", Hint(fix, " for serve-sim's scripted engine"))
        kind.check_scripted_human(tasks)
    if config.human == "spec":
        _check_specified(kind, tasks, config)


def _check_specified(kind: TaskKind, tasks: list[Task], config: RolloutConfig) -> None:
    """Raise UsageError if no human would read the specification of a task, or a task has none."""
    where, omit = option("human", "spec"), Hint("leave ", option("human"), " out")
    if kind.visual:
        what = f"The human of {kind.name} tasks sees pages, and no code."
        raise UsageError(what, where=where, fix=omit)
    if config.sims == [SCRIPTED]:
        what = "The scripted human speaks from a task's facts, and reads neither code nor specification."
        raise UsageError(what, where=where, fix=Hint(omit, ", or ", option("sim", "MODEL")))
    lacking = [task.id for task in tasks if not task.specification.strip()]
    if lacking:
        more = f" and {len(lacking) - _NAMED:,} more" if len(lacking) > _NAMED else ""
        named = ", ".join(lacking[:_NAMED])
        source = shlex.quote(config.tasks or kind.default_tasks())
        raise UsageError(
            f"{len(lacking):,} of {count(len(tasks), 'task')} have no specification: {named}{more}.",
            where=where,
            fix=f"sweet data describe {source} --model MODEL --url URL, and the file that it writes as --tasks",
        )


_NAMED = 5
"""Tasks that an error names."""


def rendering_of(kind: TaskKind, config: RolloutConfig, reporter: Reporter) -> RenderSettings | None:
    """Return the settings of rendering; None for tasks without pages."""
    if kind.visual:
        upstream = config.protocol == "upstream"
        return choose_settings(config.window, config.pictures, upstream=upstream, say=reporter.say)
    for name in ("window", "pictures"):
        if getattr(config, name) is not None:
            what = f"Dialogues on {kind.name} tasks have no pages to render."
            raise UsageError(what, where=option(name), fix=Hint("leave ", option(name), " out"))
    return None


def check_vision(kind: TaskKind, config: RolloutConfig, local: LocalServing) -> None:
    if not kind.visual or config.sim_url:
        return
    for sim in config.sims:
        if sim == SCRIPTED:
            continue
        choice = local.choose(sim)
        if choice.build is None:
            raise UsageError(
                f"The human of {kind.name} tasks must see pages. {sim} would be run by the embedded engine, "
                f"which runs text models only ({choice.why}).",
                where=option("sim", sim),
                fix=Hint(
                    option("sim_url", "URL"),
                    " of a vision model's server, ",
                    option("local_engine", "vllm"),
                    " where vllm is installed, or ",
                    option("sim", "scripted"),
                ),
            )


def _check_no_server(side: str, urls: list[str], field: str, fix: str) -> None:
    if urls:
        raise UsageError(
            f"The scripted {side} runs in this process, but a server was given for it.", where=option(field), fix=fix
        )
