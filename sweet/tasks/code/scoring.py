"""What an answer to a code task is worth: hidden tests, run in the sandbox, judged outside of it.

The reference runs in children of its own and gives the expected values; the answer's child never holds them. A test
passes when the values are equal (sweet.sandbox.values), or when the reference raises on purpose and the answer raises
the same type. Scorer `strict` takes the answer as people write it and wants a reference that reproduces itself, or the
task is invalid. Scorer `upstream` follows the published evaluator: its filters, its cutting, its scoping, its equality.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweet.sandbox.box import Sandbox
from sweet.sandbox.program import Execution, Program, Result
from sweet.sandbox.values import RELATIVE_TOLERANCE, same, same_as_published
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.code.expected import Expected, References, Scorer
from sweet.tasks.code.extract import defined_names, extract_code, published_code
from sweet.tasks.scores import ScoreOutcome

_SHOWN = 200


@dataclass(frozen=True)
class Verdict:
    """What an answer is worth. `reward` is None where the task is invalid; `passed` counts of `total` tests."""

    reward: float | None
    passed: int
    total: int
    outcome: ScoreOutcome
    detail: dict[str, Any] = field(default_factory=dict)


class CodeScorer:
    """Scores answers in one sandbox.

    Args:
        box: where answers and references run.
        scorer: whose rules.
        tolerance: relative, within which floats agree; 0 wants them equal bit for bit. `upstream` knows none.
        folder: where expected values are kept on disk (sweet.tasks.code.expected); without it they are not.
    """

    def __init__(
        self, box: Sandbox, scorer: Scorer, tolerance: float = RELATIVE_TOLERANCE, folder: Path | None = None
    ) -> None:
        self.box, self.scorer, self.tolerance = box, scorer, tolerance
        self.references = References(box, scorer, folder)

    def score(self, answers: Sequence[tuple[Task, str]], on_done: Callable[[], None] | None = None) -> list[Verdict]:
        """The verdicts of answers, in their order. `on_done` is called once for each as it is known.

        Raises:
            sweet.sandbox.jail.JailError: jails cannot be kept running.
        """
        known = self.references.of(task for task, _ in answers)
        expected = [known[self.references.key(task)] for task, _ in answers]
        verdicts: dict[int, Verdict] = {}
        running: list[tuple[int, Program]] = []
        for index, (task, answer) in enumerate(answers):
            early, source = self._read(task, answer, expected[index])
            if early is None:
                running.append(
                    (index, Program(source, tuple(task.test_cases.values()), scoped=self.scorer == "upstream"))
                )
            else:
                verdicts[index] = early
                if on_done is not None:
                    on_done()
        executions = self.box.run([program for _, program in running], lambda *_: on_done() if on_done else None)
        for (index, _), execution in zip(running, executions, strict=True):
            verdicts[index] = self._judge(answers[index][0], execution, expected[index].results)
        return [verdicts[index] for index in range(len(answers))]

    def _read(self, task: Task, answer: str, expected: Expected) -> tuple[Verdict | None, str]:
        """The verdict on an answer that need not be run, or the source to run."""
        total = len(task.test_cases)
        invalid = expected.invalid
        if invalid is not None:
            return Verdict(None, 0, total, "invalid", {"why": invalid}), ""
        if answer.strip() in ("", NO_ANSWER):
            return Verdict(0.0, 0, total, "no_answer", {"why": "no answer was delivered"}), ""
        if self.scorer == "upstream":
            source = published_code(answer)
            if source is None:
                return Verdict(0.0, 0, total, "failed", {"why": "it contains a text that scores 0"}), ""
            return None, source
        source = extract_code(answer, asked_names(task))
        if source is None:
            return Verdict(0.0, 0, total, "no_answer", {"why": "there is no code in the answer"}), ""
        return None, source

    def _judge(self, task: Task, execution: Execution, expected: tuple[Result, ...]) -> Verdict:
        equal = [self._passes(want, got) for want, got in zip(expected, execution.results, strict=True)]
        passed, total = sum(equal), len(equal)
        told = {
            name: "passed" if ok else _told(want, got)
            for name, ok, want, got in zip(task.test_cases, equal, expected, execution.results, strict=True)
        }
        detail: dict[str, Any] = {"tests": told}
        failures = [told[name] for name, ok in zip(told, equal, strict=True) if not ok]
        if failures:
            detail["why"] = failures[0]
        return Verdict(passed / total, passed, total, _outcome(equal, execution.results), detail)

    def _passes(self, want: Result, got: Result) -> bool:
        if self.scorer == "upstream":
            both = want.status == got.status == "value" and want.value is not None
            return both and same_as_published(want.value, got.value)
        if want.status == "raised":
            return got.status == "raised" and got.error == want.error
        return got.status == "value" and same(want.value, got.value, self.tolerance)


def asked_names(task: Task) -> set[str]:
    """The names of the reference that the tests use."""
    used: set[str] = set()
    for call in task.test_cases.values():
        try:
            used |= {node.id for node in ast.walk(ast.parse(call.strip(), mode="eval")) if isinstance(node, ast.Name)}
        except (SyntaxError, ValueError, RecursionError):
            continue
    return used & defined_names(task.ground_truth)


def _outcome(equal: list[bool], results: Sequence[Result]) -> ScoreOutcome:
    if all(equal):
        return "passed"
    bad = Counter(result.status for result, ok in zip(results, equal, strict=True) if not ok)
    if bad["timeout"]:
        return "timeout"
    if bad["crash"]:
        return "crash"
    return "error" if bad["raised"] == len(results) else "failed"


def _told(want: Result, got: Result) -> str:
    if got.status != "value":
        return f"{got.status}: {got.told}"[:_SHOWN]
    wanted = f"raises {want.error}" if want.status == "raised" else want.value
    return f"wrong: gives {str(got.value)[:_SHOWN]}, wanted {str(wanted)[:_SHOWN]}"
