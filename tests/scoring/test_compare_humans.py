"""`sweet compare --human`: two humans that replied, or one that is asked the questions of the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Group

from sweet.errors import SweetError, UsageError
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.humans.compare import find_human, run_compare_humans
from sweet.scoring.humans.replies import Exchange, asks_yes_or_no, measure
from sweet.scoring.results.compare import CompareConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks import micro
from sweet.tasks.base import Message, Task
from sweet.view.human_comparison import as_markdown, sections
from tests import programs
from tests.rollouts.human_servers import human_server
from tests.scoring.evaluations import make_task
from tests.view.test_terminal import drawn

TASK = Task(
    id="t",
    problem_description="Write fee(hours).",
    ground_truth="def fee(hours):\n    total = 5 * hours\n    return total * 2.50 if hours > 10 else total",
)
CONFIG = CompareConfig(human=True)


def reply(question: str, text: str) -> Any:
    said = (Message(role="user", content=TASK.problem_description), Message(role="assistant", content=question))
    return measure(Exchange("d", TASK, said, text))


@pytest.mark.parametrize(
    ("question", "text", "facts"),
    [
        ("How much?", "It is 5.0 for each, above 10 times 2.5.", {"5", "10", "2.5"}),
        ("How much?", "Five, ten.", {"5", "10"}),
        ("Is it 5?", "Yes, 5.", set()),
        ("How much?", "It is 05, not 50, of the total hours.", {"5", "total"}),
        ("How much?", "Ask the return department.", set()),
        ("How much?", "总共是 5。", {"5"}),
    ],
)
def test_facts_are_what_a_reply_adds_of_the_hidden_information(question: str, text: str, facts: set[str]) -> None:
    assert reply(question, text).facts == facts


@pytest.mark.parametrize(
    ("question", "text", "polarity"),
    [
        ("Hello. Does it double?", "Yes, above 10.", True),
        ("Does it double?", "No.", False),
        ("Does it double?", "Ja.", True),
        ("Is it free", "Yes.", None),
        ("Does it double?", "I don\u2019t know.", None),
        ("Does it double?", "No idea.", None),
        ("Does it double?", "It depends.", None),
        ("When does it double?", "No.", None),
        ("Does it double?", "不。", False),
        ("Does it double?", "不知道。", None),
    ],
)
def test_the_polarity_of_replies_to_yes_or_no_questions(question: str, text: str, polarity: bool | None) -> None:
    assert reply(question, text).polarity is polarity


def test_other_measures_of_a_reply() -> None:
    assert reply("How much?", "Ich weiß nicht.").unknown
    assert reply("How much?", "It isn\u2019t free").negates
    assert not reply("How much?", "It is nothing-like").unknown
    assert reply("How much?", "不是 5").words == 3
    assert reply("How much?", TASK.ground_truth).leak
    assert not reply("How much?", TASK.ground_truth).fault
    assert reply("How much?", "").fault
    assert not asks_yes_or_no("")


def talked(run: Run, dialogues: Sequence[tuple[str, str, Sequence[str]]], **meta: Any) -> str:
    """Make rollouts of dialogues: task, human, and the texts of agent and human after the request in turn."""
    config = RolloutConfig(tasks="micro")
    with run.attempt("rollout", config) as attempt:
        draft = attempt.start_artifact("rollouts", meta={"task": "code", "sim": "someone", "agent": "micro", **meta})
        with JsonlWriter(draft.path) as writer:
            for place, (task, human, texts) in enumerate(dialogues):
                found = make_task(task)
                turns = [{"role": "user", "content": found.problem_description}]
                for index, text in enumerate(texts):
                    turns.append({"role": "user" if index % 2 else "assistant", "content": text})
                row = {"id": f"{task}-s{place}-r0", "task": found.model_dump(mode="json"), "dialogue_history": turns}
                writer.write(row | ({"human": human} if human else {}))
        return f"{run.path}:{attempt.finish_artifact(draft, rows=writer.rows).id}"


def test_the_same_questions_of_two_sets_of_dialogues(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    a = talked(run, [("x", "", ["Is it 3?", "Yes.", "And why?", "No."]), ("y", "", ["How much?", "It is 3."])])
    b = talked(
        run,
        [
            ("x", "ann", ["is  it 3?", "No, not at all.", "And why?", "No."]),
            ("y", "ann", ["How much?", "Three.", "More?", "No."]),
            ("z", "bob", ["How much?", "It is 3."]),
        ],
    )
    metrics = run_compare_humans(a, f"{b}@ann", CONFIG, Silent()).metrics
    assert (metrics.a.human, metrics.b.human) == ("someone", "ann")
    assert (metrics.a.replies, metrics.b.replies) == (3, 4)
    same = metrics.as_json()["same"]
    assert (same["questions"], same["tasks"], same["same_context"]) == (3, 2, 1)
    assert (same["polarity"], same["polarity_of"]) == (0.0, 1)
    assert (same["facts"], same["facts_of"], same["numbers_of"]) == (1.0, 1, 1)
    assert same["words_difference"] == pytest.approx((1.5 - 2) / 2)
    assert [row.task for row in metrics.different] == ["x"]
    assert metrics.outcomes is not None
    assert (metrics.outcomes.tasks, metrics.outcomes.turns.difference.value) == (2, 0.5)
    assert "rate" not in metrics.as_json()["outcomes"]

    with pytest.raises(UsageError, match=r"rollouts-2 has 2 humans.*@ann, .*@bob"):
        run_compare_humans(a, b, CONFIG, Silent())
    with pytest.raises(UsageError, match="no dialogue with eve"):
        run_compare_humans(a, f"{b}@eve", CONFIG, Silent())
    with pytest.raises(UsageError, match="share neither a question nor a task"):
        run_compare_humans(a, f"{b}@bob", CONFIG, Silent())
    with pytest.raises(UsageError, match="Both sides are someone"):
        run_compare_humans(a, a, CONFIG, Silent())
    other = talked(run, [("x", "", ["What else?", "Nothing."])], agent="other", max_turns=3)
    apart = run_compare_humans(a, other, CONFIG, Silent()).metrics.as_json()
    assert apart["same"]["facts"] is None
    assert len(apart["warnings"]) == 3, "no question, another agent, another turn limit"
    assert "No agent asked both the same question" in drawn(Group(*sections(apart)), 200)


def test_a_folder_with_an_at_sign_is_a_run(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "a@b", task="code")
    reference = talked(run, [("x", "ann@home", ["How much?", "3."]), ("x", "bob", ["How much?", "4."])])
    assert find_human(f"{reference}@ann@home").human == "ann@home"
    assert find_human(f"{run.path}@bob").human == "bob"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.create(tmp_path_factory.mktemp("runs") / "run", task="code")
    config = {"num_tasks": 6, "samples": 2, "max_tokens": 64, "max_turns": 5, "spread": "samples"}
    run_rollout(run, RolloutConfig(**{**config, "persona": ["plain", "terse"]}), Silent())
    run_eval(run, EvalConfig(), Silent())
    return run


def test_success_with_two_humans_of_the_same_tasks(played: Run) -> None:
    a, b = f"{played.path}@scripted", f"{played.path}:scores-1@scripted:terse"
    metrics = run_compare_humans(a, b, CONFIG, Silent()).metrics.as_json()
    outcomes = metrics["outcomes"]
    assert (outcomes["figure"], outcomes["rate"]["tasks"], outcomes["tasks"]) == ("success_rate", 6, 6)
    assert outcomes["rate"]["test"] == "mcnemar"
    assert metrics["a"]["tasks"] == metrics["b"]["tasks"] == 6
    text = drawn(Group(*sections(metrics)), 200)
    assert "success rate" in text
    assert "new facts a" in text
    assert as_markdown(metrics).startswith("**Humans**")


def test_a_human_that_is_asked_the_questions_of_another(played: Run) -> None:
    a = f"{played.path}@scripted"
    asked = find_human(a)
    tasks = micro.load("train")[:6]
    with human_server(tasks, "ada") as (url, ada):
        metrics = run_compare_humans(a, None, CompareConfig(human=True, sim="ada", sim_url=[url]), Silent()).metrics
        assert len(ada.asked) == len(asked.replies) == metrics.same.questions == metrics.same.same_context
        few = CompareConfig(human=True, sim="ada", sim_url=[url], persona=["terse"], questions=3)
        again = run_compare_humans(a, None, few, Silent()).metrics
        assert (again.b.human, again.b.replies, again.same.questions) == ("ada:terse", 3, 3)
    same = metrics.as_json()["same"]
    assert (same["facts"], same["unknown"], same["negates"], same["words_difference"]) == (1, 1, 1, 0)
    assert metrics.different == []
    assert metrics.outcomes is None
    slips = CompareConfig(human=True, sim="scripted", persona=["slips"])
    wrong = run_compare_humans(a, None, slips, Silent()).metrics.as_json()
    assert 0 < wrong["same"]["numbers"] < 1
    assert wrong["different"]
    assert all(row["b_id"] is None for row in wrong["different"])


def test_a_human_that_cannot_be_asked(played: Run) -> None:
    a = f"{played.path}@scripted"
    with human_server(micro.load("test")[:2], "ada") as (url, _), pytest.raises(SweetError, match=r"All .* failed"):
        run_compare_humans(a, None, CompareConfig(human=True, sim="ada", sim_url=[url]), Silent())
    with pytest.raises(UsageError, match="several personas"):
        run_compare_humans(a, None, CompareConfig(human=True, sim="scripted", persona=["terse", "slips"]), Silent())
    with pytest.raises(UsageError, match="second human is missing"):
        run_compare_humans(a, None, CONFIG, Silent())
    with pytest.raises(UsageError, match="by its dialogues, and by a model"):
        run_compare_humans(a, a, CompareConfig(human=True, sim="scripted"), Silent())
    with pytest.raises(UsageError, match="needs a model"):
        run_compare_humans(a, None, CompareConfig(human=True, sim="scripted", persona=["german"]), Silent())


def test_the_command_line(played: Run, tmp_path: Path) -> None:
    run = str(played.path)
    words = [*programs.SWEET, "compare", "--human"]
    done = programs.run([*words, f"{run}@scripted", f"{run}@scripted:terse", "--json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["b"]["human"] == "scripted:terse"
    shown = programs.run([*words, f"{run}@scripted", "--sim", "scripted", "--persona", "talkative"], cwd=tmp_path)
    assert "Replies to the same" in shown.stdout, shown.stderr
    for given, what in (
        (["compare", run], "Missing argument 'B'"),
        (["compare", run, run, "--sim", "x"], "--sim is an option of --human"),
    ):
        refused = programs.run([*programs.SWEET, *given], cwd=tmp_path)
        assert refused.returncode == 2
        assert what in " ".join(refused.stderr.replace("│", " ").split())
