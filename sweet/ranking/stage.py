"""`sweet rank`: sample candidates at some turns and score each by the critic or another judge (`sweet.judges`).

    inputs, turns   which dialogues, which of their turns, and which judge
    pipeline        the candidates at a turn, from the agent or from an earlier ranking (`--replies`); sampling and
                    judging at the same time; each judged turn is written as a row
    metrics, credit the metrics of the rows, alone and against what the tasks know of replies

A row is named by its dialogue and the index of its turn, so the same command resumes with the turns that are missing.
Candidates that were sampled and not judged yet are recorded too (sweet.rollouts.steps). With `--replies` the replies of
an earlier ranking are judged again, so that only the judge differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from sweet.gathering import run_main
from sweet.judges.base import ScoreReplies
from sweet.learn.rows import CandidateRow, TurnKey
from sweet.llm.connect import check_context, warn_of_effort
from sweet.ranking.config import RankConfig, config_for
from sweet.ranking.credit import credit_metrics
from sweet.ranking.inputs import Ranking, choose_ranking
from sweet.ranking.metrics import RankMetrics, ranking_metrics
from sweet.ranking.pipeline import CandidateSampler, RankingWriter, rank_turns, sampling_of, step_name
from sweet.ranking.turns import missing_turns
from sweet.rollouts.steps import StepsFile
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Reporter, StageResult
from sweet.stages.critics import couples_in, warn_if_at_chance, warn_of_chance
from sweet.stages.frame import Frame, Rows
from sweet.stages.meta import RolloutsMeta
from sweet.stages.prices import Budget
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
    config = config if function is None else config_for(function, config)
    ranking = choose_ranking(run, config, function)
    reporter.say(f"Ranking {ranking.title} by {ranking.judge.title}.")
    if ranking.critic is not None:
        warn_if_at_chance(run, ranking.critic, reporter)
    say_left_out(ranking, reporter)
    framed = Frame(
        "rank",
        run,
        config,
        reporter,
        inputs=ranking.inputs,
        models=ranking.models,
        computed=ranking.judge.computed,
    )
    with framed as frame:
        rows = frame.rows("candidates", ranking.meta(), CandidateRow)
        missing = missing_turns(ranking.turns, rows.path)
        if rows.rows:
            frame.say(f"Finished already: {count(rows.rows, 'turn')}; missing: {len(missing):,}.")
        if missing:
            frame.serving.replies = len(missing) * config.candidates
            run_main(_sample_and_judge(frame, config, ranking, missing, rows))
        failed = len(ranking.turns) - rows.rows
        credit = credit_metrics(read_jsonl(rows.path, CandidateRow), ranking.tasks, ranking.scorer)
        metrics = ranking_metrics(
            read_jsonl(rows.path, CandidateRow),
            sampled=ranking.agent is not None,
            failed=failed,
            left_out=ranking.left_out,
            known=credit,
            failures=frame.failures,
            cost=frame.cost_of(rows.draft),
        )
        artifact = frame.finish(rows, metrics)
        if ranking.critic is not None and credit.agreement is not None:
            warn_of_chance(ranking.critic, credit.agreement, couples_in(artifact), frame)
        return frame.result(metrics, artifact, failed=failed, tried=len(missing), items="turns")


def say_left_out(ranking: Ranking, reporter: Reporter) -> None:
    """Say of how many dialogues no turn is ranked."""
    if ranking.left_out:
        reporter.say(f"Dialogues that a fault ended, whose turns are not ranked: {ranking.left_out}.")


async def _sample_and_judge(
    frame: Frame, config: RankConfig, ranking: Ranking, turns: Sequence[TurnKey], rows: Rows
) -> None:
    """Open the judge and the agent, and rank the turns."""
    async with AsyncExitStack() as stack:
        judge = await stack.enter_async_context(ranking.judge.open(frame, ranking.scorer, ray=config.ray))
        sampler = CandidateSampler(ranking.dialogues, agent_system(frame.run, ranking.rollouts), ranking.recorded)
        if ranking.agent is not None:
            client = await stack.enter_async_context(frame.client(ranking.agent))
            sampling = sampling_of(config, RolloutsMeta.of(ranking.rollouts))
            warn_of_effort(client, sampling.effort, frame.warn)
            descriptions = (task.problem_description for task in ranking.tasks.values())
            check_context(client, "agent", descriptions, sampling.max_tokens)
            steps = stack.enter_context(StepsFile(rows.path, {step_name(key) for key in {*ranking.turns} - {*turns}}))
            sampler = replace(sampler, client=client, sampling=sampling, steps=steps)
        writer, limit = RankingWriter(rows, frame.log, frame.failures, sampler.steps), config.concurrency
        judging = frame.budget if ranking.judge.asked else Budget()
        await rank_turns(
            turns, sampler, judge, writer, frame.live, concurrency=limit, budget=frame.budget, judging=judging
        )
