"""The code task: a vague request for a function, a human who knows its details, and hidden tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sweet.tasks import prompts
from sweet.tasks.base import PART_LINES, Credit, Message, Task
from sweet.tasks.files import COLBENCH_SPLITS, Wrong, downloaded_file
from sweet.tasks.findings import Checked, Finding
from sweet.tasks.kind import TaskKind
from sweet.tasks.micro.family import FAMILIES
from sweet.tasks.micro.generator import load as load_generated
from sweet.tasks.parts import assembled
from sweet.tasks.scores import METRICS, UPSTREAM_METRICS, ScoringRequest, TrajectoryScorer

SPLITS = {**{name: tuple(family.splits) for name, family in FAMILIES.items()}, "colbench": COLBENCH_SPLITS}


class Prompts(prompts.Prompts):
    """The prompts of the code task."""

    package = "sweet.tasks.code"
    speaker = "Programmer"


class CodeKind(TaskKind):
    """Backend programming, as in ColBench."""

    name = "code"
    texts = Prompts
    language = "python"
    scorer_options = frozenset({"scorer", "tolerance"})
    splits = SPLITS
    metrics = METRICS | UPSTREAM_METRICS

    @property
    def datasets(self) -> Mapping[str, Mapping[str, Path]]:  # type: ignore[override]
        return {"colbench": {split: downloaded_file("colbench", split) for split in COLBENCH_SPLITS}}

    def problem(self, task: Task) -> tuple[str, ...]:
        """The reference alone: another request for the same function is the same problem."""
        return (task.ground_truth,)

    def drawn(self, tasks: str, split: str) -> list[Task]:
        return load_generated(split, FAMILIES[tasks])

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        """Check a row's tests, and return them as a mapping."""
        tests = row.get("test_cases")
        if isinstance(tests, list):
            tests = {f"test{index}": call for index, call in enumerate(tests, 1)}
        if not tests:
            raise wrong("The task has no tests.", 'add "test_cases": {"test1": "function(1, 2)", …}')
        if not isinstance(tests, dict) or not all(isinstance(call, str) and call.strip() for call in tests.values()):
            raise wrong(
                "'test_cases' must map each test's name to a call, as text.",
                'write "test_cases": {"test1": "function(1, 2)", …}',
            )
        lines = row.get(PART_LINES, 1)
        if not isinstance(lines, int) or isinstance(lines, bool) or lines < 1:
            raise wrong(
                f"{PART_LINES!r} must be a whole number above 0.", "omit it where a reply delivers the whole answer"
            )
        _check_lines(row, wrong)
        return {"test_cases": tests}

    def faults(self, tasks: Sequence[Task]) -> list[Finding]:
        from sweet.tasks.code.check import findings_of_texts

        return [finding for finding in findings_of_texts(tasks) if finding.unusable]

    def check(self, tasks: Sequence[Task], request: ScoringRequest, repeats: int) -> Iterator[Checked]:
        from sweet.tasks.code.check import check_code

        yield from check_code(tasks, request, repeats)

    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        from sweet.tasks.code.scoring import open_code_scorer

        return open_code_scorer(request)

    def whole_answer(self, task: Task, dialogue: Sequence[Message], answer: str) -> str:
        return assembled(task, dialogue, answer)

    def credit(self, task: Task, observation: Sequence[Message], reply: str, *, last: bool) -> Credit | None:
        from sweet.tasks.code.credit import credit

        return credit(task, observation, self.move(reply, last=last), last=last)


def _check_lines(row: dict[str, Any], wrong: Wrong) -> None:
    """Check that the lines of facts are statements of the reference."""
    from sweet.tasks.code.reader import statements

    facts = row.get("facts")
    written: set[str | None] = set()
    for fact in facts if isinstance(facts, list) else []:
        line = fact.get("line") if isinstance(fact, dict) else None
        written = written or {statement.line for statement in statements(row["ground_truth"])}
        if isinstance(line, str) and line.strip() not in written:
            what = f"The fact {fact.get('topic')!r} names a line that is not a statement of 'ground_truth': {line!r}."
            raise wrong(what, 'correct its "line", or omit it')
