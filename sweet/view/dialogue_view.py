"""Show one trajectory in parts: head, turns with the critic's judgements, answer, tests, faults.

`sweet view --id` prints all parts, and the screens show them one by one. No meaning depends on a colour alone, so that
NO_COLOR loses nothing: text that the human does not see is marked by ┊, and the reply that was given by ●.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pydantic import ValidationError
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweet.errors import UsageError
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import ProtocolName, Task, with_calls
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import JudgedTest
from sweet.tasks.tools import summed
from sweet.tasks.trajectory import FAULTS, Trajectory, Turn
from sweet.units import count, format_duration
from sweet.view.code import plain, prose
from sweet.view.credit_view import Abbreviate, bar, candidates_part, choice_note, grid, pairs_part, rewards_note
from sweet.view.parts import Part
from sweet.view.records import Record, Records
from sweet.view.run_screenshots import RunScreenshots
from sweet.view.text import STYLES, VERDICTS, format_number, printable, printable_line, tests_passed

UNSEEN = "┊ "
"""Marks text of a reply that the human does not see."""


@dataclass(frozen=True)
class DisplayOptions:
    """How trajectories are shown.

    Attributes:
        kind: the kind of their tasks; None if the package that provides it is not installed.
        settings: the settings of the rollout, in words.
        hidden: show the hidden information.
        screenshots: the screenshots of the run, for dialogues about pages.
    """

    kind: TaskKind | None = None
    protocol: ProtocolName = "paper"
    settings: tuple[str, ...] = ()
    hidden: bool = False
    screenshots: RunScreenshots | None = None

    @classmethod
    def of(cls, records: Records, *, draw: bool = True) -> DisplayOptions:
        """Return the options for the trajectories of a rollouts artifact; `draw` is that of its screenshots."""
        try:
            kind = task_kind(records.run.manifest().task)
        except UsageError:  # of a plug-in that is not installed here
            kind = None
        meta = records.rollouts.meta
        labels = {"agent": "agent", "sim": "human", "tasks": "tasks", "split": "split", "protocol": "protocol"}
        settings = [f"{word} {meta[key]}" for key, word in labels.items() if meta.get(key)]
        if isinstance(turns := meta.get("max_turns"), int):
            settings.append(f"at most {count(turns, 'turn')}")
        protocol: ProtocolName = "upstream" if meta.get("protocol") == "upstream" else "paper"
        screenshots = None
        if kind is not None and kind.visual:
            rendering = RolloutsMeta.of(records.rollouts).rendering
            screenshots = RunScreenshots(records.run, kind, protocol, draw=draw, settings=rendering)
        return cls(kind, protocol, tuple(settings), screenshots=screenshots)

    @property
    def language(self) -> str:
        return "" if self.kind is None else self.kind.language

    def delivered(self, turn: Turn, content: str) -> str:
        """Return the answer of an agent turn if `content` contains it literally; else an empty string."""
        move = None if self.kind is None else self.kind.move(turn.said, last=False, protocol=self.protocol)
        return move.answer if move and move.answer and move.answer in content else ""

    def text(self, text: str, *, whole: bool = False) -> RenderableType:
        """Return the text of a model or a task. `whole`: a text without a fence is code."""
        return prose(text, self.language, whole=whole)


def dialogue(record: Record, options: DisplayOptions | None = None) -> RenderableType:
    """Return one trajectory with all its parts."""
    return Group(Text("  ").join(headline(record)), *dialogue_parts(record, options or DisplayOptions()))


def dialogue_parts(record: Record, options: DisplayOptions) -> list[Part]:
    """Return the parts of one trajectory below its title. The body of a part is made when it is drawn."""
    trajectory = record.trajectory
    parts = [Part("head", Text(), partial(head, record, options.settings))]
    abbreviate: Abbreviate = str
    note = ""
    if options.screenshots is not None:
        abbreviate, note = options.screenshots.abbreviate, "whole pages: --html FILE"
    number = 0
    for index, turn in enumerate(trajectory.dialogue_history):
        if turn.role == "user":
            body = partial(options.text, turn.content)
            asked = f"asked {len(turn.withheld) + 1} times: {', '.join(turn.withheld)}" if turn.withheld else ""
            parts.append(Part("human", Text("human", "bold cyan"), body, index, asked, len(turn.content)))
            continue
        if turn.role == "tool":
            parts.append(result_part(index, turn))
            continue
        number += 1
        parts.append(_agent_turn(record, index, turn, number, options))
        parts += thought_part(index, turn) + calls_part(index, turn)
        if options.screenshots is not None:
            find = partial(options.screenshots.beside_reference, trajectory, f"turn {number}", turn)
            parts.append(Part("screenshots", Text("screenshots", "green"), turn=index, inner=True, pictures=find))
        parts += candidates_part(record, index, abbreviate, note) + pairs_part(record, index, abbreviate, note)
    return parts + list(_outcome_parts(record, options))


def _outcome_parts(record: Record, options: DisplayOptions) -> Iterator[Part]:
    """Yield the parts about the result: answer, tests, likeness, reason, fault, hidden information."""
    trajectory = record.trajectory
    answer = trajectory.answer
    body = partial(options.text, answer, whole=True)
    yield Part("answer", Text("answer", "bold magenta"), body, characters=len(answer))
    if tests := unit_tests(record):
        note = tests_passed(record.score.passed, record.score.total) if record.score else ""
        yield Part("tests", Text("unit tests", "bold magenta"), partial(tests_table, tests), note=note)
    if record.score is not None and (diagnostics := record.score.detail.get("diagnostics")):
        yield Part("likeness", Text("likeness", "bold magenta"), partial(_likeness, record.reward, diagnostics))
    if why := failure_reason(record):
        yield Part("why", Text("why", "bold magenta"), partial(plain, why), characters=len(why))
    if error := trajectory.error:
        title = Text("fault", "bold yellow")
        yield Part("fault", title, partial(plain, error), note=_fault(trajectory), characters=len(error))
    if options.hidden:
        yield from hidden_parts(trajectory.task, options)


def hidden_texts(task: Task, title: str = "hidden from the agent") -> list[tuple[str, str]]:
    """Return the hidden information of a task with its titles: the reference too, where that is another text."""
    texts = [(title, task.hidden), ("reference", task.ground_truth)]
    return texts[: 1 + (task.ground_truth != task.hidden)]


def hidden_parts(task: Task, options: DisplayOptions, title: str = "hidden from the agent") -> Iterator[Part]:
    """Yield the hidden information of a task."""
    for name, text in hidden_texts(task, title):
        body = partial(options.text, text, whole=True)
        yield Part("hidden", Text(name, "bold yellow"), body, characters=len(text))


def headline(record: Record) -> list[Text]:
    """Return the id of the trajectory, its outcome, reward and fault."""
    trajectory, score = record.trajectory, record.score
    outcome = score.outcome if score else trajectory.outcome
    facts = [Text(printable_line(trajectory.id), "bold"), Text(printable_line(outcome), STYLES.get(outcome, ""))]
    facts.append(Text(f"reward {format_number(record.reward)}"))
    if sums := summed(trajectory.turn_rewards.values()):
        facts.append(Text(f"of turns: {rewards_note(sums)}"))
    if score and score.total:
        facts.append(Text(f"tests {tests_passed(score.passed, score.total)}"))
    if (fault := _fault(trajectory)) and fault != outcome:
        facts.append(Text(f"fault: {printable_line(fault)}", "yellow"))
    return facts


def head(record: Record, settings: tuple[str, ...] = ()) -> RenderableType:
    """Return the task of the trajectory, its tokens and seconds, and the settings of its rollout."""
    trajectory, usage = record.trajectory, record.trajectory.usage
    about = [f"task {trajectory.task_id}", f"sample {trajectory.sample}"]
    if trajectory.seed is not None:
        about.append(f"seed {trajectory.seed}")
    if trajectory.human is not None:
        about.append(f"human {trajectory.human}")
    about.append(count(len(trajectory.agent_turns), "turn"))
    if record.score and not _fault(trajectory):
        about.append(trajectory.outcome.replace("_", " "))
    parts = f"agent {format_duration(usage.agent_seconds)}, human {format_duration(usage.human_seconds)}"
    retries = usage.agent_retries + usage.human_retries
    amounts = (
        (usage.completion_tokens, count(usage.completion_tokens, "token")),
        (usage.thought_tokens, f"{usage.thought_tokens:,} in thoughts"),
        (usage.prompt_tokens, f"{usage.prompt_tokens:,} in prompts"),
        (usage.human_completion_tokens, f"human {count(usage.human_completion_tokens, 'token')}"),
        (usage.tool_calls, f"{count(usage.tool_calls or 0, 'call')} of tools, {usage.tool_errors or 0:,} in error"),
        (usage.seconds, f"{format_duration(usage.seconds)} ({parts})"),
        (retries, count(retries, "retry")),
    )
    usage_facts = [words for amount, words in amounts if amount]
    lines = [" · ".join(map(printable_line, facts)) for facts in (about, usage_facts, settings) if facts]
    return Group(*(Text(text, style="dim", overflow="fold") for text in lines))


def _fault(trajectory: Trajectory) -> str:
    """Return the fault that ended the dialogue, and what the simulated human did wrong."""
    ended = trajectory.outcome if trajectory.outcome in FAULTS else ""
    return f"{ended} ({trajectory.fault})" if ended and trajectory.fault else ended or trajectory.fault or ""


def _agent_turn(record: Record, index: int, turn: Turn, number: int, options: DisplayOptions) -> Part:
    notes = []
    if turn.token_ids:
        notes.append(count(len(turn.token_ids), "token"))
    if turn.finish_reason and turn.finish_reason != "stop":
        notes.append(turn.finish_reason)
    if turn.choice is not None:
        notes.append(choice_note(turn.choice))
    if turn.rewards:
        notes.append(rewards_note(turn.rewards))
    title = Text().append(f"agent {number}", "bold green")
    advantage = record.advantage(index)
    if advantage is not None:
        title.append("  ").append_text(bar(advantage, record.scale))
    body = partial(reply, turn, options)
    return Part("agent", title, body, index, " · ".join(notes), len(turn.said))


def thought_part(index: int, turn: Turn) -> list[Part]:
    """Return what the agent thought before its reply, which the human does not see; empty if it is not known."""
    thought = turn.thought
    if not thought:
        return []
    note = "" if turn.thought_tokens is None else count(turn.thought_tokens, "token")
    body = partial(_marked, thought)
    return [Part("thought", Text("thought", "green"), body, index, note, len(thought), inner=True)]


def calls_part(index: int, turn: Turn) -> list[Part]:
    """Return the calls of tools that the agent makes; empty without any."""
    if not turn.tool_calls:
        return []
    title = Text(f"calls {printable_line(', '.join(call.name for call in turn.tool_calls))}", "green")
    text = with_calls("", turn.tool_calls)
    return [Part("calls", title, partial(_marked, text), index, characters=len(text), inner=True)]


def result_part(index: int, turn: Turn) -> Part:
    """Return the result of a call of a tool."""
    title = Text("result", "yellow" if turn.is_error else "green")
    note = "error" if turn.is_error else ""
    return Part("result", title, partial(_marked, turn.content), index, note, len(turn.content), inner=True)


def reply(turn: Turn, options: DisplayOptions) -> RenderableType:
    """Return the raw reply: the part that the human sees as Markdown, the rest dimmed and marked."""
    whole_reply, visible = turn.said, "" if turn.tool_calls else turn.content
    before, _, after = whole_reply.partition(visible) if visible else (whole_reply, "", "")
    answer = options.delivered(turn, visible)
    texts = [(visible, False)]
    if answer and "```" not in answer:
        around, _, rest = visible.partition(answer)
        texts = [(around, False), (answer, True), (rest, False)]
    bodies = [options.text(text.strip("\n"), whole=whole) for text, whole in texts if text.strip()]
    return Group(*_unseen(before), *bodies, *_unseen(after))


def _unseen(text: str) -> list[RenderableType]:
    return [_marked(text)] if text.strip() else []


def _marked(text: str) -> RenderableType:
    """Return text that the human does not see."""
    table = Table.grid()
    table.add_column(width=len(UNSEEN), no_wrap=True)
    table.add_column(overflow="fold")
    for line in printable(text.strip("\n")).split("\n"):
        table.add_row(Text(UNSEEN, "dim"), Text(line, "dim"))
    return table


def _likeness(reward: float | None, diagnostics: object) -> RenderableType:
    """Return the diagnostics of a page's similarity to the reference page."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row("reward", format_number(reward, 3))
    if isinstance(diagnostics, dict):
        for name, value in diagnostics.items():
            number = format_number(value, 3) if isinstance(value, int | float) else printable_line(str(value))
            table.add_row(Text(printable_line(str(name)).replace("_", " ")), number)
    return table


class UnitTest(NamedTuple):
    """One test.

    Attributes:
        passed: None if the score does not contain it (it was not run, or was scored elsewhere).
        failure: what was wrong, in one line; empty if it passed or that is not known.
    """

    call: str
    passed: bool | None
    failure: str = ""


def unit_tests(record: Record) -> list[UnitTest]:
    """Return the tests in the order of the task; empty if the trajectory was not scored."""
    score = record.score
    if score is None:
        return []
    results = score.detail.get("tests")
    verdicts = results if isinstance(results, dict) else {}
    overall = {0: False, score.total: True}.get(score.passed) if score.total else None
    return [_judged(call, verdicts.get(name), overall) for name, call in record.trajectory.task.test_cases.items()]


def _judged(call: str, verdict: object, overall: bool | None) -> UnitTest:
    try:
        test = JudgedTest.model_validate(verdict)
    except ValidationError:
        return UnitTest(call, overall)
    failure = "" if test.passed or not test.got else f"got {test.got}, expected {test.expected}"
    return UnitTest(call, test.passed, failure)


def failure_reason(record: Record) -> str:
    """Return why the answer did not pass, if the score has no results of single tests."""
    if record.score is None or record.score.detail.get("tests"):
        return ""
    return str(record.score.detail.get("why") or "")


def tests_table(tests: Sequence[UnitTest]) -> Table:
    """Return a row for each test: its verdict, its call and, if it failed, its result below the call."""
    table = grid(2)
    for test in tests:
        body = Text(printable_line(test.call))
        if test.failure:
            body.append(f"\n{printable_line(test.failure)}", style="dim")
        table.add_row(Text(*VERDICTS[test.passed]), body)
    return table
