"""The critic's advantages as weights of a policy gradient: by hand, and in trainings with a critic of the run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.credit.base import Batch, Credit
from sweet.credit.groups import EPSILON
from sweet.credit.sweet_pg import SweetPG, SweetPGCandidates
from sweet.errors import SweetError, UsageError
from sweet.inspection.next_commands import suggest_next
from sweet.learn.rows import Candidate, CandidateRow, Pair
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings, load_critic
from sweet.tasks.base import Message
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from sweet.training.asked_models import RunCritic
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import plan_train_actor, run_train_actor, run_train_critic
from sweet.training.starting_policy import PlannedPolicy
from tests.credit.unasked import Unasked
from tests.learn.builders import build_trajectory
from tests.stages.counting import Copying
from tests.stages.learn_runs import make_agent, make_dialogues, make_run, put, score
from tests.training.test_train import weights

RULE = task_kind("code").rewards


class Judged(Unasked):
    """Models that answer with given advantages."""

    def __init__(self, advantages: Mapping[str, Mapping[int, float]]) -> None:
        self.given = advantages

    def advantages(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        return {dialogue.id: dict(self.given[dialogue.id]) for dialogue in dialogues}


ADVANTAGES = {"a": {1: 0.3, 3: 0.5}, "b": {1: -0.1, 3: 0.1}, "c": {1: 9.0, 3: 9.0}, "d": {1: 9.0, 3: 9.0}}
SPREAD = (0.2 / 3) ** 0.5
"""Standard deviation of 0.3, 0.5, -0.1 and 0.1 around 0.2: (0.01 + 0.09 + 0.09 + 0.01) / 3."""


def make_batch(**rewards: float) -> Batch:
    tasks = {"a": "one", "b": "one", "c": "two", "d": "two"}
    dialogues = {name: build_trajectory(name, turns=2, task=tasks[name]) for name in rewards}
    return Batch(dialogues, RULE, rewards=rewards, source="scores-1")


def by_turn(credits: Sequence[Credit]) -> dict[tuple[Any, int], Any]:
    return {(credit.of, turn): value for credit in credits for turn, value in credit.policy.items()}


def test_turns_are_weighed_by_their_distance_to_the_mean_of_the_group() -> None:
    batch = make_batch(a=1.0, b=1.0, c=0.0, d=1.0)
    found = by_turn(SweetPG(std=False, weight=2.0).credit(batch, Judged(ADVANTAGES)))
    # The rewards of a and b are equal; the critic tells their turns apart, and those of c and d not.
    assert found == pytest.approx({("a", 1): 0.2, ("a", 3): 0.6, ("b", 1): -0.6, ("b", 3): -0.2})
    divided = by_turn(SweetPG().credit(batch, Judged(ADVANTAGES)))
    assert divided == pytest.approx({key: value / 2 / (SPREAD + EPSILON) for key, value in found.items()})


def test_the_episode_s_advantage_is_added_to_each_turn() -> None:
    found = by_turn(SweetPG(std=False, episode=True).credit(make_batch(a=1.0, b=0.0, c=0.0, d=1.0), Judged(ADVANTAGES)))
    one = {("a", 1): 0.5 + 0.1, ("a", 3): 0.5 + 0.3, ("b", 1): -0.5 - 0.3, ("b", 3): -0.5 - 0.1}
    two = {("c", 1): -0.5, ("c", 3): -0.5, ("d", 1): 0.5, ("d", 3): 0.5}
    assert found == pytest.approx(one | two)


def test_turns_that_the_critic_could_not_read_have_no_weight() -> None:
    read = {"a": {3: 0.5}, "b": {}}
    with pytest.raises(SweetError, match="same advantage"):
        SweetPG().credit(make_batch(a=1.0, b=0.0), Judged(read))
    found = by_turn(SweetPG(std=False).credit(make_batch(a=1.0, b=0.0), Judged(read | {"b": {1: 0.1}})))
    assert found == pytest.approx({("a", 3): 0.2, ("b", 1): -0.2})


def candidate_row(turn: int, *advantages: float) -> CandidateRow:
    said = (Message(role="user", content="Write fee."),)
    replies = tuple(Candidate(text=f"Reply {n}", advantage=value) for n, value in enumerate(advantages))
    fields: Any = {"candidates": replies, "taken": None, "observation": said}
    return CandidateRow(trajectory_id="a", task_id="one", turn=turn, **fields)


def test_candidates_are_weighed_by_their_distance_to_the_mean_of_the_turn() -> None:
    rows = [candidate_row(1, 0.3, -0.1, 0.1), candidate_row(3, 0.2, 0.2), candidate_row(5, 1.0, 3.0)]
    batch = Batch({}, RULE, candidates=rows, source="candidates-1")
    credits = SweetPGCandidates(std=False).credit(batch, Judged({}))
    assert all(isinstance(credit.of, Pair) and credit.of.rejected is None for credit in credits)
    found = {credit.of.id: credit.policy for credit in credits if isinstance(credit.of, Pair)}
    assert found == {
        "a-t1-c0": {1: pytest.approx(0.2)},
        "a-t1-c1": {1: pytest.approx(-0.2)},
        "a-t1-c2": {1: pytest.approx(0.0)},
        "a-t5-c0": {5: pytest.approx(-1.0)},
        "a-t5-c1": {5: pytest.approx(1.0)},
    }
    divided = SweetPGCandidates().credit(batch, Judged({}))
    assert divided[0].policy[1] == pytest.approx(0.2 / (0.2 + EPSILON))
    with pytest.raises(SweetError, match="equal advantages") as error:
        SweetPGCandidates().credit(Batch({}, RULE, candidates=rows[1:2], source="candidates-1"), Judged({}))
    assert error.value.where == "candidates-1"


# With a critic of the run ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scored dialogues, a critic, and candidates that it has ranked."""
    folder = tmp_path_factory.mktemp("judged")
    run = make_run(folder, make_agent(folder / "agent"))
    run_label(run, LabelConfig(), Silent())
    run_train_critic(run, TrainCriticConfig(epochs=2, lr=5e-3, batch=4, device="cpu", holdout=0.0), Silent())
    run_rank(run, RankConfig(candidates=4, limit=4, max_tokens=8, device="cpu"), Silent())
    return run.path


@pytest.fixture
def run(judged_run: Path, tmp_path: Path) -> Run:
    shutil.copytree(judged_run, tmp_path / "run")
    return Run.open(tmp_path / "run")


def config(method: str, **more: Any) -> TrainActorConfig:
    return TrainActorConfig(algorithm=method, batch=4, lr=1e-4, device="cpu", **more)


def test_the_run_s_critic_answers_for_the_turns_that_were_taken(run: Run) -> None:
    critic = run.artifact("critic-1")
    dialogues = list(read_jsonl(run.file(run.artifact("rollouts-1")), Trajectory))[:4]
    asked = RunCritic(run, critic, CriticSettings("cpu"), Silent())
    found = asked.advantages(dialogues)
    loaded = load_critic(run, critic, Silent(), CriticSettings(device="cpu"))
    assert list(found.values()) == loaded.turn_scores(dialogues, None)
    assert list(found["5-0-0"]) == dialogues[0].agent_turns
    unused: Any = None
    planned = PlannedPolicy(unused, unused, 1, asked).advantages(dialogues)
    assert {name: list(turns) for name, turns in planned.items()} == {d.id: d.agent_turns for d in dialogues}
    values = [value for turns in planned.values() for value in turns.values()]
    assert len(set(values)) == len(values), "no two are equal"


def test_a_critic_is_an_input_of_the_training_that_asks_it(run: Run) -> None:
    work = plan_train_actor(run, config("sweet-pg", rule_option=["episode=yes"]), Silent()).work
    result = run_train_actor(run, config("sweet-pg", rule_option=["episode=yes"]), Silent())
    assert [ref.id for ref in result.artifacts[0].inputs] == ["scores-1", "rollouts-1", "critic-1"]
    assert work.examples == result.metrics.examples == 15
    assert (result.metrics.groups, result.metrics.equal_groups) == (5, 0)
    assert result.metrics.ratio is not None
    for named, what in (("critic-9", "critic-9"), ("scores-1", "scores-1")):
        with pytest.raises(UsageError, match=what):
            run_train_actor(run, config("sweet-pg", critic=named), Silent())
    with pytest.raises(UsageError, match="grpo asks no critic"):
        run_train_actor(run, config("grpo", critic="critic-1"), Silent())


def test_recorded_dialogues_are_not_replaced_by_others(run: Run) -> None:
    with pytest.raises(UsageError, match="that the training itself plays") as error:
        plan_train_actor(run, config("grpo", rule_option=["resample=2"]), Silent())
    assert error.value.fix == "sweet train-online --algorithm grpo"


def test_without_a_critic_the_stage_that_makes_one_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"))
    with pytest.raises(UsageError, match="train-actor --algorithm sweet-pg needs critic") as error:
        run_train_actor(run, config("sweet-pg"), Silent())
    assert "train-critic" in str(error.value.fix)


def test_candidates_are_learned_with_their_recorded_probabilities(run: Run) -> None:
    rows = list(read_jsonl(run.file(run.artifact("candidates-1")), CandidateRow))
    assert all(candidate.logprobs for row in rows for candidate in row.candidates)
    result = run_train_actor(run, config("sweet-pg-candidates"), Silent())
    assert [ref.id for ref in result.artifacts[0].inputs] == ["candidates-1", "rollouts-1"]
    assert result.metrics.examples == sum(len(row.candidates) for row in rows)
    assert (result.metrics.groups, result.metrics.accuracy) == (None, None)
    # The embedded engine sampled with the same weights: both sides agree before the first step.
    one = run_train_actor(run, config("sweet-pg-candidates", limit=4, epochs=1), Silent()).metrics
    assert one.difference == pytest.approx(0, abs=1e-3)
    assert one.ratio == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("method", ["grpo", "igpo", "infopo", "sweet-pg", "sweet-pg-candidates"])
def test_an_interrupted_training_of_each_rule_ends_in_the_same_weights(run: Run, method: str) -> None:
    asked = config(method, epochs=1, save_every=2)
    copying = Copying(run, 2, "train-actor")
    whole = run_train_actor(run, asked, copying)
    killed = copying.killed()
    again = run_train_actor(killed, asked.model_copy(update={"resume": True}), Silent())
    assert again.artifacts[0].id == "actor-1"
    assert torch.equal(weights(run.file(whole.artifacts[0])), weights(killed.file(again.artifacts[0])))
    assert again.metrics.loss == whole.metrics.loss


def test_the_next_round_is_ranked_and_learned_by_the_same_rule(run: Run) -> None:
    actor = run_train_actor(run, config("sweet-pg-candidates", limit=4, epochs=1), Silent()).artifacts[0]
    played = [dialogue.model_copy(update={"id": f"new-{n}"}) for n, (dialogue, _) in enumerate(make_dialogues(2, 2))]
    rollouts = put(run, "rollout", "rollouts", played, agent=str(run.file(actor)), split="train", tasks="toy")

    def suggested() -> str:
        return " ".join(suggest_next(run.manifest(), "RUN"))

    put(run, "eval", "scores", [score(one, n / 4) for n, one in enumerate(played)], [rollouts])
    assert "sweet label" in suggested(), "the critic learns from both rounds first"
    row = candidate_row(1, 0.3, 0.1).model_copy(update={"trajectory_id": "new-0"})
    put(run, "rank", "candidates", [row], [rollouts])
    found = suggested()
    assert found.startswith("sweet train-actor RUN ")
    assert "--from candidates-1 --from candidates-2" in found
    assert "--algorithm sweet-pg-candidates" in found
