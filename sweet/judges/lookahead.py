"""The judge `lookahead`: what a reply is worth shows in what comes next.

It looks one step ahead. A reply that asks is put to the simulated human, and judged by what the human's reply tells of
the solution: how much likelier the agent's own model makes the reference solution, having read it
(`sweet.learn.solution_logprob`). A reply that answers is judged by its reward, as `sweet eval` computes it.

    asks      Phi(o') - Phi(o), in nats, at least -1 and at most 3; o' is o with the reply and the human's reply
    solves    3
    fails     -1/2 - (1 - reward) / 4: below a question that brings nothing

Of an answer that is built in parts (`sweet.tasks.parts`), the solution is the lines of the reference that are not
delivered yet, each delivered as a part. The potential is the sum of their log-probabilities, of which each is at least
-3: a line that the agent does not know is so unlikely that it would hide what the others say. A part is judged by the
answer that those lines would make of it: if that solves the task, the part is worth 3 times its lines over those of the
reference, else what an answer that fails is worth.

The difference of a potential is a shaping reward (Ng, Harada and Russell 1999): of a dialogue's questions it adds up to
what the dialogue has found out. The bounds keep one turn from deciding which of the others are clear (`sweet pair
--min-gap-share`), and an answer that fails is worth little less than nothing, so that at a turn with some the useful
questions still differ from the useless ones by most of the range. Nothing is trained. The advantage of a reply is its
value minus the mean value of the turn's sampled replies.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from sweet.errors import UsageError
from sweet.humans.base import Human
from sweet.humans.connect import open_humans
from sweet.humans.personas import PLAIN
from sweet.judges.base import CRITIC_BATCH, Judged, above_mean
from sweet.judges.control import CreditScorer
from sweet.learn.rows import CandidateTurn
from sweet.llm.base import ChatClient, Reply, RequestFailed
from sweet.render.store import SCREENSHOTS
from sweet.sandbox.program import TierChoice
from sweet.stages.critics import CriticSettings, load_solution_logprob
from sweet.stages.frame import AskedModel, Frame
from sweet.tasks.base import Message, Move, Task, spoken
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import ANSWER_MARKER, PART_MARKER
from sweet.tasks.parts import NOTED, part_of, parts_of, share_of, undelivered
from sweet.tasks.scores import AsyncScorer, ScoringRequest, for_event_loop
from sweet.tasks.trajectory import Trajectory, Turn

if TYPE_CHECKING:
    from sweet.learn.solution_logprob import SolutionLogprob

LEAST, MOST = -1.0, 3.0
"""Bounds of the value of a question; an answer that solves the task is worth `MOST`."""

FAILS = -0.5
"""The value of an answer that fails, at most."""

TOO_LONG = "what the agent would see next is longer than --max-length"


def check_lookahead(kind: TaskKind, tasks: Iterable[Task], *, scripted: bool) -> None:
    """Check that the judge can play and score these tasks.

    Args:
        scripted: the human is the scripted one.

    Raises:
        UsageError: it cannot.
    """
    tasks = list(tasks)
    where, fix = "--judge lookahead", "--judge critic"
    if kind.rewards.solved is None:
        what = f"The judge needs answers that solve a task or do not, and those of the kind {kind.name} are degrees."
        raise UsageError(what, where=where, fix=fix)
    if scripted:
        kind.check_scripted_human(tasks)


@dataclass(frozen=True)
class AskedHuman:
    """The simulated human that the judge asks.

    Attributes:
        model: that plays it; None for the scripted human.
        specified: whether it knows a task by its specification, and not by its code.
        sandbox: the jail in which answers run.
    """

    name: str
    model: AskedModel | None
    specified: bool
    sandbox: TierChoice


_Next = tuple[Message, ...] | float | str
"""What follows a reply: the messages that the agent would see, or the value of an answer, or why there is none."""


class LookaheadJudge:
    """Implements `Judge`.

    Args:
        human: is asked the questions. scorer: of the answers.
        max_turns: messages of the agent to the human that a dialogue has at most.
        concurrency: questions and answers at the same time at most.
    """

    batch_size, max_calls = CRITIC_BATCH, 1

    def __init__(
        self,
        solution_logprob: SolutionLogprob,
        human: Human,
        scorer: AsyncScorer,
        kind: TaskKind,
        max_turns: int,
        concurrency: int,
    ) -> None:
        self.solution_logprob, self.human, self.scorer = solution_logprob, human, scorer
        self.kind, self.max_turns = kind, max_turns
        self._places = asyncio.Semaphore(concurrency)
        self.reader = solution_logprob.reader

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        following = await asyncio.gather(*map(self._following, turns))
        return await asyncio.to_thread(self._judged, turns, following)

    async def _following(self, turn: CandidateTurn) -> list[_Next]:
        """Return what follows each reply of a turn; the same for replies that say the same."""
        last = sum(message.role == "assistant" for message in spoken(turn.observation)) + 1 >= self.max_turns
        moves = [self._move(reply, last) for reply in turn.all_replies]
        distinct = list(dict.fromkeys(moves))
        found = await asyncio.gather(*(self._next(turn, move, place) for place, move in enumerate(distinct)))
        by_move = dict(zip(distinct, found, strict=True))
        return [by_move[move] for move in moves]

    def _move(self, reply: Reply, last: bool) -> Move | None:
        """Return the message to the human; None where the reply calls tools instead."""
        if reply.tool_calls:
            return None
        if reply.is_thought_alone:
            return Move(content="", answer=None, ends=False)
        return self.kind.move(reply.text, last=last)

    async def _next(self, turn: CandidateTurn, move: Move | None, place: int) -> _Next:
        if move is None:
            return "what a call of a tool brings is not known before its result"
        said_before = spoken(turn.observation)
        async with self._places:
            if move.answer is not None:
                answer = self.kind.whole_answer(turn.task, said_before, move.answer)
                return await self._scored(turn, move, place, answer, MOST)
            if (part := part_of(turn.task, move.content)) is not None:
                parts = [*parts_of(turn.task, said_before), part]
                answer = "\n".join(filter(None, [*parts, undelivered(turn.task, parts)]))
                return await self._scored(turn, move, place, answer, MOST * share_of(turn.task, part))
            said = Message(role="assistant", content=move.content)
            try:
                reply = await self.human.reply(turn.task, [*said_before, said])
            except RequestFailed as error:
                return f"the simulated human failed: {error}"
            if reply.fault is not None or not reply.text.strip():
                return f"the simulated human's reply is not usable: {reply.fault or 'empty'}"
            return (*turn.observation, said, Message(role="user", content=reply.text))

    async def _scored(self, turn: CandidateTurn, move: Move, place: int, answer: str, solves: float) -> _Next:
        """Return the value of a reply by the answer that it leads to.

        Args:
            solves: its value if that answer solves the task.
        """
        said = [*spoken(turn.observation), Message(role="assistant", content=move.content)]
        history = tuple(Turn(role=one.role, content=one.content) for one in said)
        name = f"{turn.trajectory_id}/{turn.turn}/{place}"
        score = await self.scorer.submit(Trajectory(id=name, task=turn.task, dialogue_history=history, answer=answer))
        if score.reward is None:
            return f"the task is invalid: {score.detail.get('why', '')}"
        solved = self.kind.rewards.worth(score.reward) >= 1
        return solves if solved else FAILS - (1 - score.reward) / 4

    def _judged(self, turns: Sequence[CandidateTurn], following: Sequence[Sequence[_Next]]) -> list[Judged]:
        wanted: dict[tuple[int, tuple[Message, ...]], list[CandidateTurn]] = {}
        for number, (turn, found) in enumerate(zip(turns, following, strict=True)):
            asked = dict.fromkeys(one for one in found if isinstance(one, tuple))
            for messages in (turn.observation, *asked) if asked else ():
                wanted[number, messages] = _observed(turn, messages)
        values = iter(self.solution_logprob.values([one for parts in wanted.values() for one in parts]))
        potentials = {
            (number, messages): _potential(turns[number].task, list(islice(values, len(parts))))
            for (number, messages), parts in wanted.items()
        }

        def valued(number: int, turn: CandidateTurn, one: _Next) -> float | str:
            if not isinstance(one, tuple):
                return one
            before, after = potentials[number, turn.observation], potentials[number, one]
            return TOO_LONG if before is None or after is None else min(max(after - before, LEAST), MOST)

        return [
            above_mean(turn, "lookahead", [valued(number, turn, one) for one in found])
            for number, (turn, found) in enumerate(zip(turns, following, strict=True))
        ]


def _observed(turn: CandidateTurn, messages: tuple[Message, ...]) -> list[CandidateTurn]:
    """Return what the agent has seen after these messages, with the solution as the reply; of one that is built in
    parts each line that is left, after the parts with those above it."""
    task = turn.task

    def with_reply(text: str) -> CandidateTurn:
        return replace(turn, observation=messages, replies=(Reply(text),), taken=None)

    if not task.part_lines:
        return [with_reply(f"{ANSWER_MARKER}\n{task.ground_truth}")]
    found = []
    for line in undelivered(task, parts_of(task, turn.observation)).split("\n"):
        part = Message(role="assistant", content=f"{PART_MARKER}\n{line}")
        found.append(with_reply(part.content))
        messages = (*messages, part, Message(role="user", content=NOTED))
    return found


def _potential(task: Task, values: Sequence[float | None]) -> float | None:
    """Return the potential from the log-probabilities of what `_observed` returns."""
    least = -MOST if task.part_lines else -math.inf
    known = [max(value, least) for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


@asynccontextmanager
async def open_lookahead(
    frame: Frame,
    human: AskedHuman,
    client: ChatClient | None,
    start: str,
    settings: CriticSettings,
    scorer: CreditScorer,
    concurrency: int,
) -> AsyncIterator[LookaheadJudge]:
    """Open the judge.

    Args:
        client: of the model that plays the human; None for the scripted one.
        start: the model whose likelihood of the solution is read.
        scorer: knows the kind of the tasks, and the turns of a dialogue.
    """
    kind, folder = scorer.kind.with_specifications() if human.specified else scorer.kind, frame.run.path
    request = ScoringRequest(run=folder.absolute(), say=frame.say, sandbox=human.sandbox, device=settings.device)
    async with AsyncExitStack() as stack:
        opening = open_humans(kind, [(client, PLAIN)], folder / SCREENSHOTS, "paper")
        [asked] = await stack.enter_async_context(opening)
        answers = await stack.enter_async_context(for_event_loop(kind.open_scorer(request)))
        solution_logprob = await asyncio.to_thread(load_solution_logprob, start, settings)
        yield LookaheadJudge(solution_logprob, asked, answers, kind, scorer.max_turns, concurrency)
