"""The parts of a situation: what the person knows, the dialogue so far, the pages, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from sweet.rollouts.play.seat import Situation, Table
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.half_blocks import PictureRow
from sweet.view.parts import Part, plain, single_block
from sweet.view.run_screenshots import RunScreenshots

ENDS = {
    "answered": "The agent has delivered its answer.",
    "out_of_turns": "All turns are used up; the agent's last message is its answer.",
    "human_error": "The human could not go on.",
    "context_overflow": "The dialogue does not fit into the model's context any more.",
    "token_limit": "The dialogue has used up its tokens.",
}


def situation_parts(
    table: Table, situation: Situation, screenshots: RunScreenshots | None, *, hidden: bool
) -> list[Part]:
    """Return what is shown of a situation.

    Args:
        hidden: show a person who plays the human the hidden information.
    """
    options = DisplayOptions(table.kind, table.protocol)
    parts = list(_hidden(situation, options)) if hidden and table.seat == "human" else []
    number = 0
    for index, turn in enumerate(situation.turns):
        number += turn.role == "assistant"
        human = "human" if turn.role == "user" else f"agent {number}"
        yours = (turn.role == "user") == (table.seat == "human")
        title = Text(human, "bold cyan" if turn.role == "user" else "bold green")
        if yours and index:
            title.append(" (you)", "dim")
        body = partial(options.text, turn.content)
        parts.append(Part("turn", title, body, index, characters=len(turn.content)))
    if screenshots is not None and number:
        parts.append(_pictures(table, situation, screenshots))
    parts += _end(situation, options)
    if situation.notice:
        body = partial(plain, situation.notice)
        parts.append(Part("notice", Text("error", "bold red"), body, characters=len(situation.notice)))
    return parts


def _hidden(situation: Situation, options: DisplayOptions) -> Iterator[Part]:
    task = situation.task
    texts = [("only you know", task.hidden), ("reference", task.ground_truth)]
    for name, text in texts[: 1 + (task.ground_truth != task.hidden)]:
        body = partial(options.text, text, whole=True)
        yield Part("hidden", Text(name, "bold yellow"), body, characters=len(text))


def _pictures(table: Table, situation: Situation, screenshots: RunScreenshots) -> Part:
    """Return the agent's last page, beside the reference page for a person who plays the human."""
    last = next(turn for turn in reversed(situation.turns) if turn.role == "assistant")

    def make() -> RenderableType:
        pictures = [("the agent's page", screenshots.turn_picture(last))]
        if table.seat == "human":
            pictures.append(("the reference page", screenshots.page_picture(situation.task.ground_truth)))
        return PictureRow(pictures)

    return Part("screenshots", Text("screenshots", style="bold magenta"), single_block(make, 20))


def _end(situation: Situation, options: DisplayOptions) -> Iterator[Part]:
    ended = situation.ended
    if ended is None:
        return
    answer = ended.answer
    body = partial(options.text, answer, whole=True)
    yield Part("answer", Text("answer", "bold magenta"), body, characters=len(answer))
    text = ENDS.get(ended.outcome, ended.outcome) + (f" {ended.error}" if ended.error else "")
    yield Part("end", Text("end", "bold yellow"), partial(plain, text), characters=len(text))
