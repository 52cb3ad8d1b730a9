"""Check code tasks: compile every reference and test, and run the references against their tests in the sandbox.

A reference runs as for `sweet eval` (sweet.tasks.code.expected), `repeats` times, each time in another process. What
makes eval call a task invalid is found here before a dialogue is paid for. The sandbox gives every process the same
random numbers, so that one that may use them gets others when it runs again: an answer that draws in another order
would fail such a task. A reference that may be slow is run again call by call, because the limit is for a call.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Execution, Program, Result
from sweet.sandbox.tiers import open_sandbox
from sweet.tasks.base import Task
from sweet.tasks.code.expected import Reference, References, agree, fault_of
from sweet.tasks.code.reader import TextFaults, read_faults
from sweet.tasks.findings import Checked, Finding, Problem
from sweet.tasks.scores import ScoringRequest
from sweet.units import format_duration

NEAR = 0.5
"""Share of a time limit from which a reference is slow: an answer on a busy machine may exceed the limit."""

_FIXES: dict[Problem, str] = {
    "invalid": "correct 'ground_truth', or that test",
    "flaky": "make 'ground_truth' deterministic: no random numbers, times or orders of sets",
    "slow": "smaller inputs in 'test_cases', or a faster 'ground_truth'",
    "trivial": "tests that expect different values",
}


def findings_of_texts(tasks: Sequence[Task]) -> list[Finding]:
    """Return what is wrong with the texts of the tasks, without running any: one cannot be scored, or its tests use
    names that an agent cannot know, so that a right answer fails."""
    findings = map(_finding_of_texts, tasks, read_faults(tasks))
    return [finding for finding in findings if finding is not None]


def _finding_of_texts(task: Task, read: TextFaults) -> Finding | None:
    bad = next(((name, why) for name, why in zip(task.test_cases, read.calls, strict=False) if why), None)
    if read.source is not None:
        return _finding(task, "invalid", f"the reference does not compile: {read.source}", "correct 'ground_truth'")
    if bad is not None:
        what = f"the test {bad[0]!r} is not a Python expression: {bad[1]}"
        return _finding(task, "invalid", what, "correct 'test_cases'")
    if read.uses is not None and not read.uses:
        fix = "calls in 'test_cases'"
        if read.swapped:
            call = json.dumps(next(iter(task.test_cases)))
            fix = f'write "test_cases": {{"test1": {call}, …}}: the reference computes what is expected'
        what = "no test calls what the reference defines, so any answer passes"
        return _finding(task, "invalid", what, fix)
    if read.imports:
        what = f"the tests use {', '.join(read.imports)}, which only the reference imports"
        return Finding(task.id, "unnamed", what, "import it within the calls of 'test_cases'")
    request = task.problem_description
    hidden = [name for name in read.uses or () if not re.search(rf"\b{re.escape(name)}\b", request)]
    if not hidden:
        return None
    what = f"the tests use {', '.join(hidden)}, which the request does not name"
    return Finding(task.id, "unnamed", what, "add the signature to 'problem_description'")


def check_code(tasks: Sequence[Task], request: ScoringRequest, repeats: int) -> Iterator[Checked]:
    """Yield each task, in their order, with what is wrong with it.

    Raises:
        SweetError: no sandbox works on this machine.
    """
    texts = findings_of_texts(tasks)
    broken = {finding.task_id: finding for finding in texts if finding.unusable}
    hidden = {finding.task_id: [finding] for finding in texts if not finding.unusable}
    with open_sandbox(request.sandbox, request.workers, cores=request.cores) as box:
        for task, findings in _Checks(box, repeats).of(tasks, broken):
            yield task, [*findings, *hidden.get(task.id, ())]


class _Checks:
    def __init__(self, box: Sandbox, repeats: int) -> None:
        self._box, self._repeats = box, repeats
        self._references = References(box.limits, "strict")

    def of(self, tasks: Sequence[Task], broken: dict[str, Finding]) -> Iterator[Checked]:
        waiting: list[Reference] = []

        def programs() -> Iterator[Program]:
            for task in tasks:
                if task.id not in broken:
                    reference = self._references.of(task)
                    waiting.append(reference)
                    yield from (_with_luck(reference.program, repeat) for repeat in range(self._repeats))

        executions = self._box.stream(programs())
        for task in tasks:
            if task.id in broken:
                yield task, [broken[task.id]]
                continue
            runs = list(itertools.islice(executions, self._repeats))
            yield task, list(self._findings(task, waiting.pop(0), runs))

    def _findings(self, task: Task, reference: Reference, runs: Sequence[Execution]) -> Iterator[Finding]:
        if reference.read.fault is not None:
            what = f"the reference or a test cannot be read: {reference.read.fault}"
            yield _finding(task, "invalid", what, _FIXES["invalid"])
            return
        both = [reference.both(run.results) for run in runs]
        once = [results for results, _ in both]
        faults = [fault_of(reference, *results) for results in both]
        fault = next((fault for fault in faults if fault is not None), None)
        differs = next(
            (
                call
                for other in once[1:]
                for call, a, b in zip(task.test_cases.values(), once[0], other, strict=True)
                if not agree(a, b)
            ),
            None,
        )
        if fault is not None and fault in faults and all(each is not None for each in faults):
            yield _finding(task, fault[0], fault[1], _FIXES[fault[0]])
        elif fault is not None:
            failed = sum(each is not None for each in faults)
            problem: Problem = "slow" if fault[0] == "slow" else "flaky"
            yield _finding(task, problem, f"in {failed} of {len(runs)} runs {fault[1]}", _FIXES[problem])
        elif differs is not None and reference.program.uses_random:
            what = f"with other random numbers the reference returns another value on {differs.strip()[:100]}"
            yield Finding(task.id, "flaky", what, _FIXES["flaky"])
        elif differs is not None:
            what = f"the reference returns another value on {differs.strip()[:100]} when it runs again"
            yield _finding(task, "flaky", what, _FIXES["flaky"])
        else:
            if all(agree(once[0][0], other) for other in once[0][1:]):  # a function that ignores its arguments passes
                yield Finding(task.id, "trivial", _constant(once[0]), _FIXES["trivial"])
            if min(run.seconds for run in runs) / reference.times >= NEAR * self._box.limits.call_seconds:
                yield from self._slow(task)

    def _slow(self, task: Task) -> Iterator[Finding]:
        """Yield the finding for a task whose reference is near a time limit, if it is."""
        calls = tuple(task.test_cases.values())
        slack = self._references.of(task).program.slack
        alone = [Program(task.ground_truth, (call,), slack=slack) for call in calls]
        seconds = [
            min(runs) for runs in zip(*([run.seconds for run in self._box.run(alone)] for _ in range(2)), strict=True)
        ]
        limits, longest = self._box.limits, max(range(len(calls)), key=seconds.__getitem__)
        if seconds[longest] >= NEAR * limits.call_seconds:
            most = format_duration(limits.call_seconds)
            what = f"{calls[longest].strip()[:100]} takes {format_duration(seconds[longest])} of {most}"
        elif sum(seconds) >= NEAR * limits.total_seconds:
            what = f"its tests take {format_duration(sum(seconds))} of {format_duration(limits.total_seconds)} together"
        else:
            return
        yield Finding(task.id, "slow", what, _FIXES["slow"])


def _with_luck(program: Program, luck: int) -> Program:
    """Return a program whose calls get other random numbers, for another `luck`; itself for 0, or if it uses none."""
    if not luck or not program.uses_random:
        return program
    seeds = [f"__import__('random').seed({luck})", f"__import__('os').urandom({luck})"]
    seeds += [f"__import__('numpy').random.seed({luck})"] if "numpy" in program.source else []
    calls = tuple(f"({', '.join(seeds)}, ({call.strip()}\n))[-1]" for call in program.calls)
    return replace(program, calls=calls, code=None)


def _finding(task: Task, problem: Problem, what: str, fix: str) -> Finding:
    return Finding(task.id, problem, what, fix, unusable=True)


def _constant(results: Sequence[Result]) -> str:
    if len(results) == 1:
        return "it has one test, which a function that always returns the same value passes"
    same = f"raise {results[0].error}" if results[0].status == "raised" else "expect the same value"
    return f"all {len(results)} tests {same}: a function that ignores its arguments passes"
