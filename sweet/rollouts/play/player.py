"""Plays dialogues with a person, one after the other.

A dialogue runs as a task (`Dialogue.play`) whose sides record their steps. Meanwhile the player takes the person's
actions: a text is given to the side that waits for it; undoing, skipping and leaving end the task. To undo, the record
is cut before the person's last step, and the dialogue is begun again from the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sweet.errors import SweetError, for_command_line
from sweet.humans.base import Human, ReferenceFailed
from sweet.humans.faults import leak_of
from sweet.llm.base import ChatClient
from sweet.render.renderer import Renderer
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.rollouts.play.saved import Saved
from sweet.rollouts.play.seat import (
    Action,
    Actions,
    Again,
    Interface,
    Leave,
    Next,
    Say,
    Situation,
    Skip,
    State,
    Table,
    Undo,
)
from sweet.rollouts.play.sides import Record, RecordedAgent, RecordedHuman, Typed, Waiting
from sweet.rollouts.play.typed import agent_output, cleaned, length_fault
from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import Trajectory

_LEAKS = "This looks like code of the reference, which the agent is to find by asking. Send it again to send it anyway."


class Left(Exception):
    """The person stopped playing."""


@dataclass
class Player:
    """Plays dialogues with a person.

    Attributes:
        saved: the dialogue under way.
        agent, humans: the other side, humans by their names in assignments; None and empty for the person's own one.
        renderer: renders pages for a person who plays the human of such tasks.
    """

    table: Table
    rules: Rules
    interface: Interface
    saved: Saved
    agent: ChatClient | None
    humans: Mapping[str | None, Human]
    renderer: Renderer | None = None
    _restart: str | None = field(default=None, init=False)

    async def play(
        self,
        assignments: Sequence[Assignment],
        total: int,
        actions: Actions,
        finished: Callable[[Trajectory], None],
    ) -> None:
        """Play dialogues until the last or until the person leaves.

        Args:
            assignments: that are missing; the one under way is first.
            total: number of dialogues, those included that were played before.
            finished: called with each dialogue that has ended, before it is forgotten here.
        """
        done = total - len(assignments)
        with suppress(Left):
            for number, assignment in enumerate(assignments, done + 1):
                played, leaves = await self._one(assignment, number, total, actions)
                if played is None:
                    self.saved.skip(assignment.id)
                else:
                    finished(played)
                    self.saved.end()
                if leaves:
                    raise Left

    async def _one(
        self, assignment: Assignment, number: int, total: int, actions: Actions
    ) -> tuple[Trajectory | None, bool]:
        """Play one dialogue. Return it, None if it is skipped, and whether the person leaves after it.

        Raises:
            Left: the person leaves within it.
        """
        self.saved.begin(assignment.id)
        playing = _Playing(self, assignment, number, total)
        draft = self.saved.draft
        while True:
            action = await playing.until_decided(actions, draft)
            match action:
                case Undo():
                    draft = playing.undone
                case Again():
                    draft = ""
                case Skip():
                    return None, False
                case Leave() if playing.ended is not None:
                    return playing.ended, True
                case Leave():
                    if action.draft is not None:
                        self.saved.keep_draft(cleaned(action.draft))
                    raise Left
                case _:
                    return playing.ended, False


class _Playing:
    """One dialogue, which may be begun again several times.

    Attributes:
        ended: the dialogue, once it has ended.
        undone: the text that was undone last.
    """

    def __init__(self, player: Player, assignment: Assignment, number: int, total: int) -> None:
        self.player, self.assignment, self.number, self.total = player, assignment, number, total
        self.ended: Trajectory | None = None
        self.undone = ""
        self._draft = self._warned = ""

    async def until_decided(self, actions: Actions, draft: str) -> Action:
        """Play from the record until the person undoes, skips, leaves, or ends the dialogue; return what it was."""
        self.ended, self._draft = None, draft
        self._begin()
        work = asyncio.create_task(self._dialogue.play())
        try:
            while True:
                taking = asyncio.create_task(actions.get())
                try:
                    await asyncio.wait({work, taking}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    taken = taking.done() and not taking.cancelled()
                    taking.cancel()
                if work.done() and not taken and self.ended is None and not self._failed:
                    self._end(work)
                if taken and (decided := self._act(taking.result())) is not None:
                    return decided
                # Once its end is shown, only the person can go on.
                if work.done() and not taken and (decided := self._act(await actions.get())) is not None:
                    return decided
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, SweetError):
                await work

    def _begin(self) -> None:
        player, table = self.player, self.player.table
        self._failed = False
        self._record = Record(player.saved)
        self._waiting = Waiting(lambda: self._show("yours", self._draft))
        person = table.seat
        agent = RecordedAgent(self._record, player.agent, self._waiting.ask if person == "agent" else None)
        human = RecordedHuman(
            self._record,
            player.humans.get(self.assignment.human),
            self._waiting.ask if person == "human" else None,
            self._render if person == "human" and player.renderer is not None else None,
            table.name,
        )
        if person == "agent":
            agent.model = table.name
        self._dialogue = Dialogue(self.assignment, agent, human, table.kind, player.rules)
        self._show("waiting")

    async def _render(self, task: Task, dialogue: Sequence[Message]) -> None:
        from sweet.humans.page_humans import render_pages

        assert self.player.renderer is not None
        self._show("waiting")
        await render_pages(self.player.renderer, task, dialogue, self.player.table.protocol)

    def _show(self, state: State, draft: str = "", notice: str = "") -> None:
        self.player.interface.show(
            Situation(
                state,
                self.assignment.task,
                self.number,
                self.total,
                tuple(self._dialogue.turns),
                draft,
                notice,
                self.ended,
            )
        )

    def _end(self, work: asyncio.Task[Trajectory]) -> None:
        """Show how the dialogue ended, or why the other side could not answer."""
        try:
            trajectory = work.result()
        except SweetError as error:
            if isinstance(error, ReferenceFailed):
                raise
            self._failed = True
            self._show("failed", notice=for_command_line(error))
            return
        record, usage = self._record, trajectory.usage
        sides = {f"{side}_seconds": round(record.seconds(side), 4) for side in ("agent", "human")}
        usage = usage.model_copy(update={**sides, "seconds": round(sum(sides.values()), 4)})
        self.ended = trajectory.model_copy(update={"usage": usage})
        self._show("finished")

    def _act(self, action: Action) -> Action | None:
        """Do what the person asks. Return the action if it ends this course of the dialogue."""
        match action:
            case Say() if self._waiting.open:
                self._send(action)
            case Undo():
                undone = self._record.undo(self.player.table.seat)
                if undone is not None:
                    self.undone = undone
                    return action
                self._say_again("There is nothing to undo.")
            case Skip() | Leave():
                return action
            case Again() if self._failed:
                return action
            case Next() if self.ended is not None:
                return action
            case _:
                pass
        return None

    def _say_again(self, notice: str) -> None:
        """Show the situation again with a notice; what is in the editor stays there."""
        self.player.interface.say(notice)

    def _send(self, say: Say) -> None:
        """Give a text to the person's side; if it cannot be sent, show why."""
        table = self.player.table
        text = cleaned(say.text)
        fault = length_fault(text, table.seat)
        output = text
        if fault is None and table.seat == "agent":
            output, fault = agent_output(table.kind, text, table.protocol, deliver=say.deliver)
        elif fault is None and text != self._warned and self._leaks(text):
            self._warned, fault = text, _LEAKS
        if fault is not None:
            self._say_again(fault)
            return
        self._draft = ""
        self._waiting.give(Typed(text, output if table.seat == "agent" else text.strip("\n").rstrip()))
        self._show("waiting")

    def _leaks(self, text: str) -> bool:
        """Return whether a person's reply as the human looks like the reference."""
        return leak_of(text, self.assignment.task, self._waiting.dialogue) is not None
