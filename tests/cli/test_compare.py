"""Calls of `sweet compare` and `sweet eval --compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.runs.run import Run
from tests.cli.conftest import Program
from tests.scoring.evaluations import evaluate

A = {"t1": [1.0], "t2": [0.0], "t3": [0.5]}
B = {"t1": [0.0], "t2": [1.0], "t3": [1.0]}


@pytest.fixture
def runs(workplace: Path) -> None:
    evaluate(Path("before"), A)
    evaluate(Path("after"), B, agent="trained")
    evaluate(Path("both"), A)
    evaluate(Path("both"), B, agent="trained")


def test_json_is_one_object_and_both_sides_are_named(sweet: Program, runs: None) -> None:
    outcome = sweet("compare", "before", "after", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert set(found) == {"stage", "run", "metrics", "artifacts"}
    assert (found["stage"], found["run"], found["artifacts"]) == ("compare", "after", [])
    success = found["metrics"]["figures"]["success_rate"]
    assert (success["wins"], success["losses"], success["difference"]) == (2, 1, pytest.approx(1 / 3, abs=1e-6))
    assert sweet("compare", "before", "after", "--json").out == outcome.out, "the same every time"


def test_the_comparison_names_the_command_that_shows_the_dialogues(sweet: Program, runs: None) -> None:
    outcome = sweet("compare", "both:scores-1", "both:rollouts-2")
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines()[0] == "Of these tasks (3) A was trained on none, B on an unknown number."
    assert "Solved by A and not by B: 1 task" in outcome.out
    for sides, line in (
        ("both:scores-1 both:rollouts-2", "view both --from rollouts-1 --against rollouts-2 --filter change=differs"),
        ("before after", "view before --from rollouts-1 --against after:rollouts-1 --filter change=differs"),
    ):
        assert f"next: sweet {line}\n" in sweet("compare", *sides.split()).err
        shown = sweet(*line.split())
        assert shown.code == 0, shown.err
        assert "3 pairs" in shown.out


def test_only_markdown_is_on_stdout(sweet: Program, runs: None) -> None:
    outcome = sweet("compare", "before", "after", "--markdown")
    assert outcome.code == 0, outcome.err
    first, _, rest = outcome.out.partition("\n\n")
    assert first == "Of these tasks (3) A was trained on none, B on an unknown number."
    assert rest.startswith("**B against A, on the 3 tasks that both have**\n\n| ")
    assert "┃" not in outcome.out
    refused = sweet("compare", "before", "after", "--markdown", "--json")
    assert (refused.code, json.loads(refused.out)["fix"]) == (2, "omit one")


def test_flips_are_limited(sweet: Program, runs: None) -> None:
    outcome = sweet("compare", "before", "after", "--flips", "1")
    assert "1 more; --flips 2 lists all." in outcome.out
    assert "next:" not in sweet("compare", "before", "after", "--flips", "0").err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("before", ("Missing argument 'B'",)),
        ("before nowhere", ("There is no such run.", "sweet status")),
        ("before after:scores-7", ("no scores named scores-7", "it has scores-1")),
        ("both both", ("Both sides are scores-2", "sweet compare both:scores-1 both:scores-2")),
        ("before after --flips many", ("--flips",)),
        ("before after --repeat-run nowhere", ("There is no such run.",)),
        ("before odd", ("scored by strict", "scored by upstream", "sweet eval before --from rollouts-1")),
        ("before apart", ("share no valid task",)),
    ],
)
def test_invalid_calls_are_refused(sweet: Program, runs: None, words: str, expected: tuple[str, ...]) -> None:
    evaluate(Path("odd"), A, scores_meta={"scorer": "upstream"})
    evaluate(Path("apart"), {"t9": [1.0]})
    outcome = sweet("compare", *words.split())
    assert (outcome.code, outcome.out) == (2, "")
    for part in expected:
        assert part in outcome.err
    assert "a bug in sweet" not in outcome.err


GOOD, BAD = "def f(x): return x", "def f(x): return 0"


def imported(sweet: Program, name: str, *answers: tuple[str, str]) -> None:
    """Create a run with two dialogues for each task, with these answers."""
    task = {"problem_description": "f", "ground_truth": GOOD, "test_cases": {"1": "f(1)", "2": "f(2)"}}
    rows: list[dict[str, Any]] = [
        {
            "id": f"t{number}-{sample}",
            "task": {**task, "id": f"t{number}"},
            "dialogue_history": [{"role": "user", "content": "f"}],
            "answer": answer,
        }
        for number, pair in enumerate(answers)
        for sample, answer in enumerate(pair)
    ]
    file = Path(f"{name}.jsonl")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert sweet("data", "import", str(file), name).code == 0


def test_eval_compares_as_compare_does(sweet: Program, workplace: Path) -> None:
    imported(sweet, "a", (GOOD, BAD), (BAD, BAD), (BAD, BAD))
    imported(sweet, "b", (BAD, BAD), (GOOD, GOOD), (GOOD, BAD))
    assert sweet("eval", "a").code == 0
    outcome = sweet("eval", "--compare", "a", "b", "--json")
    assert outcome.code == 0, outcome.err
    metrics = json.loads(outcome.out)["metrics"]
    assert metrics["pass_at_k"]["2"]["rate"] == pytest.approx(2 / 3, abs=1e-6)
    assert metrics["win_rate"] == pytest.approx(2 / 3, abs=1e-6)
    alone = json.loads(sweet("compare", "a", "b", "--json").out)["metrics"]
    assert metrics["compare"] == alone
    shown = sweet("eval", "b", "--compare", "a:scores-1")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[0] == "Whether the agent was trained on these tasks is not recorded."
    for words in ("success rate", "pass@k", "B against A, on the 3 tasks", "Solved by B and not by A: 1 task"):
        assert words in shown.out
    again = sweet("eval", "b", "--compare", "b", "--json")
    output = json.loads(again.out)["metrics"]["compare"]
    assert (output["a"]["scores"], output["b"]["scores"]) == ("scores-2", "scores-3"), "with the scores before these"
    assert "same_dialogues" in [warning["about"] for warning in output["warnings"]]
    assert len(Run.open(Path("b")).manifest().of_kind("scores", "done")) == 3


def test_eval_refuses_an_invalid_baseline_before_scoring(sweet: Program, workplace: Path) -> None:
    imported(sweet, "b", (GOOD, BAD))
    outcome = sweet("eval", "b", "--compare", "nowhere:scores-1")
    assert (outcome.code, outcome.out) == (2, "")
    assert not Run.open(Path("b")).manifest().of_kind("scores")
