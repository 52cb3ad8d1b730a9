"""The metrics of the commands of `sweet data`."""

from __future__ import annotations

from sweet.stages.record import OMITTED_IF_NONE, Record
from sweet.tasks.findings import Problem


class ImportMetrics(Record):
    trajectories: int
    """rows imported"""
    scores: int
    """rows with a reward"""
    system_prompts: dict[str, int]
    """rows by the agent's system prompt that they record, named by its digest, the ten most frequent"""
    without_prompt: int
    """rows that record no prompt, or none that can be read: the packaged one, or that of --prompts, is taken"""


class ExportMetrics(Record):
    trajectories: int
    """rows written"""
    out: str
    """the file"""
    tasks: int
    """tasks of a block, in each block in the same order"""
    samples: int
    """blocks, each with one dialogue of these tasks"""
    incomplete: int
    """tasks with fewer dialogues, which are in no block (--incomplete)"""
    without_input: int
    """turns of the agent without their prompt (--tokenizer)"""


class EnvironmentExportMetrics(Record):
    tasks: int
    """tasks of the environment"""
    package: str
    """name of the Python package"""
    distribution: str
    """name by which it is installed; with verifiers, the id of its taskset"""
    files: int
    """files written"""
    out: str
    """the directory"""


class TrlExportMetrics(Record):
    preferences: int
    """rows of preference.jsonl: a prompt with a chosen and a rejected reply"""
    replies: int
    """rows of kto.jsonl: a prompt with a reply and its label"""
    desirable: int
    """of those, replies with the label true"""
    ambiguous: int
    """replies that are chosen in one pair and rejected in another, which kto.jsonl omits"""
    out: str
    """the directory"""


class ColBenchMetrics(Record):
    train: int | None = None
    """tasks of the split train"""
    test: int | None = None
    """tasks of the split test"""
    trajectories: int | None = None
    """with --trajectories: their number"""


class WebSightMetrics(Record):
    train: int | None = None
    """tasks of the split train"""
    train_passed_over: int | None = None
    """rows without a page or a description, if this call built the split"""
    train_sha256: str | None = None
    """digest of the file"""
    test: int | None = None
    """tasks of the split test"""
    test_passed_over: int | None = None
    """rows without a page or a description, if this call built the split"""
    test_sha256: str | None = None
    """digest of the file"""


class AssetsMetrics(Record):
    assets: int
    """files in the folder"""
    fetched: int
    """files fetched by this call"""


class NewTaskMetrics(Record):
    name: str
    """name of the kind of task"""
    package: str
    """name of the Python package"""
    files: int
    """files written"""


class TaskFinding(Record):
    line: int | None
    """line of the task in its file; null for a dataset"""
    task: str
    """id of the task"""
    problem: Problem
    """what sort of problem it is"""
    unusable: bool
    """whether no answer to the task can be scored"""
    what: str
    """the problem"""
    fix: str
    """what to change"""


class Unwritten(Record):
    """A task, or a part of one, that no model could write."""

    task: str
    """id of the task, or its topic and number"""
    problem: str
    """what sort of problem its last try had: one of sweet data check, or leaked, failed, unusable, unreadable, weak,
    request"""
    what: str
    """the problem"""


class WriterMetrics(Record):
    tasks: int
    """tasks in the file"""
    written: int
    """tasks that this call wrote, or described"""
    kept: int
    """tasks that needed no work: they were there, or had a specification"""
    failed: int
    """tasks for which no try passed the checks"""
    tries: int
    """texts that the model wrote for them"""
    prompt_tokens: int
    """tokens that the models read, in calls that did not finish too"""
    completion_tokens: int
    """tokens that the models wrote, in these calls"""
    out: str
    """the file"""
    failures: list[Unwritten]
    """every task that failed: task, problem, what"""
    reasons: dict[str, int]
    """the commonest reasons, with the number of tasks"""
    cost: float | None = OMITTED_IF_NONE
    """with --prices: price of these tokens; absent without"""
    seconds: float
    """duration"""

    @property
    def are_useless(self) -> bool:
        """Whether every task failed."""
        return self.failed > 0 and not self.written + self.kept


class SynthesiseMetrics(WriterMetrics):
    mutants: int
    """mutants of the references that this call wrote"""
    killed: int
    """of those, mutants that the tests tell from the reference"""


class CheckMetrics(Record):
    tasks: int
    """tasks checked"""
    unusable: int
    """tasks to which no answer can be scored: sweet eval calls them invalid"""
    invalid: int
    """tasks whose reference or a test fails"""
    flaky: int
    """tasks whose reference gives other values when it runs again"""
    slow: int
    """tasks whose reference takes half of a time limit, or more"""
    trivial: int
    """tasks that an answer passes which does nothing, or always returns the same"""
    unnamed: int
    """tasks whose tests use a name that the request does not have, so that a right answer fails"""
    duplicates: int
    """tasks that an earlier one is the same as, or has the same reference as"""
    leaks: int
    """tasks whose request contains most of the reference"""
    findings: list[TaskFinding]
    """every finding: line, task, problem, whether the task is unusable, what, fix"""
    seconds: float
    """duration"""
