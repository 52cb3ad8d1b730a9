"""With --json a failure is one object on stdout, with the exit code and every text of the panel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sweet.cli.app import run
from sweet.errors import TooManyFailures
from sweet.hints import words_of
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from tests.cli.conftest import Program
from tests.cli.toy import PlayConfig, ToyMetrics, play, program


@pytest.mark.parametrize(
    ("tasks", "is_command", "expected"),
    [
        ("server", True, ("Nobody answers.", "http://localhost:1", "sweet serve-sim", 3)),
        ("usage", False, ("No scores.", "run", "sweet eval RUN", 2)),
        ("many", False, ("3 of 3 failed.", None, None, 4)),
        ("stop", True, ("Stopped by Ctrl-C. Finished work is kept.", "r", "sweet play r --tasks stop --resume", 130)),
        ("stopped", True, ("Stopped in the middle.", "r", "sweet play r --tasks stopped --resume", 130)),
    ],
)
def test_every_exit_code_has_its_object(
    toy: Program, tasks: str, is_command: bool, expected: tuple[object, ...]
) -> None:
    outcome = toy("play", "r", "--tasks", tasks, "--json")
    found = json.loads(outcome.out)
    assert found.pop("command") == (str(expected[2]).split() if is_command else None)
    assert found == dict(zip(("error", "where", "fix", "exit_code"), expected, strict=True))
    assert outcome.code == expected[-1]
    assert "╭─" in outcome.err


def test_a_bug_has_its_object_too(toy: Program) -> None:
    found = json.loads(toy("play", "r", "--tasks", "bug", "--json").out)
    assert found["error"].startswith("ValueError: bad")
    assert found["exit_code"] == 1
    assert "--debug" in found["fix"]


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        ("sweet rollout 'runs/my run' --resume", ["sweet", "rollout", "runs/my run", "--resume"]),
        ("sweet data check tasks.jsonl", ["sweet", "data", "check", "tasks.jsonl"]),
        (
            "sweet serve-sim --engine vllm -- --dtype bf16",
            ["sweet", "serve-sim", "--engine", "vllm", "--", "--dtype", "bf16"],
        ),
        ("sweet train-critic --no-resume --epochs=2", ["sweet", "train-critic", "--no-resume", "--epochs=2"]),
        ("sweet rank --help-all", ["sweet", "rank", "--help-all"]),
        ("sweet --help", ["sweet", "--help"]),
        ("pip install 'sweet-colbench[gpu]'", ["pip", "install", "sweet-colbench[gpu]"]),
        ("sweet rollout RUN --resume", None),
        ("sweet train-actor r --model MODEL", None),
        ("sweet rollout r bf16", None),
        ("sweet rollout r, then sweet eval r", None),
        ("sweet eval r first", None),
        ("sweet status lists the runs", None),
        ("pip install gguf; or --judge critic", None),
        ("export OPENAI_API_KEY=…", None),
        ("the model's own tokenizer", None),
        ("again", None),
        (None, None),
    ],
)
def test_a_fix_that_is_one_command_is_given_as_its_words(fix: str | None, words: list[str] | None) -> None:
    assert words_of(fix) == words


@pytest.mark.parametrize(
    "words",
    [
        ("play", "--nonsense", "--json"),
        ("play", "--json", "--samples"),
        ("play", "--json", "--samples", "x"),
        ("paly", "--json"),
        ("--json",),
        ("play", "--json", "--config", "none.toml"),
        ("play", "--json", "--quiet", "--verbose"),
    ],
)
def test_usage_errors_of_the_parser_have_their_object(toy: Program, words: tuple[str, ...]) -> None:
    outcome = toy(*words)
    found = json.loads(outcome.out)
    assert (outcome.code, found["exit_code"]) == (2, 2)
    assert set(found) == {"error", "where", "fix", "command", "exit_code"}
    assert found["error"].splitlines()[0] in outcome.err


def test_the_variable_counts_like_the_flag(toy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_PLAY_JSON", "1")
    assert json.loads(toy("play", "--nonsense").out)["exit_code"] == 2
    assert json.loads(toy("play", "r", "--tasks", "usage").out)["exit_code"] == 2


def test_without_json_stdout_stays_empty(toy: Program) -> None:
    assert toy("play", "--nonsense").out == toy("play", "r", "--tasks", "usage").out == ""
    assert toy("play", "r", "--tasks", "usage", "--", "--json").out == ""


def _partly(run: Run, config: PlayConfig, reporter: Reporter) -> StageResult:
    error = TooManyFailures("3 of 9 failed.", where="log", fix="again")
    error.result = StageResult("play", run.path, ToyMetrics(episodes=6))
    raise error


def test_what_was_found_has_the_keys_of_the_error_besides(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["play", "r", "--json"], program(_partly)) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"] == {"episodes": 6}
    assert {key: found[key] for key in ("error", "where", "fix", "exit_code")} == {
        "error": "3 of 9 failed.",
        "where": "log",
        "fix": "again",
        "exit_code": 4,
    }
    assert run(["play", "r"], program(_partly)) == 4
    assert "dialogues" in capsys.readouterr().out


def test_a_failure_after_the_result_adds_no_second_object(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanishing(run: Run, config: PlayConfig, reporter: Reporter) -> StageResult:
        shutil.rmtree(run.path)  # so that the next commands cannot be found after the result was printed
        return StageResult("play", run.path, ToyMetrics(episodes=6))

    assert run(["play", "r", "--json"], program(vanishing, next_commands=())) != 0
    assert json.loads(capsys.readouterr().out)["metrics"] == {"episodes": 6}


def test_doctor_says_what_is_missing_beside_its_checks(sweet: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    from sweet.inspection import doctor
    from sweet.inspection.doctor import Check

    missing = Check("firefox", "missing", "none", "rendering", "apt install firefox", required=True)
    monkeypatch.setattr(doctor, "run_doctor", lambda _: [missing])
    outcome = sweet("doctor", "--json")
    found = json.loads(outcome.out)
    assert outcome.code == found["exit_code"] == 1
    assert found["healthy"] is False
    assert found["fix"] == "apt install firefox"
    assert found["command"] == ["apt", "install", "firefox"]


def _speaking(run: Run, config: PlayConfig, reporter: Reporter) -> StageResult:
    print("a tool of a package says something")
    return play(run, config, reporter)


@pytest.mark.parametrize("tasks", ["easy", "usage"])
def test_what_the_code_of_others_prints_is_no_json(
    workplace: Path, capsys: pytest.CaptureFixture[str], tasks: str
) -> None:
    run(["play", "r", "--tasks", tasks, "--json"], program(_speaking))
    printed = capsys.readouterr()
    assert isinstance(json.loads(printed.out), dict)
    assert "a tool of a package says something\n" in printed.err
    run(["play", "r", "--tasks", tasks], program(_speaking))
    assert capsys.readouterr().out.startswith("a tool of a package says something\n")
