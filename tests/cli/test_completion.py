"""Completion: the candidates, that it never fails, and that names of files or models cannot inject commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.cli.app import build
from sweet.cli.candidates import MAX_CANDIDATES, is_plain_word
from sweet.cli.completion import bash_words, completions
from sweet.cli.shell_scripts import SCRIPTS
from tests.local_server import QuietHandler, serving

HOSTILE = [
    "$(touch hacked)",
    "`touch hacked`",
    "a b",
    "x;touch hacked",
    "new\nline",
    "\x1b[31mred",
    "-rf",
    "'q'",
    'd"q',
    "*",
]


@pytest.fixture
def runs(workplace: Path) -> Path:
    """Two runs under runs/, next to folders and files with every kind of name."""
    for name, ids in (
        ("one", ["rollouts-1", "scores-1", "scores-2", "critic-1", "scores-$(touch hacked)", "scores-\x1b[31m"]),
        ("two", ["rollouts-1"]),
    ):
        folder = workplace / "runs" / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps({"artifacts": [{"id": id} for id in ids]}))
    (workplace / "runs" / "notes").mkdir()
    (workplace / "-rf").mkdir()
    for name in set(HOSTILE) - {"-rf"}:
        (workplace / "runs" / name).mkdir()
        (workplace / "runs" / name / "manifest.json").write_text("{}")
    (workplace / "tasks.jsonl").write_text("")
    (workplace / "settings.toml").write_text("")
    return workplace


def offered(*words: str) -> list[str]:
    """The candidates for the last word."""
    return [item.value for item in completions(build(), ["sweet", *words])]


def test_commands_subcommands_options_and_choices(workplace: Path) -> None:
    assert offered("ro") == ["rollout"]
    assert set(offered("data", "")) >= {"import", "export", "colbench"}
    assert offered("rollout", "--num") == ["--num-tasks"]
    assert offered("rollout", "--protocol", "") == ["paper", "upstream"]
    assert offered("rollout", "--protocol=u") == ["upstream"]
    assert offered("rollout", "--task", "") == ["code", "html"]
    assert offered("train", "--algorithm", "gr") == ["grpo"]
    assert offered("train-online", "--algorithm", "r") == ["rft", "rloo"]
    assert offered("rollout", "--tasks", "co") == ["colbench"]
    assert offered("rollout", "--task", "html", "--tasks", "w") == ["websight"]


def test_runs_and_paths(runs: Path) -> None:
    assert offered("label", "") == ["runs/two", "runs/one", "runs/"]
    assert offered("label", "runs/o") == ["runs/one"]
    assert offered("label", "runs/n") == ["runs/notes/"]
    assert offered("label", f"{runs}/runs/o") == [f"{runs}/runs/one"]
    assert offered("rollout", "--config", "s") == ["settings.toml"]
    assert offered("rollout", "--tasks", "t") == ["tasks.jsonl"]


def test_artifacts_of_the_given_run(runs: Path) -> None:
    assert offered("label", "runs/one", "--from", "") == ["scores-2", "scores-1"]
    assert offered("label", "runs/two", "--from", "") == []
    assert offered("eval", "runs/one", "--critic", "") == ["critic-1"]
    assert offered("eval", "runs/one", "--from", "r") == ["rollouts-1"]
    assert offered("eval", "runs/two", "--compare", "runs/one:") == [
        "runs/one:scores-2",
        "runs/one:scores-1",
        "runs/one:rollouts-1",
    ]


def test_a_typed_run_is_found_among_many(workplace: Path) -> None:
    for number in range(300):
        folder = workplace / "runs" / f"run-{number}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
    assert offered("label", "runs/run-29") == sorted((f"runs/run-29{end}" for end in ["", *range(10)]), reverse=True)
    assert len(offered("label", "")) == MAX_CANDIDATES


@pytest.mark.parametrize(
    "manifest", [b"", b"[]", b"{", b"\xff\xfe", b'{"artifacts": 3}', b'{"artifacts": [3]}', b"[" * 9999]
)
def test_a_broken_manifest_offers_nothing(workplace: Path, manifest: bytes) -> None:
    (workplace / "run").mkdir()
    (workplace / "run" / "manifest.json").write_bytes(manifest)
    assert offered("label", "run", "--from", "") == []


def test_hostile_names_are_not_offered(runs: Path) -> None:
    for words in (
        ("label", "runs/"),
        ("label", ""),
        ("label", "runs/one", "--from", ""),
        ("rollout", "--tasks", "runs/"),
    ):
        assert all(map(is_plain_word, offered(*words)))
    assert not (runs / "hacked").exists()


@pytest.mark.parametrize("word", HOSTILE)
def test_words_with_special_characters_are_not_plain(word: str) -> None:
    assert not is_plain_word(word)


@given(st.text())
def test_a_plain_word_has_no_special_characters(word: str) -> None:
    if is_plain_word(word):
        assert not set(word) & set(" \t\n$`'\"\\;&|<>(){}[]*?!#^")
        assert word.isprintable()


class Models(QuietHandler):
    """A server with two models, one with a hostile name; under /slow it does not answer."""

    def do_GET(self) -> None:
        if self.path.startswith("/slow"):
            time.sleep(3)
            return
        body = json.dumps({"data": [{"id": "org/model-7B"}, {"id": "$(touch hacked)"}]}).encode()
        self.send(200 if self.path == "/v1/models" else 404, body)


@pytest.fixture
def server() -> Iterator[str]:
    with serving(Models) as address:
        yield address


def test_models_of_the_given_server(workplace: Path, server: str) -> None:
    for option, url in (("--agent", "--agent-url"), ("--sim", "--sim-url")):
        assert offered("rollout", url, f"{server}/v1", option, "") == ["org/model-7B"]
    assert offered("rank", "--judge-url", server, "--judge-model", "o") == ["org/model-7B"]


def test_a_server_that_does_not_answer_offers_nothing_quickly(workplace: Path, server: str) -> None:
    started_at = time.monotonic()
    for url in (f"{server}/slow", "http://127.0.0.1:1/v1", "nonsense://x", "http://[", "http://x:y"):
        assert offered("rollout", "--agent-url", url, "--agent", "") == []
    assert time.monotonic() - started_at < 5


@pytest.mark.parametrize(
    ("line", "position", "words", "strip"),
    [
        ("sweet ro", 1, ["sweet", "ro"], 0),
        ("sweet rollout ", 2, ["sweet", "rollout", ""], 0),
        ("sweet compare a runs/b : sc", 5, ["sweet", "compare", "a", "runs/b:sc"], 7),
        ("sweet compare a runs/b :", 4, ["sweet", "compare", "a", "runs/b:"], 7),
        ("sweet compare a runs/b:sc", 3, ["sweet", "compare", "a", "runs/b:sc"], 0),
        ("sweet rollout --task = co", 4, ["sweet", "rollout", "--task=co"], 0),
        ("sweet rollout --task =", 3, ["sweet", "rollout", "--task="], 0),
        ("sweet rollout --agent-url http : //h : 8000/v1 --agent ", 9, None, 0),
    ],
)
def test_words_that_bash_splits_are_joined(line: str, position: int, words: list[str] | None, strip: int) -> None:
    expected = words or ["sweet", "rollout", "--agent-url", "http://h:8000/v1", "--agent", ""]
    assert bash_words(line, position) == (expected, strip)


def answer_to(instruction: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweet"],
        env={**os.environ, "_SWEET_COMPLETE": instruction, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_answers_to_shells(runs: Path) -> None:
    result = answer_to("complete_bash", COMP_WORDS="sweet eval --compare runs/one : sc", COMP_CWORD="5")
    assert (result.returncode, result.stdout, result.stderr) == (0, "scores-2\nscores-1\n", "")
    for shell in ("zsh", "fish", "powershell"):
        result = answer_to(f"complete_{shell}", _SWEET_WORDS="sweet rollo")
        assert result.stdout == "rollout\tPlay dialogues between the agent and the simulated human.\n"


@pytest.mark.parametrize("shell", ["zsh", "fish", "powershell"])
def test_a_value_after_an_equals_sign_keeps_its_option(runs: Path, shell: str) -> None:
    assert answer_to(f"complete_{shell}", _SWEET_WORDS="sweet rollout --tasks=col").stdout == "--tasks=colbench\t\n"


@pytest.mark.parametrize(
    ("instruction", "environment"),
    [
        ("complete_bash", {}),
        ("complete_bash", {"COMP_WORDS": "sweet x", "COMP_CWORD": "many"}),
        ("complete_bash", {"COMP_WORDS": "sweet 'x", "COMP_CWORD": "7"}),
        ("complete_zsh", {"_SWEET_WORDS": ""}),
        ("complete_zsh", {"_SWEET_WORDS": "sweet rollout --seed x --nothing --tasks"}),
        ("complete_nothing", {"_SWEET_WORDS": "sweet "}),
        ("nonsense", {}),
    ],
)
def test_errors_are_silent(workplace: Path, instruction: str, environment: dict[str, str]) -> None:
    result = answer_to(instruction, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Traceback" not in result.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_completion_in_bash(runs: Path) -> None:
    """Bash sources the file and gets the candidates; nothing is executed."""
    script = runs / "sweet.bash"
    script.write_text(SCRIPTS["bash"])
    (runs / "bin").mkdir()
    program = runs / "bin" / "sweet"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sweet "$@"\n')
    program.chmod(0o755)
    result = subprocess.run(
        [
            "bash",
            "--norc",
            "-c",
            f"source {script}; COMP_WORDS=(sweet label 'runs/'); COMP_CWORD=2; "
            "_sweet_completion sweet; printf '%s\\n' \"${COMPREPLY[@]}\"",
        ],
        env={**os.environ, "PATH": f"{runs / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["runs/two", "runs/one", "runs/notes/"]
    assert result.stderr == ""
    assert not (runs / "hacked").exists()


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "-n")])
def test_the_completion_files_have_valid_syntax(tmp_path: Path, shell: str, check: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "file").write_text(SCRIPTS[shell])
    subprocess.run([program, check, str(tmp_path / "file")], check=True)
