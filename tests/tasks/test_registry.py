"""Kinds of other packages: they are found and checked, and errors name the package and the method."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sweet.cli.app import run
from sweet.errors import InputError, SweetError, UsageError
from sweet.inspection.doctor import check_kinds
from sweet.learn.rows import CandidateRow
from sweet.plugins import TASKS, plugins
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message, Task
from sweet.tasks.micro.generator import load as load_micro
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import METRICS, AnswerScorer, ScoringRequest, Verdict
from sweet.tasks.trajectory import Trajectory, Turn
from tests.learn.builders import build_trajectory
from tests.packages import write_package
from tests.stages.learn_runs import make_agent, put

GOOD = """
from contextlib import contextmanager
from sweet.tasks.base import Credit, Task
from sweet.tasks.code.kind import Prompts
from sweet.tasks.kind import TaskKind
from sweet.tasks.base import Credit, Move
from sweet.tasks.scores import AnswerScorer, Metric, JudgedTest, RewardRule, Verdict, tally

class Scorer(AnswerScorer):
    def verdicts(self, answers):
        for task, answer in answers:
            yield tally({"same": JudgedTest(passed=answer == task.ground_truth, expected="", got=answer)})

class Kind(TaskKind):
    name = "odd"
    texts = Prompts

    @property
    def scripted_agent(self):
        return lambda messages, temperature, seed: "I WANT TO ANSWER: 7"

    def load(self, tasks, split):
        return [Task(id="t", problem_description="A number.", ground_truth=" 7", facts=())]

    def default_tasks(self):
        return "one"

    def check_scripted_human(self, tasks):
        pass

    @contextmanager
    def open_scorer(self, request):
        yield Scorer("sameness")
"""

Install = Callable[..., None]


FORGETFUL = """
from sweet.tasks.scores import DialogueScorer

class Scorer(DialogueScorer):
    def verdict(self, trajectory):
        tally({"same": JudgedTest(passed=True, expected="", got="")})
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make a package of one module with the kind `odd` importable."""
    number = iter(range(100))

    def put(source: str, name: str = "sweet-odd", point: str | None = None, kind: str = "odd") -> None:
        # Another module name each time: what was imported once is not read again.
        module = f"{name}-{tmp_path.name}-{next(number)}".replace("-", "_")
        site = tmp_path / module
        for folder in write_package(site, name, "", {kind: point or f"{module}:Kind"}):
            (folder / f"{module}.py").write_text(source)
            monkeypatch.syspath_prepend(folder)

    return put


def test_a_package_with_unreadable_entry_points_does_not_affect_others(tmp_path: Path, install: Install) -> None:
    install(GOOD)
    [folder] = write_package(tmp_path / "garbled", "garbled", "", {})
    (folder / "garbled-1.0.dist-info" / "entry_points.txt").write_text("[console_scripts]\nno equals sign\n")
    install("", name="other", kind="other")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        assert {"code", "html", "odd", "other"} <= set(plugins())
        assert [plugin.ours for plugin in plugins()["code"]] == [True]


def replaced(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def moving(parts: str) -> str:
    return GOOD + f"    def move(self, output, **how):\n        return Move({parts})\n"


def judging(verdict: str) -> str:
    return replaced("yield tally(", f"yield {verdict} if task else tally(")


def request(tmp_path: Path) -> ScoringRequest:
    return ScoringRequest(run=tmp_path, say=print)


def trajectories(count: int) -> list[Trajectory]:
    task = Task(id="t", problem_description="A number.", ground_truth=" 7")
    history = (Turn(role="user", content="A number."), Turn(role="assistant", content=" 7"))
    return [Trajectory(id=f"t-{n}", task=task, dialogue_history=history, answer=" 7") for n in range(count)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_module", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("class Kind(", "cannot be imported: SyntaxError"),
        ("", "cannot be imported: AttributeError"),
        ("Kind = 3", "is not a class derived from sweet.tasks.kind.TaskKind but 3"),
        ("class Kind: name = 'odd'", "is not a class derived from"),
        (replaced("    def open_scorer", "    def open_score"), "lacks open_scorer"),
        (GOOD + "    def __init__(self):\n        raise OSError('no disk')\n", "cannot be created: OSError"),
        (replaced('"odd"', '"even"'), "calls itself 'even'"),
        (replaced('    name = "odd"\n', ""), "has NoneType instead of str in name"),
        (replaced("texts = Prompts", "texts = 'texts'"), "has str instead of type[Prompts] in texts"),
        (replaced("texts = Prompts", "texts, visual = Prompts, 1"), "has int instead of bool in visual"),
        (GOOD + "    @property\n    def datasets(self):\n        return open('gone')\n", "raised FileNotFoundError"),
        (GOOD + "    datasets = {'one': 'train.jsonl'}\n", "str instead of Mapping[str, Path] in datasets.one"),
        (GOOD + "    datasets = {'one': {'train': 'train.jsonl'}}\n", "str instead of Path in datasets.one.train"),
        (GOOD + "    human_reply_limit = 0\n", "must have a human_reply_limit above 0"),
        (GOOD + "    scorer_options = frozenset({'seed'})\n", "of scorer, tolerance, similarity"),
        (GOOD + "    rewards = RewardRule(solved='one')\n", "has str instead of float in rewards.solved"),
    ],
)  # fmt: skip
def test_broken_packages_are_named(install: Install, source: str, said: str) -> None:
    install(source)
    with pytest.raises(UsageError) as error:
        task_kind("odd")
    assert said in error.value.what
    assert "sweet-odd 1.0" in error.value.what
    assert "entry point odd = " in (error.value.where or "")
    assert task_kind("code").name == "code", "the others go on working"
    (check,) = check_kinds()
    assert (check.name, check.status) == ("--task odd", "problem")
    assert said in check.found


def test_an_entry_point_without_a_class_name(install: Install) -> None:
    install(GOOD, point="nowhere.at.all")
    with pytest.raises(UsageError, match="cannot be imported"):
        task_kind("odd")


def test_several_packages_of_one_name(install: Install) -> None:
    install(GOOD)
    assert task_kind("odd").name == "odd"
    install(GOOD, name="sweet-even")
    with pytest.raises(UsageError, match=r"sweet-even 1\.0, sweet-odd 1\.0") as error:
        task_kind("odd")
    assert error.value.fix == "pip uninstall sweet-odd"


def test_built_in_names_are_reserved(install: Install) -> None:
    install(replaced('"odd"', '"code"'), kind="code")
    assert type(task_kind("code")).__module__ == "sweet.tasks.code.kind"
    (check,) = check_kinds()
    assert check.status == "problem"
    assert "has the name of a built-in one" in check.found


def test_an_unknown_kind_suggests_the_nearest(install: Install) -> None:
    install(GOOD)
    with pytest.raises(UsageError, match=r"installed: code, (desk, )?html, odd") as error:
        task_kind("oddd")
    assert error.value.fix == "--task odd"
    with pytest.raises(UsageError) as error:
        task_kind("haiku")
    assert error.value.fix == "install the package that has 'haiku', or --task " + "|".join(sorted(plugins(TASKS))), (
        "a run may want it"
    )


@pytest.mark.parametrize(
    ("method", "source", "said"),
    [
        ("load", replaced("return [Task(", "return [] + 3 + [Task("), "raised TypeError"),
        ("load", replaced("return [Task(", "return 3, [Task("), "returned int instead of Task in 0"),
        ("load", replaced("return [Task(", "return [] and [Task("), "returned no task"),
        ("load", replaced("return [Task(", "return 2 * [Task("), "returned two tasks with the id 't'"),
        ("default_tasks", replaced('return "one"', "return 1"), "returned int instead of str"),
        ("move", GOOD + "    def move(self, output, **how):\n        return output\n", "returned str instead of Move"),
        ("move", moving("None, '7', True"), "returned NoneType instead of str in content"),
        ("move", moving("'7', 7, True"), "returned int instead of str in answer"),
        ("move", moving("'7', '7', 1"), "returned int instead of bool in ends"),
        ("agent_system", GOOD + "    def agent_system(self):\n        raise KeyError('x')\n", "raised KeyError: 'x'"),
        ("scripted_reply", GOOD + "    def scripted_reply(self, *a):\n        return None\n", "returned NoneType"),
        ("scripted_agent", replaced('"I WANT TO ANSWER: 7"', "7"), "returned int instead of str"),
        ("human_prompt", GOOD + "    def human_prompt(self, *a):\n        return 'x'\n", "of list[Message]"),
        ("credit", GOOD + "    def credit(self, *a, **b):\n        return 3\n", "returned int instead of Credit"),
        ("credit", GOOD + "    def credit(self, *a, **b):\n        return Credit('a', 'b')\n", "float in value"),
        ("credit", GOOD + "    def credit(self, *a, **b):\n        return Credit('a', 1e999)\n", "inf instead of"),
        ("with_prompts", GOOD + "    def with_prompts(self, folder):\n        return None\n", "returned NoneType"),
        ("open_scorer", replaced("    @contextmanager\n", ""), "returned generator instead of AbstractContextManager"),
        ("open_scorer", replaced("yield Scorer(", "yield 1 / 0 or Scorer("), "raised ZeroDivisionError"),
        ("score", replaced('tally({"same"', 'tally({"same": 1 / 0, "x"'), "raised ZeroDivisionError"),
        ("score", replaced("for task, answer in answers:", "for task, answer in list(answers)[:1]:"), "ended after 1"),
        ("score", replaced("(AnswerScorer):", "(AnswerScorer):\n    def score(self, r):\n        yield 1"), "yielded"),
        ("score", replaced("yield tally(", "yield Verdict(7.0, 0, 0, 'passed') or ("), "yielded the reward 7.0"),
        ("score", judging("1.0"), "raised TypeError: verdicts yielded float instead of Verdict"),
        ("score", replaced("class Scorer(AnswerScorer):", FORGETFUL), "verdict returned NoneType instead of Verdict"),
        ("score", judging("Verdict('a', 0, 0, 'passed')"), "raised ValidationError: reward of Score: should be"),
        ("score", judging("Verdict(0.5, 3, 2, 'failed')"), "yielded 3 passed tests of 2"),
        ("score", judging("Verdict(None, 0, 2, 'failed')"), "yielded the reward None with the outcome failed"),
        ("score", judging("Verdict(0.0, 0, 2, 'invalid')"), "yielded the reward 0.0 with the outcome invalid"),
        ("score", judging("Verdict(0.0, 0, 2, 'failed', {'why': object()})"), "yielded a detail that is not JSON"),
        ("metrics", GOOD + "    metrics = 3\n", "returned int instead of Mapping[str, Metric]"),
        ("the scorer's name", replaced('"sameness"', "5"), "returned int instead of str"),
        ("the scorer's name", replaced('"sameness"', '""'), "is empty"),
        ("the scorer's metrics", replaced("Scorer):", "Scorer):\n    metrics = {'o': Metric(len)}"), "have 'o', which"),
        ("the scorer's metrics", replaced("Scorer):", "Scorer):\n    metrics = {}\n"), "are empty"),
    ],
)  # fmt: skip
def test_an_error_of_a_method_names_it_and_its_package(
    install: Install, tmp_path: Path, method: str, source: str, said: str
) -> None:
    install(source)
    kind = task_kind("odd")
    with pytest.raises(SweetError) as error:  # noqa: PT012
        (task,) = kind.load(kind.default_tasks(), "train")
        messages = [Message(role="system", content=kind.agent_system()), Message(role="user", content="?")]
        kind.human_prompt(task, messages[1:])
        kind.scripted_reply(task, messages[1:])
        kind.credit(task, messages, "?", last=False)
        (tmp_path / "prompts").mkdir()
        (tmp_path / "prompts" / "agent.txt").write_text("You answer.")
        kind.with_prompts(tmp_path / "prompts")
        agent = kind.scripted_agent
        assert agent is not None
        reply = agent(messages, 0.0, 1)
        kind.move(reply if isinstance(reply, str) else reply.content, last=False)
        assert kind.metrics
        with kind.open_scorer(request(tmp_path)) as scorer:
            list(scorer.score(trajectories(3)))
    assert f"{method} of the kind of task 'odd' (sweet-odd 1.0) " in error.value.what
    assert said in error.value.what


def test_the_reported_line_is_in_the_package(install: Install, tmp_path: Path) -> None:
    install(GOOD + "    def agent_system(self):\n        return __import__('json').loads('{')\n")
    with pytest.raises(SweetError) as error:
        task_kind("odd").agent_system()
    assert "/sweet_odd_test_the_reported" in (error.value.where or "")
    install(GOOD + "    def fields(self, row, wrong): ...\n    load = TaskKind.load\n")
    file = tmp_path / "one.jsonl"
    file.write_text('{"problem_description": "p", "ground_truth": "7"}\n')
    with pytest.raises(SweetError, match="fields returned NoneType instead of dict") as error:
        task_kind("odd").load(str(file), "train")
    assert error.value.where is None


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (None, "no texts"),
        ({"agent": "You answer."}, "no texts/human.txt"),
        ({"agent": "You answer.", "human": "You ask.\n{request}\n"}, r"must have \{reference\}, \{dialogue\} once"),
    ],
)
def test_invalid_packaged_texts_are_refused(
    install: Install, tmp_path: Path, texts: dict[str, str] | None, said: str
) -> None:
    package = f"texts_of_{tmp_path.name}".replace("-", "_")
    if texts is not None:
        (tmp_path / package / "texts").mkdir(parents=True)
        for name, text in texts.items():
            (tmp_path / package / "texts" / f"{name}.txt").write_text(text)
    install(replaced("    texts = Prompts", f"    class texts(Prompts):\n        package = {package!r}\n"))
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()  # a folder that was listed in the same tick of the clock seems unchanged
    try:
        with pytest.raises(InputError, match=said):
            task_kind("odd").agent_system()
    finally:
        sys.path.remove(str(tmp_path))


def test_errors_meant_for_the_user_pass_unchanged(install: Install) -> None:
    refusing = "from sweet.errors import UsageError\n        raise UsageError('no such split')\n        return [Task("
    install(replaced("return [Task(", refusing))
    with pytest.raises(UsageError, match=r"^no such split$"):
        task_kind("odd").load("one", "train")


def test_a_correct_scorer_passes(install: Install, tmp_path: Path) -> None:
    install(GOOD)
    with task_kind("odd").open_scorer(request(tmp_path)) as scorer:
        rows = list(scorer.score(iter(trajectories(3))))
        assert scorer.metrics == METRICS, "by these the others know what the reward is"
    assert [(row.id, score.id, score.reward) for row, score in rows] == [(f"t-{n}", f"t-{n}", 1.0) for n in range(3)]


def test_the_oracle_judges_by_the_credit_of_a_plugin(install: Install, tmp_path: Path) -> None:
    install(
        GOOD
        + "    def credit(self, task, observation, reply, *, last):\n"
        + "        return Credit('long' if len(reply) > 9 else 'short', len(reply))\n"
    )
    agent = make_agent(tmp_path / "agent")
    run = Run.create(tmp_path / "run", task="odd")
    dialogues = [build_trajectory(f"{i}-{i}-0", turns=2, task=f"task-{i}", sample=0) for i in range(3)]
    put(run, "rollout", "rollouts", dialogues, agent=agent, tasks="toy", split="train")
    ranked = run_rank(run, RankConfig(judge="oracle", candidates=3, fraction=0.5, max_tokens=8), Silent())
    rows = list(read_jsonl(run.file(ranked.artifacts[0]), CandidateRow))
    assert len(rows) == 3
    assert all(candidate.score == len(candidate.text) for row in rows for candidate in row.candidates)


def test_more_verdicts_than_answers() -> None:
    class Generous(AnswerScorer):
        def verdicts(self, answers):  # type: ignore[no-untyped-def]
            yield from (Verdict(1.0, 1, 1, "passed") for _ in range(len(list(answers)) + 1))

    with pytest.raises(ValueError, match="more verdicts"):
        list(Generous("generous").score(trajectories(2)))


@pytest.mark.usefixtures("workplace")
def test_an_error_of_a_plugin_is_shown_without_traceback(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    play = ("rollout", "runs/odd", "--task", "odd", "--agent", "scripted")
    install(GOOD)
    assert run(play) == 0
    install(replaced('tally({"same"', 'tally({"same": 1 / 0, "x"'))
    capsys.readouterr()
    assert run(["eval", "runs/odd"]) == 1
    errors = capsys.readouterr().err
    assert "score of the kind of task 'odd' (sweet-odd 1.0) raised ZeroDivisionError" in errors
    assert ".py, line " in errors
    assert "Traceback" not in errors
    run(["eval", "runs/odd", "--debug"])
    assert "Traceback" in capsys.readouterr().err
    install(replaced("return [Task(", "1 / 0\n        return [Task("))
    assert run([*play, "--new"]) == 1
    assert "load of the kind of task 'odd'" in capsys.readouterr().err
    manifest = json.loads(Path("runs/odd/manifest.json").read_text())
    assert {attempt["environment"]["kind"] for attempt in manifest["attempts"]} == {"sweet-odd 1.0"}


CHECKING = """
    def faults(self, tasks):
        return [Finding(task.id, "invalid", "it is odd", "an even one", unusable=True) for task in tasks]

    def check(self, tasks, request, repeats):
        yield from ROWS
"""


def checking(rows: str) -> str:
    return "from sweet.tasks.findings import Finding\n" + GOOD + CHECKING.replace("ROWS", rows)


def test_a_plugin_checks_its_tasks(install: Install, tmp_path: Path) -> None:
    install(checking("((task, [Finding(task.id, 'leak', 'it tells', 'less')]) for task in tasks)"))
    kind = task_kind("odd")
    tasks = kind.load("one", "train")
    assert [finding.what for finding in kind.faults(tasks)] == ["it is odd"]
    ((task, (finding,)),) = kind.check(tasks, request(tmp_path), 1)
    assert (task, finding.problem) == (tasks[0], "leak")
    install(GOOD)
    plain = task_kind("odd")
    assert plain.faults(tasks) == []
    assert list(plain.check(tasks, request(tmp_path), 2)) == [(tasks[0], [])], "its scorer finds nothing wrong"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("[]", "check .* did not yield each task with its findings"),
        ("((task, 'fine') for task in tasks)", r"check .* returned str instead of list\[Finding\]"),
        ("((task, ['fine']) for task in tasks)", "check .* returned str instead of Finding"),
        (
            "((task, [Finding(task.id, 'odd', '', '')]) for task in tasks)",
            r"check .* returned 'odd' instead of Literal",
        ),
        ("((task, 1 / 0) for task in tasks)", "check .* raised ZeroDivisionError"),
    ],
)
def test_a_wrong_check_of_a_plugin_is_reported(install: Install, tmp_path: Path, rows: str, said: str) -> None:
    install(checking(rows))
    kind = task_kind("odd")
    with pytest.raises(SweetError, match=said):
        list(kind.check(kind.load("one", "train"), request(tmp_path), 1))


def test_a_package_that_is_installed_or_removed_meanwhile_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata of packages is read once, and again when a folder of the search path has changed."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    assert "late" not in plugins()
    write_package(site, "sweet-late", GOOD, {"late": "sweet_late:Kind"})
    assert [str(plugin) for plugin in plugins()["late"]] == ["sweet-late 1.0"]
    plugins()["late"].clear()
    assert plugins()["late"], "a caller's change is its own"
    shutil.rmtree(site / "sweet_late-1.0.dist-info")
    assert "late" not in plugins()


def test_generated_tasks_are_equal_and_not_shared() -> None:
    first, second = load_micro("validation"), load_micro("validation")
    assert first == second
    assert first is not second
    assert not {task.id for task in first} & {task.id for task in load_micro("test")}
