"""One trajectory, in parts: its head, the turns with what the critic made of them, the answer, its tests, faults.

Printed by `sweet view --id`, and shown part by part by the screens. A meaning never hangs on a colour alone, so that
NO_COLOR takes nothing away: what the human does not see of a reply stands behind ┊, the reply that was taken behind ●.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweet.errors import UsageError
from sweet.tasks.base import Recipe
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import FAULTS, Trajectory, Turn
from sweet.view.credit_view import Short, bar, candidates_part, pairs_part
from sweet.view.half_blocks import Beside
from sweet.view.parts import Block, Part, cut, one, plain, prose
from sweet.view.records import Record, Records
from sweet.view.screenshots import Album
from sweet.view.terminal import STYLES, count, figure, tests_passed
from sweet.view.text import printable, printable_line
from sweet.view.unit_tests import UnitTestTable, unit_tests, why_not

UNSEEN = "┊ "
"""Before what the human does not see of a reply."""


@dataclass(frozen=True)
class Manner:
    """How trajectories are shown.

    Attributes:
        kind: of their tasks; None where the package that brings it is not installed.
        settings: with which they were made, for people.
        hidden: with the hidden information.
        raw: texts as they are, without colours and Markdown.
        album: where the dialogues are about pages: their screenshots.
    """

    kind: TaskKind | None = None
    recipe: Recipe = "paper"
    settings: tuple[str, ...] = ()
    hidden: bool = False
    raw: bool = False
    album: Album | None = None

    @classmethod
    def of(cls, records: Records, *, hidden: bool = False, album: Album | None = None) -> Manner:
        """How the trajectories of a rollouts artifact are shown."""
        try:
            kind = task_kind(records.run.manifest().task)
        except UsageError:
            kind = None
        meta = records.rollouts.meta
        told = {"agent": "agent", "sim": "human", "tasks": "tasks", "split": "split", "recipe": "recipe"}
        settings = [f"{word} {meta[key]}" for key, word in told.items() if meta.get(key)]
        if meta.get("max_turns"):
            settings.append(f"at most {meta['max_turns']} turns")
        recipe: Recipe = "upstream" if meta.get("recipe") == "upstream" else "paper"
        return cls(kind, recipe, tuple(settings), hidden, album=album)

    @property
    def language(self) -> str:
        return "" if self.kind is None else self.kind.language

    def hidden_texts(self, record: Record) -> list[tuple[str, str]]:
        """The hidden information of a trajectory, where it is shown: what it is, and its text."""
        task = record.trajectory.task
        told = [("hidden from the agent", task.hidden), ("reference", task.ground_truth)]
        return told[: 1 + (task.ground_truth != task.hidden)] if self.hidden else []

    def delivered(self, turn: Turn, content: str) -> str:
        """The answer in a turn of the agent, where it stands in this text as it is; else empty."""
        move = None if self.kind is None else self.kind.move(turn.said, last=False, recipe=self.recipe)
        return move.answer if move and move.answer and move.answer in content else ""

    def text(self, text: str, *, whole: bool = False) -> Iterator[Block]:
        """Text of a model, or of a task. `whole`: what has no fence in it is code."""
        return plain(text) if self.raw else prose(text, self.language, whole=whole)


def dialogue(record: Record, manner: Manner | None = None) -> RenderableType:
    """One trajectory, whole."""
    return Group(Text("  ").join(headline(record)), *dialogue_parts(record, manner or Manner()))


def dialogue_parts(record: Record, manner: Manner) -> list[Part]:
    """One trajectory in parts, to stand below its title; what a part says is made when it is drawn."""
    trajectory = record.trajectory
    parts = [Part("head", Text(), one(lambda: head(record, manner.settings), 4))]
    short: Short = str
    note = ""
    if manner.album is not None and not manner.raw:
        short, note = manner.album.in_short, "whole pages: --html FILE"
    number = 0
    for index, turn in enumerate(trajectory.dialogue_history):
        if turn.role == "user":
            body = partial(manner.text, turn.content)
            parts.append(Part("human", Text("human", "bold cyan"), body, index, characters=len(turn.content)))
            continue
        number += 1
        parts.append(_agent_turn(record, index, turn, number, manner))
        if manner.album is not None:
            parts.append(_screenshots(record, index, turn, number, manner.album))
        parts += candidates_part(record, index, short, note) + pairs_part(record, index, short, note)
    return parts + list(_outcome_parts(record, manner))


def _outcome_parts(record: Record, manner: Manner) -> Iterator[Part]:
    """What came of the dialogue."""
    trajectory = record.trajectory
    answer = trajectory.answer
    body = partial(manner.text, answer, whole=True)
    yield Part("answer", Text("answer", "bold magenta"), body, characters=len(answer))
    if tests := unit_tests(record):
        note = tests_passed(record.score.passed, record.score.total) if record.score else ""
        table = one(lambda: UnitTestTable(tests), 2 * len(tests))
        yield Part("tests", Text("unit tests", "bold magenta"), table, note=note)
    if record.score is not None and (diagnostics := record.score.detail.get("diagnostics")):
        yield Part("likeness", Text("likeness", "bold magenta"), one(lambda: _likeness(record.reward, diagnostics)))
    if why := why_not(record):
        yield Part("why", Text("why", "bold magenta"), partial(plain, why), characters=len(why))
    if error := trajectory.error:
        title = Text("fault", "bold yellow")
        yield Part("fault", title, partial(plain, error), note=_fault(trajectory), characters=len(error))
    for name, text in manner.hidden_texts(record):
        body = partial(manner.text, text, whole=True)
        yield Part("hidden", Text(name, "bold yellow"), body, characters=len(text))


def headline(record: Record) -> list[Text]:
    """Which trajectory it is, how it scored, and by what fault it ended."""
    trajectory, score = record.trajectory, record.score
    outcome = score.outcome if score else trajectory.outcome
    facts = [Text(printable_line(trajectory.id), "bold"), Text(printable_line(outcome), STYLES.get(outcome, ""))]
    facts.append(Text(f"reward {figure(record.reward)}"))
    if score and score.total:
        facts.append(Text(f"tests {tests_passed(score.passed, score.total)}"))
    if (fault := _fault(trajectory)) and fault != outcome:
        facts.append(Text(f"fault: {printable_line(fault)}", "yellow"))
    return facts


def head(record: Record, settings: tuple[str, ...] = ()) -> RenderableType:
    """Of which task it is, what it took, and with what it was made."""
    trajectory, usage = record.trajectory, record.trajectory.usage
    about = [f"task {trajectory.task_id}", f"sample {trajectory.sample}"]
    if trajectory.seed is not None:
        about.append(f"seed {trajectory.seed}")
    about.append(count(len(trajectory.agent_turns), "turn"))
    if record.score and not _fault(trajectory):
        about.append(trajectory.outcome.replace("_", " "))
    took = []
    if usage.completion_tokens:
        took.append(count(usage.completion_tokens, "token"))
    if usage.prompt_tokens:
        took.append(f"{usage.prompt_tokens:,} in prompts")
    if usage.human_completion_tokens:
        took.append(f"human {count(usage.human_completion_tokens, 'token')}")
    if usage.seconds:
        took.append(f"{usage.seconds:.1f} s (agent {usage.agent_seconds:.1f}, human {usage.human_seconds:.1f})")
    if retries := usage.agent_retries + usage.human_retries:
        took.append(count(retries, "retry"))
    lines = [" · ".join(map(printable_line, facts)) for facts in (about, took, settings) if facts]
    return Group(*(Text(text, style="dim", overflow="fold") for text in lines))


def _fault(trajectory: Trajectory) -> str:
    """What ended the dialogue by a fault, and what the simulated human did wrong."""
    ended = trajectory.outcome if trajectory.outcome in FAULTS else ""
    return f"{ended} ({trajectory.fault})" if ended and trajectory.fault else ended or trajectory.fault or ""


def _agent_turn(record: Record, index: int, turn: Turn, number: int, manner: Manner) -> Part:
    notes = []
    if turn.token_ids:
        notes.append(count(len(turn.token_ids), "token"))
    if turn.finish_reason and turn.finish_reason != "stop":
        notes.append(turn.finish_reason)
    if manner.raw:
        notes.append("raw")
    title = Text().append(f"agent {number}", "bold green")
    advantage = record.advantage(index)
    if advantage is not None:
        title.append("  ").append_text(bar(advantage, record.scale))
    body = partial(reply, turn, manner)
    return Part("agent", title, body, index, " · ".join(notes), len(turn.said))


def reply(turn: Turn, manner: Manner) -> Iterator[Block]:
    """The raw reply: what the human sees of it as Markdown, what it does not see dimmed behind a mark."""
    if manner.raw:
        yield from plain(turn.said)
        return
    said, seen = turn.said, turn.content
    before, _, after = said.partition(seen) if seen else (said, "", "")
    yield from _unseen(before)
    answer = manner.delivered(turn, seen)
    texts = [(seen, False)]
    if answer and "```" not in answer:
        around, _, rest = seen.partition(answer)
        texts = [(around, False), (answer, True), (rest, False)]
    for text, whole in texts:
        if text.strip():
            yield from manner.text(text.strip("\n"), whole=whole)
    yield from _unseen(after)


def _unseen(text: str) -> Iterator[Block]:
    if text.strip():
        yield from cut(Text(printable(text.strip("\n")), "dim"), _marked)


def _marked(text: Text) -> RenderableType:
    table = Table.grid()
    table.add_column(width=len(UNSEEN), no_wrap=True)
    table.add_column(overflow="fold")
    for line in text.split("\n", allow_blank=True):
        table.add_row(Text(UNSEEN, "dim"), line)
    return table


def _screenshots(record: Record, index: int, turn: Turn, number: int, album: Album) -> Part:
    def make() -> RenderableType:
        mind = album.of_page(record.trajectory.task.ground_truth)
        return Beside([(f"turn {number}", album.of_turn(turn)), ("the page in mind", mind)], album.draw)

    return Part("screenshots", Text("screenshots", style="green"), one(make, 20), index, inner=True)


def _likeness(reward: float | None, diagnostics: object) -> RenderableType:
    """What a page's scorer tells of how like the page in mind it is."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row("reward", figure(reward, 3))
    if isinstance(diagnostics, dict):
        for name, value in diagnostics.items():
            number = figure(value, 3) if isinstance(value, int | float) else printable_line(str(value))
            table.add_row(Text(printable_line(str(name)).replace("_", " ")), number)
    return table
