"""`sweet data synthesise`: a model invents tasks on given topics, with their references and tests.

A proposal has five sections: a request and a signature, which the agent will read; details, which become the facts of
the scripted human; the reference; and calls, of which the reference gives the expected values in the sandbox. It is
kept if `sweet data check` finds nothing in it, if details and request give away no source, if it is no near-duplicate
of another task of the file, and if its tests kill enough mutants of the reference (`sweet.tasks.code.mutants`), in the
sandbox too. Otherwise the model is asked for other sections, where the tests are weak for further calls, a bounded
number of times (`sweet.datasets.writing`). Here a proposal is split into lines, and never parsed or executed.

The id of a task is its topic and a number, so that a file can be extended: its tasks stay, and what it lacks is made.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from sweet.datasets.checking import leaks
from sweet.datasets.metrics import SynthesiseMetrics
from sweet.datasets.writing import LONGEST, Fault, Row, Writer, WriterConfig
from sweet.errors import InputError
from sweet.gathering import Gathering, run_all, run_main
from sweet.humans import faults
from sweet.humans.leaks.find import program_of
from sweet.llm.base import ChatClient
from sweet.runs.jsonl import encode, parse_row
from sweet.sandbox.reader import Unreadable
from sweet.stages.base import Reporter, StageResult
from sweet.tasks.base import Fact, Task
from sweet.tasks.code.reader import mutants_of, read_answer
from sweet.tasks.findings import Finding
from sweet.tasks.kind import TaskKind
from sweet.tasks.prompts import fill, indented
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import AsyncScorer
from sweet.tasks.splits import TRAIN
from sweet.tasks.trajectory import Trajectory, Turn
from sweet.toml_file import read_text
from sweet.units import count

KILLED = 0.8
"""Share of the mutants that tests must kill. Not all can be killed: some do the same as the reference."""
ALIKE = 0.8
"""Share of the statements of two references, names aside, from which they are near-duplicates."""
MOST_CALLS = 40
LONGEST_TOPIC = 200
REPEATS = 2
"""How often each reference runs, as for `sweet data check`."""
TEMPERATURE = 1.0
LACK = "could not be synthesised"

_TEXTS = Path(__file__).with_name("texts")
PROMPT = (_TEXTS / "synthesise.txt").read_text("utf-8").strip()

_SECTIONS = ("request", "signature", "details", "reference", "tests")
_HEADING = re.compile(rf"^##+ *({'|'.join(_SECTIONS)})\b\W*?$", re.IGNORECASE | re.MULTILINE)
_MARK = re.compile(r"^(?:[-*+]|\d+[.)])\s+")
_SIGNATURE = re.compile(r"def +(?P<name>[A-Za-z_][A-Za-z0-9_]{0,59})\(.{0,400}\)(?: *-> *[^:\n]+)?")
_SHOWN = 8
"""Mutants that the model is shown."""

_UNREADABLE = "That is not in the form that was asked for: {what}. Reply with all five sections."
_MEND = "That task cannot be used: {what}. Reply with the sections that must change, each as a whole."
_OTHER = "Such a function exists already: {what}. Invent another one, with all five sections."
_WEAK = """\
The tests are too weak: each of these changes of the reference, one at a time, leaves the results of all calls the same.
{what}
Reply with the section tests alone, with further calls, whose results differ when one of these changes is made."""


class SynthesiseConfig(WriterConfig):
    main_options = ("model", "url", "out", "num_tasks", "tries", "max_tokens", "prices", "max_cost")


def read_topics(path: Path) -> dict[str, str]:
    """Return the topics of a file, one on each line, by what the ids of their tasks begin with.

    Raises:
        InputError: the file cannot be read, or has no topic, or one that is too long, has no word, or is there twice.
    """
    topics: dict[str, str] = {}
    text = read_text(path, "file of topics")
    for number, line in enumerate(text.splitlines(), 1):
        if topic := " ".join(line.split()):
            name = "-".join(re.findall(r"\w+", topic.lower()))
            if not name or name in topics or len(topic) > LONGEST_TOPIC:
                what = "has no word" if not name else "is there twice" if name in topics else "is too long"
                raise InputError(f"The topic {what}.", path=path, line=number, fix="one topic of a few words a line")
            topics[name] = topic
    if not topics:
        raise InputError("The file has no topic.", path=path, fix="one topic of a few words a line")
    return topics


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of a proposal by their headings, `## request` and so on."""
    _, *parts = _HEADING.split(text[:LONGEST])
    return {name.lower(): part.strip() for name, part in zip(parts[::2], parts[1::2], strict=True)}


def _items(section: str) -> list[str]:
    """Return the lines of a section without fences, marks of lists and backticks around them."""
    lines = (_MARK.sub("", line.strip()).strip("`").strip() for line in section.splitlines() if "```" not in line)
    return [line for line in lines if line]


def _dense(text: str) -> str:
    return "".join(text.split())


def task_of(sections: Mapping[str, str], name: str, model: str) -> Task:
    """Return the task of a proposal, with the id `name`.

    Raises:
        ValueError: the proposal does not have the form that is asked for.
        Unreadable: its reference exceeds a limit.
    """
    if missing := [section for section in _SECTIONS if not sections.get(section)]:
        raise ValueError(f"there is no section {missing[0]}")
    request, calls = sections["request"], dict.fromkeys(_items(sections["tests"]))
    signature = _SIGNATURE.search(sections["signature"])
    if signature is None or not 0 < len(calls) <= MOST_CALLS:
        raise ValueError(f"it needs a signature, def name(arguments), and calls, at most {MOST_CALLS}")
    head = signature[0].strip(" `")
    source = read_answer(sections["reference"], frozenset({signature["name"]})).source or ""
    if not any(_dense(line).startswith(_dense(head)) for line in source.splitlines()):
        raise ValueError(f"the reference does not begin with the signature {head}")
    facts: dict[str, Fact] = {}
    for line in _items(sections["details"]):
        topic, cues, answer = (part.strip() for part in [*line.split("|", 2), "", ""][:3])
        words = tuple(filter(None, map(str.strip, cues.split(","))))
        if not topic or topic in facts or not words or not answer:
            raise ValueError("a line of the details is not of the form name | words | answer, with a name of its own")
        facts[topic] = Fact(topic=topic, cues=words, answer=answer)
    return Task(
        id=name,
        problem_description=request if head in request else f"{request}\nThe signature of the function is: {head}",
        ground_truth=source,
        test_cases={f"test{number}": call for number, call in enumerate(calls, 1)},
        facts=tuple(facts.values()),
        **{"written_by": model},
    )


class _Synthesis:
    """The tasks of one file, and the work on new ones.

    Attributes:
        mutants: of the references of new tasks. killed: those of them that the tests kill.
    """

    client: ChatClient
    scoring: AsyncScorer
    checking: Gathering[Task, list[Finding]]

    def __init__(self, kind: TaskKind, writer: Writer, tasks: Iterable[Task]) -> None:
        self.kind, self.writer = kind, writer
        self.mutants = self.killed = 0
        self._statements: dict[str, dict[bytes, int]] = {}
        self._functions: defaultdict[str, list[str]] = defaultdict(list)
        for task in tasks:
            self._add(task)

    def _add(self, task: Task) -> None:
        self._statements[task.id] = _statements_of(task.ground_truth)
        if (signature := _SIGNATURE.search(task.problem_description)) is not None:
            self._functions[task.id.rpartition("-")[0]].append(signature["name"])

    async def run(self, topics: Mapping[str, str]) -> None:
        """Write new tasks, whose ids and topics are given."""
        async with self.writer.opened(self.kind) as (self.client, self.scoring, request):

            def findings(tasks: list[Task]) -> list[list[Finding]]:
                return [[*leaks([task]), *checked] for task, checked in self.kind.check(tasks, request, REPEATS)]

            self.checking = Gathering(lambda tasks: asyncio.to_thread(findings, tasks))
            await self.writer.write(topics, lambda name: self._synthesise(name, topics[name]))

    async def _synthesise(self, name: str, topic: str) -> Row | Fault:
        sections: dict[str, str] = {}
        proposals: list[Task] = []
        are_weak = False

        async def check(text: str) -> Fault | None:
            nonlocal are_weak
            new = sections_of(text)
            if are_weak and new.keys() == {"tests"}:
                new["tests"] = f"{sections['tests']}\n{new['tests']}"
            sections.update(new)
            try:
                proposals[:] = [await asyncio.to_thread(task_of, sections, name, self.client.model)]
                fault = await self._fault_of(proposals[0])
            except (ValueError, Unreadable) as error:
                fault = Fault("unreadable", f"the proposal cannot be read: {error}", _UNREADABLE.format(what=error))
            are_weak = fault is not None and fault.problem == "weak"
            return fault

        functions = self._functions[name.rpartition("-")[0]][-20:] or ["none"]
        prompt = fill(PROMPT, {"topic": [indented(topic)], "known": list(map(indented, functions))})
        answer = await self.writer.ask(self.client, prompt, check)
        return answer if isinstance(answer, Fault) else _row(proposals[0])

    async def _fault_of(self, task: Task) -> Fault | None:
        """Return what is wrong with a task; None if it is good, and then among the tasks of the file."""
        if (fault := self._duplicate(task)) is not None:
            return fault
        if await asyncio.to_thread(faults.leaks, " ".join(fact.answer for fact in task.facts), task, []):
            what = "the details contain source of the reference, and a person would tell them in words"
            return Fault("leak", what, _MEND.format(what=what))
        for finding in await self.checking.submit(task):
            return Fault(finding.problem, finding.what, _MEND.format(what=finding.what))
        request = Turn(role="user", content=task.problem_description)
        mutants = await asyncio.to_thread(mutants_of, task.ground_truth)
        answers = [
            Trajectory(id=task.id, task=task, dialogue_history=(request,), answer=source) for _, source in mutants
        ]
        scores = await run_all(map(self.scoring.submit, answers))
        alive = [change for (change, _), score in zip(mutants, scores, strict=True) if score.outcome == "passed"]
        killed = len(mutants) - len(alive)
        if killed < KILLED * len(mutants):
            what = f"its tests kill {killed} of {len(mutants)} mutants of the reference"
            return Fault("weak", what, _WEAK.format(what="\n".join(alive[:_SHOWN])))
        if (fault := self._duplicate(task)) is None:  # another may have been accepted meanwhile
            self._add(task)
            self.mutants += len(mutants)
            self.killed += killed
        return fault

    def _duplicate(self, task: Task) -> Fault | None:
        """Return a fault if most statements of the reference are those of another task's, whatever their names."""
        statements = _statements_of(task.ground_truth)
        for name, other in self._statements.items():
            shared = sum(statements[key] for key in statements.keys() & other.keys())
            if 2 * shared >= ALIKE * (sum(statements.values()) + sum(other.values())):
                what = f"its reference is nearly that of {name}"
                return Fault("duplicate", what, _OTHER.format(what=what))
        return None


def _statements_of(reference: str) -> dict[bytes, int]:
    """Return the sizes of the statements by their keys, which are equal for statements that differ in names alone."""
    program = program_of(reference)
    return {} if program is None else {node.key: node.size for node in program.statements}


def _row(task: Task) -> Row:
    return task.model_dump(mode="json", exclude_defaults=True)


def run_data_synthesise(
    source: str | None, config: SynthesiseConfig, reporter: Reporter
) -> StageResult[SynthesiseMetrics]:
    """Write a file of new tasks on the topics of a file, or add to it. The result's `run` is the file.

    A task for which no try passes the checks is listed in the metrics, with the reason. Raises as `run_data_describe`;
    InputError also where there is no such file of topics, or it is invalid.
    """
    kind, beside = task_kind("code"), Path("synthesised" if source is None else source)
    topics = read_topics(_TEXTS / "topics.txt" if source is None else Path(source))
    out = config.out or beside.with_name(f"{beside.stem}-tasks.jsonl")
    writer = Writer(config, reporter, out, (TEMPERATURE, TEMPERATURE))
    tasks = {task.id: task for task in (kind.load(str(out), TRAIN) if out.is_file() else [])}
    tasks |= {row["id"]: parse_row(encode(row), Task, writer.journal) for row in writer.unfinished()}
    names = list(topics)
    numbers = range(config.num_tasks or len(names))
    planned = {f"{names[n % len(names)]}-{n // len(names) + 1}": topics[names[n % len(names)]] for n in numbers}
    done = tasks.keys() | {failure.task for failure in writer.failed}
    missing = {name: topic for name, topic in planned.items() if name not in done}
    if tasks:
        reporter.say(f"In {out} already: {count(len(tasks), 'task')}; missing: {len(missing):,}.")
    work = _Synthesis(kind, writer, tasks.values())
    if missing:
        run_main(work.run(missing))
    new = {row["id"]: row for row in writer.written}
    rows = [*map(_row, tasks.values()), *(new[name] for name in missing if name in new)]
    figures = writer.finish(rows, len(tasks.keys() & planned.keys()), LACK)
    return StageResult("data synthesise", out, SynthesiseMetrics(**figures, mutants=work.mutants, killed=work.killed))
