"""A critic that is at chance on what it did not learn from is warned of, with the figures, before it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.critics import warn_if_at_chance
from tests.stages.heard import Heard
from tests.stages.learn_runs import AnyConfig, make_run


def put_critic(run: Run, **metrics: float | None) -> Artifact:
    """A critic whose folder is empty: a stage that uses it warns before it fails to load it."""
    with run.attempt("train-critic", AnyConfig()) as attempt:
        attempt.metrics.update(metrics)
        draft = attempt.start_artifact("critic", suffix="", meta={"base": "micro"})
        (draft.path / "config.json").write_text("{}")
        return attempt.finish_artifact(draft)


def put_ranking(run: Run, critic: Artifact, **metrics: float) -> None:
    with run.attempt("rank", AnyConfig(), inputs=[critic]) as attempt:
        draft = attempt.start_artifact("candidates", meta={"judge": "critic", "critic": critic.id})
        draft.path.write_text("")
        attempt.metrics.update(metrics)
        attempt.finish_artifact(draft, rows=0)


def warned(run: Run, critic: Artifact) -> list[str]:
    heard = Heard()
    warn_if_at_chance(run, critic, heard)
    return heard.warnings


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        ({"heldout_accuracy": 0.5, "heldout": 100}, "50.0 % [40.4, 59.6] of 100 held-out preferences in order"),
        ({"heldout_accuracy": 0.8, "heldout": 5}, "80.0 % [37.6, 96.4] of 5 held-out preferences in order"),
        ({"heldout_accuracy": 0.2, "heldout": 100}, "20.0 % [13.3, 28.9] of 100 held-out preferences in order"),
    ],
)
def test_held_out_preferences_at_chance_are_shown(tmp_path: Path, metrics: dict[str, float], shown: str) -> None:
    run = Run.create(tmp_path / "run")
    (warning,) = warned(run, put_critic(run, **metrics))
    assert warning.startswith(f"critic-1 is not known to be better than chance: it puts {shown}")


@pytest.mark.parametrize(
    "metrics",
    [{"heldout_accuracy": 0.8, "heldout": 100}, {"heldout_accuracy": None, "heldout": 0}, {}],
)
def test_a_critic_that_is_better_or_was_not_measured_is_not_warned_of(
    tmp_path: Path, metrics: dict[str, float | None]
) -> None:
    run = Run.create(tmp_path / "run")
    assert warned(run, put_critic(run, **metrics)) == []


def test_couples_of_its_newest_ranking_count(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    critic, other = put_critic(run), put_critic(run)
    put_ranking(run, critic, agreement=0.9, agreement_ci_low=0.8, agreement_ci_high=0.95)
    assert warned(run, critic) == []
    put_ranking(run, critic, agreement=0.457, agreement_ci_low=0.407, agreement_ci_high=0.513)
    assert "45.7 % [40.7, 51.3] of the couples of replies in candidates-2" in warned(run, critic)[0]
    put_ranking(run, critic, turns=4)
    assert "of the couples of replies in candidates-2" in warned(run, critic)[0], "the third knows no couples"
    assert warned(run, other) == []


def test_every_stage_that_judges_by_it_warns_before_it_loads_it(tmp_path: Path) -> None:
    run = make_run(tmp_path, "micro", tasks=2, samples=2)
    critic = put_critic(run, heldout_accuracy=0.5, heldout=100)
    rankable = RankConfig(from_=critic.id, rollouts="rollouts-1")
    for work in (
        lambda heard: run_rank(run, rankable, heard),
        lambda heard: run_rollout(run, RolloutConfig(tasks="micro", num_tasks=1, best_of=2), heard),
        lambda heard: run_eval(run, EvalConfig(best_of_by="critic"), heard),
    ):
        heard = Heard()
        with pytest.raises(Exception, match=r"cannot be loaded|no tokenizer"):
            work(heard)
        assert any("50.0 % [40.4, 59.6]" in warning for warning in heard.warnings)
