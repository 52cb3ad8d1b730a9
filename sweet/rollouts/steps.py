"""What was said in dialogues that are not finished, so that they go on at their turn after a stop, a failure or a kill.

A step is what a dialogue waits for: the agent's completion, the choice among its replies, the result of a call of a
tool, or the human's reply, with all that it carries; in a session of the gateway also what a program asked and posted.
It is recorded as soon as it has come, as a line of a hidden file beside the rows of the artifact,
`rollouts/.rollouts-1.steps`. A dialogue that is begun again takes its recorded steps in their order, and then asks. All
else in it follows from its steps, so it becomes what it would have been, nobody is asked twice, and no token is counted
twice. Only calls of tools are made again, so that the tools have their state; where one returns something else than was
recorded, as a server of tools may that keeps its state elsewhere, the dialogue goes on from there. A ranking records
the completion of each turn that is not judged yet, under the name of the turn.

The file also has the steps of what was finished since it was written, until it has grown by `GROWTH`. It is removed
when nothing in it is unfinished.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Container
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from sweet.deadline import restart_clock
from sweet.files import replaced
from sweet.humans.base import HumanReply
from sweet.llm.base import Completion, Reply
from sweet.regular import place_of
from sweet.runs.damage import whole_rows
from sweet.runs.jsonl import JsonlWriter, encode
from sweet.tasks.base import Message, Task, Tool, TurnRewards
from sweet.tasks.tools import ToolResult
from sweet.tasks.trajectory import Choice, Trajectory

GROWTH = 1 << 28
"""Bytes by which the file grows before it is written anew."""

Part = Literal["completion", "choice", "result", "reply"]


class Asked(BaseModel):
    """What another program asked for: the messages and tools that it sent, and the seed of the reply."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    seed: int | None = None


class Posted(BaseModel):
    """What another program says about its session: its task, or the id of one of the dataset; what is delivered; the
    reward of the whole; those of the agent's replies, by the number of the reply from 0; whether the session is over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str | Task | None = None
    answer: str | None = Field(default=None, max_length=1 << 20)
    reward: float | None = Field(default=None, ge=-1e6, le=1e6, allow_inf_nan=False)
    turn_rewards: TurnRewards = {}
    end: bool = False


class Step(BaseModel):
    """One step; one of `completion`, `choice`, `result`, `reply` and `posted` is given.

    Attributes:
        name: of its dialogue or turn. place: of the step in it, from 0.
        typed: what a person typed for it. asked: what another program asked for it.
        seconds: for which it was waited.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    place: int = Field(default=0, ge=0)
    completion: Completion | None = None
    choice: Choice | None = None
    result: ToolResult | None = None
    reply: HumanReply | None = None
    typed: str | None = None
    asked: Asked | None = None
    posted: Posted | None = None
    seconds: float = Field(default=0.0, ge=0)


class Steps:
    """The steps of one dialogue, and how many of them it has taken.

    Args:
        recorded: those so far; new ones are added to it.
        added: called with each new one.
        name: of the dialogue.
    """

    def __init__(
        self, recorded: list[Step] | None = None, added: Callable[[Step], None] = lambda _: None, name: str = ""
    ) -> None:
        self.recorded = [] if recorded is None else recorded
        self._added, self._name, self._taken = added, name, 0

    def begin(self, dialogue: Trajectory, before: int) -> None:
        """Record what was said in another dialogue before an index of its history, unless steps are recorded already.

        Its tokens are not counted again.
        """
        if self.recorded:
            return
        versions = iter((dialogue.model_extra or {}).get("versions", ()))
        for index, turn in enumerate(dialogue.dialogue_history[1:before], 1):
            step: dict[str, Any] = {"reply": HumanReply(turn.content, fault=turn.fault, withheld=turn.withheld or ())}
            if turn.role == "tool":
                step = {"result": ToolResult(content=turn.content, is_error=bool(turn.is_error))}
            elif turn.role == "assistant":
                ids, version = dialogue.prompt_ids(index), next(versions, None)
                completion = Completion((Reply.of(turn),), 0, 0, "", prompt_token_ids=ids, version=version)
                step = {"completion": completion}
            self.add(**step)

    async def take(self, part: Part, ask: Callable[[], Awaitable[Any]], *, again: bool = False) -> Step:
        """Return the next recorded step; without one, ask, and record it. Steps that do not fit are forgotten.

        Args:
            again: ask also where it is recorded, and forget the step and those after it if something else comes.
        """
        started, result = time.monotonic(), cast("Any", None)
        recorded = getattr(self.recorded[self._taken], part) if self._taken < len(self.recorded) else None
        if recorded is None or again:
            result = await ask()
        same = recorded is not None and (not again or _unrewarded(result) == _unrewarded(recorded))
        if same and again:
            self.recorded[self._taken] = self.recorded[self._taken].model_copy(update={part: result})
        if not same:
            del self.recorded[self._taken :]
            self.add(seconds=time.monotonic() - started, **{part: result})
            restart_clock()
        self._taken += 1
        return self.recorded[self._taken - 1]

    def add(self, **parts: Any) -> Step:
        """Record another step."""
        step = Step(name=self._name, place=len(self.recorded), **parts)
        self.recorded.append(step)
        self._added(step)
        return step


class StepsFile(JsonlWriter):
    """The steps of the unfinished dialogues or turns of an artifact of rows, in memory and on the disk.

    Args:
        rows: the file of the artifact.
        finished: the names of what its rows have.
    """

    def __init__(self, rows: Path, finished: Container[str]) -> None:
        self.path = rows.with_name(f".{rows.stem}.steps")
        self.under_way: dict[str, list[Step]] = {}
        for step in whole_rows(self.path, Step) if self.path.exists() else ():
            before = self.under_way.setdefault(step.name, [])
            if step.name not in finished and step.place <= len(before):  # a loss of power may take steps before it
                before[step.place :] = [step]
        self.under_way = {name: steps for name, steps in self.under_way.items() if steps}
        self._write_anew()

    def of(self, name: str) -> Steps:
        """Return the steps of a dialogue or a turn, from the first."""
        recorded = self.under_way.get(name, [])

        def added(step: Step) -> None:
            self.under_way[name] = recorded
            self.write(_row(step))

        return Steps(recorded, added, name)

    def forget(self, name: str) -> None:
        """Forget the steps of what has been finished."""
        if self.under_way.pop(name, None) is not None and self.path.stat().st_size > self._most:
            super().close()
            self._write_anew()

    def _write_anew(self) -> None:
        with replaced(self.path, make_folders=True, alone=True) as file:
            file.writelines(encode(_row(step)) + b"\n" for steps in self.under_way.values() for step in steps)
        super().__init__(self.path)
        self._most = self.path.stat().st_size + GROWTH

    def close(self) -> None:
        """Close the file; remove it if nothing is under way."""
        super().close()
        if not self.under_way:
            with place_of(self.path) as place:
                place.unlink()


def _unrewarded(result: Any) -> Any:
    """Return what a step has without the rewards of a result, which are not in what a branch copies."""
    return result.model_copy(update={"rewards": None}) if isinstance(result, ToolResult) else result


def _row(step: Step) -> dict[str, Any]:
    return step.model_dump(mode="json", exclude_none=True)
