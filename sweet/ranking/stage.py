"""`sweet rank`: sample candidates at some turns and score each by the critic or another judge (`sweet.judges`).

    inputs, turns   which dialogues, and which of their turns
    sampler         the candidates at a turn, from the agent or from an earlier ranking (`--replies`)
    pipeline        sampling and judging at the same time; each judged turn is written as a row
    metrics, credit the metrics of the rows, alone and against what the tasks know of replies

A row is named by its dialogue and the index of its turn, so the same command resumes with the turns that are missing.
With `--replies` the replies of an earlier ranking are judged again, so that only the judge differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sweet.datasets.layout import is_imported
from sweet.errors import InputError, SweetError
from sweet.hints import Hint, option, stage
from sweet.judges.base import Judge, TurnKey
from sweet.judges.control import CreditScorer, check_credit_known
from sweet.judges.critic import CriticJudge, load_trained_judge, untrained_loader
from sweet.judges.function import FunctionJudge, ScoreReplies
from sweet.judges.lookahead import LookaheadJudge, check_lookahead
from sweet.judges.on_ray import RayJudge
from sweet.judges.opening import ChosenJudge
from sweet.judges.options import LOOKAHEAD
from sweet.llm.base import ChatClient, Role
from sweet.llm.connect import EFFORT_IGNORED, client_of, effort_is_ignored
from sweet.llm.local import LocalServing
from sweet.llm.scripted import has_model
from sweet.ranking.config import RankConfig, check_options
from sweet.ranking.credit import credit_metrics
from sweet.ranking.function_config import config_for
from sweet.ranking.inputs import RankInputs, find_inputs
from sweet.ranking.lookahead import human_of, open_lookahead
from sweet.ranking.metrics import RankMetrics, ranking_metrics
from sweet.ranking.pipeline import RankingWriter, rank_turns
from sweet.ranking.sampler import AgentCandidates, CandidateSampler, CandidateSource, RecordedCandidates
from sweet.ranking.turns import SelectedTurn, first_turns, published_order, sample_turns, turns_with_replies
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_of, agent_system, given_model
from sweet.stages.base import Reporter, StageResult
from sweet.stages.critics import (
    CriticSettings,
    check_reference,
    check_turn_tokens,
    couples_in,
    used_protocol,
    warn_dropped_turns,
    warn_if_at_chance,
    warn_of_chance,
)
from sweet.stages.failures import check_failures
from sweet.stages.live import PAUSE, LiveReporter
from sweet.stages.meta import CandidatesMeta, RolloutsMeta
from sweet.stages.models import plan_models, record_serving
from sweet.stages.prices import Budget, given_prices, open_budget
from sweet.stages.rows import CandidateRow
from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import Trajectory
from sweet.units import count


def run_rank(
    run: Run, config: RankConfig, reporter: Reporter, function: ScoreReplies | None = None
) -> StageResult[RankMetrics]:
    """Sample and score candidates, and write one row for each turn.

    Args:
        function: judges instead of the judge that `config` names.

    Raises:
        UsageError: options do not go together, or an input is missing.
        TooManyFailures: more turns failed than `fail_on_error` allows; the rows of the others are kept.
    """
    if function is not None:
        config = config_for(function, config)
    prices = given_prices(config)
    chosen = choose_turns(run, config)
    inputs, turns = chosen.inputs, chosen.turns
    scorer = CreditScorer.for_rollouts(run, inputs.rollouts)
    if config.judge == "oracle":
        check_credit_known(scorer, map(_given_reply, turns))
    choice = choose_judge(run, config, inputs)
    if choice.human is not None:
        played = (turn.trajectory.task for turn in turns)
        check_lookahead(scorer.kind, played, scripted=not has_model(choice.human[0]))
    reporter.say(f"Ranking {_replies_name(chosen)} by {choice.title}.")
    if inputs.critic is not None:
        warn_if_at_chance(run, inputs.critic, reporter)
    chosen.say_left_out(reporter)
    models = _models(choice, chosen.agent, config)
    local = plan_models(config, models, reporter, others=int(choice.computes))
    meta = _meta(choice, chosen)
    attempted = run.attempt("rank", config, inputs.artifacts, verify=config.verify, warn=reporter.warn)
    with attempted as attempt:
        draft = attempt.start_artifact("candidates", meta=meta.as_json(), resume=True)
        reporter = live = LiveReporter(reporter, attempt, PAUSE)
        missing = _missing(turns, draft.path, reporter)
        budget = open_budget(run, attempt, prices, config)
        with JsonlWriter(draft.path) as rows, JsonlWriter(attempt.metrics_path) as log:
            if missing:
                record_serving(local, attempt)
                local.replies = len(missing) * config.candidates
                writer, system = RankingWriter(rows, log), agent_system(run, inputs.rollouts)
                with _open_judge(choice, config, scorer, reporter, function) as judge:
                    asked = choice if judge is None else judge
                    ranking = _sample_and_judge(
                        run, config, chosen, missing, asked, scorer, system, local, writer, live, budget
                    )
                    attempt.environment |= asyncio.run(ranking)
                    if isinstance(judge, RayJudge):
                        attempt.environment |= judge.environment
                    if isinstance(judge, CriticJudge | RayJudge):
                        warn_dropped_turns(judge, reporter)
            written = rows.rows
        failed = len(turns) - written
        tasks = {turn.trajectory.task_id: turn.trajectory.task for turn in turns}
        known = credit_metrics(read_jsonl(draft.path, CandidateRow), tasks, scorer)
        metrics = ranking_metrics(
            read_jsonl(draft.path, CandidateRow),
            sampled=chosen.agent is not None,
            failed=failed,
            left_out=chosen.left_out,
            known=known,
            cost=None if budget is None else budget.cost_of(draft.id),
        )
        attempt.metrics.update(metrics.as_json())
        artifact = attempt.finish_artifact(draft, rows=written)
        if inputs.critic is not None and known.agreement is not None:
            warn_of_chance(inputs.critic, known.agreement, couples_in(artifact), reporter)
        result = StageResult("rank", run.path, metrics, [artifact])
        log_path = attempt.metrics_path
        check_failures(failed, len(missing), config.fail_on_error, what="turns", log=log_path, result=result)
    return result


# Choosing the turns


class ChosenTurns(NamedTuple):
    """What is ranked.

    Attributes:
        recorded: the replies of an earlier ranking, which are judged again.
        agent: the model that is asked for replies; None where they are recorded.
        left_out: dialogues that a fault ended: none of their turns is ranked, as nothing is learned from them.
    """

    inputs: RankInputs
    recorded: dict[TurnKey, CandidateRow]
    agent: str | None
    turns: list[SelectedTurn]
    left_out: int

    def say_left_out(self, reporter: Reporter) -> None:
        if self.left_out:
            reporter.say(f"Dialogues that a fault ended, whose turns are not ranked: {self.left_out}.")


def choose_turns(run: Run, config: RankConfig) -> ChosenTurns:
    check_options(config)
    inputs = find_inputs(
        run,
        by_critic=config.judge == "critic",
        critic=config.from_,
        replies=config.replies,
        rollouts=config.rollouts,
        allow_test=config.allow_test,
    )
    if inputs.critic is not None:
        check_reference(inputs.critic, config.reference, config.reference_context)
        check_turn_tokens(inputs.critic, config.protocol, config.turn_tokens)
    dialogues: list[Trajectory] = []
    ended_by_fault: set[str] = set()
    for dialogue in read_jsonl(run.file(inputs.rollouts), Trajectory):
        if dialogue.ended_by_fault:
            ended_by_fault.add(dialogue.id)
        else:
            dialogues.append(dialogue)
    recorded: dict[TurnKey, CandidateRow] = {}
    agent = None
    if inputs.replies is None:
        agent = given_model(run, config.agent) if config.agent else agent_of(run, inputs.rollouts, "agent")
        if inputs.critic is not None and used_protocol(inputs.critic, config.protocol) == "upstream":
            ordered = dialogues if is_imported(inputs.rollouts) else published_order(dialogues)
            turns = first_turns(ordered, fraction=config.fraction, limit=config.limit)
        else:
            turns = sample_turns(dialogues, seed=config.seed, fraction=config.fraction, limit=config.limit)
    else:
        path = run.file(inputs.replies)
        rows = read_jsonl(path, CandidateRow)
        recorded = {row.key: row for row in rows if row.trajectory_id not in ended_by_fault}
        turns = turns_with_replies(dialogues, recorded, path)
    if not turns:
        what = "The dialogues that no fault ended have no turn of the agent to rank."
        raise SweetError(what, where=inputs.rollouts.id, fix=stage("rollout"))
    return ChosenTurns(inputs, recorded, agent, turns, len(ended_by_fault))


def _missing(turns: Sequence[SelectedTurn], path: Path, reporter: Reporter) -> list[SelectedTurn]:
    """Return the turns that the file of an interrupted ranking does not have.

    Raises:
        InputError: it has others, because an earlier version began it.
    """
    finished = {row.key for row in read_jsonl(path, CandidateRow)} if path.exists() else set()
    if not finished <= {turn.key for turn in turns}:
        what = "An earlier version began this ranking, at turns that are not chosen any more, so it cannot be resumed."
        raise InputError(what, path=path, fix=Hint("another ", option("seed")))
    missing = [turn for turn in turns if turn.key not in finished]
    if finished:
        reporter.say(f"Finished already: {count(len(finished), 'turn')}; missing: {len(missing):,}.")
    return missing


# The judge


def choose_judge(run: Run, config: RankConfig, inputs: RankInputs) -> ChosenJudge:
    settings = _settings(config)
    if inputs.critic is not None:
        path = run.path.absolute()
        how = (config.reference, config.protocol, config.reference_context)
        load = partial(load_trained_judge, path, inputs.critic.id, settings, *how)
        return ChosenJudge(config.judge, config, critic=inputs.critic, protocol=config.protocol, load=load)
    if config.judge == "untrained":
        start = config.reference or agent_of(run, inputs.rollouts, "reference")
        return ChosenJudge(config.judge, config, start=start, load=untrained_loader(start, settings))
    if config.judge == LOOKAHEAD:
        start = config.reference or agent_of(run, inputs.rollouts, "reference")
        return ChosenJudge(config.judge, config, start=start, human=human_of(run, config, inputs.rollouts))
    return ChosenJudge(config.judge, config)


def _settings(config: RankConfig) -> CriticSettings:
    return CriticSettings(
        config.device, config.max_length, config.micro_batch_tokens, config.packing, config.turn_tokens
    )


@contextmanager
def _open_judge(
    choice: ChosenJudge,
    config: RankConfig,
    scorer: CreditScorer,
    reporter: Reporter,
    function: ScoreReplies | None,
) -> Iterator[Judge | None]:
    """Open the judge for the duration of the block; see `ChosenJudge.open`."""
    if function is not None:
        yield FunctionJudge(function)
    else:
        with choice.open(scorer, reporter, ray=config.ray) as judge:
            yield judge


def _given_reply(turn: SelectedTurn) -> tuple[Task, Sequence[Message], str]:
    """Return the task of a turn, what the agent had seen there, and what it replied."""
    dialogue = turn.trajectory
    return dialogue.task, dialogue.observation(turn.index, None), dialogue.dialogue_history[turn.index].said


# Sampling and judging


async def _sample_and_judge(
    run: Run,
    config: RankConfig,
    chosen: ChosenTurns,
    turns: Sequence[SelectedTurn],
    judge: Judge | ChosenJudge,
    scorer: CreditScorer,
    system: str,
    local: LocalServing,
    writer: RankingWriter,
    live: LiveReporter,
    budget: Budget | None,
) -> dict[str, str]:
    """Open the clients of the models that are asked, and rank the turns.

    Args:
        judge: a language model, or a judge that asks the human, is opened here.
        scorer: knows the kind of the tasks.

    Returns:
        The names of the models, as their servers report them.
    """
    served: dict[str, str] = {}
    async with AsyncExitStack() as stack:

        async def open_role(role: Role, model: str, urls: list[str]) -> ChatClient:
            client = await stack.enter_async_context(client_of(config, role, model, urls, local))
            served[f"{role}_model"] = client.model
            return client

        source: CandidateSource = RecordedCandidates(chosen.recorded)
        if chosen.agent is not None:
            played = RolloutsMeta.of(chosen.inputs.rollouts)
            effort = config.effort or played.effort
            client = await open_role("agent", chosen.agent, config.agent_url)
            if effort_is_ignored(client, effort):
                live.warn(EFFORT_IGNORED)
            source = AgentCandidates(
                client,
                candidates_per_turn=config.candidates,
                temperature=config.temperature,
                max_tokens=config.max_tokens,
                seed=config.seed,
                logprobs=config.judge == "critic",
                max_thought_tokens=config.max_thought_tokens or played.max_thought_tokens,
                effort=effort,
            )
        if isinstance(judge, ChosenJudge):
            role: Role = "judge" if judge.human is None else "sim"
            clients = [await open_role(role, model, urls) for model, urls in judge.asked]
            if judge.human is None:
                judge = judge.asking(clients[0])
            else:
                asked = next(iter(clients), None)
                judge = await open_lookahead(
                    run, config, judge, _settings(config), scorer, chosen.inputs.rollouts, asked, live, stack
                )
        sampler = CandidateSampler(source, system)
        await rank_turns(turns, sampler, judge, writer, live, concurrency=config.concurrency, budget=budget)
        if isinstance(judge, LookaheadJudge):
            warn_dropped_turns(judge, live)
    return served


# The record of the ranking


def _replies_name(chosen: ChosenTurns) -> str:
    if chosen.inputs.replies is not None:
        return f"the replies of {chosen.inputs.replies.id}"
    return f"replies of {chosen.agent} in {chosen.inputs.rollouts.id}"


def _meta(choice: ChosenJudge, chosen: ChosenTurns) -> CandidatesMeta:
    """Return the `meta` of the candidates: who replied, and who judged."""
    inputs = chosen.inputs
    replied = CandidatesMeta.of(inputs.replies).agent if inputs.replies else chosen.agent
    more = choice.meta()
    if inputs.replies is not None:
        more["replies"] = inputs.replies.id
    if inputs.critic is not None:
        more["protocol"] = used_protocol(inputs.critic, choice.protocol)
    if choice.name == "llm":
        more["informed"] = choice.informed
    return CandidatesMeta(agent=replied).model_copy(update=more)


def _models(choice: ChosenJudge, agent: str | None, config: RankConfig) -> list[tuple[str, list[str]]]:
    """Return the models that are asked for text, with their addresses."""
    return [*([] if agent is None else [(agent, config.agent_url)]), *choice.asked]
