"""A call from start to end: its run, its output on stdout and its exit code."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from sweet.cli.app import run
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from tests.cli.conftest import Program
from tests.cli.toy import PlayConfig, ToyMetrics, program

ESC = "\x1b"


def test_without_a_run_a_new_one_is_created_and_reported(toy: Program, workplace: Path) -> None:
    outcome = toy("play")
    assert outcome.code == 0
    (result,) = (workplace / "runs").iterdir()
    assert re.fullmatch(r"toy-\d{8}-\d{6}", result.name)
    assert f"New run runs/{result.name}." in outcome.err
    assert f"next: sweet learn runs/{result.name}" in outcome.err


def test_a_named_run_is_created_once(toy: Program, workplace: Path) -> None:
    assert toy("play", "mine").code == 0
    manifest = (workplace / "mine" / "manifest.json").read_text()
    assert toy("play", "mine").code == 0
    assert (workplace / "mine" / "manifest.json").read_text() == manifest


def test_a_new_run_without_content_is_deleted(toy: Program, workplace: Path) -> None:
    assert toy("play", "--tasks", "usage").code == 2
    assert toy("play", "mine", "--tasks", "usage").code == 2
    assert [path.name for path in workplace.iterdir()] == ["runs"]
    assert not list((workplace / "runs").iterdir())
    assert toy("play", "mine").code == 0
    assert toy("play", "mine", "--tasks", "usage").code == 2
    assert (workplace / "mine" / "manifest.json").exists()


def test_the_newest_run_is_used_and_reported(toy: Program) -> None:
    toy("play", "runs/one")
    outcome = toy("learn", "--model", "m")
    assert outcome.code == 0
    assert "Using runs/one, the newest run." in outcome.err


@pytest.mark.parametrize("words", [("learn", "--model", "m"), ("learn", "nowhere", "--model", "m")])
def test_a_missing_run_is_a_usage_error(toy: Program, words: tuple[str, ...]) -> None:
    outcome = toy(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert "try" in outcome.err


def test_json_is_exactly_one_object(toy: Program) -> None:
    outcome = toy("play", "r", "--json")
    assert json.loads(outcome.out) == {
        "stage": "play",
        "run": "r",
        "metrics": {
            "episodes": 1234,
            "success_rate": 0.25,
            "success_rate_ci_low": 0.2,
            "success_rate_ci_high": 0.3,
            "loss": None,
            "outcomes": {"answered": 3},
        },
        "artifacts": [],
    }


def test_without_json_the_result_is_a_table(toy: Program) -> None:
    shown = toy("play", "r").out
    for words in ("dialogues", "1,234", "25.0 % [20.0, 30.0]", "answered 3"):
        assert words in shown


def test_narration_goes_to_stderr_and_quiet_silences_it(toy: Program) -> None:
    outcome = toy("play", "r")
    assert "playing None" in outcome.err
    assert "warning: careful" in outcome.err
    assert re.search(r"dialogues: 3/3, [\d.]+ s · failed 0", outcome.err)
    quiet = toy("play", "r", "--quiet")
    assert quiet.err == ""
    assert quiet.out == outcome.out


@pytest.mark.parametrize(
    ("tasks", "code", "expected"),
    [
        ("server", 3, ("A server could not be reached", "Nobody answers.", "http://localhost:1", "sweet serve-sim")),
        ("many", 4, ("Too many failures", "3 of 3 failed.")),
        ("usage", 2, ("No scores.", "sweet eval RUN")),
        ("moved", 1, ("No such file or directory.", "/moved/run", "name where it is now")),
        ("long", 1, ("File name too long.", "/long", "a shorter name")),
        ("disk", 1, ("No space left on device.", "/full/file")),
        ("bug", 1, ("This is a bug in sweet", "ValueError: bad ␛[31m[red]thing[/red]", "--debug")),
        ("stop", 130, ("Stopped", "sweet play r --tasks stop --resume")),
        ("stopped", 130, ("Stopped in the middle.", "sweet play r --tasks stopped --resume")),
    ],
)
def test_exit_codes_and_error_panels(toy: Program, tasks: str, code: int, expected: tuple[str, ...]) -> None:
    outcome = toy("play", "r", "--tasks", tasks)
    assert (outcome.code, outcome.out) == (code, "")
    for words in expected:
        assert words in outcome.err
    assert "Traceback" not in outcome.err
    assert ESC not in outcome.err


def test_debug_shows_the_traceback_without_control_characters(toy: Program) -> None:
    outcome = toy("play", "r", "--tasks", "bug", "--debug")
    assert outcome.code == 1
    assert "Traceback (most recent call last)" in outcome.err
    assert ESC not in outcome.err


def test_the_command_to_resume_repeats_flags_and_file(toy: Program, workplace: Path) -> None:
    Path("c.toml").write_text("samples = 2\n")
    words = ["--config", "c.toml", "--tasks", "stop", "--agent-url", "http://a b", "--no-nll", "--no-resume"]
    outcome = toy("play", "r", *words)
    expected = "sweet play r --config c.toml --tasks stop --agent-url 'http://a b' --no-nll --resume"
    assert expected in outcome.err


def test_an_unknown_command_suggests_a_similar_one(toy: Program) -> None:
    outcome = toy("paly")
    assert outcome.code == 2
    assert "Did you mean play?" in outcome.err


def test_without_words_the_help_is_shown(toy: Program) -> None:
    outcome = toy()
    assert outcome.code == 0
    assert "play" in outcome.out


def test_version(toy: Program) -> None:
    assert re.fullmatch(r"sweet \d+\.\d+\.\d+\n", toy("--version").out)


def test_quiet_silences_the_warnings_of_libraries_too(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = "import warnings; warnings.warn('from a child')"

    def noisy(run: Run, config: PlayConfig, reporter: Reporter) -> StageResult:
        logging.getLogger("transformers.modeling").warning("from a logger")
        warnings.warn("from python", UserWarning, stacklevel=1)
        ran = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
        sys.stderr.write(ran.stderr)
        return StageResult("play", run.path, ToyMetrics())

    def handled(record: logging.LogRecord) -> bool:
        sys.stderr.write(record.getMessage())
        return False

    logger = logging.getLogger("transformers.modeling")
    monkeypatch.setattr(logger, "filters", [handled])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for loudness in ((), ("--quiet",), ()):
            assert run(["play", "r", *loudness], program(noisy)) == 0
            shown = capsys.readouterr().err + "".join(str(one.message) for one in caught)
            caught.clear()
            found = [words in shown for words in ("from a logger", "from python", "from a child")]
            assert found == [not loudness] * 3
