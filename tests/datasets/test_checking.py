"""`sweet data check` finds what is wrong with tasks, and rollouts refuse what cannot be scored before any request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweet.cli.app import run
from sweet.datasets.checking import DataCheckConfig, check_tasks, refuse_invalid, run_data_check
from sweet.errors import InputError, UsageError
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.plan import plan_rollout
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.code import check
from sweet.tasks.code.kind import SPLITS
from sweet.tasks.kind import TaskKind
from sweet.tasks.micro import generator
from sweet.tasks.prompts import Prompts
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import AnswerScorer, ScoreOutcome, Verdict
from tests.cli.conftest import Outcome
from tests.stages.heard import Heard

CODE = task_kind("code")
CALLS = ("fee(2)", "fee(3)")


def row(name: str, source: str, *calls: str, request: str = "I need the fee.", **fields: Any) -> dict[str, Any]:
    tests = list(calls or CALLS)
    return {"id": name, "problem_description": request, "ground_truth": source, "test_cases": tests} | fields


def body(*lines: str) -> str:
    return "\n    ".join(["def fee(h):", *lines]) + "\n"


def write(folder: Path, *rows: dict[str, Any] | str) -> Path:
    path = folder / "own.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return path


def checked(tmp_path: Path, *rows: dict[str, Any], repeats: int = 2) -> dict[str, tuple[str, bool, str]]:
    """Return the findings of a file by task: the problem, whether the task is unusable, and what it is."""
    path = write(tmp_path, *rows)
    result = run_data_check(str(path), DataCheckConfig(repeats=repeats), Silent())
    found = result.metrics.findings
    assert [finding.line for finding in found] == sorted(finding.line or 0 for finding in found)
    return {finding.task: (finding.problem, finding.unusable, finding.what) for finding in found}


def test_a_reference_that_cannot_score_an_answer_is_found_with_its_line(tmp_path: Path) -> None:
    found = checked(
        tmp_path,
        row("fine", body("return 3 * h + 1")),
        row("cut", "def fee(1"),
        row("name", body("return 4 * hours")),
        row("test", body("return 5 * h"), "fee(2", "fee(3)"),
        row("returned", body("print(h * 6)")),
        row("raising", body("raise ValueError(h * 7)")),
    )
    assert {name: (problem, unusable) for name, (problem, unusable, _) in found.items()} == {
        "cut": ("invalid", True),
        "name": ("invalid", True),
        "test": ("invalid", True),
        "returned": ("trivial", True),
        "raising": ("trivial", False),
    }
    assert "SyntaxError" in found["cut"][2]
    assert "(line 1)" in found["cut"][2]
    assert "fee(2): NameError: name 'hours' is not defined" in found["name"][2]
    assert "the test 'test1' is not a Python expression" in found["test"][2]


def test_rows_that_are_no_tasks_are_all_listed(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        row("one", body("return 2 * h")),
        "not json",
        {"problem_description": "x"},
        row("one", body("return 3 * h")),
        row("two", body("return 4 * h")),
    )
    metrics = run_data_check(str(path), DataCheckConfig(repeats=1), Silent()).metrics
    assert (metrics.tasks, metrics.unusable) == (5, 3)
    assert [finding.line for finding in metrics.findings] == [2, 3, 4]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"split": "Train"}, "'split' must be train, validation or test, not 'Train'"),
        ({}, "The task has no 'split', and other rows of the file do"),
        ({"split": "test", "facts": [{"topic": "a", "cues": [" "], "answer": "b"}]}, "at least 1 character"),
        ({"split": "test", "facts": [{"topic": "a", "cues": "rate", "answer": "b"}]}, "should be a valid list"),
    ],
)
def test_what_a_rollout_refuses_in_a_row_is_found(tmp_path: Path, fields: dict[str, Any], what: str) -> None:
    rows = [row("one", body("return 2 * h"), split="train"), row("two", body("return 3 * h"), **fields)]
    metrics = run_data_check(str(write(tmp_path, *rows)), DataCheckConfig(repeats=1), Silent()).metrics
    [finding] = metrics.findings
    assert (metrics.tasks, metrics.unusable, finding.line, finding.problem) == (2, 1, 2, "invalid")
    assert what in finding.what
    with pytest.raises(InputError) as refused:
        plan_rollout(Run.create(tmp_path / "run", task="code"), config(tmp_path / "own.jsonl"), Silent())
    assert (refused.value.what, refused.value.fix) == (f"{finding.what}.", finding.fix)


def test_luck_is_found(tmp_path: Path) -> None:
    source = "import random\n\n" + body("return random.random() * h")
    seeded = "import random\n\n" + body("return random.Random(h).random()")
    found = checked(tmp_path, row("coin", source), row("seeded", seeded))
    assert set(found) == {"coin"}
    assert found["coin"][0] == "flaky"
    assert checked(tmp_path, row("coin", source), repeats=1) == {}, "one run has the same luck for all"


def test_a_reference_near_the_limit_of_time_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(tmp_path, row("fast", body("return 9 * h")), repeats=1) == {}
    monkeypatch.setattr(check, "NEAR", 0.02)  # the loop takes longer on any CPU
    loop = body("n = h", "while n < 3_000_000:", "    n += 1", "return n * h")
    found = checked(tmp_path, row("loop", loop), repeats=1)
    assert found["loop"][:2] == ("slow", False)
    assert " s of 1" in found["loop"][2]


def test_tests_that_a_constant_passes_are_found(tmp_path: Path) -> None:
    found = checked(
        tmp_path,
        row("constant", body("return 4 if h else 5")),
        row("single", body("return 6 * h"), "fee(2)"),
        row("varied", body("return 7 * h")),
        repeats=1,
    )
    assert {name: problem for name, (problem, _, _) in found.items()} == {"constant": "trivial", "single": "trivial"}


def test_tests_that_do_not_call_the_reference_are_found(tmp_path: Path) -> None:
    """Most benchmarks write call -> expected value: any answer passed such tests."""
    source = body("return 3 * h")
    path = write(
        tmp_path,
        row("swapped", source, test_cases={"fee(1)": "3", "fee(2)": "6"}),
        row("other", body("return 4 * h"), test_cases={"one": "cost(1)", "two": "len('ab')"}),
        row("some", body("return 5 * h"), test_cases={"one": "fee(1)", "two": "fee(2) + 1"}),
    )
    found = {one.task: one for one in run_data_check(str(path), DataCheckConfig(repeats=1), Silent()).metrics.findings}
    assert {name: (one.problem, one.unusable) for name, one in found.items()} == {
        "swapped": ("invalid", True),
        "other": ("invalid", True),
    }
    assert '"test1": "fee(1)"' in found["swapped"].fix
    with pytest.raises(InputError, match="any answer passes"):
        plan_rollout(None, RolloutConfig(tasks=str(path), agent="scripted", task="code"), Silent())


def test_names_that_a_right_answer_cannot_know_are_found(tmp_path: Path) -> None:
    imports = "from decimal import Decimal\n"
    found = checked(
        tmp_path,
        row("unsaid", body("return 3 * h"), request="I need a function for parking."),
        row("part", body("return 4 * h"), request="What about feeding fees?"),
        row("imported", imports + body("return h * 5"), "fee(Decimal(2))", "fee(Decimal(3))"),
        row("own", imports + body("return Decimal(h) * 6")),
        row("signature", body("return 7 * h"), request="The signature is: def fee(h)"),
        repeats=1,
    )
    assert {name: (problem, unusable) for name, (problem, unusable, _) in found.items()} == {
        "unsaid": ("unnamed", False),
        "part": ("unnamed", False),
        "imported": ("unnamed", False),
    }
    assert "Decimal, which only the reference imports" in found["imported"][2]


def test_duplicates_and_leaks_are_found(tmp_path: Path) -> None:
    secret = "Write a fee: total = base + 3 * h then return total. def fee(h)"
    found = checked(
        tmp_path,
        row("first", body("return 3 * h")),
        row("again", body("return  3 * h"), request="I need a price."),
        row("told", body("base = 4", "total = base + 3 * h", "return total"), request=secret),
        row("signature", body("total = 5 * h", "return total"), request="Write def fee(h): which returns the total."),
        repeats=1,
    )
    assert found["again"] == ("duplicate", False, "it has the same reference as first (line 1)")
    assert found["told"][0] == "leak"
    assert set(found) == {"again", "told"}


def test_packaged_tasks_are_clean() -> None:
    assert check_tasks(CODE, generator.load("test")[:20], Silent(), DataCheckConfig(repeats=1), {}) == []


def test_the_command_exits_with_1_and_prints_one_object(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def sweet(*words: str) -> Outcome:
        code = run(words)
        return Outcome(code, *capsys.readouterr())

    path = write(workplace, row("fine", body("return 3 * h")), row("cut", "def fee(1"))
    outcome = sweet("data", "check", path.name, "--json", "--repeats", "1")
    found = json.loads(outcome.out)
    assert outcome.code == found["exit_code"] == 1
    assert found["where"] == "own.jsonl, line 2"
    assert found["metrics"]["unusable"] == 1
    shown = sweet("data", "check", path.name, "--repeats", "1").out
    assert "does not compile" in shown
    write(workplace, row("fine", body("return 3 * h")))
    assert sweet("data", "check", path.name, "--repeats", "1").code == 0
    assert sweet("data", "check", "nowhere.jsonl").code == 2


def config(path: Path, **changes: Any) -> RolloutConfig:
    return RolloutConfig(**{"tasks": str(path), "max_turns": 1, "max_tokens": 8, **changes})


@pytest.mark.parametrize("command", [["data", "check"], ["rollout", "r", "--tasks"]], ids=["check", "rollout"])
def test_the_fix_of_a_missing_file_fits_the_command(
    command: list[str], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An argument and an option name the tasks, so the fix names the file alone."""
    assert run([*command, "mine.jsonl"]) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", "").split())
    assert "try name a JSONL file or a dataset" in shown
    assert f"Known here: {', '.join(SPLITS)}." in shown
    (workplace / "mine-2.jsonl").touch()
    assert run([*command, "mine.jsonl"]) == 2
    assert "try    write mine-2.jsonl" in capsys.readouterr().err
    (workplace / "mine-3.jsonl").touch()
    assert run([*command, "."]) == 2, "no file of a folder is better than another"
    assert "try    name one of its files: mine-2.jsonl, mine-3.jsonl" in capsys.readouterr().err


def test_a_rollout_refuses_what_does_not_compile_or_skips_it(tmp_path: Path) -> None:
    known = [{"topic": "rate", "cues": ["rate"], "answer": "It is 3."}]
    path = write(
        tmp_path,
        row("fine", body("return 3 * h"), facts=known),
        row("cut", "def fee(1", facts=known),
        row("test", body("return 5 * h"), "fee(2", facts=known),
    )
    made = Run.create(tmp_path / "run", task="code")
    unreachable = {"agent": "m", "agent_url": ["http://127.0.0.1:9/v1"]}
    for work in (run_rollout, plan_rollout):
        with pytest.raises(InputError, match=r"The task cut cannot be scored: .*Syntax.* 1 other task of 3") as error:
            work(made, config(path, **unreachable), Silent())
        assert (error.value.line, error.value.path) == (2, path)
        assert "--skip-invalid" in str(error.value.fix)
        assert f"sweet data check {path}" in str(error.value.fix)
    assert made.manifest().attempts == []
    heard = Heard()
    assert plan_rollout(made, config(path, skip_invalid=True), heard).as_json()["tasks"] == 1
    assert any("Skipped 2 of 3 tasks" in text and "cut (line 2)" in text for text in heard.warnings)
    only = write(tmp_path, row("cut", "def fee(1", facts=known))
    with pytest.raises(UsageError, match="None is left"):
        run_rollout(made, config(only, skip_invalid=True), Silent())


def test_a_rollout_warns_of_tasks_that_are_in_a_file_twice(tmp_path: Path) -> None:
    again = row("again", body("return  3 * h"), request="I need a price.")
    path = write(tmp_path, row("first", body("return 3 * h")), row("other", body("return 4 * h")), again)
    heard = Heard()
    tasks = CODE.load(str(path), "train")
    assert refuse_invalid(CODE, tasks, str(path), heard, skip=False) == tasks
    (warning,) = heard.warnings
    assert warning == (
        "1 of 3 tasks have the reference of an earlier one; again (line 3): it has the same reference as "
        "first (line 1)."
    )
    assert refuse_invalid(CODE, tasks[:2], str(path), heard, skip=False) == tasks[:2]
    assert len(heard.warnings) == 1


def test_tasks_that_the_program_generates_are_not_read_again_before_every_rollout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def faults(*_: object) -> None:
        raise AssertionError("they are read")

    monkeypatch.setattr(type(CODE), "faults", faults)
    tasks = CODE.load("micro", "test")
    assert refuse_invalid(CODE, tasks, "micro", Silent(), skip=False) == tasks
    with pytest.raises(AssertionError, match="they are read"):
        refuse_invalid(CODE, tasks, "tasks.jsonl", Silent(), skip=False)


class Scorer(AnswerScorer):
    """Solves every task whose reference is `easy`, and cannot score `broken`; `coin` changes."""

    def __init__(self) -> None:
        super().__init__("toy-1")
        self.count = 0

    def verdicts(self, answers: Any) -> Iterator[Verdict]:
        for task, answer in answers:
            assert answer == NO_ANSWER
            self.count += 1
            reward = {"easy": 1.0, "coin": float(self.count % 2), "broken": None}.get(task.ground_truth, 0.0)
            outcome: ScoreOutcome = "invalid" if reward is None else "passed" if reward else "failed"
            yield Verdict(reward, 0, 1, outcome, {"why": "it is broken"} if reward is None else {})


class Kind(TaskKind):
    name = "toy"
    texts = Prompts

    @contextmanager
    def open_scorer(self, request: Any) -> Iterator[Scorer]:
        yield Scorer()


def toy_task(name: str) -> Task:
    return Task(id=name, problem_description=f"Do {name}.", ground_truth=name)


def test_a_kind_of_a_package_is_checked_by_its_scorer() -> None:
    tasks = [toy_task(name) for name in ("hard", "easy", "broken", "coin")]
    found = check_tasks(Kind(), tasks, Silent(), DataCheckConfig(repeats=2), {})
    assert [(finding.task_id, finding.problem, finding.unusable) for finding in found] == [
        ("easy", "trivial", False),
        ("broken", "invalid", True),
        ("coin", "flaky", True),
    ]
    assert refuse_invalid(Kind(), tasks, "toy", Silent(), skip=False) == tasks
