"""One dialogue: the agent speaks, the human replies, until the agent answers or its turns are used up.

Where the kind offers tools, the agent may call them before each message to the human: a reply with calls is answered by
a turn of the role `tool` for each, and the agent is asked again. The human sees neither these replies nor the results,
and `max_turns` counts the messages to the human.

`Dialogue` holds the state of one agent, one human and one task; it does not depend on how many dialogues run at once.
The seed of a dialogue gives each turn a sampling seed of its own, so a dialogue is independent of the others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sweet.deadline import off_the_clock
from sweet.gathering import Gathering
from sweet.humans.base import Human, HumanReply, ReferenceFailed
from sweet.judges.base import Judged
from sweet.learn.rows import CandidateTurn
from sweet.llm.base import ChatClient, Completion, ContextOverflow, Effort, Reply, RequestFailed, Sampling, seed_of
from sweet.rollouts.steps import Part, Steps
from sweet.stages.tool_calls import REPLIES, final_state, named, opened, result_of
from sweet.tasks.base import NO_ANSWER, Message, Move, ProtocolName, Task, ToolCall, spoken
from sweet.tasks.kind import TaskKind, opening
from sweet.tasks.tools import Toolbox, ToolResult, summed
from sweet.tasks.trajectory import (
    Choice,
    HumanFault,
    Outcome,
    Thoughts,
    Trajectory,
    Turn,
    Usage,
    common_length,
    shared_prompts,
)

NO_RESPONSE = "No response."
"""The human's reply after its server failed, in the published protocol (protocol `upstream`)."""

_SECONDS = ("agent_seconds", "human_seconds", "judge_seconds", "tool_seconds")

_FAULTS: dict[HumanFault, str] = {
    "empty": "the simulated human said nothing",
    "echo": "the simulated human repeated the agent's words",
    "refusal": "the simulated human refused to play",
    "ended": "the simulated human spoke as the one who delivers the answer",
    "leaked": "the simulated human gave the reference away",
    "instructions": "the simulated human repeated its instructions",
    "roles": "the simulated human spoke as the agent",
    "loop": "the simulated human said the same again and again",
}


@dataclass(frozen=True)
class Assignment:
    """A dialogue to play. (task, sample, seed) identifies it; `human` is the name of its human, None where all
    dialogues have the same; a branch begins with the turns of another dialogue before an index of its history."""

    task: Task
    sample: int
    seed: int
    human: str | None = None
    branch: tuple[Trajectory, int] | None = None

    @property
    def id(self) -> str:
        return f"{self.task.id}-s{self.sample}-r{self.seed}"

    def turn_seed(self, turn: int) -> int:
        """Return 31 bits that depend only on the dialogue's id and the turn; of what a branch copies, its seed."""
        if self.branch is not None:
            dialogue, before = self.branch
            copied = [dialogue.dialogue_history[i].sampling_seed for i in dialogue.agent_turns if i < before]
            if turn < len(copied) and (seed := copied[turn]) is not None:
                return seed
        return seed_of(self.task.id, self.sample, self.seed, turn)


def sample_of(name: str, task_id: str) -> int | None:
    """Return the sample in a dialogue's id (`Assignment.id`); None if the id has another form."""
    match = re.fullmatch(r"-s(\d{1,9})-r\d+", name.removeprefix(task_id)) if name.startswith(task_id) else None
    return None if match is None else int(match[1])


@dataclass(frozen=True)
class Rules:
    """The settings of dialogues.

    Attributes:
        best_of: replies that are sampled at each turn of the agent, of which the judge chooses one.
        logprobs: request the log-probabilities of replies in any case; a critic of the protocol upstream uses them.
        max_thought_tokens: after which a thought is ended; they are allowed in addition to `max_tokens`.
        effort: how much the agent is asked to think.
        thoughts: whether the agent reads its earlier thoughts.
        record_logprobs: record the log-probabilities with each turn, as protocol upstream does.
    """

    max_turns: int
    temperature: float
    top_p: float
    max_tokens: int
    protocol: ProtocolName
    token_limit: int | None = None
    best_of: int = 1
    logprobs: bool = False
    max_thought_tokens: int | None = None
    effort: Effort | None = None
    thoughts: Thoughts = "drop"
    record_logprobs: bool = False

    def sampling(self, seed: int) -> Sampling:
        """Return the parameters of the agent's replies at one turn."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens + (self.max_thought_tokens or 0),
            n=self.best_of,
            seed=seed,
            logprobs=self.logprobs or self.protocol == "upstream",  # its ranking uses those of the sampler
            max_thought_tokens=self.max_thought_tokens,
            effort=self.effort,
        )


class HumanFailed(RequestFailed):
    """The human's server failed; the dialogue can be played again."""


def choose(judged: Judged) -> Choice:
    """Return the choice of the candidate with the highest advantage, the first of equal ones.

    Candidates that could not be judged are not chosen, unless all are: then the first one is, which is an ordinary
    sample of the agent.
    """
    basis, replies = judged
    advantages = [None if isinstance(reply, str) else reply.advantage for reply in replies]
    known = [(advantage, -place) for place, advantage in enumerate(advantages) if advantage is not None]
    return Choice(
        index=-max(known)[1] if known else 0,
        advantages=tuple(advantages),
        basis=basis,
        unjudged=next((reply for reply in replies if isinstance(reply, str)), None),
    )


class DialogueStopped(Exception):
    """The dialogue goes on no more, by no fault of its own; it can be played again."""


class Dialogue:
    """One dialogue.

    Args:
        judge: chooses the agent's replies; required if several are sampled.
        is_over: is asked before each turn whether the dialogue is to stop there.
        steps: of an earlier call, which are taken before anyone is asked; the new ones are added.
    """

    def __init__(
        self,
        assignment: Assignment,
        agent: ChatClient,
        human: Human,
        kind: TaskKind,
        rules: Rules,
        judge: Gathering[CandidateTurn, Judged] | None = None,
        is_over: Callable[[], bool] = lambda: False,
        steps: Steps | None = None,
    ) -> None:
        self.is_over, self.steps = is_over, steps or Steps()
        if assignment.branch is not None:
            self.steps.begin(*assignment.branch)
        self.assignment, self.agent, self.human, self.kind, self.rules = assignment, agent, human, kind, rules
        self.judge = judge
        self.messages = opening(kind, assignment.task, rules.max_turns)
        self.answer: str | None = None
        self.turns = [Turn(role="user", content=assignment.task.problem_description)]
        self.prompts: dict[int, tuple[int, ...]] = {}
        self.began = time.monotonic()
        self.usage = Usage()
        self.toolbox: Toolbox | None = None

    async def play(self) -> Trajectory:
        """Play the dialogue to its end.

        Raises:
            RequestFailed: a server failed this dialogue, or its tools did.
            DialogueStopped: `is_over` returned true.
            sweet.errors.ServerError: a server could not be reached.
        """
        async with opened(self.kind, self.assignment.task) as self.toolbox:
            trajectory = await self._play()
            if self.toolbox is None:
                return trajectory
            return trajectory.model_copy(update={"tool_state": await final_state(self.toolbox)})

    async def _play(self) -> Trajectory:
        for number in range(self.rules.max_turns):
            last = number == self.rules.max_turns - 1
            try:
                move = await self._move(last)
            except ContextOverflow as error:
                return self.finish("context_overflow", error=str(error))
            if move is None:
                if self._spent():
                    return self.finish("token_limit", error=f"it used at least {self.rules.token_limit} tokens")
                return self.finish("out_of_turns", error=f"it called tools in {REPLIES} replies one after the other")
            if move.answer is not None:
                self.answer = self.kind.whole_answer(self.assignment.task, self._dialogue()[:-1], move.answer)
            if move.ends:
                return self.finish("answered")
            observation = None
            if self.toolbox is not None and self.toolbox.speaks:
                observation = await self._environment_turn(self.toolbox)
                if observation is None:
                    return self.finish("answered")
            if last:
                return self.finish("out_of_turns")
            if self._spent():
                return self.finish("token_limit", error=f"it used at least {self.rules.token_limit} tokens")
            self._check_goes_on()
            if observation is not None:
                self._say(Turn(role="user", content=observation))
                continue
            try:
                fault = await self._human_turn()
            except ReferenceFailed as error:
                return self.finish("human_error", error=str(error), fault="reference")
            if fault is not None:
                return self.finish("human_error", error=_FAULTS[fault], fault=fault)
        raise AssertionError("unreachable: max_turns is at least 1")

    def _check_goes_on(self) -> None:
        """Raise DialogueStopped if no more may be spent."""
        if self.is_over():
            raise DialogueStopped

    async def _move(self, last: bool) -> Move | None:
        """Return the agent's next message to the human, after the calls that it makes before; None where it makes too
        many, or its tokens are spent."""
        for _ in range(REPLIES + 1):
            self._check_goes_on()
            move = await self._agent_turn(last)
            if isinstance(move, Move):
                return move
            if self._spent():
                return None
            place, results = len(self.turns) - 1, []
            for call in self.turns[place].tool_calls or ():
                self._check_goes_on()
                results.append(await self._call(call, move))
            rewards = summed(result.rewards for result in results) or None
            self.turns[place] = self.turns[place].model_copy(update={"rewards": rewards})
        return None

    async def _call(self, call: ToolCall, calls: int) -> ToolResult:
        """Make one of the `calls` of the agent's last reply."""
        toolbox = self.toolbox
        assert toolbox is not None

        async def made() -> ToolResult:
            with off_the_clock():  # a call has a limit of its own
                return await result_of(toolbox, call, calls)

        result: ToolResult = await self._step("result", "tool_seconds", made, again=True)
        self._count(tool_calls=1, tool_errors=int(result.is_error))
        self._say(Turn(role="tool", content=result.content, tool_call_id=call.id, is_error=result.is_error or None))
        return result

    async def _agent_turn(self, last: bool) -> Move | int:
        """Let the agent reply. Return its message to the human, or the number of calls that it makes instead."""
        rules, replied = self.rules, sum(turn.role == "assistant" for turn in self.turns)
        tools = () if self.toolbox is None else tuple(self.toolbox.tools)
        sampling = replace(rules.sampling(self.assignment.turn_seed(replied)), tools=tools)
        request = partial(self.agent.chat, self.messages, sampling)
        completion: Completion = await self._step("completion", "agent_seconds", request)
        self._count(
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            thought_tokens=completion.thought_tokens,
            agent_retries=completion.retries,
        )
        choice = None if self.judge is None else await self._choose(self.judge, completion.replies)
        reply = completion.replies[0 if choice is None else choice.index]
        calls = reply.tool_calls if tools else None
        if calls:
            move = Move(content=reply.text, answer=None, ends=False)
        elif reply.is_thought_alone:  # there is no reply, so there is nothing to read and no answer
            move = Move(content="", answer=None, ends=False)
            self._count(unfinished_thoughts=1)
        else:
            move = self.kind.move(reply.text, last=last, protocol=rules.protocol)
        if completion.prompt_token_ids is not None:
            self.prompts[len(self.turns)] = completion.prompt_token_ids
        self._say(
            Turn(
                role="assistant",
                content=move.content,
                output=reply.text,
                thought=reply.thought,
                thought_tokens=reply.thought_tokens,
                token_ids=reply.token_ids,
                logprobs=reply.logprobs if rules.record_logprobs or rules.protocol == "upstream" else None,
                finish_reason=reply.finish_reason,
                sampling_seed=sampling.seed,
                choice=choice,
                tool_calls=named(calls, self.turns) if calls else None,
            )
        )
        return len(calls) if calls else move

    async def _choose(self, judge: Gathering[CandidateTurn, Judged], replies: Sequence[Reply]) -> Choice:
        """Choose among the candidates at this turn. The dialogue's deadline does not count the waiting."""
        assignment, place = self.assignment, len(self.turns)
        seen, tools = tuple(self.messages), None if self.toolbox is None else tuple(self.toolbox.tools)
        turn = CandidateTurn(assignment.id, assignment.task, place, seen, tuple(replies), tools=tools)

        async def chosen() -> Choice:
            with off_the_clock():
                return choose(await judge.submit(turn))

        choice: Choice = await self._step("choice", "judge_seconds", chosen)
        return choice

    async def _ask_human(self) -> HumanReply:
        try:
            return await self.human.reply(self.assignment.task, self._dialogue())
        except RequestFailed as error:
            if self.rules.protocol == "upstream":
                return HumanReply(NO_RESPONSE)
            if isinstance(error, ReferenceFailed):
                raise
            failed = HumanFailed(f"The simulated human failed: {error.what}", where=error.where)
            failed.is_refusal = error.is_refusal
            raise failed from error

    async def _human_turn(self) -> HumanFault | None:
        """Let the human reply. Return the fault of the reply; None without one, or if the protocol ignores faults."""
        reply: HumanReply = await self._step("reply", "human_seconds", self._ask_human)
        self._count(
            human_prompt_tokens=reply.prompt_tokens,
            human_completion_tokens=reply.completion_tokens,
            human_retries=reply.retries,
        )
        fault = reply.fault if reply.text.strip() else "empty"
        self._say(Turn(role="user", content=reply.text, fault=fault, withheld=reply.withheld or None))
        return None if self.rules.protocol == "upstream" else fault

    async def _environment_turn(self, toolbox: Toolbox) -> str | None:
        """Return what a toolbox that speaks answers; None where the dialogue has ended."""

        async def answered() -> HumanReply:
            with off_the_clock():
                text = await toolbox.reply(self.messages)
            return HumanReply(text or "", ended=text is None)

        reply: HumanReply = await self._step("reply", "human_seconds", answered, again=True)
        return None if reply.ended else reply.text

    async def _step(self, part: Part, clock: str, ask: Callable[[], Awaitable[Any]], *, again: bool = False) -> Any:
        """Take the next step (`Steps.take`); count the seconds for which it was waited, also in an earlier call."""
        started = time.monotonic()
        try:
            step = await self.steps.take(part, ask, again=again)
        except BaseException:
            self._count(**{clock: time.monotonic() - started})
            raise
        self._count(**{clock: step.seconds})
        self.began -= max(step.seconds - (time.monotonic() - started), 0.0)
        return getattr(step, part)

    def _count(self, **more: float) -> None:
        sums = {name: (getattr(self.usage, name) or 0) + by for name, by in more.items()}
        self.usage = self.usage.model_copy(update=sums)

    def _spent(self) -> bool:
        usage, limit = self.usage, self.rules.token_limit
        agent, human = usage.prompt_tokens + usage.completion_tokens, usage.human_prompt_tokens
        return limit is not None and agent + human + usage.human_completion_tokens >= limit

    def _dialogue(self) -> Sequence[Message]:
        """Return what both sides have said to each other. The human sees no thoughts, no calls and no results."""
        return spoken(self.messages)

    def _say(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.messages.append(turn.message(thought=self.rules.thoughts == "keep"))

    @property
    def versions(self) -> list[list[int]]:
        """The versions of the weights that sampled the agent's turns so far, of the one row."""
        return [[step.completion.version or 0 for step in self.steps.recorded if step.completion is not None]]

    def record(self) -> dict[str, Any]:
        """Return the dialogue so far, for the log of failed dialogues."""
        return {
            "dialogue": self.assignment.id,
            "task_id": self.assignment.task.id,
            "usage": self._usage().model_dump(exclude_defaults=True),
            "dialogue_history": [turn.model_dump(mode="json", exclude_none=True) for turn in self.turns],
        }

    def _usage(self) -> Usage:
        seconds = {name: round(counted, 4) for name in _SECONDS if (counted := getattr(self.usage, name)) is not None}
        return self.usage.model_copy(update={**seconds, "seconds": round(time.monotonic() - self.began, 4)})

    def finish(self, outcome: Outcome, error: str | None = None, fault: HumanFault | None = None) -> Trajectory:
        """Return the record of the dialogue so far, ended by `outcome`."""
        return Trajectory(
            id=self.assignment.id,
            task=self.assignment.task,
            dialogue_history=shared_prompts(self.turns, self.prompts),
            answer=NO_ANSWER if self.answer is None else self.answer,
            sample=self.assignment.sample,
            seed=self.assignment.seed,
            outcome=outcome,
            fault=fault,
            error=error,
            usage=self._usage(),
            human=self.assignment.human,
            thoughts="keep" if self.rules.thoughts == "keep" else None,
            tools=None if self.toolbox is None else tuple(self.toolbox.tools),
            branched=self._branched(),
        )

    def _branched(self) -> tuple[str, int] | None:
        """Return whose turns these begin with, and how many they are: fewer than those that were to be copied, where a
        tool returned something else."""
        if self.assignment.branch is None:
            return None
        other, before = self.assignment.branch
        entries = ([(turn.content, turn.token_ids) for turn in turns] for turns in (self.turns, other.dialogue_history))
        return other.id, min(before, common_length(*entries))
