"""Completion: the candidates, that it never fails, and that names of files or models cannot inject commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.tools.commands import COMPLETIONS
from sweet.cli.completion import MAX_CANDIDATES, is_plain_word, join_words_of_bash
from sweet.plugins import TASKS, plugins
from sweet.tasks.packaged import PACKAGED
from tests.cli.completing import offered

ROOT = Path(__file__).parents[2]

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


def test_commands_subcommands_options_and_choices(workplace: Path) -> None:
    assert offered("ro") == ["rollout"]
    assert set(offered("data", "")) >= {"import", "export", "colbench"}
    assert offered("rollout", "--num") == ["--num-tasks"]
    assert offered("rollout", "--protocol", "") == ["paper", "upstream"]
    assert offered("rollout", "--protocol=u") == ["upstream"]
    assert offered("rollout", "--task", "") == sorted(plugins(TASKS))
    assert offered("train", "--algorithm", "gr") == ["grpo"]
    assert offered("train-online", "--algorithm", "r") == ["rft", "rloo"]
    assert offered("rollout", "--tasks", "co") == ["colbench"]
    assert offered("rollout", "--task", "html", "--tasks", "w") == ["websight"]


def test_models_recipes_and_keys_of_recipes(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(runs / "hub"))
    for name in ("models--org--model", "models--org--$(x)", "datasets--org--data", "models--alone"):
        (runs / "hub" / name).mkdir(parents=True)
    for number in (1, 2):
        folder = runs / "runs" / "one" / "actor" / f"actor-{number}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (runs / "runs" / "one" / "actor" / "actor-3").mkdir()
    actors = ["runs/one/actor/actor-2", "runs/one/actor/actor-1"]
    assert offered("rollout", "--agent", "") == ["scripted", *PACKAGED, *actors, "alone", "org/model"]
    assert offered("train-critic", "--model", "runs") == actors
    assert offered("train-actor", "--model", "s") == []
    assert sorted(offered("train", "--recipe", "paper-code")) == ["paper-code-70b", "paper-code-8b"]
    assert offered("train", "--set", "rank.frac") == ["rank.fraction="]
    assert offered("train", "--set", "eval.comp") == [], "the loop decides it"


def test_runs(runs: Path) -> None:
    assert offered("label", "") == ["runs/two", "runs/one"]
    assert offered("label", "runs/o") == ["runs/one"]
    assert offered("label", "runs/n") == [], "the shell offers the folder"
    assert offered("label", f"{runs}/runs/o") == [f"{runs}/runs/one"]
    assert offered("rollout", "--config", "s") == [], "the shell offers the file"


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


@pytest.mark.parametrize(
    ("given", "words", "omitted"),
    [
        (["sweet", "ro"], ["sweet", "ro"], 0),
        (["sweet", "rollout", ""], ["sweet", "rollout", ""], 0),
        (["sweet", "compare", "a", "runs/b", ":", "sc"], ["sweet", "compare", "a", "runs/b:sc"], 7),
        (["sweet", "compare", "a", "runs/b", ":"], ["sweet", "compare", "a", "runs/b:"], 7),
        (["sweet", "compare", "a", "runs/b:sc"], ["sweet", "compare", "a", "runs/b:sc"], 0),
        (["sweet", "rollout", "--task", "=", "co"], ["sweet", "rollout", "--task=co"], 0),
        (["sweet", "rollout", "--task", "="], ["sweet", "rollout", "--task="], 0),
        (
            ["sweet", "rollout", "--agent-url", "http", ":", "//h", ":", "8000/v1", "--agent", ""],
            ["sweet", "rollout", "--agent-url", "http://h:8000/v1", "--agent", ""],
            0,
        ),
    ],
)
def test_words_that_bash_splits_are_joined(given: list[str], words: list[str], omitted: int) -> None:
    environment = {"COMP_WORDS": "\n".join(given), "COMP_CWORD": str(len(given) - 1)}
    assert join_words_of_bash(environment) == omitted
    assert environment == {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}


def answer_to(instruction: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweet"],
        env={**os.environ, "_SWEET_COMPLETE": instruction, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_answers_to_shells(runs: Path) -> None:
    words = "sweet eval --compare runs/one : sc".replace(" ", "\n")
    result = answer_to("complete_bash", COMP_WORDS=words, COMP_CWORD="5")
    assert (result.returncode, result.stdout, result.stderr) == (0, "scores-2\nscores-1\n", "")
    summary = "Play dialogues between the agent and the simulated human."
    line = {"_TYPER_COMPLETE_ARGS": "sweet rollo", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert answer_to("complete_zsh", **line).stdout == f'_arguments \'*: :(("rollout":"{summary}"))\'\n'
    assert answer_to("complete_fish", **line).stdout == f"rollout\t{summary}\n"
    line |= {"_TYPER_COMPLETE_WORD_TO_COMPLETE": "rollo"}
    assert answer_to("complete_powershell", **line).stdout == f"rollout:::{summary}\n"


def test_the_help_of_a_candidate_is_one_line_without_markup(runs: Path) -> None:
    for command in ("train-critic", "rollout"):
        line = {"_TYPER_COMPLETE_ARGS": f"sweet {command} --", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        shown = answer_to("complete_fish", COLUMNS="40", **line).stdout.splitlines()
        assert len(shown) > 40
        assert all(line.startswith("-") for line in shown)


@pytest.mark.parametrize(
    ("instruction", "environment"),
    [
        ("complete_bash", {}),
        ("complete_bash", {"COMP_WORDS": "sweet x", "COMP_CWORD": "many"}),
        ("complete_bash", {"COMP_WORDS": "sweet 'x", "COMP_CWORD": "7"}),
        ("complete_zsh", {"_TYPER_COMPLETE_ARGS": ""}),
        ("complete_zsh", {"_TYPER_COMPLETE_ARGS": "sweet rollout --seed x --nothing --tasks"}),
        ("complete_nothing", {"_TYPER_COMPLETE_ARGS": "sweet "}),
        ("nonsense", {}),
    ],
)
def test_errors_are_silent(workplace: Path, instruction: str, environment: dict[str, str]) -> None:
    result = answer_to(instruction, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Traceback" not in result.stdout


@pytest.fixture
def installed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program called `sweet` on the path."""
    (runs / "bin").mkdir()
    program = runs / "bin" / "sweet"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sweet "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(runs / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def in_shell(shell: str, script: str) -> str:
    """Return what a script prints in a shell in which completion is installed; nothing may be executed by it."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    source = "compdef() { :; }\n" if shell == "zsh" else ""
    source += f"source {ROOT / 'completions' / COMPLETIONS[shell]}\n"
    result = subprocess.run([program, *flags, "-c", source + script], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert not Path("hacked").exists()
    return result.stdout


@pytest.mark.usefixtures("installed")
def test_completion_in_bash() -> None:
    ask = "_sweet_completion sweet; printf '%s\\n' \"${COMPREPLY[@]}\""
    assert in_shell("bash", f"COMP_WORDS=(sweet label 'runs/'); COMP_CWORD=2; {ask}").split() == [
        "runs/two",
        "runs/one",
    ]
    words = "COMP_WORDS=(sweet eval --compare runs/one : sc); COMP_CWORD=5"
    assert in_shell("bash", f"{words}; {ask}").split() == ["scores-2", "scores-1"]


@pytest.mark.usefixtures("installed")
def test_completion_in_fish() -> None:
    lines = in_shell("fish", "complete -C 'sweet label runs/'").splitlines()
    assert {"runs/two", "runs/one"} <= {line.split("\t")[0] for line in lines}
    assert "rank\tSample candidate replies at turns" in in_shell("fish", "complete -C 'sweet ran'")


@pytest.mark.usefixtures("installed")
def test_completion_in_zsh() -> None:
    functions = "_arguments() { print -l -- $@ }; words=(sweet rank --judge ''); CURRENT=4; "
    assert '"critic"' in in_shell("zsh", f"{functions} _sweet_completion")
