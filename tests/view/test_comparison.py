"""The rendering of a comparison: wide, narrow, and as Markdown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sweet.scoring.best_of import ScoredDialogue, at
from sweet.scoring.results.compare import measure_comparison
from sweet.scoring.results.pass_at_k import measure_samples
from sweet.scoring.results.statistics import p_in_words
from sweet.view.comparison import as_markdown, rounds, samples, sections
from sweet.view.safe_markdown import code, prose
from tests.scoring.evaluations import evaluate

HOSTILE = "t\x1b[31m|[bold]<b>@who`x`\n"


def compared(path: Path, task: str = "t1", **settings: Any) -> dict[str, Any]:
    a = evaluate(path / "a", {task: [1.0, 1.0], "t2": [0.0, 0.5], "t3": [1.0, 0.0]})
    b = evaluate(path / "b", {task: [0.0, 0.2], "t2": [1.0, 1.0], "t3": [1.0, 0.0]}, agent="trained", **settings)
    return measure_comparison(a, b).as_json()


def drawn(metrics: dict[str, Any], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False, markup=False)
    for section in sections(metrics):
        console.print(section)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_all_is_shown_at_any_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.chdir(tmp_path)
    text = drawn(compared(Path(), max_turns=5), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text, "nothing is truncated"
    result = (
        "B against A",
        "3 tasks",
        "Turn limit: 10 in A, 5 in B.",
        "a:scores-1",
        "trained",
        "success rate",
        "50.0 %",
        "+0.0 pp",
        "paired permutation",
        "pass@k",
        "best of k",
        "binomial",
        "Solved by A and not by B: 1 task",
        "Solved by B and not by A: 1 task",
        "t1-s0-r0",
        "t2-s0-r0",
    )
    for words in result:
        assert words in text.replace("\n", " ").replace("  ", " ") or words in text, words
    assert "reward " not in text.replace("by reward", ""), "for code the rewards are the tests passed"


def test_narrow_tables_become_lists(tmp_path: Path) -> None:
    metrics = compared(tmp_path)
    assert "┃" in drawn(metrics, 200)
    narrow = drawn(metrics, 40)
    assert "  B - A  +0.0 pp [" in narrow


def test_a_single_repeat_is_reported(tmp_path: Path) -> None:
    a, b = evaluate(tmp_path / "a", {"t": [1.0]}), evaluate(tmp_path / "b", {"t": [0.0]}, agent="other")
    text = drawn(measure_comparison(a, b).as_json(), 200)
    assert "Only one repeat of A and of B: its variation is unknown." in text
    assert "Make more of A and of B with sweet rollout --samples 4" in text


def test_no_repeats_of_a_greedy_agent_are_advised(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", {"t": [1.0]}, temperature=0.0)
    b = evaluate(tmp_path / "b", {"t": [0.0]}, temperature=0.0)
    sampled = evaluate(tmp_path / "c", {"t": [0.0]}, agent="other")
    assert "Make more" not in drawn(measure_comparison(a, b).as_json(), 200)
    assert "Make more of B with sweet rollout" in drawn(measure_comparison(a, sampled).as_json(), 200)


@pytest.mark.parametrize("width", [40, 200])
def test_text_from_files_is_no_markup(tmp_path: Path, width: int) -> None:
    metrics = compared(tmp_path, HOSTILE)
    text = drawn(metrics, width)
    assert "\x1b" not in text
    assert "␛[31m|[bold]<b>@who`x`␊" in text.replace("\n", "")
    shown = as_markdown(metrics)
    assert "\x1b" not in shown
    rows = [line for line in shown.splitlines() if "[bold]" in line]
    assert rows
    assert all(line.startswith("| ``") and line.endswith("|") for line in rows)


def test_markdown_is_one_table_after_the_other(tmp_path: Path) -> None:
    metrics = compared(tmp_path, max_turns=5)
    shown = as_markdown(metrics)
    assert "| figure | A | B | B - A | p |\n| --- | ---: | ---: | ---: | ---: |\n| success rate | 50.0 % [" in shown
    assert "- Turn limit: 10 in A, 5 in B." in shown
    assert shown.count("<details>") == shown.count("</details>") == 2
    for line in shown.splitlines():
        assert not line.startswith("|") or line.endswith("|")


def test_code_and_prose_in_markdown() -> None:
    assert code("a|b") == "`a\\|b`"
    assert code("`x") == "`` `x ``"
    assert code("") == ""
    assert prose("*a* <b> @who\n") == "\\*a\\* \\<b\\> @<!-- -->who␊"


def test_p_values_are_quoted_as_one_does() -> None:
    assert [p_in_words(value) for value in (1.0, 0.146, 0.0684, 0.0012, 0.00099)] == [
        "1.00",
        "0.15",
        "0.068",
        "0.0012",
        "< 0.001",
    ]


def test_pass_at_k_of_one_evaluation(tmp_path: Path) -> None:
    found = evaluate(tmp_path / "a", {"t1": [1.0, 0.0], "t2": [0.0, 0.5]})
    first, all_solved, second = samples(measure_samples(found.values(), found.kind.rewards).as_json())
    assert (first.title, [row[:2] for row in first.rows]) == ("pass@k", [("1", "2"), ("2", "2")])
    assert (all_solved.title, [row[2].split("\n")[0] for row in all_solved.rows]) == ("pass^k", ["25.0 %", "0.0 %"])
    assert second.title == "best of k, by reward"
    assert samples({"success_rate": 1.0}) == []


def test_the_critics_choice_fits_a_terminal() -> None:
    liked = {f"t{index}": [ScoredDialogue(0.5, 1.0), ScoredDialogue(0.2, 0.0)] for index in range(1500)}
    result = {"critic": "critic-1", "left_out": 2, "n": {str(n): at(n, liked).as_json() for n in (1, 2)}}
    (section,) = samples({"best_of": result})
    file = io.StringIO()
    Console(file=file, width=80).print(section)
    text = file.getvalue()
    assert [row[0] for row in section.rows] == ["1", "2"]
    assert {"critic-1", "picks", "random", "oracle", "1,500", "100.0", "┃"} <= set(text.split())
    assert "Too long for the critic and therefore excluded: 2 dialogues." in text


def test_the_rounds_of_a_training_have_a_sum() -> None:
    played = [
        {
            "round": number,
            "agent": agent,
            "test": 0.5,
            "test_ci_low": 0.4,
            "test_ci_high": 0.6,
            "usage": {"dialogues": 10, "seconds": 2.0} | tokens,
        }
        for number, agent, tokens in (
            (0, "micro", {"prompt_tokens": 700}),
            (1, "actor-1", {"prompt_tokens": 300, "completion_tokens": 40, "human_completion_tokens": 5}),
        )
    ]
    (section,) = rounds({"metric": "success_rate", "rounds": played, "best": "actor-1", "seconds": 4.0})
    assert section.header[3:] == ("dialogues", "tokens", "time")
    assert [tuple(row[3:]) for row in section.rows] == [
        ("10", "700", "2.0 s"),
        ("10", "345", "2.0 s"),
        ("20", "1,045", "4.0 s"),
    ]
