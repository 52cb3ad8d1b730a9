"""The judge `lookahead` of a ranking: which human it asks, and how its human, its scorer and its model are opened."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from sweet.errors import UsageError
from sweet.hints import option
from sweet.humans.connect import open_human
from sweet.judges.control import CreditScorer
from sweet.judges.lookahead import LookaheadJudge
from sweet.judges.opening import ChosenJudge
from sweet.llm.base import ChatClient
from sweet.llm.scripted import SCRIPTED
from sweet.ranking.config import RankConfig
from sweet.render.store import SCREENSHOTS
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import is_model, recorded_model
from sweet.stages.base import Reporter
from sweet.stages.critics import CriticSettings, load_solution_logprob
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.async_scorer import open_async_scorer
from sweet.tasks.scores import ScoringRequest


def human_of(run: Run, config: RankConfig, rollouts: Artifact) -> tuple[str, list[str]]:
    """Return the human that is asked, with its addresses.

    Raises:
        UsageError: none is named, and the dialogues had several, one with a persona, or one that is not known.
    """
    if config.sim is not None:
        return config.sim, config.sim_url
    recorded = recorded_model(run, rollouts, "sim") or SCRIPTED
    if RolloutsMeta.of(rollouts).humans or (recorded != SCRIPTED and not is_model(recorded)):
        what = "The judge asks one human, without a persona, and that of these dialogues is another."
        raise UsageError(what, where=rollouts.id, fix=option("sim", "MODEL"))
    return recorded, config.sim_url


async def open_lookahead(
    run: Run,
    config: RankConfig,
    choice: ChosenJudge,
    settings: CriticSettings,
    scorer: CreditScorer,
    rollouts: Artifact,
    client: ChatClient | None,
    reporter: Reporter,
    stack: AsyncExitStack,
) -> LookaheadJudge:
    """Open the judge.

    Args:
        scorer: knows the kind of the tasks, and the turns of a dialogue.
        client: of the model that plays the human; None for the scripted one.
        stack: closes what is opened.
    """
    assert choice.start is not None
    kind = scorer.kind.with_specifications() if RolloutsMeta.of(rollouts).human == "spec" else scorer.kind
    human = await stack.enter_async_context(open_human(kind, client, run.path / SCREENSHOTS, "paper", say=reporter.say))
    request = ScoringRequest(run=run.path.absolute(), say=reporter.say, sandbox=config.sandbox, device=config.device)
    answers = await stack.enter_async_context(open_async_scorer(kind, request))
    solution_logprob = await asyncio.to_thread(load_solution_logprob, choice.start, settings)
    return LookaheadJudge(solution_logprob, human, answers, kind, scorer.max_turns, config.concurrency)
