"""One dialogue: the agent speaks, the human answers, until the agent delivers or its turns are used up.

`play` holds everything that happens between one agent and one human on one task and nothing of how many dialogues
run at once. A dialogue's seed gives every turn its own sampling seed, so a dialogue does not depend on its neighbours.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sweet.humans.base import Human, HumanReply
from sweet.llm.base import ChatClient, Completion, ContextOverflow, RequestFailed, Sampling
from sweet.tasks.base import NO_ANSWER, Message, Move, Recipe, Task, TaskKind, opening
from sweet.tasks.trajectory import Outcome, Trajectory, Turn, Usage

NO_RESPONSE = "No response."
"""What the human says when its server failed, in the published protocol (recipe `upstream`)."""


@dataclass(frozen=True)
class Assignment:
    """Which dialogue to play: (task, sample, seed) is its name."""

    task: Task
    sample: int
    seed: int

    @property
    def id(self) -> str:
        return f"{self.task.id}-s{self.sample}-r{self.seed}"

    def turn_seed(self, turn: int) -> int:
        """31 bits that depend on nothing but the dialogue's name and the turn."""
        name = f"{self.task.id}\0{self.sample}\0{self.seed}\0{turn}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1


@dataclass(frozen=True)
class Rules:
    """How dialogues are played."""

    max_turns: int
    temperature: float
    top_p: float
    max_tokens: int
    recipe: Recipe


class HumanFailed(RequestFailed):
    """The human's server failed for good; the dialogue can be played again."""


async def play(assignment: Assignment, agent: ChatClient, human: Human, kind: TaskKind, rules: Rules) -> Trajectory:
    """Play one dialogue to its end.

    Raises:
        RequestFailed: a server failed this dialogue for good.
        sweet.errors.ServerError: a server could not be reached.
    """
    return await _Dialogue(assignment, agent, human, kind, rules).play()


class _Dialogue:
    def __init__(self, assignment: Assignment, agent: ChatClient, human: Human, kind: TaskKind, rules: Rules) -> None:
        self.assignment, self.agent, self.human, self.kind, self.rules = assignment, agent, human, kind, rules
        self.messages = opening(kind, assignment.task)
        self.turns = [Turn(role="user", content=assignment.task.problem_description)]
        self.began = time.monotonic()
        self.agent_seconds = self.human_seconds = 0.0
        self.prompt_tokens = self.completion_tokens = 0
        self.human_prompt_tokens = self.human_completion_tokens = 0

    async def play(self) -> Trajectory:
        for number in range(self.rules.max_turns):
            last = number == self.rules.max_turns - 1
            try:
                move = await self._agent_turn(number, last)
            except ContextOverflow as error:
                return self._finish("context_overflow", NO_ANSWER, error=str(error))
            if move.ends:
                return self._finish("answered", move.answer)
            if last:
                return self._finish("out_of_turns", move.answer)
            fault = await self._human_turn()
            if fault:
                return self._finish("human_error", NO_ANSWER, error=fault)
        raise AssertionError("unreachable: max_turns is at least 1")

    async def _agent_turn(self, number: int, last: bool) -> Move:
        rules = self.rules
        sampling = Sampling(
            temperature=rules.temperature,
            top_p=rules.top_p,
            max_tokens=rules.max_tokens,
            seed=self.assignment.turn_seed(number),
        )
        asked = time.monotonic()
        completion: Completion = await self.agent.chat(self.messages, sampling)
        self.agent_seconds += time.monotonic() - asked
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        reply = completion.replies[0]
        move = self.kind.move(reply.text, last=last, recipe=rules.recipe)
        self._say(
            Turn(
                role="assistant",
                content=move.content,
                output=reply.text,
                token_ids=reply.token_ids,
                finish_reason=reply.finish_reason,
            )
        )
        return move

    async def _human_turn(self) -> str | None:
        """Let the human answer; what is wrong with the answer, if something is."""
        asked = time.monotonic()
        try:
            reply = await self.human.reply(self.assignment.task, self._dialogue())
        except RequestFailed as error:
            if self.rules.recipe != "upstream":
                raise HumanFailed(f"The simulated human failed: {error.what}", where=error.where) from error
            reply = HumanReply(NO_RESPONSE)
        self.human_seconds += time.monotonic() - asked
        self.human_prompt_tokens += reply.prompt_tokens
        self.human_completion_tokens += reply.completion_tokens
        self._say(Turn(role="user", content=reply.text))
        return None if reply.text.strip() else "the simulated human said nothing"

    def _dialogue(self) -> Sequence[Message]:
        return [message for message in self.messages if message.role != "system"]

    def _say(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.messages.append(Message(role=turn.role, content=turn.content))

    def _finish(self, outcome: Outcome, answer: str | None, error: str | None = None) -> Trajectory:
        return Trajectory(
            id=self.assignment.id,
            task=self.assignment.task,
            dialogue_history=tuple(self.turns),
            answer=NO_ANSWER if answer is None else answer,
            sample=self.assignment.sample,
            seed=self.assignment.seed,
            outcome=outcome,
            error=error,
            usage=Usage(
                prompt_tokens=self.prompt_tokens,
                completion_tokens=self.completion_tokens,
                human_prompt_tokens=self.human_prompt_tokens,
                human_completion_tokens=self.human_completion_tokens,
                agent_seconds=round(self.agent_seconds, 4),
                human_seconds=round(self.human_seconds, 4),
                seconds=round(time.monotonic() - self.began, 4),
            ),
        )
