"""Checks the two sides of a rollout: the agent, and the simulated humans.

What can be checked before a server is asked is checked first: whether the sides can play these tasks, whether a model
can see images, and whether an address belongs to a side that has a model.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable
from contextlib import suppress

from sweet.errors import UsageError
from sweet.hints import option
from sweet.llm.local import LocalServing
from sweet.llm.scripted import SCRIPTED, has_model
from sweet.render.page import RenderSettings
from sweet.render.window import choose_settings
from sweet.rollouts.config import RolloutConfig
from sweet.stages.base import Reporter
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.packaged import PACKAGED
from sweet.units import count


def check_agent(kind: TaskKind, config: RolloutConfig) -> None:
    """Raise UsageError if the agent cannot play these tasks, or a server was given that it does not use."""
    if not has_model(config.agent):
        _check_no_server("agent", config.agent_url, "agent_url", "leave --agent-url out")
    if config.agent == SCRIPTED:
        if kind.scripted_agent is None:
            raise UsageError(
                f"There is no scripted agent for {kind.name} tasks.",
                where="--agent scripted",
                fix="--agent micro",
            )
    else:
        check_writes_pages(kind, config.agent, "--agent scripted, or --agent MODEL")


def check_writes_pages(kind: TaskKind, agent: str, fix: str) -> None:
    """Raise UsageError if the agent is a packaged model, and the tasks require pages."""
    if agent in PACKAGED and kind.visual:
        what = f"The packaged agent {agent} writes no pages, which {kind.name} tasks require."
        raise UsageError(what, where=option("agent", agent), fix=fix)


def check_no_tools(kind: TaskKind, tasks: Iterable[Task], who: str, where: str, fix: str) -> None:
    """Raise UsageError if the agent has tools in dialogues on these tasks, which `who` cannot call."""
    if any(kind.toolbox(task) is not None for task in tasks):
        what = f"Tasks of the kind {kind.name} offer tools to the agent, which {who} cannot call."
        raise UsageError(what, where=where, fix=fix)


def words_of(command: str) -> list[str]:
    """Return the words of a command. Raises UsageError if they name no program that is here."""
    with suppress(ValueError):
        words = shlex.split(command)
        if words and shutil.which(words[0]) is not None:
            return words
    what, fix = "The command names no program that is here.", "--harness 'python agent.py'"
    raise UsageError(what, where=option("harness", command), fix=fix)


def check_harness(kind: TaskKind, tasks: Iterable[Task], config: RolloutConfig) -> None:
    """Raise UsageError if a program of the user cannot play these dialogues."""
    if config.harness is None:
        if config.harness_jail:
            raise UsageError("There is no program for the jail.", where=option("harness_jail"), fix="add --harness")
        return
    words_of(config.harness)
    check_no_tools(kind, tasks, "a program with tools of its own", option("harness"), "leave --harness out")
    for name in ("best_of", "token_limit"):
        if getattr(config, name) not in (None, 1):
            what = "A program is given one reply to each of its calls, of which --max-turns is the bound."
            raise UsageError(what, where=option(name), fix=f"leave {option(name)} out")


def check_human(kind: TaskKind, tasks: list[Task], config: RolloutConfig) -> None:
    """Raise UsageError if the simulated human cannot play these tasks, or a server was given that it does not use."""
    if SCRIPTED in config.sims:
        fix = "leave --sim-url out, or name the served model: --sim scripted-human"
        if config.sims == [SCRIPTED]:
            _check_no_server("human", config.sim_url, "sim_url", f"{fix} for serve-sim's scripted engine")
        kind.check_scripted_human(tasks)
    if config.human == "spec":
        _check_specified(kind, tasks, config)


def _check_specified(kind: TaskKind, tasks: list[Task], config: RolloutConfig) -> None:
    """Raise UsageError if no human would read the specification of a task, or a task has none."""
    where, omit = "--human spec", "leave --human out"
    if kind.visual:
        what = f"The human of {kind.name} tasks sees pages, and no code."
        raise UsageError(what, where=where, fix=omit)
    if config.sims == [SCRIPTED]:
        what = "The scripted human speaks from a task's facts, and reads neither code nor specification."
        raise UsageError(what, where=where, fix=f"{omit}, or --sim MODEL")
    lacking = [task.id for task in tasks if not task.specification.strip()]
    if lacking:
        more = f" and {len(lacking) - _NAMED:,} more" if len(lacking) > _NAMED else ""
        named = ", ".join(lacking[:_NAMED])
        source = shlex.quote(config.tasks or kind.tasks_for(config.agent))
        raise UsageError(
            f"{len(lacking):,} of {count(len(tasks), 'task')} have no specification: {named}{more}. "
            "sweet data describe writes a file of tasks that have one, for --tasks.",
            where=where,
            fix=f"sweet data describe {source} --model MODEL --url URL",
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
            raise UsageError(what, where=option(name), fix=f"leave {option(name)} out")
    return None


def check_vision(kind: TaskKind, config: RolloutConfig, local: LocalServing) -> None:
    if not kind.visual or config.sim_url:
        return
    for sim in config.sims:
        if sim == SCRIPTED:
            continue
        choice = local.choose(sim)
        if choice.engine == "embedded":
            raise UsageError(
                f"The human of {kind.name} tasks must see pages. {sim} would be run by the embedded engine, "
                f"which runs text models only ({choice.why}).",
                where=option("sim", sim),
                fix=(
                    "--sim-url URL of a vision model's server, --local-engine vllm where vllm is installed, "
                    "or --sim scripted"
                ),
            )


def _check_no_server(side: str, urls: list[str], field: str, fix: str) -> None:
    if urls:
        raise UsageError(
            f"The scripted {side} runs in this process, but a server was given for it.", where=option(field), fix=fix
        )
