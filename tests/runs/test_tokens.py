"""The record of the tokens of attempts: what is counted, kept by a killed process, and refused."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sweet.errors import InputError
from sweet.inspection.status import report
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.runs.tokens import TokenMeter, Tokens, current_meter, read_tokens, tokens_of_run, tokens_path, total


def test_an_attempt_within_another_counts_its_own(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    assert current_meter() is None
    with run.attempt("train", RolloutConfig()) as outer:
        outer.tokens.add("agent", 1, 2)
        with run.attempt("rollout", RolloutConfig()) as inner:
            assert current_meter() is inner.tokens
            inner.tokens.add("sim", 3, 4)
        assert current_meter() is outer.tokens
        outer.tokens.add("agent", 10, 20)
    assert current_meter() is None
    assert tokens_of_run(run.path, run.manifest()) == {
        "agent": Tokens(prompt=11, completion=22),
        "sim": Tokens(prompt=3, completion=4),
    }
    assert read_tokens(tokens_path(run.path, run.manifest().attempts[1].id)) == {"sim": Tokens(prompt=3, completion=4)}
    with suppress(ZeroDivisionError), run.attempt("rollout", RolloutConfig()) as failing:
        failing.tokens.add("agent", 0, 100)
        raise ZeroDivisionError
    assert tokens_of_run(run.path, run.manifest())["agent"].completion == 122, "of a failed attempt, too"
    with run.attempt("label", RolloutConfig()):
        pass
    assert not tokens_path(run.path, "label-1").exists()


def test_the_file_is_written_while_the_attempt_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    meter, path = TokenMeter(tmp_path / "a.tokens.json"), tmp_path / "a.tokens.json"
    meter.add("agent", 5, 1)
    assert json.loads(path.read_text()) == {"agent": {"prompt": 5, "completion": 1}}
    meter.add("agent", 5, 1)
    assert json.loads(path.read_text())["agent"]["prompt"] == 5, "not for every answer"
    now += 1
    meter.write_when_due()
    assert json.loads(path.read_text())["agent"]["prompt"] == 10


@pytest.mark.parametrize("text", ["", "[]", '{"agent": 3}', '{"agent": {"prompt": -1}}', '{"agent": {"read": 1}}'])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("rollout", RolloutConfig()) as attempt:
        attempt.tokens.add("agent", 1, 1)
    path = tokens_path(run.path, "rollout-1")
    path.write_text(text)
    with pytest.raises(InputError, match="no record of tokens") as refused:
        tokens_of_run(run.path, run.manifest())
    assert str(path) in str(refused.value.where)
    found = report(run)
    assert (found.spent, "no record of tokens" in str(found.problem)) == (None, True)


def test_status_shows_what_a_run_has_spent(tmp_path: Path) -> None:
    run, prices = Run.create(tmp_path / "run"), tmp_path / "prices.toml"
    assert report(run).spent is not None
    prices.write_text("[agent]\ncompletion = 1000000\n[judge]\nprompt = 500000\n")
    with run.attempt("rollout", RolloutConfig(prices=prices, max_cost=9)) as attempt:
        attempt.tokens.add("agent", 1200, 2)
        attempt.tokens.add("judge", 3, 4)
    spent = report(run).spent
    assert spent is not None
    assert spent.text == "agent 1,200 read, 2 written; judge 3 read, 4 written; cost 3.50 (limit 9)"
    prices.unlink()
    spent = report(run).spent
    assert spent is not None
    assert spent.text == "agent 1,200 read, 2 written; judge 3 read, 4 written"


def test_sums_are_by_role() -> None:
    a = {"agent": Tokens(prompt=5, completion=1)}
    b = {"agent": Tokens(prompt=2, completion=3), "sim": Tokens(prompt=1)}
    assert total((a, b)) == {"agent": Tokens(prompt=7, completion=4), "sim": Tokens(prompt=1)}
