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

from sweet.errors import SweetError
from sweet.humans.base import Human, ReferenceFailed
from sweet.humans.faults import leaks
from sweet.llm.base import ChatClient
from sweet.render.page import Renderer
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.rollouts.play.interface import Action, Actions, Interface, Session, Situation, State
from sweet.rollouts.play.sides import Person, PersonAgent, PersonHuman, Saved, Typed
from sweet.rollouts.play.typed import agent_output, cleaned, length_fault
from sweet.rollouts.steps import Steps
from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import Trajectory

_LEAKS = "This looks like code of the reference, which the agent is to find by asking. Send it again to send it anyway."


@dataclass
class Player:
    """Plays dialogues with a person.

    Attributes:
        saved: the dialogue under way.
        agent, humans: the other side, humans by their names in assignments; None and empty for the person's own one.
        renderer: renders pages for a person who plays the human of such tasks.
    """

    session: Session
    rules: Rules
    interface: Interface
    saved: Saved
    agent: ChatClient | None
    humans: Mapping[str | None, Human]
    renderer: Renderer | None = None

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
        for number, assignment in enumerate(assignments, done + 1):
            self.saved.begin(assignment.id)
            playing = _Playing(self, assignment, number, total, draft=self.saved.draft)
            action = await playing.until_decided(actions)
            while action.name in ("undo", "retry"):
                action = await playing.until_decided(actions)
            if action.name == "skip":
                self.saved.skip(assignment.id)
            elif playing.ended is not None:
                finished(playing.ended)
                self.saved.begin(None)
            elif action.text is not None:
                self.saved.draft = cleaned(action.text)
                self.saved.write()
            if action.name == "leave":
                return


@dataclass
class _Playing:
    """One dialogue, which may be begun again several times.

    Attributes:
        draft: the text in the person's editor when it is the person's turn.
        ended: the dialogue, once it has ended.
    """

    player: Player
    assignment: Assignment
    number: int
    total: int
    draft: str
    ended: Trajectory | None = None
    _failed: bool = field(default=False, init=False)
    _warned: str = field(default="", init=False)

    async def until_decided(self, actions: Actions) -> Action:
        """Play from the record until the person undoes, skips, leaves, or ends the dialogue; return what it was."""
        self.ended, self._failed = None, False
        self._begin()
        work, taking = asyncio.create_task(self._dialogue.play()), asyncio.create_task(actions.get())
        try:
            while True:
                over = self.ended is not None or self._failed
                await asyncio.wait({taking} if over else {work, taking}, return_when=asyncio.FIRST_COMPLETED)
                if work.done() and not over:
                    self._end(work)
                if taking.done():
                    action = taking.result()
                    if self._decides(action):
                        return action
                    taking = asyncio.create_task(actions.get())
        finally:
            for task in (work, taking):
                task.cancel()
                with suppress(asyncio.CancelledError, SweetError):
                    await task

    def _begin(self) -> None:
        player, session = self.player, self.player.session
        player.saved.typed = None
        self._person = person = Person(lambda: self._show("yours", self.draft))
        human = player.humans.get(self.assignment.human)
        renders = self._render if player.renderer is not None and session.role == "human" else None
        self._dialogue = Dialogue(
            self.assignment,
            player.agent or PersonAgent(person, session.name),
            human or PersonHuman(person, session.name, renders),
            session.kind,
            player.rules,
            steps=Steps(player.saved.steps, player.saved.add),
        )
        self._show("waiting")

    async def _render(self, task: Task, dialogue: Sequence[Message]) -> None:
        from sweet.humans.page_humans import render_pages

        assert self.player.renderer is not None
        self._show("waiting")
        await render_pages(self.player.renderer, task, dialogue, self.player.session.protocol)

    def _show(self, state: State, draft: str = "", notice: str = "") -> None:
        session, task = self.player.session, self.assignment.task
        turns = tuple(turn for turn in self._dialogue.turns if turn.role != "tool" and not turn.tool_calls)
        situation = Situation(session, state, task, self.number, self.total, turns, draft, notice, self.ended)
        self.player.interface.show(situation)

    def _end(self, work: asyncio.Task[Trajectory]) -> None:
        """Show how the dialogue ended, or why the other side could not answer."""
        try:
            self.ended = work.result()
        except ReferenceFailed:
            raise
        except SweetError as error:
            self._failed = True
            self._show("failed", notice=str(error))
            return
        self._show("finished")

    def _decides(self, action: Action) -> bool:
        """Do what the person asks. Return whether it ends this course of the dialogue."""
        match action.name:
            case "send" | "deliver" if self._person.is_awaited:
                self._send(action)
            case "undo":
                undone = self.player.saved.undo(self.player.session.role)
                if undone is not None:
                    self.draft = undone
                    return True
                self.player.interface.say("There is nothing to undo.")
            case "retry" if self._failed:
                self.draft = ""
                return True
            case "next":
                return self.ended is not None
            case "skip" | "leave":
                return True
            case _:
                pass
        return False

    def _send(self, action: Action) -> None:
        """Give a text to the person's side; if it cannot be sent, say why, and it stays in the editor."""
        session, person = self.player.session, self._person
        text = cleaned(action.text or "")
        output, fault = text.strip("\n").rstrip(), length_fault(text, session.role)
        if fault is None and session.role == "agent":
            output, fault = agent_output(session.kind, text, session.protocol, deliver=action.name == "deliver")
        elif fault is None and text != self._warned and leaks(text, self.assignment.task, person.dialogue):
            self._warned, fault = text, _LEAKS
        if fault is not None:
            self.player.interface.say(fault)
            return
        self.draft, self.player.saved.typed = "", text
        person.answer(Typed(text, output))
        self._show("waiting")
