"""Score answers to code tasks by hidden tests, which run in the sandbox and are judged outside of it.

References run in children of their own and return the expected values, which never enter an answer's child. A test
passes if the values are equal (sweet.sandbox.values), or if the reference raises on purpose and the answer raises the
same type. Scorer `strict` extracts the code from prose and fences, and requires a deterministic reference, else the
task is invalid. Scorer `upstream` follows the published evaluator: its filters, its extraction, its scoping, its
equality.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.paths import cache_folder
from sweet.sandbox.literals import format_value
from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Code, Execution, Program, Result
from sweet.sandbox.reader import Unreadable
from sweet.sandbox.tiers import open_sandbox
from sweet.sandbox.values import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE, same, same_as_published
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.code.expected import BoundedCache, Reference, References, Scorer
from sweet.tasks.code.reader import read_answer
from sweet.tasks.scores import (
    METRICS,
    UPSTREAM_METRICS,
    Score,
    ScoreOutcome,
    ScoringRequest,
    Verdict,
    delivered,
    scored,
    tests_detail,
)
from sweet.tasks.trajectory import Trajectory

_SHOWN = 200
"""Maximum characters of a value or an exception in a row."""
_MOST_SEEN = 4096
_MOST_SEEN_BYTES = 64 * 2**20
_JUDGED_BYTES = 400
"""Memory of a judged test in a verdict beside its texts."""

_Key = tuple[str, tuple[str, ...], bytes]
"""The key of a task's reference, the names of its tests, and the hash of an answer's source."""


@dataclass
class _Answer:
    """An answer that waits for its verdict.

    Its `program` is run, unless the answer has an `early_verdict`, or is a `duplicate_of` an earlier answer to
    the same task with the same source, whose verdict it shares. Once its verdict is known, it has no reference: later
    answers may keep it for long.
    """

    task: Task
    reference: Reference | None
    early_verdict: Verdict | None = None
    program: Program | None = None
    duplicate_of: _Answer | None = None
    key: _Key | None = None
    verdict: Verdict | None = None


class CodeScorer:
    """Scores answers in one sandbox.

    Args:
        box: the sandbox in which answers and references run.
        scorer: the rules to apply.
        tolerance: relative tolerance for floats; 0 requires equality bit for bit. `upstream` ignores it.
        folder: the cache folder of expected values (sweet.tasks.code.expected); None caches in memory only.
    """

    def __init__(
        self, box: Sandbox, scorer: Scorer, tolerance: float = RELATIVE_TOLERANCE, folder: Path | None = None
    ) -> None:
        self.box, self.scorer, self.tolerance = box, scorer, tolerance
        self.references = References(box.limits, scorer, folder)
        self._seen: BoundedCache[_Key, _Answer] = BoundedCache(_MOST_SEEN, _MOST_SEEN_BYTES)

    def score(self, answers: Iterable[tuple[Task, str]]) -> Generator[Verdict, None, None]:
        """Yield the verdicts on answers, in their order. Answers are consumed as they are needed (see Sandbox.stream).

        Randomness is seeded and the clock is fixed, so that an answer behaves the same each time: one with the same
        source as an earlier one to the same task is not run again.

        Raises:
            sweet.sandbox.jail.JailError: jails cannot be kept running.
        """
        jobs: deque[Reference | _Answer] = deque()
        try:
            for execution in self.box.stream(self._programs(answers, jobs)):
                yield from self._unrun(jobs)
                job = jobs.popleft()
                if isinstance(job, Reference):
                    self.references.store(job, execution)
                else:
                    job.verdict = verdict = self._judge(job, execution)
                    key, job.key, job.program, job.reference = job.key, None, None, None
                    if key is not None:
                        self._seen.grow(key, _size_of(verdict))
                    yield verdict
            yield from self._unrun(jobs)
        finally:
            for job in jobs:
                if isinstance(job, Reference):
                    job.running = False

    def _programs(self, answers: Iterable[tuple[Task, str]], jobs: deque[Reference | _Answer]) -> Iterator[Program]:
        """Yield the programs to run for the answers, a task's reference before the first answer to it.

        Every program has its job in `jobs`, in the same order, and so does every answer that is not run.
        """
        for task, answer in answers:
            reference = self.references.of(task)
            if reference.expected is None and not reference.running:
                reference.running = True
                jobs.append(reference)
                yield reference.program
            job = self._answer(task, answer, reference)
            jobs.append(job)
            if job.program is not None and job.duplicate_of is None:
                yield job.program

    def _answer(self, task: Task, answer: str, reference: Reference) -> _Answer:
        expected = reference.expected
        if expected is not None and expected.invalid is not None:
            return _Answer(task, None, _invalid(task, expected.invalid))
        program = self._program(task, answer, reference)
        if isinstance(program, Verdict):
            return _Answer(task, reference if expected is None else None, program)
        source = hashlib.sha256(program.source.encode("utf-8", "surrogatepass")).digest()
        key = reference.key, tuple(task.test_cases), source  # the names of the tests are part of a verdict
        earlier = self._seen.get(key)
        # Any number of equal answers may wait for one that hangs: they have one program together.
        program = earlier.program if earlier and earlier.program else program
        job = _Answer(task, reference, program=program, duplicate_of=earlier, key=key)
        if earlier is None:
            self._seen.add(key, job)
        return job

    def _unrun(self, jobs: deque[Reference | _Answer]) -> Iterator[Verdict]:
        """Yield the verdicts on the answers at the head of the queue that have no execution."""
        while jobs and isinstance(job := jobs[0], _Answer):
            if job.early_verdict is None and job.duplicate_of is None:
                return
            jobs.popleft()
            expected = None if job.reference is None else job.reference.expected
            earlier = None if job.duplicate_of is None else job.duplicate_of.verdict
            if expected is not None and expected.invalid is not None:
                yield _invalid(job.task, expected.invalid)
            elif job.early_verdict is not None:
                yield job.early_verdict
            elif earlier is not None and not (earlier.passed and earlier.outcome in ("timeout", "crash")):
                yield earlier  # what passed some tests may have failed others by a busy machine
            else:
                (execution,) = self.box.run([job.program] if job.program else [])
                yield self._judge(job, execution)

    def _program(self, task: Task, answer: str, reference: Reference) -> Verdict | Program:
        """Return the program to run, or the verdict on an answer that cannot be run."""
        total = len(task.test_cases)
        if answer.strip() in ("", NO_ANSWER):
            return Verdict(0.0, 0, total, "no_answer", {"why": "no answer was delivered"})
        try:
            read = read_answer(answer, None if self.scorer == "upstream" else reference.read.names)
        except Unreadable as unreadable:
            return Verdict(0.0, 0, total, unreadable.outcome, {"why": str(unreadable)})
        if read.source is None:
            filtered = Verdict(0.0, 0, total, "failed", {"why": "it contains a text that scores 0"})
            none = Verdict(0.0, 0, total, "no_answer", {"why": "there is no code in the answer"})
            return filtered if self.scorer == "upstream" else none
        calls, code = reference.name[1], Code(read.code, reference.read.calls)
        scoped = self.scorer == "upstream"
        return Program(read.source, calls, scoped=scoped, code=code, beside=reference.size)

    def _judge(self, job: _Answer, execution: Execution) -> Verdict:
        task, expected = job.task, None if job.reference is None else job.reference.expected
        if expected is None:
            raise RuntimeError(f"an answer to {task.id} was judged before its reference")
        if expected.invalid is not None:
            return _invalid(task, expected.invalid)
        tests = {
            name: self._judged(want, got)
            for name, want, got in zip(task.test_cases, expected.results, execution.results, strict=True)
        }
        equal = [test["passed"] for test in tests.values()]
        passed, total = sum(equal), len(equal)
        return Verdict(passed / total, passed, total, _outcome(equal, execution.results), tests_detail(tests))

    def _judged(self, want: Result, got: Result) -> dict[str, Any]:
        """Return one test as sweet.tasks.scores.JudgedTest has it, which takes longer to make. No more than these two
        values are parsed at a time."""
        expected, value = want.value, got.value
        both = want.status == got.status == "value"
        if self.scorer == "upstream":
            passed = both and expected is not None and same_as_published(expected, value)
        elif want.status == "raised":
            passed = got.status == "raised" and got.error == want.error
        else:
            passed = got.status == "value" and same(expected, value, self.tolerance)
        return {"passed": passed, "expected": _text(want, expected, message=False), "got": _text(got, value)}


def _size_of(verdict: Verdict) -> int:
    """Return the bytes that a verdict takes in memory, about."""
    tests = verdict.detail.get("tests", {}).values()
    return sum(_JUDGED_BYTES + len(test["expected"]) + len(test["got"]) for test in tests)


def _invalid(task: Task, why: str) -> Verdict:
    return Verdict(None, 0, len(task.test_cases), "invalid", {"why": why})


def _outcome(equal: list[bool], results: Sequence[Result]) -> ScoreOutcome:
    if all(equal):
        return "passed"
    bad = Counter(result.status for result, ok in zip(results, equal, strict=True) if not ok)
    if bad["timeout"]:
        return "timeout"
    if bad["crash"]:
        return "crash"
    return "error" if bad["raised"] == len(results) else "failed"


def _text(result: Result, value: Any, message: bool = True) -> str:
    """Return a result, whose value is parsed, as one line for display, of at most `_SHOWN` characters; of an exception
    with its `message`."""
    if result.status == "value":
        return format_value(value, _SHOWN)
    detail = result.explanation if message else result.error
    text = detail if result.status == result.error else f"{result.status} {detail}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


@contextmanager
def open_code_scorer(request: ScoringRequest) -> Iterator[CodeEvaluation]:
    """Open the sandbox and a scorer that uses it.

    Raises:
        SweetError: no sandbox works on this machine.
    """
    with open_sandbox(request.sandbox, request.workers, cores=request.cores) as box:
        yield CodeEvaluation(box, request)


class CodeEvaluation:
    """Implements sweet.tasks.scores.TrajectoryScorer; with the scorer `both`, the rewards are those of `strict`."""

    def __init__(self, box: Sandbox, request: ScoringRequest) -> None:
        self._box, self._tolerance = box, request.tolerance
        self._both = request.scorer == "both"
        self.name: Scorer = "upstream" if request.scorer == "upstream" else "strict"
        self.option = f"--scorer {self.name}"
        absolute = ABSOLUTE_TOLERANCE if request.tolerance else 0.0
        tolerances = {"tolerance": request.tolerance, "absolute_tolerance": absolute}
        self.meta: dict[str, Any] = {"scorer": self.name, **tolerances, "sandbox": box.tier}
        self.environment: dict[str, Any] = self.meta | {"scorer": request.scorer}
        self.metrics = {**METRICS, **(UPSTREAM_METRICS if self._both else {})}

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score. Two scorers share the sandbox, and each reads ahead of the results."""
        rows = _SharedReader(trajectories, 3)
        scorer = CodeScorer(self._box, self.name, self._tolerance, cache_folder("expected"))
        other = CodeScorer(self._box, "upstream", folder=cache_folder("expected")) if self._both else None
        published = itertools.repeat(None) if other is None else other.score(map(delivered, rows.reader(2)))
        verdicts = scorer.score(map(delivered, rows.reader(1)))
        for trajectory, verdict, upstream in zip(rows.reader(0), verdicts, published, strict=False):
            yield trajectory, scored(trajectory, verdict, None if upstream is None else upstream.reward)


class _SharedReader:
    """An iterable that several threads read, each completely and independently of the others."""

    def __init__(self, items: Iterable[Trajectory], readers: int) -> None:
        self._items = iter(items)
        self._ahead: list[deque[Trajectory]] = [deque() for _ in range(readers)]
        self._lock = threading.Lock()

    def reader(self, number: int) -> Iterator[Trajectory]:
        unread = self._ahead[number]
        while True:
            with self._lock:
                if not unread:
                    for item in itertools.islice(self._items, 1):
                        for queue in self._ahead:
                            queue.append(item)
                if not unread:
                    return
                item = unread.popleft()
            yield item
