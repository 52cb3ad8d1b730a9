"""Preferences are those of the method, whatever the order of the file."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import InputError, SweetError, UsageError
from sweet.learn.rows import Preference
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import preferences, run_label, usable_dialogues
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.scores import RewardRule
from tests.learn.builders import build_trajectory
from tests.stages.heard import Heard
from tests.stages.learn_runs import AnyConfig, make_dialogues, make_run, put, score

SOLVED = RewardRule(solved=1.0)
DEGREES = RewardRule(solved=None, margin=0.1)


def test_the_first_solved_dialogue_is_preferred_to_every_worse_one(tmp_path: Path) -> None:
    run = make_run(tmp_path, "micro", tasks=2, samples=3)
    result = run_label(run, LabelConfig(), Silent())
    rows = list(read_jsonl(run.file(result.artifacts[0]), Preference))
    assert [(row.chosen, row.rejected) for row in rows] == [
        ("5-0-0", "7-0-1"),
        ("5-0-0", "7-0-2"),
        ("5-1-0", "7-1-1"),
        ("5-1-0", "7-1-2"),
    ]
    assert (result.metrics.pairs, result.metrics.tasks_with_pairs) == (4, 2)
    assert result.artifacts[0].rows == 4
    assert run.input_of(result.artifacts[0], "rollouts").id == "rollouts-1"


def test_a_margin_leaves_close_ones_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, "micro", tasks=2, samples=3)
    assert run_label(run, LabelConfig(margin=0.85), Silent()).metrics.pairs == 2


def test_faults_and_invalid_scores_are_left_out(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    dialogues = [
        build_trajectory("solved"),
        build_trajectory("worse", sample=1),
        build_trajectory("fault", sample=2, outcome="human_error"),
        build_trajectory("invalid", sample=3),
    ]
    rewards = [1.0, 0.5, 0.0, None]
    rollouts = put(run, "rollout", "rollouts", dialogues)
    put(run, "eval", "scores", [score(t, r) for t, r in zip(dialogues, rewards, strict=True)], [rollouts])
    result = run_label(run, LabelConfig(), Silent())
    assert (result.metrics.pairs, result.metrics.left_out) == (1, 1)


def test_nothing_to_prefer_says_what_to_do(tmp_path: Path) -> None:
    run = make_run(tmp_path, "micro", tasks=3, samples=1)
    with pytest.raises(SweetError, match="nothing to prefer") as caught:
        run_label(run, LabelConfig(), Silent())
    assert "--samples" in str(caught.value.fix)
    assert run.manifest().attempts[-1].status == "failed"


def test_what_was_said_is_not_held_in_memory(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    long = build_trajectory("long")
    long = long.model_copy(update={"answer": "x" * 400_000})
    dialogues = [long.model_copy(update={"id": f"d{i}", "sample": i}) for i in range(100)]
    rollouts = put(run, "rollout", "rollouts", dialogues)
    put(run, "eval", "scores", [score(t, i / 99) for i, t in enumerate(dialogues)], [rollouts])
    tracemalloc.start()
    try:
        assert run_label(run, LabelConfig(), Silent()).metrics.pairs == 99
        assert tracemalloc.get_traced_memory()[1] < 20_000_000, "of 40 MB"
    finally:
        tracemalloc.stop()


def test_what_was_only_evaluated_is_not_learned_from_unasked(tmp_path: Path) -> None:
    run = make_run(tmp_path, "micro")
    dialogues = make_dialogues(2)
    unseen = put(run, "rollout", "rollouts", [trajectory for trajectory, _ in dialogues], tasks="toy", split="test")
    put(run, "eval", "scores", [score(trajectory, reward) for trajectory, reward in dialogues], [unseen])
    assert run_label(run, LabelConfig(), Silent()).metrics.pairs == 10
    with pytest.raises(UsageError, match="test tasks"):
        run_label(run, LabelConfig(from_="scores-2"), Silent())
    assert run_label(run, LabelConfig(from_="scores-2", allow_test=True), Silent()).metrics.pairs == 4


def test_without_scores_the_stage_that_makes_them_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="scores") as caught:
        run_label(Run.create(tmp_path / "run", task="code"), LabelConfig(), Silent())
    assert "sweet eval" in str(caught.value.fix)


@given(st.permutations(range(9)), st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=9, max_size=9))
def test_the_order_of_the_file_decides_nothing(order: list[int], rewards: list[float]) -> None:
    played = [trajectory for trajectory, _ in make_dialogues(3, 3)]
    known = {trajectory.id: reward for trajectory, reward in zip(played, rewards, strict=True)}
    dialogues = usable_dialogues(played, known)
    found = list(preferences(dialogues, known, SOLVED))
    assert found == list(preferences([dialogues[i] for i in order], known, SOLVED))
    for row in found:
        assert row.chosen_reward == 1.0 > row.rejected_reward
    assert len({(row.chosen, row.rejected) for row in found}) == len(found)
    assert all(len({row.chosen for row in found if row.task_id == task}) == 1 for task in {r.task_id for r in found})


@given(st.permutations(range(8)), st.lists(st.integers(-20, 20), min_size=8, max_size=8))
def test_rewards_of_degrees_set_every_two_against_each_other(order: list[int], tenths: list[int]) -> None:
    played = [trajectory for trajectory, _ in make_dialogues(2, 4)]
    known = {trajectory.id: tenth / 20 for trajectory, tenth in zip(played, tenths, strict=True)}
    dialogues = usable_dialogues(played, known)
    found = list(preferences(dialogues, known, DEGREES))
    again = preferences([dialogues[i] for i in order], known, DEGREES)
    assert found == list(again)
    apart = [
        {one.id, other.id}
        for one, other in itertools.combinations(dialogues, 2)
        if one.task_id == other.task_id and abs(tenths[dialogues.index(one)] - tenths[dialogues.index(other)]) >= 2
    ]
    assert len(found) == len(apart)
    for row in found:
        assert {row.chosen, row.rejected} in apart
        assert row.chosen_reward == known[row.chosen] > known[row.rejected] == row.rejected_reward


def test_a_stale_input_is_warned_of_with_what_makes_it_again(tmp_path: Path) -> None:
    run = make_run(tmp_path, "micro", tasks=2, samples=3)
    heard = Heard()
    run_label(run, LabelConfig(), heard)
    assert heard.warnings == []
    rollouts = run.artifact("rollouts-1")
    with run.attempt("rollout", AnyConfig()) as attempt:  # goes on with the same dialogues, of which one is lost
        draft = attempt.start_artifact("rollouts", meta=dict(rollouts.meta), resume=True)
        assert (draft.id, draft.resumed) == ("rollouts-1", True)
        lines = draft.path.read_text().splitlines(keepends=True)
        draft.path.write_text("".join(lines[:-1]))
        attempt.finish_artifact(draft, rows=len(lines) - 1)
    result = run_label(run, LabelConfig(), heard)
    (warning,) = heard.warnings
    assert warning.startswith("scores-1 is stale: its input rollouts-1 was changed since.")
    assert f"to make scores-1 again: sweet eval {run.path}" in warning
    assert result.metrics.left_out == 1, "a score without its dialogue"


def test_an_edited_input_that_is_used_as_it_is_is_warned_of(tmp_path: Path) -> None:
    run = make_run(tmp_path, "micro", tasks=2, samples=3)
    path = run.file(run.artifact("scores-1"))
    path.write_text(path.read_text().replace('"total":10', '"total":11'))
    heard = Heard()
    with pytest.raises(InputError, match="sha256 is another"):
        run_label(run, LabelConfig(), heard)
    run_label(run, LabelConfig(verify=False), heard)
    (warning,) = heard.warnings
    assert "scores-1 is stale: scores/scores-1.jsonl was changed since it was finished." in warning
    assert "sweet eval" in warning
