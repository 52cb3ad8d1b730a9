"""Samples and judges many turns at the same time, and writes each row as soon as its turn is judged.

`concurrency` tasks sample candidates and put the turns into a queue; `judge.max_calls` tasks take batches from it. So
sampling continues while turns are judged, and neither waits for a whole round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sweet.gathering import first_cause
from sweet.judges.base import Judge, Judged
from sweet.learn.rows import CandidateRow, CandidateTurn, TurnKey
from sweet.llm.base import ChatClient, Reply, RequestFailed, Sampling
from sweet.ranking.config import RankConfig
from sweet.rollouts.steps import Steps, StepsFile
from sweet.runs.jsonl import JsonlWriter
from sweet.stages.base import Progress, Reporter, digest_of
from sweet.stages.failures import Failures
from sweet.stages.meta import RolloutsMeta
from sweet.stages.prices import Budget
from sweet.tasks.trajectory import Trajectory
from sweet.units import count

MIN_CANDIDATES = 2
"""Judged candidates that a turn needs: fewer cannot be ranked."""


@dataclass(frozen=True)
class CandidateSampler:
    """Returns the candidates at a turn, with what the agent had seen there and the reply that it gave.

    Attributes:
        dialogues: by id.
        system: the agent's system prompt.
        recorded: the rows of an earlier ranking, whose candidates are taken where there is no client.
        client: samples candidates from the agent.
        steps: what it has sampled at turns that are not judged yet.
        sampling: the parameters of its requests; each turn has a seed of its own, which derives from theirs.
    """

    dialogues: Mapping[str, Trajectory]
    system: str
    recorded: Mapping[TurnKey, CandidateRow]
    client: ChatClient | None = None
    steps: StepsFile | None = None
    sampling: Sampling = field(default_factory=Sampling)

    async def sample(self, key: TurnKey) -> CandidateTurn:
        """Return the turn with its candidates.

        Raises:
            RequestFailed: the agent returned none.
        """
        name, index = key
        dialogue = self.dialogues[name]
        observation = tuple(dialogue.observation(index, self.system))
        if self.client is None:
            row = self.recorded[key]
            replies, prompt = tuple(candidate.reply for candidate in row.candidates), row.prompt_token_ids
        else:
            seed = int(digest_of([self.sampling.seed, "reply", *key])[:8], 16) >> 1
            sampling = replace(self.sampling, seed=seed, tools=dialogue.tools or ())
            request = partial(self.client.chat, observation, sampling)
            steps = Steps() if self.steps is None else self.steps.of(step_name(key))
            completion = (await steps.take("completion", request)).completion
            assert completion is not None, "that is what was asked for"
            replies, prompt = completion.replies, completion.prompt_token_ids
        taken = Reply.of(dialogue.dialogue_history[index])
        return CandidateTurn(name, dialogue.task, index, observation, replies, taken, prompt, dialogue.tools)


def step_name(key: TurnKey) -> str:
    """Return the name under which the completion of a turn is recorded."""
    return f"{key[0]} {key[1]}"


def sampling_of(config: RankConfig, played: RolloutsMeta) -> Sampling:
    """Return the parameters of the options, with thoughts as in the dialogues where they say nothing."""
    thought = config.max_thought_tokens or played.max_thought_tokens
    return Sampling(
        temperature=config.temperature,
        max_tokens=config.max_tokens + (thought or 0),
        n=config.candidates,
        seed=config.seed,
        logprobs=config.judge == "critic",
        max_thought_tokens=thought,
        effort=config.effort or played.effort,
    )


class RankingWriter:
    """Writes judged turns as rows, and failures to the log; counts the failures. Forgets what was sampled at a turn
    that is written."""

    def __init__(self, rows: JsonlWriter, log: JsonlWriter, failures: Failures, steps: StepsFile | None = None) -> None:
        self._rows, self._log, self.failures, self._steps = rows, log, failures, steps
        self.written = 0

    def write(self, turn: CandidateTurn, judged: Judged) -> None:
        """Write a turn; one of which fewer than `MIN_CANDIDATES` candidates were judged has failed."""
        for reply, candidate in zip(turn.all_replies, judged[1], strict=True):
            if isinstance(candidate, str):
                self._record(turn.key, unjudged=reply.whole, error=candidate)
        basis, (*sampled, taken) = judged
        candidates = tuple(candidate for candidate in sampled if not isinstance(candidate, str))
        if len(candidates) < MIN_CANDIDATES:
            why = next((candidate for candidate in sampled if isinstance(candidate, str)), "they were not sampled")
            self.fail(turn.key, f"too few candidates could be judged to rank them: {why}")
            return
        row = CandidateRow(
            trajectory_id=turn.trajectory_id,
            task_id=turn.task.id,
            turn=turn.turn,
            observation=turn.observation,
            candidates=candidates,
            taken=None if isinstance(taken, str) else taken,
            basis=basis,
            prompt_token_ids=turn.prompt_token_ids,
            unjudged=len(sampled) - len(candidates),
            tools=turn.tools,
        )
        self._rows.write(row)
        if self._steps is not None:
            self._steps.forget(step_name(turn.key))
        self.written += 1

    def fail(self, key: TurnKey, error: RequestFailed | str) -> None:
        self.failures.add(error)
        self._record(key, error=str(error))

    def _record(self, key: TurnKey, **entry: str) -> None:
        dialogue, turn = key
        self._log.write({"dialogue": dialogue, "turn": turn, **entry})


async def rank_turns(
    turns: Sequence[TurnKey],
    sampler: CandidateSampler,
    judge: Judge,
    writer: RankingWriter,
    reporter: Reporter,
    *,
    concurrency: int,
    budget: Budget,
    judging: Budget,
) -> None:
    """Sample candidates at each turn, judge them and write the rows.

    Args:
        concurrency: turns that are sampled at the same time.
        budget: what the run may cost; at its limit no further turn is sampled.
        judging: the same for a judge that costs something; at its limit no further turn is judged.

    Raises:
        sweet.errors.ServerError: the agent or the judge cannot be reached.
        Interrupted: the limit of the cost is reached; the turns that were being judged are written.
    """
    # With a limit of its cost no more turns wait for the judge than are sampled at once.
    waiting = 0 if judging.most is None else concurrency
    sampled: asyncio.Queue[CandidateTurn | None] = asyncio.Queue(waiting)
    batch_lock = asyncio.Lock()

    def advance(bar: Progress) -> None:
        if writer.failures.count:
            bar.note(failed=writer.failures.count)
        bar.advance()

    async def sample_all(bar: Progress) -> None:
        remaining = iter(turns)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(turns))):
                group.create_task(sample_some(remaining, bar))
        for _ in range(judge.max_calls):
            await sampled.put(None)

    async def sample_some(remaining: Iterator[TurnKey], bar: Progress) -> None:
        while True:
            is_over = budget.is_spent() or writer.failures.is_hopeless(writer.written)
            if is_over or (turn := next(remaining, None)) is None:
                return
            try:
                await sampled.put(await sampler.sample(turn))
            except RequestFailed as error:
                writer.fail(turn, error)
                advance(bar)

    async def judge_some(bar: Progress) -> None:
        has_more = True
        while has_more:
            batch: list[CandidateTurn] = []
            async with batch_lock:  # a batch gets consecutive turns: those of a dialogue share a prefix
                while has_more and len(batch) < judge.batch_size:
                    entry = await sampled.get()
                    has_more = entry is not None
                    if entry is not None:
                        batch.append(entry)
            if batch and not judging.is_spent():  # what was sampled is recorded
                for turn, judged in zip(batch, await judge.judge(batch), strict=True):
                    writer.write(turn, judged)
                    advance(bar)

    with reporter.progress("turns", len(turns)) as bar:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(sample_all(bar))
                for _ in range(judge.max_calls):
                    group.create_task(judge_some(bar))
        except BaseExceptionGroup as errors:
            raise first_cause(errors) from errors
    if budget.is_spent() and writer.written + writer.failures.count < len(turns):
        missing = len(turns) - writer.written
        raise budget.stopped(f"Done: {count(writer.written, 'turn')}; missing: {missing:,}.")
