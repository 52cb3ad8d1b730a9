"""Features of every command: help, --json, --quiet, --verbose, --dry-run, --config, and colours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweet.cli.group import Group, load
from sweet.cli.options import COMMON, LONG, main_options
from sweet.cli.spec import Spec
from sweet.units import count
from tests.cli.conftest import Program
from tests.cli.test_commands import imported, trajectories  # noqa: F401

COMMANDS = sorted(Group.names())
PLANNED = ("eval", "label", "train-critic", "rank", "pair", "train-actor")
"""Commands whose --dry-run reads the run; that of rollout does not need one."""

GIVEN = "some-name"
"""The value of a required option."""

ESC = "\x1b"


def spec_of(name: str) -> Spec:
    spec: Spec = load(name).spec
    return spec


def call_of(name: str) -> list[str]:
    """The words of a call with all required arguments and options."""
    spec = spec_of(name)
    options = [word for option in spec.options if option.required for word in (option.flag, GIVEN)]
    needed = [argument.name for argument in spec.positional.values() if argument.default is argument.empty]
    return [*name.split(), *(f"a-{argument}" for argument in needed), *options]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_is_one_json_value_and_silent(sweet: Program, name: str) -> None:
    for flags in (["--dry-run", "--quiet"], ["--dry-run", "--json", "--quiet"]):
        outcome = sweet(*call_of(name), *flags)
        if name in PLANNED:
            assert outcome.code == 2
            assert "There is no run yet." in outcome.err
        elif name == "train" and "--json" not in flags:
            assert (outcome.code, outcome.err) == (0, "")
            assert outcome.out.startswith("sweet train · a new run, not run · recipe micro\n┏"), "nothing differs"
        else:
            assert (outcome.code, outcome.err) == (0, "")
            output, end = json.JSONDecoder().raw_decode(outcome.out)
            assert isinstance(output, dict)
            assert (outcome.out[end:].strip() == "") is (
                name not in ("rollout", "play", "gateway", "train-online") or "--json" in flags
            ), "and the plan's table"


@pytest.mark.parametrize("name", COMMANDS)
def test_verbose_reports_the_source_of_each_setting(sweet: Program, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("c.toml").write_text("seed = 5\n")
    outcome = sweet(*call_of(name), "--dry-run", "--verbose", "--config", "c.toml")
    for option in spec_of(name).options:
        (line,) = [line for line in outcome.err.splitlines() if f"setting {option.key} = " in line]
        source = "c.toml, key seed" if option.key == "seed" else option.flag if option.required else "default"
        assert line.endswith(f"({source})")
    assert "s in total" in outcome.err
    if name == "train":
        assert outcome.out.splitlines()[1] == "  train.seed was 0 and is 5", "narration must not be on stdout"
    elif name not in PLANNED:
        assert isinstance(json.JSONDecoder().raw_decode(outcome.out)[0], dict), "narration must not be on stdout"


@pytest.mark.parametrize("name", COMMANDS)
def test_contradicting_and_unknown_options_are_refused(sweet: Program, name: str) -> None:
    Path("c.toml").write_text("nonsense = 5\n")
    for words in (["--quiet", "--verbose"], ["--config", "c.toml"], ["--nonsense"]):
        outcome = sweet(*call_of(name), *words)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("╭─")
        assert ESC not in outcome.err


@pytest.mark.parametrize(
    ("name", "environment", "escapes", "colours"),
    [
        *((name, {}, False, False) for name in ["", "data", *COMMANDS]),
        # One command stands for the others: all are printed by the same console.
        *(
            (name, {"FORCE_COLOR": "1", **more}, escapes, colours)
            for name in ("", "data", "data import", "rank")
            for more, escapes, colours in (
                ({"TERM": "xterm-256color"}, True, True),
                ({"NO_COLOR": "1", "TERM": "xterm-256color"}, True, False),
                ({"TERM": "dumb"}, False, False),
            )
        ),
    ],
)
def test_colours_follow_the_environment(
    sweet: Program,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    environment: dict[str, str],
    escapes: bool,
    colours: bool,
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    for text in (sweet(*name.split(), "-h").out, sweet(*name.split(), "--nonsense").err):
        assert (ESC in text) is escapes
        assert (f"{ESC}[31m" in text or f"{ESC}[1;36m" in text) is colours


@pytest.mark.parametrize("name", ["", "data", *COMMANDS])
@pytest.mark.parametrize("columns", [40, 80])
def test_help_fits_the_terminal_and_starts_with_examples(
    sweet: Program, monkeypatch: pytest.MonkeyPatch, name: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    short = sweet(*name.split(), "-h").out
    complete = sweet(*name.split(), "--help-all").out if name in COMMANDS else short
    assert short == sweet(*name.split(), "--help").out
    lines = short.splitlines()
    for line in (*lines, *complete.splitlines()):
        assert len(line) <= columns
        assert line == line.rstrip()
    if name in COMMANDS:
        spec = spec_of(name)
        words = " ".join(complete.split())
        for option in spec.flags:
            assert option.flag in words
            assert option.help in words
        for key, _, help in COMMON:
            assert f"--{key}" in words
            assert help in words
        example = next(at for at, line in enumerate(lines) if line.startswith("  # "))
        assert example < next(at for at, line in enumerate(lines) if line.startswith(spec.summary[:20]))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_long_help_shows_the_main_options_and_counts_the_others(sweet: Program, name: str) -> None:
    flags = spec_of(name).flags
    listed, main = flags, main_options(flags)
    if len(listed) <= LONG:
        assert {option.key for option in main} == {o.key for o in listed if not o.rare}
    else:
        assert 6 <= len(main) <= 12
        assert all(option.topic for option in listed)
    left_out = len(listed) - len(main)
    if not left_out:
        return
    printed = {word for line in sweet(*name.split(), "--help").out.splitlines() for word in line.split()[:1]}
    for option in listed:
        assert (option.flag in printed) is (option in main)
    words = " ".join(sweet(*name.split(), "--help").out.split())
    assert f"sweet {name} --help-all shows {count(left_out, 'more option')}." in words
    assert f"sweet {name} --help-all" in " ".join(sweet(*call_of(name), "--nonsense").err.split())


def test_verbose_reports_artifacts_read_and_written(sweet: Program, imported: Path) -> None:  # noqa: F811
    outcome = sweet("label", str(imported), "--verbose", "--json")
    assert json.loads(outcome.out)["metrics"]["pairs"] == 1
    for words in (
        "read scores-1",
        f"wrote {imported}/preferences/preferences-1.jsonl",
        f"wrote {imported}/logs/label-1.log",
        "label-1: done",
    ):
        assert words in outcome.err, outcome.err
    outcome = sweet("label", str(imported), "--verbose", "--from", "scores-1")
    assert "setting from = scores-1  (--from)" in outcome.err


def test_an_option_has_the_same_kind_of_value_in_all_commands() -> None:
    """Only `--engine` is the server's in one command, and that of the trainings in others."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for name in COMMANDS:
        for option in spec_of(name).flags:
            kind = "switch" if option.is_switch else option.metavar
            kinds.setdefault(option.key, {}).setdefault(kind, []).append(name)
    assert {key: by_kind for key, by_kind in kinds.items() if len(by_kind) > 1} == {
        "engine": {
            "scripted|embedded|server|vllm": ["serve-sim"],
            "torch|deepspeed|openrlhf|tinker": ["train-actor", "train-critic"],
        }
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_an_empty_value_is_no_default_and_not_this_folder(sweet: Program, name: str, tmp_path: Path) -> None:
    spec = spec_of(name)
    for option in (one for one in spec.options if not (one.is_switch or one.is_tail or one.choices)):
        outcome = sweet(*call_of(name), option.flag, "")
        assert outcome.code == 2
        assert f"{option.flag}: must not be empty. " in outcome.err
    for argument in spec.positional:
        words = ["" if word == f"a-{argument}" else word for word in call_of(name)]
        outcome = sweet(*(words if "" in words else [*words, ""]))
        assert outcome.code == 2
        assert "It must not be empty." in outcome.err
    assert not [*tmp_path.iterdir()]
