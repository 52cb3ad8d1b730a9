"""The real commands that need no model: their input, their output and the errors for invalid calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sweet.cli import console
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.stages.base import Silent
from tests.cli.conftest import Program
from tests.stages.learn_runs import make_agent, make_run

TASK = {
    "id": "t1",
    "problem_description": "Write add(a, b).",
    "ground_truth": "def add(a, b):\n    return a + b",
    "test_cases": {"1": "add(1, 2)", "2": "add(2, 2)"},
}


def row(name: str, reward: float | None, reply: str = "I WANT TO ANSWER: pass") -> dict[str, Any]:
    history = [
        {"role": "user", "content": "Write add(a, b)."},
        {"role": "assistant", "content": reply, "output": reply},
    ]
    scored = {} if reward is None else {"reward": reward}
    return {"id": name, "task": TASK, "dialogue_history": history, "answer": "pass", **scored}


@pytest.fixture
def trajectories(workplace: Path) -> Path:
    path = workplace / "in.jsonl"
    rows = [row("b", 1.0), row("a", 0.5, "I WANT TO ANSWER: \x1b[31mred [bold]")]
    path.write_text("".join(json.dumps(item) + "\n" for item in rows))
    return path


@pytest.fixture
def imported(sweet: Program, trajectories: Path) -> Path:
    outcome = sweet("data", "import", str(trajectories), "runs/in", "--json")
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert set(result) == {"stage", "run", "metrics", "artifacts"}
    assert [(item["kind"], item["rows"]) for item in result["artifacts"]] == [("rollouts", 2), ("scores", 2)]
    assert "next: sweet label runs/in" in outcome.err
    return Path("runs/in")


def test_an_export_equals_the_import(sweet: Program, imported: Path) -> None:
    outcome = sweet("data", "export")
    assert "Using runs/in, the newest run." in outcome.err
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(item["id"], item["reward"]) for item in rows] == [("b", 1.0), ("a", 0.5)]
    written = sweet("data", "export", str(imported), "--out", "out.jsonl", "--json")
    assert json.loads(written.out)["metrics"]["trajectories"] == 2
    assert Path("out.jsonl").read_text() == outcome.out


HOSTILE = "\x1b[31m \x9b2J \u202e right \u200b \x7f \U000e0041"
"""Escape sequences with one and two characters, and what hides text or changes its order."""


def test_on_a_terminal_rows_are_escaped_and_elsewhere_unchanged(
    sweet: Program, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.jsonl").write_text(json.dumps(row("a", 1.0, HOSTILE)) + "\n")
    assert sweet("data", "import", "in.jsonl", "runs/in").code == 0
    raw = sweet("data", "export").out
    assert "\x9b2J \u202e right \u200b" in raw, "bytes for programs"
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        shown = sweet("data", "export").out
        console.print_json({"text": HOSTILE})
        printed = capsys.readouterr().out
    for text in (shown, printed):
        assert text.isascii()
        assert not set(text) & {"\x1b", "\x7f"}
    assert json.loads(shown) == json.loads(raw)
    assert json.loads(printed) == {"text": HOSTILE}


def test_export_refuses_two_outputs_on_stdout(sweet: Program, imported: Path) -> None:
    outcome = sweet("data", "export", "--json")
    assert (outcome.code, json.loads(outcome.out)["fix"]) == (2, "--out FILE")
    assert "--out FILE" in outcome.err


def test_label_pairs_imported_dialogues(sweet: Program, imported: Path) -> None:
    outcome = sweet("label", str(imported), "--json")
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert result["metrics"]["pairs"] == 1
    assert result["artifacts"][0]["kind"] == "preferences"
    assert f"next: sweet train-critic {imported}" in outcome.err


def test_status_shows_the_artifacts_and_the_next_command(sweet: Program, imported: Path) -> None:
    shown = sweet("status", str(imported))
    for words in ("rollouts-1", "scores-1", "next: sweet label runs/in"):
        assert words in shown.out
    found = json.loads(sweet("status", str(imported), "--json").out)
    assert (found["stage"], found["run"], len(found["artifacts"])) == ("status", str(imported), 2)


def test_status_prints_the_schema_without_a_run(sweet: Program) -> None:
    schema = json.loads(sweet("status", "--schema").out)
    assert "schema_version" in schema["properties"]


def test_view_shows_control_characters_of_models_as_marks(sweet: Program, imported: Path) -> None:
    table = sweet("view", str(imported))
    assert table.code == 0, table.err
    assert "0.50" in table.out
    shown = sweet("view", str(imported), "--id", "a")
    assert "␛[31mred [bold]" in shown.out
    assert "\x1b" not in shown.out
    assert max(map(len, shown.out.splitlines())) <= 120


def test_view_writes_a_page(sweet: Program, imported: Path) -> None:
    outcome = sweet("view", str(imported), "--html", "page.html", "--json")
    assert json.loads(outcome.out)["metrics"]["trajectories"] == 2
    assert "<html" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ("rollout --tasks none.jsonl", 2, ("none.jsonl",)),
        ("rollout --task pages", 2, ("pages", "code")),
        ("eval nowhere", 2, ("nowhere", "sweet status")),
        ("eval", 2, ("There is no run yet.", "sweet demo")),
        ("data import none.jsonl r", 2, ("none.jsonl",)),
        ("eval --scorer fair", 2, ("'strict', 'upstream', 'both' or 'credit'",)),
        ("rollout --num-tasks 0", 2, ("--num-tasks", "greater than or equal to 1")),
    ],
)
def test_invalid_calls_are_refused(
    sweet: Program, workplace: Path, words: str, code: int, expected: tuple[str, ...]
) -> None:
    outcome = sweet(*words.split())
    assert (outcome.code, outcome.out) == (code, "")
    for part in expected:
        assert part in outcome.err
    assert "a bug in sweet" not in outcome.err
    assert not list(workplace.glob("runs/*"))


@pytest.mark.parametrize(
    ("stage", "maker"),
    [
        ("train-critic", "sweet label"),
        ("rank", "sweet train-critic"),
        ("pair", "sweet rank"),
        ("train-actor", "sweet pair"),
    ],
)
def test_a_missing_artifact_names_the_stage_that_creates_it(
    sweet: Program, imported: Path, stage: str, maker: str
) -> None:
    outcome = sweet(stage, str(imported))
    assert (outcome.code, outcome.out) == (2, "")
    assert maker in outcome.err


def test_invalid_json_is_reported_with_its_line(sweet: Program, workplace: Path) -> None:
    lines = [json.dumps(TASK | {"id": f"t{number}"}) for number in range(8)]
    lines[6] = lines[6][:-5]
    Path("tasks.jsonl").write_text("\n".join(lines))
    outcome = sweet("rollout", "--tasks", "tasks.jsonl", "--sim", "micro")
    assert outcome.code == 2
    assert "tasks.jsonl, line 7" in outcome.err


@pytest.mark.parametrize("text", ["", json.dumps(TASK | {"test_cases": {}}) + "\n"])
def test_a_task_file_that_cannot_be_played(sweet: Program, workplace: Path, text: str) -> None:
    Path("tasks.jsonl").write_text(text)
    outcome = sweet("rollout", "--tasks", "tasks.jsonl")
    assert outcome.code == 2
    assert "tasks.jsonl" in outcome.err


def test_words_after_two_dashes_are_options_of_vllm(sweet: Program, workplace: Path) -> None:
    words = ("serve-sim", "--engine", "vllm", "--model", "m", "--dry-run")
    assert json.loads(sweet(*words, "--", "--x", "1").out)["passthrough"] == ["--x", "1"]
    Path("c.toml").write_text('[serve-sim]\npassthrough = ["--y"]\n')
    assert json.loads(sweet(*words, "--config", "c.toml").out)["passthrough"] == ["--y"]
    outcome = sweet("serve-sim", "stray")
    assert outcome.code == 2
    assert "after --" in outcome.err


@pytest.mark.usefixtures("forked_python")
def test_doctor_checks_this_machine(sweet: Program) -> None:
    outcome = sweet("doctor", "--json")
    found = json.loads(outcome.out)
    assert {check["name"] for check in found["checks"]} >= {"Python", "torch", "sandbox", "model hub"}
    assert outcome.code == (0 if found["healthy"] else 1)


def test_a_dry_run_of_a_training_shows_its_plan(sweet: Program, workplace: Path) -> None:
    run = make_run(workplace, make_agent(workplace / "agent"))
    run_label(run, LabelConfig(), Silent())
    before = run.path.joinpath("manifest.json").read_bytes()
    outcome = sweet("train-critic", str(run.path), "--dry-run", "--json", "--epochs", "3")
    assert outcome.code == 0, outcome.err
    output = json.loads(outcome.out)
    assert (output["stage"], output["config"]["epochs"], output["plan"]["epochs"]) == ("train-critic", 3, 3)
    assert output["plan"]["memory"]["total"] > 0
    outcome = sweet("train-critic", str(run.path), "--dry-run")
    assert outcome.code == 0, outcome.err
    config, _ = json.JSONDecoder().raw_decode(outcome.out)
    assert config["epochs"] is None
    assert "memory, total" in outcome.out
    assert run.path.joinpath("manifest.json").read_bytes() == before
    # The configuration is printed even if there is no run.
    outcome = sweet("train-actor", "nowhere", "--dry-run")
    assert outcome.code == 2
    assert json.loads(outcome.out)["algorithm"] == "sweet"


def test_a_plan_of_a_study_reads_its_methods(sweet: Program, workplace: Path) -> None:
    (workplace / "mine.toml").write_text("")
    for words, what in (
        ("--methods mine.toml", "The file has no method"),
        ("--methods none.toml", "There is no such file of methods"),
        ("--seed 4294967296", "--seed: should be less than or equal to 4294967295"),
    ):
        for more in ([], ["--dry-run"]):
            refused = sweet("bench", "study", *words.split(), *more)
            assert (refused.code, what in refused.err) == (2, True)
    (workplace / "mine.toml").write_text('[mine]\nlearns = "nothing"\n')
    planned = sweet("bench", "study", "--methods", "mine.toml", "--dry-run")
    assert json.loads(planned.out)["methods"] == ["mine.toml"]
    assert [path.name for path in workplace.iterdir()] == ["mine.toml"]


def test_no_table_is_as_wide_as_a_long_id(sweet: Program, workplace: Path) -> None:
    rows = [{**TASK, "id": "x" * 5000}, {**TASK, "id": "y" * 5000}]
    (workplace / "tasks.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rows))
    found = sweet("data", "check", "tasks.jsonl")
    assert "duplicate" in found.out
    assert max(map(len, found.out.splitlines())) < 1000
