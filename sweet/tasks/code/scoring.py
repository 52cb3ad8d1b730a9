"""What an answer to a code task is worth: hidden tests, run in the sandbox, judged outside of it.

The reference runs in children of its own and gives the expected values; the answer's child never holds them. A test
passes when the values are equal (sweet.sandbox.values), or when the reference raises on purpose and the answer raises
the same type. Scorer `strict` takes the answer as people write it and wants a reference that reproduces itself, or the
task is invalid. Scorer `upstream` follows the published evaluator: its filters, its cutting, its scoping, its equality.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter, OrderedDict, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweet.sandbox.literals import written
from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Execution, Program, Result, quiet
from sweet.sandbox.values import RELATIVE_TOLERANCE, same, same_as_published
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.code.expected import Reference, References, Scorer
from sweet.tasks.code.extract import defined_names, extract_code, published_code
from sweet.tasks.scores import JudgedTest, ScoreOutcome, Verdict

_SHOWN = 200
"""Characters of a value or an exception that are kept for people."""
_MOST_SEEN = 4096


_NOT_RUN = Verdict(None, 0, 0, "invalid")
"""Of an answer to a task that is known to be invalid; why is told when it is its turn."""


@dataclass
class _Answer:
    """An answer on its way to its verdict.

    It is run by itself unless reading it decides it (`read`), or it is the `twin` of one before it, to the same task
    with the same source: what that did, this one would do.
    """

    task: Task
    reference: Reference
    read: Verdict | None = None
    program: Program | None = None
    twin: _Answer | None = None
    verdict: Verdict | None = None


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
        self.references = References(box.limits, scorer, folder)
        self._seen: OrderedDict[tuple[str, str], _Answer] = OrderedDict()

    def score(self, answers: Iterable[tuple[Task, str]]) -> Generator[Verdict, None, None]:
        """The verdicts of answers, in their order. Answers are taken as they are needed (see Sandbox.stream).

        Chance and clock being stopped, an answer does the same each time: one with the source of an earlier one to
        the same task is not run again.

        Raises:
            sweet.sandbox.jail.JailError: jails cannot be kept running.
        """
        jobs: deque[Reference | _Answer] = deque()
        try:
            for execution in self.box.stream(self._programs(answers, jobs)):
                yield from self._unrun(jobs)
                job = jobs.popleft()
                if isinstance(job, Reference):
                    self.references.keep(job, execution.results)
                else:
                    job.verdict = self._judge(job, execution)
                    yield job.verdict
            yield from self._unrun(jobs)
        finally:
            for job in jobs:
                if isinstance(job, Reference):
                    job.under_way = False

    def _programs(self, answers: Iterable[tuple[Task, str]], jobs: deque[Reference | _Answer]) -> Iterator[Program]:
        """What has to be run for the answers, a task's reference before the first answer to it.

        Every program has its job in `jobs`, in the same order, and so has every answer that need not be run.
        """
        for task, answer in answers:
            reference = self.references.of(task)
            if reference.expected is None and not reference.under_way:
                reference.under_way = True
                jobs.append(reference)
                yield reference.program
            job = self._answer(task, answer, reference)
            jobs.append(job)
            if job.program is not None and job.twin is None:
                yield job.program

    def _answer(self, task: Task, answer: str, reference: Reference) -> _Answer:
        invalid = reference.expected is not None and reference.expected.invalid is not None
        read = _NOT_RUN if invalid else self._read(task, answer)
        if isinstance(read, Verdict):
            return _Answer(task, reference, read)
        program = Program(read, tuple(task.test_cases.values()), scoped=self.scorer == "upstream")
        twin = self._seen.get((reference.key, read))
        job = _Answer(task, reference, program=program, twin=twin)
        if twin is None:
            self._seen[reference.key, read] = job
            if len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)
        return job

    def _unrun(self, jobs: deque[Reference | _Answer]) -> Iterator[Verdict]:
        """The verdicts on the answers at the head of the queue that have no execution of their own."""
        while jobs and isinstance(job := jobs[0], _Answer) and (job.read is not None or job.twin is not None):
            jobs.popleft()
            known = job.reference.expected
            if known is not None and known.invalid is not None:
                yield _invalid(job.task, known.invalid)
            elif job.read is not None:
                yield job.read
            elif job.twin is not None and (verdict := job.twin.verdict) is not None and not _by_chance(verdict):
                yield verdict
            else:
                (execution,) = self.box.run([job.program] if job.program else [])
                yield self._judge(job, execution)

    def _read(self, task: Task, answer: str) -> Verdict | str:
        """The verdict on an answer that need not be run, or the source to run."""
        total = len(task.test_cases)
        if answer.strip() in ("", NO_ANSWER):
            return Verdict(0.0, 0, total, "no_answer", {"why": "no answer was delivered"})
        if self.scorer == "upstream":
            source = published_code(answer)
            if source is None:
                return Verdict(0.0, 0, total, "failed", {"why": "it contains a text that scores 0"})
            return source
        source = extract_code(answer, asked_names(task))
        if source is None:
            return Verdict(0.0, 0, total, "no_answer", {"why": "there is no code in the answer"})
        return source

    def _judge(self, job: _Answer, execution: Execution) -> Verdict:
        task, known = job.task, job.reference.expected
        if known is None:
            raise RuntimeError(f"an answer to {task.id} was judged before its reference")
        if known.invalid is not None:
            return _invalid(task, known.invalid)
        expected = known.results
        equal = [self._passes(want, got) for want, got in zip(expected, execution.results, strict=True)]
        passed, total = sum(equal), len(equal)
        tests = {
            name: JudgedTest(passed=ok, expected=_told(replace(want, message="")), got=_told(got))
            for name, ok, want, got in zip(task.test_cases, equal, expected, execution.results, strict=True)
        }
        detail: dict[str, Any] = {"tests": {name: test.model_dump() for name, test in tests.items()}}
        failed = next((test for test in tests.values() if not test.passed), None)
        if failed is not None:
            detail["why"] = f"got {failed.got}, expected {failed.expected}"
        return Verdict(passed / total, passed, total, _outcome(equal, execution.results), detail)

    def _passes(self, want: Result, got: Result) -> bool:
        if self.scorer == "upstream":
            both = want.status == got.status == "value" and want.value is not None
            return both and same_as_published(want.value, got.value)
        if want.status == "raised":
            return got.status == "raised" and got.error == want.error
        return got.status == "value" and same(want.value, got.value, self.tolerance)


def _by_chance(verdict: Verdict) -> bool:
    """Whether a busy machine may have had a part in it: some tests passed, and one ran out of time or crashed."""
    return verdict.passed > 0 and verdict.outcome in ("timeout", "crash")


def _invalid(task: Task, why: str) -> Verdict:
    return Verdict(None, 0, len(task.test_cases), "invalid", {"why": why})


def asked_names(task: Task) -> frozenset[str]:
    """The names of the reference that the tests use."""
    return _asked_names(task.ground_truth, tuple(task.test_cases.values()))


@functools.lru_cache(maxsize=4096)
def _asked_names(source: str, calls: tuple[str, ...]) -> frozenset[str]:
    used: set[str] = set()
    for call in calls:
        try:
            with quiet():
                tree = ast.parse(call.strip(), mode="eval")
            used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        except (SyntaxError, ValueError, RecursionError):
            continue
    return frozenset(used & defined_names(source))


def _outcome(equal: list[bool], results: Sequence[Result]) -> ScoreOutcome:
    if all(equal):
        return "passed"
    bad = Counter(result.status for result, ok in zip(results, equal, strict=True) if not ok)
    if bad["timeout"]:
        return "timeout"
    if bad["crash"]:
        return "crash"
    return "error" if bad["raised"] == len(results) else "failed"


def _told(result: Result) -> str:
    """One line for people, of at most `_SHOWN` characters."""
    if result.status == "value":
        return written(result.value, _SHOWN)
    told = result.told if result.status == result.error else f"{result.status} {result.told}"
    return told if len(told) <= _SHOWN else told[: _SHOWN - 1] + "…"
