"""Asks a human the questions of recorded dialogues: each with the dialogue before it, as the first human had it."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from sweet.errors import SweetError, UsageError
from sweet.hints import option
from sweet.humans.base import Human
from sweet.humans.connect import open_human
from sweet.humans.personas import Persona, choose_personas
from sweet.llm.base import RequestFailed
from sweet.llm.connect import open_client
from sweet.llm.scripted import SCRIPTED
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.humans.replies import Exchange
from sweet.scoring.results.compare import CompareConfig
from sweet.stages.base import Reporter
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.registry import task_kind

AT_ONCE = 64
"""Questions at once."""


@dataclass(frozen=True)
class Answers:
    """Attributes:
    human: the name of the human that was asked.
    asked: the questions. replies: to each; None where the request failed.
    """

    human: str
    asked: list[Exchange]
    replies: list[str | None]


def ask_again(
    run: Run, rollouts: Artifact, questions: Sequence[Exchange], config: CompareConfig, reporter: Reporter
) -> Answers:
    """Ask the human that the configuration names.

    Raises:
        UsageError: there is no such human or persona, or it cannot play these tasks.
        ServerError: a server could not be reached.
        SweetError: all questions failed.
    """
    personas = choose_personas(config.persona, config.persona_file)
    if len(personas) > 1:
        raise UsageError("One human is asked, and several personas are given.", where=option("persona"), fix="one")
    asked = sorted(questions, key=_place)[: config.questions] if config.questions else list(questions)
    return asyncio.run(_ask(run, rollouts, asked, config, personas[0], reporter))


def _place(exchange: Exchange) -> str:
    return hashlib.sha256(f"{exchange.dialogue}\0{len(exchange.said)}".encode(errors="replace")).hexdigest()


async def _ask(
    run: Run,
    rollouts: Artifact,
    asked: list[Exchange],
    config: CompareConfig,
    persona: Persona,
    reporter: Reporter,
) -> Answers:
    kind, meta = task_kind(run.manifest().task), RolloutsMeta.of(rollouts)
    attempt = run.manifest().attempt(rollouts.attempt)
    prompts = attempt.config.get("prompts") if attempt is not None else None
    if isinstance(prompts, str):  # the human's prompt was not the packaged one
        kind = kind.with_prompts(Path(prompts))
    recipe = meta.recipe or "paper"
    slots = asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:
        client = None
        if config.sim == SCRIPTED:
            kind.check_scripted_human([exchange.task for exchange in asked])
        else:
            opening = open_client(str(config.sim), config.sim_url, role="sim", concurrency=AT_ONCE)
            client = await stack.enter_async_context(opening)
        screenshots = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweet-compare-")))
        human: Human = await stack.enter_async_context(
            open_human(kind, client, screenshots, recipe, say=reporter.say, settings=meta.rendering, persona=persona)
        )
        bar = stack.enter_context(reporter.progress("questions", len(asked)))

        async def one(exchange: Exchange) -> str | RequestFailed:
            async with slots:
                try:
                    return (await human.reply(exchange.task, exchange.said)).text
                except RequestFailed as error:
                    return error
                finally:
                    bar.advance()

        found = await asyncio.gather(*map(one, asked))
    failures = [reply for reply in found if isinstance(reply, RequestFailed)]
    if failures and len(failures) == len(found):
        raise SweetError(
            f"All {len(found):,} questions failed; the first: {failures[0].what}", where=failures[0].where
        ) from failures[0]
    if failures:
        reporter.warn(f"{len(failures):,} of {len(found):,} questions failed; the first: {failures[0].what}")
    return Answers(human.name, asked, [reply if isinstance(reply, str) else None for reply in found])
