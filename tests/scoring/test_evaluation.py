"""Which evaluation is meant, and its values by task."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from sweet.errors import InputError, UsageError
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.evaluation import REWARD, find_evaluation
from tests.scoring.evaluations import evaluate, grade, make_task, play

REWARDS = {"t1": [1.0], "t2": [0.5]}


def find(reference: str) -> tuple[str, str | None]:
    found = find_evaluation(reference, needed_by="compare")
    return found.scores.id, None if found.rollouts is None else found.rollouts.id


def test_the_newest_or_the_one_that_is_named(tmp_path: Path) -> None:
    run = evaluate(tmp_path / "run", REWARDS).run
    evaluate(run.path, REWARDS, seed=1)
    grade(run, run.artifact("rollouts-1"), REWARDS)
    assert find(str(run.path)) == ("scores-3", "rollouts-1")
    assert find(f"{run.path}:scores-2") == ("scores-2", "rollouts-2")
    assert find(f"{run.path}:rollouts-2") == ("scores-2", "rollouts-2")
    assert find(f"{run.path}:rollouts-1") == ("scores-3", "rollouts-1"), "the newest of several"


def test_a_folder_whose_name_has_a_colon(tmp_path: Path) -> None:
    run = evaluate(tmp_path / "at-12:scores-1", REWARDS).run
    assert find(str(run.path)) == ("scores-1", "rollouts-1")
    assert find(f"{run.path}:rollouts-1") == ("scores-1", "rollouts-1")


@pytest.mark.parametrize(
    ("reference", "said", "fix"),
    [
        ("{run}:scores-9", "no scores named scores-9; it has scores-1", "name one of them"),
        ("{run}:rollouts-9", "no rollouts named rollouts-9; it has rollouts-1, rollouts-2", "name one of them"),
        ("{run}:before", "no scores named before; it has scores-1", "name one of them"),
        ("{run}:rollouts-2", "rollouts-2 has none yet", "--from rollouts-2"),
        ("{run}-none", "no such run", "sweet status"),
        ("{run}-none:scores-1", "no such run", "sweet status"),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, reference: str, said: str, fix: str) -> None:
    run = evaluate(tmp_path / "run", REWARDS).run
    play(run, [make_task("t1")], seed=5)
    with pytest.raises(UsageError, match=said) as caught:
        find(reference.format(run=run.path))
    assert fix in str(caught.value.fix)


def test_dialogues_whose_evaluation_is_not_finished_are_not_scored_anew(tmp_path: Path) -> None:
    run = evaluate(tmp_path / "run", REWARDS).run
    rollouts = play(run, [make_task("t1")], seed=5)
    with suppress(KeyboardInterrupt), run.attempt("eval", EvalConfig(), inputs=[rollouts]) as attempt:
        attempt.start_artifact("scores").path.touch()
        with pytest.raises(UsageError, match="scores-2 is being made") as caught:
            find(f"{run.path}:rollouts-2")
        assert caught.value.fix == f"sweet status {run.path} --follow"
        raise KeyboardInterrupt
    with pytest.raises(UsageError, match="scores-2 is not finished") as caught:
        find(f"{run.path}:rollouts-2")
    assert caught.value.fix == f"sweet eval {run.path} --resume"
    assert find(f"{run.path}:rollouts-1") == ("scores-1", "rollouts-1")


def test_values_by_task(tmp_path: Path) -> None:
    values = evaluate(tmp_path / "run", {"t1": [1.0, 0.5], "t2": [None, None], "t3": [0.0, 1.0]}).values()
    assert values.of(REWARD) == {"t1": [1.0, 0.5], "t3": [0.0, 1.0]}
    assert values.means("success_rate") == {"t1": 0.5, "t3": 0.5}
    assert values.ids == {"t1": ["t1-s0-r0", "t1-s1-r0"], "t3": ["t3-s0-r0", "t3-s1-r0"]}
    assert values.invalid == {"t2"}
    assert values.means("upstream_success_rate") == {}


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    found = evaluate(tmp_path / "run", REWARDS)
    file = Run.open(found.run.path).file(found.scores)
    file.write_text(file.read_text().replace('"reward":0.5', '"reward":"much"'))
    with pytest.raises(InputError, match="line 2"):
        found.values()


@pytest.mark.parametrize("reward", ["NaN", "Infinity", "1e999"])
def test_a_reward_that_is_no_number_is_refused(tmp_path: Path, reward: str) -> None:
    found = evaluate(tmp_path / "run", REWARDS)
    path = found.run.file(found.scores)
    path.write_text(path.read_text().replace('"reward":1.0', f'"reward":{reward}'))
    with pytest.raises(InputError, match="reward"):
        found.values()
