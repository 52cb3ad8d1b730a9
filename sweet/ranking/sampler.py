"""The work of `sweet rank`: candidates of many turns are asked for at once, judged as they come, and written.

Nothing waits for a whole round: while turns are judged, the next are sampled. Replies that an earlier ranking sampled
are taken as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sweet.llm.base import ChatClient, Reply, RequestFailed, Role, Sampling
from sweet.llm.local import Local
from sweet.ranking.judge import Judge, Judged, SampledTurn, mean_logprob
from sweet.ranking.llm_judge import JudgePrompt, LLMJudge
from sweet.ranking.turns import Key, Place
from sweet.runs.jsonl import JsonlWriter
from sweet.stages.base import Progress, Reporter, digest_of
from sweet.stages.failures import first_cause
from sweet.stages.rows import CandidateRow
from sweet.tasks.base import Message

if TYPE_CHECKING:
    from sweet.ranking.config import RankConfig


Told = tuple[Reply, float | None]
"""A reply, and its mean log-probability under the model that sampled it, where it told."""


class Desk:
    """Asks for the candidates of many turns at once and has them judged as they come.

    Args:
        agent: the model that is asked; without one the replies at every turn are `given`.
        judge: who judges, or what the language model is asked that does.
    """

    def __init__(
        self,
        config: RankConfig,
        agent: str | None,
        system: str,
        given: Mapping[Key, CandidateRow],
        judge: Judge | JudgePrompt,
        writer: JsonlWriter,
        log: JsonlWriter,
        reporter: Reporter,
        local: Local,
    ) -> None:
        self.local = local
        self.config, self.agent, self.system, self.given, self.by = config, agent, system, given, judge
        self.writer, self.log, self.reporter = writer, log, reporter
        self.failed = 0
        self.served: dict[str, str] = {}
        self.ready: asyncio.Queue[SampledTurn | None] = asyncio.Queue()
        self.gathering = asyncio.Lock()

    async def rank(self, places: list[Place]) -> None:
        async with AsyncExitStack() as stack:
            client = None
            if self.agent is not None:
                client = await self._open(stack, "agent", self.agent, self.config.agent_url)
            judge = await self._judge(stack)
            with self.reporter.progress("turns", len(places)) as bar:
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._ask_all(places, client, judge, bar))
                        for _ in range(judge.at_once):
                            group.create_task(self._judge_some(judge, bar))
                except BaseExceptionGroup as errors:
                    raise first_cause(errors) from errors

    async def _open(self, stack: AsyncExitStack, role: Role, model: str, urls: list[str]) -> ChatClient:
        from sweet.llm.connect import open_client

        config = self.config
        opened = open_client(
            model,
            urls,
            concurrency=config.concurrency,
            role=role,
            retry_timeout=config.patience,
            device=config.device,
            local=self.local,
        )
        client = await stack.enter_async_context(opened)
        self.served[f"{role}_model"] = client.model
        return client

    async def _judge(self, stack: AsyncExitStack) -> Judge:
        config = self.config
        if not isinstance(self.by, JudgePrompt):
            return self.by
        client = await self._open(stack, "judge", str(config.judge_model), config.judge_url)
        return LLMJudge(client, self.by, concurrency=config.concurrency, max_tokens=config.judge_tokens)

    async def _ask_all(self, places: list[Place], client: ChatClient | None, judge: Judge, bar: Progress) -> None:
        waiting = iter(places)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.config.concurrency, len(places))):
                group.create_task(self._ask(waiting, client, bar))
        for _ in range(judge.at_once):
            await self.ready.put(None)

    async def _ask(self, waiting: Iterator[Place], client: ChatClient | None, bar: Progress) -> None:
        for place in waiting:
            observation = tuple(place.trajectory.observation(place.turn, self.system))
            try:
                replies = await self._replies(place, observation, client)
            except RequestFailed as error:
                self._fail(place.trajectory.id, place.turn, str(error), bar)
                bar.advance()
            else:
                taken = _taken(place)
                sampler = tuple(mean for _, mean in (*replies, taken))
                told = tuple(reply for reply, _ in replies)
                await self.ready.put(SampledTurn(place.trajectory, place.turn, observation, told, taken[0], sampler))

    async def _replies(self, place: Place, observation: Sequence[Message], client: ChatClient | None) -> list[Told]:
        """Those that are given, or those that the agent gives.

        Raises:
            RequestFailed: it gives none.
        """
        if client is None:
            return _of_row(self.given[place.key])
        config = self.config
        sampling = Sampling(
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            n=config.candidates,
            seed=int(digest_of([config.seed, "reply", *place.key])[:8], 16) >> 1,
            logprobs=config.judge == "critic",
        )
        completion = await client.chat(observation, sampling)
        return [(reply, mean_logprob(reply)) for reply in completion.replies]

    async def _judge_some(self, judge: Judge, bar: Progress) -> None:
        """Have what has come judged, as many turns at once as the judge likes, until no more come."""
        more = True
        while more:
            batch: list[SampledTurn] = []
            async with self.gathering:  # turns of a dialogue come one after the other and are best judged together
                while more and len(batch) < judge.together:
                    turn = await self.ready.get()
                    more = turn is not None
                    if turn is not None:
                        batch.append(turn)
            if batch:
                for one, judged in zip(batch, await judge.judge(batch), strict=True):
                    self._keep(one, judged, bar)
                bar.advance(len(batch))

    def _keep(self, turn: SampledTurn, judged: Judged, bar: Progress) -> None:
        for reply in judged.failures:
            self.log.write(
                {"dialogue": turn.trajectory.id, "turn": turn.index, "unjudged": reply.text, "error": reply.why}
            )
        row = judged.row(turn)
        if row is None:
            self._fail(turn.trajectory.id, turn.index, "too few candidates could be judged to rank them", bar)
        else:
            self.writer.write(row)

    def _fail(self, dialogue: str, turn: int, why: str, bar: Progress) -> None:
        self.failed += 1
        self.log.write({"dialogue": dialogue, "turn": turn, "error": why})
        bar.note(failed=self.failed)


def _of_row(row: CandidateRow) -> list[Told]:
    """The replies that an earlier ranking sampled."""
    return [(Reply(c.text, "stop" if c.ended else "length", c.token_ids), c.sampler) for c in row.candidates]


def _taken(place: Place) -> Told:
    """The reply that was really given."""
    said = place.trajectory.dialogue_history[place.turn]
    reply = Reply(said.said, said.finish_reason or "stop", said.token_ids, said.logprobs)
    return reply, mean_logprob(reply)
