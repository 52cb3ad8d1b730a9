"""One field, one option: parsing, the source of a value, and the errors for invalid values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sweet.cli.fields import options_of_class
from sweet.stages.base import StageConfig
from tests.cli.conftest import Program
from tests.cli.toy import PlayConfig


def resolved(toy: Program, *words: str) -> dict[str, Any]:
    outcome = toy("play", *words, "--dry-run")
    assert outcome.code == 0, outcome.err
    loaded: dict[str, Any] = json.loads(outcome.out)
    return loaded


def test_defaults_are_those_of_the_configuration(toy: Program) -> None:
    assert resolved(toy) == PlayConfig().model_dump(mode="json")


def test_every_type_of_option(toy: Program) -> None:
    words = "--tasks t --agent-url a --agent-url b --samples 3 --top-p 0.5 --scorer upstream --from x --no-nll --resume"
    expected = PlayConfig(
        tasks="t",
        agent_url=["a", "b"],
        samples=3,
        top_p=0.5,
        scorer="upstream",
        from_="x",
        nll=False,
        resume=True,
        compare=Path("p"),
    )
    assert resolved(toy, *words.split(), "--compare", "p") == expected.model_dump(mode="json")


def test_dry_run_creates_no_run(toy: Program, workplace: Path) -> None:
    resolved(toy)
    assert not list(workplace.iterdir())


def test_flag_overrides_environment_overrides_file_overrides_default(
    toy: Program, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolved(toy)["samples"] == 1
    Path("c.toml").write_text("samples = 2\n")
    assert resolved(toy, "--config", "c.toml")["samples"] == 2
    Path("c.toml").write_text("samples = 2\n[play]\nsamples = 3\n")
    assert resolved(toy, "--config", "c.toml")["samples"] == 3
    monkeypatch.setenv("SWEET_PLAY_SAMPLES", "4")
    assert resolved(toy, "--config", "c.toml")["samples"] == 4
    assert resolved(toy, "--config", "c.toml", "--samples", "5")["samples"] == 5


def test_lists_switches_and_common_options_from_the_environment(toy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_PLAY_AGENT_URL", "a b")
    monkeypatch.setenv("SWEET_PLAY_NLL", "0")
    monkeypatch.setenv("SWEET_PLAY_FROM", "rollouts-1")
    monkeypatch.setenv("SWEET_PLAY_DRY_RUN", "1")
    config = json.loads(toy("play").out)
    assert (config["agent_url"], config["nll"], config["from_"]) == (["a", "b"], False, "rollouts-1")


def test_a_file_with_settings_of_several_commands(toy: Program, workplace: Path) -> None:
    Path("c.toml").write_text('seed = 5\nfrom = "x"\n[learn]\nmodel = "m"\n[play]\nagent-url = ["u"]\ntop_p = 0.5\n')
    config = resolved(toy, "--config", "c.toml")
    assert (config["from_"], config["agent_url"], config["top_p"]) == ("x", ["u"], 0.5)
    assert json.loads(toy("learn", "--config", "c.toml", "--dry-run").out) == {"model": "m", "seed": 5}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sampels = 2", ("key 'sampels'", "Did you mean samples?", "c.toml")),
        ("[play]\nagent_urls = []", ("key 'play.agent_urls'", "Did you mean agent-url?")),
        ("[learn]\nsamples = 1", ("key 'learn.samples'", "known here: model, seed")),
        ("[plai]\nsamples = 1", ("table 'plai'", "Did you mean play?")),
        ("play = 2", ("play is a table.", "c.toml, key play", "write [play]")),
        ("[samples]\nx = 2", ("samples is no table.", "c.toml, table samples", "write samples = …")),
        ("[play]\ntop-p = 0.5\ntop_p = 0.4", ("two ways", "c.toml, key play.top-p", "omit one")),
        ("samples = 1\nx =\n", ("This is not TOML", "line 2")),
        ("samples = 99", ("c.toml, key samples: should be less than or equal to 9, not 99.",)),
        ("[play]\nscorer = 'x'", ("c.toml, key play.scorer: should be 'strict' or 'upstream', not 'x'.",)),
    ],
)
def test_an_invalid_file_is_refused(toy: Program, workplace: Path, text: str, expected: tuple[str, ...]) -> None:
    Path("c.toml").write_text(text)
    outcome = toy("play", "--config", "c.toml", "--dry-run")
    assert (outcome.code, outcome.out) == (2, "")
    for words in expected:
        assert words in outcome.err


def test_a_file_may_begin_with_a_mark_of_byte_order(toy: Program, workplace: Path) -> None:
    Path("c.toml").write_text("samples = 2\n", encoding="utf-8-sig")
    assert resolved(toy, "--config", "c.toml")["samples"] == 2


def test_a_missing_file_is_refused(toy: Program) -> None:
    outcome = toy("play", "--config", "none.toml")
    assert outcome.code == 2
    assert "none.toml" in outcome.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--samples 10", "--samples: should be less than or equal to 9, not '10'."),
        ("--samples x", "--samples: should be a valid integer"),
        ("--top-p 0", "--top-p: should be greater than 0"),
        ("--scorer fair", "--scorer: should be 'strict' or 'upstream', not 'fair'."),
        ("--samples 7", "samples must not be 7."),
        ("--sample 3", "Did you mean --samples?"),
        ("a b", "unexpected extra argument"),
    ],
)
def test_an_invalid_option_is_refused(toy: Program, words: str, expected: str) -> None:
    outcome = toy("play", *words.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert expected in outcome.err
    assert "sweet play --help" in outcome.err


def test_an_invalid_environment_variable_is_named(toy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_PLAY_SAMPLES", "many")
    outcome = toy("play")
    assert outcome.code == 2
    assert "SWEET_PLAY_SAMPLES: should be a valid integer" in outcome.err


def test_a_missing_required_option_is_named(toy: Program) -> None:
    outcome = toy("learn", "--dry-run")
    assert outcome.code == 2
    assert "--model is required." in outcome.err


def test_help_comes_from_the_fields(toy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for flag in ("-h", "--help"):
        shown = toy("play", flag).out
        for words in (
            "Dialogues for each task. (at least 1 and at most 9; default: 1)",
            "strict|upstream",
            "--nll",
            "--no-nll",
            "Dataset [micro, colbench].",
            "sweet play RUN [x]",
            "SWEET_PLAY_OPTION",
        ):
            assert words in shown


def test_a_type_that_cannot_be_an_option_is_refused() -> None:
    class Inner(BaseModel):
        pass

    class Strange(StageConfig):
        inner: Inner = Inner()

    with pytest.raises(TypeError, match="cannot be an option"):
        options_of_class(Strange, "strange")
