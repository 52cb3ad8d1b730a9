"""A session: the calls of one program on one task, as a tree whose paths become rows of the rollouts.

A call whose messages extend what another call read and was answered goes on with it: both are turns of one trajectory.
Any other call begins a branch, a trajectory of its own whose messages are all context. So a message that the program
edits or drops changes no earlier row, each reply is a sampled turn of exactly one row, and a message in the name of the
agent that was not sampled here, or was sampled in another row, is context (`Turn.given`), from which nothing is
learned. What was read before each reply is recorded as ids where the model's engine reports them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from sweet.deadline import restart_clock
from sweet.errors import ServerError
from sweet.llm.base import SAMPLED, Completion, seed_of
from sweet.rollouts.steps import Asked, Posted, Step, Steps
from sweet.tasks.base import NO_ANSWER, Message, Rewards, Task, Tool
from sweet.tasks.kind import TaskKind
from sweet.tasks.trajectory import HumanFault, Outcome, Trajectory, Turn, Usage, shared_prompts

NO_REFERENCE = "No reference"
"""The reference of a task that a program made up and gave none for."""


def _compared(message: Message) -> tuple[Any, ...]:
    """Return what two messages must have in common to be the same: programs write arguments of calls anew."""
    calls = []
    for call in message.tool_calls or ():
        arguments: Any = call.arguments
        with suppress(ValueError, RecursionError):
            arguments = json.loads(call.arguments)
        calls.append((call.id, call.name, json.dumps(arguments, sort_keys=True)))
    return message.role, message.content.strip(), tuple(calls), message.tool_call_id


@dataclass
class Branch:
    """One path of the tree.

    Attributes:
        seen: what the messages of a call must begin with to extend it.
        prompts: the ids that were read before the sampled turns, by index.
        calls: indices of the sampled turns, by the number of their call in the session.
        versions: of the weights that sampled them.
    """

    system: str = ""
    tools: tuple[Tool, ...] = ()
    turns: list[Turn] = field(default_factory=list)
    seen: list[tuple[Any, ...]] = field(default_factory=list)
    prompts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)

    def add(self, number: int, new: Sequence[Message], asked: Asked, done: Completion) -> None:
        """Add the messages that are new in a call, and its reply. A later system message is one of the user."""
        [reply], reads = done.replies, {"tool_calls", "tool_call_id", "content"}
        for message in new:
            role = "user" if message.role == "system" else message.role
            is_given = True if role == "assistant" else None
            self.turns.append(Turn(role=role, given=is_given, **{name: getattr(message, name) for name in reads}))
        self.calls[number] = place = len(self.turns)
        self.versions.append(done.version or 0)
        if done.prompt_token_ids is not None:
            self.prompts[place] = done.prompt_token_ids
        fields = {name: getattr(reply, name) for name in (*SAMPLED, "finish_reason")}
        turn = Turn(role="assistant", content=reply.text, output=reply.text, sampling_seed=asked.seed, **fields)
        self.turns.append(turn)
        self.seen = [*map(_compared, asked.messages), _compared(turn.message(thought=False))]


class Session:
    """A session under way.

    Attributes:
        refused: how the session ends because the gateway refused a call of it, with the reason; None if it has not.
        away: the error of the last call, if a server could not be reached. cut: whether the last reply was cut.
        under_way: calls of the agent that are being answered. waiting: those of the human. asking: held while it is
            asked. context: of the dialogue, which has the deadline; calls run in it. posted_bytes: of what was posted.
        responses: the messages up to each response, by its id (`sweet.llm.responses`).
        is_over: is asked before each call whether the session is to stop there. stopped: whether a call was refused so.

    Args:
        name: in its address and key. steps: those so far; new ones are recorded there.
        task: that it was begun on; None where the program may name one.
        id: of its first row; default: the name.
        human: the name of its human, where there are several.
    """

    def __init__(
        self, name: str, steps: Steps, task: Task | None = None, id: str | None = None, human: str | None = None
    ) -> None:
        self.name, self.id, self.task, self.human, self._steps = name, id or name, task, human, steps
        self.said: list[Message] = []
        self.replied: list[Turn] = []
        self.calls = self.under_way = self.waiting = self.posted_bytes = 0
        self.ended = self.stopped = self.cut = False
        self.answer: str | None = None
        self.reward: float | None = None
        self.fault: HumanFault | None = None
        self.refused: tuple[Outcome, str | None] | None = None
        self.away: ServerError | None = None
        self.responses: dict[str, list[dict[str, Any]]] = {}
        self.asking = asyncio.Lock()
        self.context: Context | None = None
        self.is_over: Callable[[], bool] = lambda: False
        self.usage = Usage()
        self._branches: list[Branch] = []
        self._rewards: dict[int, Rewards] = {}
        self._began = time.monotonic()
        for step in steps.recorded:
            self._apply(step)

    def record(self, **parts: Any) -> None:
        """Record a step, and apply it."""
        self._apply(self._steps.add(**parts))
        if "asked" in parts:
            restart_clock()

    def sampling_seed(self, seed: int, number: int) -> int:
        """Return 31 bits that depend only on a seed, the session and the number of its call."""
        return seed_of(seed, self.id, number)

    def _apply(self, step: Step) -> None:
        if step.posted is not None:
            self._post(step.posted)
        if step.asked is None:
            return
        human = step.reply is not None
        counts: Any = step.reply or step.completion
        tokens, other = ("human_", "human_") if human else ("", "agent_")
        used = {f"{tokens}{name}": getattr(counts, name) for name in ("prompt_tokens", "completion_tokens")}
        used |= {f"{other}retries": counts.retries, f"{other}seconds": step.seconds}
        used |= {} if human else {"thought_tokens": counts.thought_tokens}
        self.usage = self.usage.model_copy(update={name: getattr(self.usage, name) + by for name, by in used.items()})
        if step.completion is not None:
            self._call(step.asked, step.completion)
        elif (reply := step.reply) is not None:
            self.said += [step.asked.messages[-1], Message(role="user", content=reply.text)]
            withheld = reply.withheld or None
            self.replied.append(Turn(role="user", content=reply.text, fault=reply.fault, withheld=withheld))
            self.fault = self.fault or reply.fault

    def _post(self, posted: Posted) -> None:
        if isinstance(posted.task, Task):
            self.task = posted.task
        self.answer = self.answer if posted.answer is None else posted.answer
        self.reward = self.reward if posted.reward is None else posted.reward
        for call, row in posted.turn_rewards.items():
            self._rewards[call] = {**self._rewards.get(call, {}), **row}
        self.ended = self.ended or posted.end

    def _call(self, asked: Asked, done: Completion) -> None:
        rows = [_compared(message) for message in asked.messages]
        same_tools = (branch for branch in self._branches if branch.tools == asked.tools)
        prefixes = (branch for branch in same_tools if rows[: len(branch.seen)] == branch.seen)
        branch = max(prefixes, key=lambda branch: len(branch.seen), default=None)
        if branch is None or len(branch.seen) == len(rows):
            start = next((n for n, message in enumerate(asked.messages) if message.role != "system"), len(rows))
            branch = Branch("\n\n".join(message.content for message in asked.messages[:start]), asked.tools)
            self._branches.append(branch)
        else:
            start = len(branch.seen)
        branch.add(self.calls, asked.messages[start:], asked, done)
        self.calls += 1
        self.cut = done.replies[0].finish_reason == "length"

    @property
    def versions(self) -> list[list[int]]:
        """The versions of the weights that sampled the agent's turns, for each row of `trajectories`."""
        return [branch.versions for branch in self._branches] or [[]]

    def verdict(self) -> dict[str, Any]:
        """Return what is known of the session, without hidden information, and without what its human said."""
        turns = [{"fault": turn.fault, "withheld": list(turn.withheld or ())} for turn in self.replied]
        leaked = sum((turn.fault, *(turn.withheld or ())).count("leaked") for turn in self.replied)
        return {
            "session": self.name,
            "task": None if self.task is None else self.task.id,
            "calls": self.calls,
            "branches": len(self._branches),
            "human": {"turns": turns, "fault": self.fault, "leaked": leaked},
            "ended": self.ended,
        }

    def trajectories(self, kind: TaskKind, sample: int = 0, seed: int | None = None) -> list[Trajectory]:
        """Return the rows of the session: the first one, then its branches. All have its task, answer and reward."""
        branches = self._branches or [Branch()]
        user_texts = [turn.content for turn in branches[0].turns if turn.role == "user" and turn.content]
        request = user_texts[0] if user_texts else self.name
        task = self.task or Task(id=self.name, problem_description=request, ground_truth=NO_REFERENCE)
        answer, ending = self.answer, self.refused or ("answered", None)
        if answer is not None:
            ending = "answered", None
        elif self.calls:  # the last reply delivers it, as in a rollout
            last = next(branch for branch in branches if self.calls - 1 in branch.calls)
            answer = kind.move(last.turns[last.calls[self.calls - 1]].said, last=True).answer
        if self.fault is not None:
            ending = "human_error", "the simulated human failed"
        usage = self.usage.model_copy(update={"seconds": round(time.monotonic() - self._began, 4)})
        rows = []
        for number, branch in enumerate(branches):
            turns = branch.turns or [Turn(role="user", content=task.problem_description)]
            row = Trajectory(
                id=self.id if number == 0 else f"{self.id}~{number}",
                task=task,
                dialogue_history=shared_prompts([self._of_human(turn) for turn in turns], branch.prompts),
                answer=NO_ANSWER if answer is None else answer,
                reward=self.reward,
                sample=sample,
                seed=seed,
                outcome=ending[0],
                fault=self.fault,
                error=ending[1],
                usage=usage if number == 0 else Usage(),
                human=self.human,
                agent_system=branch.system,
                tools=branch.tools or None,
                session=self.id if number else None,
            )
            by_turn = {branch.calls[call]: rewards for call, rewards in self._rewards.items() if call in branch.calls}
            rows.append(row.with_rewards(by_turn))
        return rows

    def _of_human(self, turn: Turn) -> Turn:
        """Return a turn of the user, if it is a reply of the human, with the faults of the replies that it withheld."""
        reply = next((reply for reply in self.replied if turn.role == "user" and reply.content == turn.content), None)
        return turn if reply is None else turn.model_copy(update={"withheld": reply.withheld, "fault": reply.fault})
