"""The judge `lookahead`: what a reply is worth shows in what comes next.

It looks one step ahead. A reply that asks is put to the simulated human, and judged by what the human's reply tells of
the solution: how much likelier the agent's own model makes the reference solution, having read it
(`sweet.learn.solution_logprob`). A reply that answers is judged by its reward, as `sweet eval` computes it.

    asks      Phi(o') - Phi(o), in nats, at least -1 and at most 3; o' is o with the reply and the human's reply
    solves    3
    fails     -1/2 - (1 - reward) / 4: below a question that brings nothing

Where the reference has several steps (`TaskKind.reference_from`), the solution is those that are left: the lines of an
answer in parts (`sweet.tasks.parts`) that are not delivered yet, each as a part; or, with tools, the calls that the
reference makes, each with its result, and its last message. The potential is the sum of their log-probabilities, of
which each is at least -3: a step that the agent does not know is so unlikely that it would hide what the others say. A
part is judged by the answer that those lines would make of it: if that solves the task, the part is worth 3 times its
lines over those of the reference, else what an answer that fails is worth. Calls are made, and judged as a question;
but those after which the reference no longer solves the task, as an answer that fails.

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
from sweet.json_value import JsonValue
from sweet.judges.base import CRITIC_BATCH, Judged, above_mean
from sweet.judges.control import CreditScorer
from sweet.learn.rows import CandidateTurn
from sweet.llm.base import ChatClient, Reply, RequestFailed
from sweet.render.store import SCREENSHOTS
from sweet.sandbox.program import TierChoice
from sweet.stages.critics import CriticSettings, load_solution_logprob
from sweet.stages.frame import AskedModel, Frame
from sweet.stages.tool_calls import final_state, opened, with_results
from sweet.tasks.base import Message, Move, Task, is_last_turn, spoken
from sweet.tasks.kind import TaskKind
from sweet.tasks.parts import part_of, share_of
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


@dataclass(frozen=True, eq=False)
class _Ahead:
    """A dialogue that goes on as the reference does.

    Attributes:
        turn: that is judged.
        messages: of the dialogue, with the results of its calls.
        start: the index of the first of the reference's messages.
        state: of the tools in the end.
    """

    turn: CandidateTurn
    messages: tuple[Message, ...]
    start: int
    state: JsonValue

    @property
    def steps(self) -> list[CandidateTurn]:
        """Each of the reference's messages as the reply to what the agent has seen by then."""
        steps = []
        for index, message in enumerate(self.messages[self.start :], self.start):
            if message.role == "assistant":
                reply = Reply(message.content, tool_calls=message.tool_calls)
                steps.append(replace(self.turn, observation=self.messages[:index], replies=(reply,), taken=None))
        return steps

    def potential(self, values: Sequence[float | None]) -> float | None:
        """Return the potential from the log-probabilities of the steps; None where one of them is not known."""
        min_value = -MOST if self.turn.task.part_lines or self.turn.tools else -math.inf
        bounded = [max(value, min_value) for value in values if value is not None]
        return sum(bounded) if len(bounded) == len(values) else None


_Outcome = tuple[_Ahead, _Ahead] | float | str
"""What follows a reply: what the agent had seen and what it sees next, each with the reference after it; or the reply's
value, or why it has none."""


class LookaheadJudge:
    """Implements `Judge`.

    Args:
        human: is asked the questions. scorer: of the answers.
        max_turns: messages of the agent to the human that a dialogue has at most.
        concurrency: questions and answers at the same time at most.
        asks_model: a model plays the human. Each turn is then finished by itself, and no more turns are begun than keep
            it busy: at an interrupt, or the limit of the cost, little is asked in vain.
    """

    def __init__(
        self,
        solution_logprob: SolutionLogprob,
        human: Human,
        scorer: AsyncScorer,
        kind: TaskKind,
        max_turns: int,
        concurrency: int,
        *,
        asks_model: bool,
    ) -> None:
        self.batch_size, self.max_calls = (1, 1 + concurrency // CRITIC_BATCH) if asks_model else (CRITIC_BATCH, 1)
        self.solution_logprob, self.human, self.scorer = solution_logprob, human, scorer
        self.kind, self.max_turns = kind, max_turns
        self._places, self._computing = asyncio.Semaphore(concurrency), asyncio.Lock()
        self.reader = solution_logprob.reader

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        following = await asyncio.gather(*map(self._outcomes, turns))
        async with self._computing:
            return await asyncio.to_thread(self._judge_outcomes, turns, following)

    async def _outcomes(self, turn: CandidateTurn) -> list[_Outcome]:
        """Return what follows each reply; the same for replies that say the same."""
        last = is_last_turn(turn.observation, self.max_turns)
        moves = [self._move(reply, last) for reply in turn.all_replies]
        distinct = list(dict.fromkeys(moves))
        try:
            current = await self._continue(turn, turn.observation)
        except RequestFailed as error:  # of the tools
            return [str(error)] * len(moves)
        calls = any(isinstance(move, Message) for move in distinct)
        solvable = calls and await self._value(current, len(distinct), MOST) == MOST
        outcomes = await asyncio.gather(*(self._outcome(current, solvable, i, move) for i, move in enumerate(distinct)))
        by_move = dict(zip(distinct, outcomes, strict=True))
        return [by_move[move] for move in moves]

    def _move(self, reply: Reply, last: bool) -> Move | Message:
        """Return the message to the human, or the one that calls tools."""
        if reply.tool_calls:
            calls = tuple(call.model_copy(update={"id": ""}) for call in reply.tool_calls)
            return Message(role="assistant", content=reply.text, tool_calls=calls)
        if reply.is_thought_alone:
            return Move(content="", answer=None, ends=False)
        return self.kind.move(reply.text, last=last)

    async def _outcome(self, current: _Ahead, solvable: bool, place: int, move: Move | Message) -> _Outcome:
        turn = current.turn
        message = move if isinstance(move, Message) else Message(role="assistant", content=move.content)
        messages = [*turn.observation, message]
        try:
            if isinstance(move, Message):
                following = await self._continue(turn, messages)
                value = await self._value(following, place, MOST)
                return value if solvable and value != MOST else (current, following)
            if move.answer is not None:
                return await self._value(await self._continue(turn, messages, ended=True), place, MOST)
            if (part := part_of(turn.task, move.content)) is not None:
                return await self._value(await self._continue(turn, messages), place, MOST * share_of(turn.task, part))
            async with self._places:
                reply = await self.human.reply(turn.task, spoken(messages))
            if reply.fault is not None or not reply.text.strip():
                return f"the simulated human's reply is not usable: {reply.fault or 'empty'}"
            return current, await self._continue(turn, [*messages, Message(role="user", content=reply.text)])
        except RequestFailed as error:
            return f"what follows is not known: {error}"

    async def _continue(self, turn: CandidateTurn, messages: Sequence[Message], *, ended: bool = False) -> _Ahead:
        """Return a dialogue with what the reference does after it, unless it has ended. Its calls are made on tools of
        its own.

        Raises:
            RequestFailed: the tools cannot be used.
        """
        async with self._places, opened(self.kind, turn.task) as toolbox:
            history = await with_results(toolbox, messages)
            reference = [] if ended else self.kind.reference_from(turn.task, history)
            all_messages = await with_results(toolbox, reference, history)
            state = None if toolbox is None else await final_state(toolbox)
        return _Ahead(turn, tuple(all_messages), len(history), state)

    async def _value(self, ahead: _Ahead, place: int, solves: float) -> float | str:
        """Return the value of a reply by the answer that it leads to.

        Args:
            solves: its value if that answer solves the task.
        """
        turn, messages = ahead.turn, [message for message in ahead.messages if message.role != "system"]
        move = self.kind.move(messages[-1].content, last=True)
        answer = self.kind.whole_answer(turn.task, spoken(messages[:-1]), move.answer or "")
        history = [Turn.model_validate(message.model_dump()) for message in messages]
        ended = Trajectory(
            id=f"{turn.trajectory_id}/{turn.turn}/{place}",
            task=turn.task,
            dialogue_history=tuple(history),
            answer=answer,
            tool_state=ahead.state,
        )
        score = await self.scorer.submit(ended)
        if score.reward is None:
            return f"the task is invalid: {score.detail.get('why', '')}"
        solved = self.kind.rewards.worth(score.reward) >= 1
        return solves if solved else FAILS - (1 - score.reward) / 4

    def _judge_outcomes(self, turns: Sequence[CandidateTurn], following: Sequence[Sequence[_Outcome]]) -> list[Judged]:
        pairs = [outcome for outcomes in following for outcome in outcomes if isinstance(outcome, tuple)]
        steps = {ahead: ahead.steps for pair in pairs for ahead in pair}
        values = iter(self.solution_logprob.values([step for ahead in steps for step in steps[ahead]]))
        potentials = {ahead: ahead.potential(list(islice(values, len(steps[ahead])))) for ahead in steps}

        def value_of(outcome: _Outcome) -> float | str:
            if not isinstance(outcome, tuple):
                return outcome
            before, after = (potentials[ahead] for ahead in outcome)
            return TOO_LONG if before is None or after is None else min(max(after - before, LEAST), MOST)

        return [
            above_mean(turn, "lookahead", [value_of(outcome) for outcome in outcomes])
            for turn, outcomes in zip(turns, following, strict=True)
        ]


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
        [simulated_human] = await stack.enter_async_context(opening)
        answers = await stack.enter_async_context(for_event_loop(kind.open_scorer(request)))
        solution_logprob = await asyncio.to_thread(load_solution_logprob, start, settings)
        limits = {"max_turns": scorer.max_turns, "concurrency": concurrency}
        yield LookaheadJudge(solution_logprob, simulated_human, answers, kind, **limits, asks_model=client is not None)
