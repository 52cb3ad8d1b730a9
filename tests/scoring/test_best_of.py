"""Best of N by the critic: the critic's credit is the ranking's, the stage tells it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sweet.errors import SweetError, UsageError
from sweet.learn.components import Normalize
from sweet.learn.critic import AdvantageCritic
from sweet.llm.base import Reply
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.runs.run import Run
from sweet.scoring.best_of import ScoredDialogue, at, measure_best_of
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings
from sweet.tasks.base import ProtocolName
from tests.learn.turns import asked_turn
from tests.stages.learn_runs import make_agent, make_dialogues, make_run, put, score


def test_a_critic_that_knows_is_the_oracle_and_one_that_errs_is_worse_than_chance() -> None:
    knows = {f"t{i}": [ScoredDialogue(float(k == i % 4), float(k == i % 4)) for k in range(4)] for i in range(8)}
    errs = {task: [ScoredDialogue(-d.score, d.solved) for d in found] for task, found in knows.items()}
    for n in (1, 2, 4):
        told = at(n, knows).as_json()
        assert told["critic"] == told["oracle"] == pytest.approx(n / 4)
        assert told["random"] == pytest.approx(0.25)
        assert told["critic_ci_low"] <= told["critic"] <= told["critic_ci_high"]
    assert at(4, errs).as_json()["critic"] == 0.0
    assert at(2, {"few": knows["t0"][:1], **knows}).as_json()["tasks"] == 8


def test_of_dialogues_liked_equally_any_may_be_chosen() -> None:
    for rewards in ((1.0, 0.0), (0.0, 1.0)):
        assert at(2, {"t": [ScoredDialogue(0.5, reward) for reward in rewards]}).as_json()["critic"] == 0.5, (
            "whatever their order"
        )
    assert (
        at(2, {"t": [ScoredDialogue(0.5, 1.0), ScoredDialogue(0.5, 0.0), ScoredDialogue(0.1, 1.0)]}).as_json()["critic"]
        == 0.5
    )


@pytest.mark.parametrize("protocol", ["paper", "upstream"])
def test_credit_along_a_dialogue_is_what_ranking_gives_each_turn(tmp_path: Path, protocol: ProtocolName) -> None:
    critic, base = make_agent(tmp_path / "critic", seed=1), make_agent(tmp_path / "base", seed=0)
    tokenizer = load_tokenizer(critic)
    judge = AdvantageCritic(load_model(critic, "cpu"), load_model(base, "cpu"), tokenizer, protocol=protocol)
    dialogues = [dialogue for dialogue, _ in make_dialogues(tasks=2, samples=2)]
    for dialogue, credit in zip(dialogues, judge.turn_scores(dialogues, "Ask."), strict=True):
        assert list(credit) == dialogue.agent_turns
        for turn, advantage in credit.items():
            told = replace(Reply.of(dialogue.dialogue_history[turn]), logprobs=None)
            replies = asked_turn(dialogue.observation(turn, "Ask."), dialogue.task.hidden, [told], turn=turn)
            assert advantage == pytest.approx(judge.judge([replies])[0][0].advantage, abs=1e-5)


def test_the_stage_tells_it_and_says_what_is_missing(tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent")
    run = make_run(tmp_path, agent, tasks=3, samples=4)
    with pytest.raises(UsageError, match="critic"):
        run_eval(run, EvalConfig(best_of_by="critic"), Silent())
    with run.attempt("train-critic", EvalConfig(), inputs=[]) as attempt:
        draft = attempt.start_artifact("critic", suffix="", meta={"base": agent})
        for file in Path(make_agent(tmp_path / "trained", seed=3)).iterdir():
            (draft.path / file.name).write_bytes(file.read_bytes())
        attempt.finish_artifact(draft)
    told = run_eval(run, EvalConfig(best_of_by="critic"), Silent()).metrics.as_json()["best_of"]
    assert told["critic"] == "critic-1"
    assert list(told["n"]) == ["1", "2", "4"]
    assert told["n"]["1"]["critic"] == told["n"]["1"]["random"]
    assert told["reference_context"] == "hidden"
    asked = EvalConfig(best_of_by="critic", reference_context="dialogue")
    assert run_eval(run, asked, Silent()).metrics.as_json()["best_of"]["reference_context"] == "dialogue"
    with pytest.raises(UsageError, match="--best-of-by critic"):
        run_eval(run, EvalConfig(reference_context="dialogue"), Silent())


def test_one_dialogue_a_task_is_nothing_to_choose_from(tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent")
    run = Run.create(tmp_path / "run", task="code")
    dialogues = make_dialogues(tasks=2, samples=1)
    rollouts = put(run, "rollout", "rollouts", [t for t, _ in dialogues], agent=agent)
    with run.attempt("train-critic", EvalConfig(), inputs=[]) as attempt:
        draft = attempt.start_artifact("critic", suffix="", meta={"base": agent})
        for file in Path(agent).iterdir():
            (draft.path / file.name).write_bytes(file.read_bytes())
        attempt.finish_artifact(draft)
    scores, settings = [score(t, r) for t, r in dialogues], CriticSettings("cpu")
    with pytest.raises(SweetError, match="two dialogues"):
        measure_best_of(run, rollouts, scores, run.artifact("critic-1"), settings, Silent())


def test_a_dialogue_is_scored_as_the_training_of_its_critic_compared_dialogues(tmp_path: Path) -> None:
    critic, base = make_agent(tmp_path / "critic", seed=1), make_agent(tmp_path / "base", seed=0)
    tokenizer, (dialogue, _) = load_tokenizer(critic), make_dialogues(tasks=1, samples=1)[0]
    how: tuple[Normalize, ...] = ("turn", "trajectory", "none")
    by = {
        one: AdvantageCritic(load_model(critic, "cpu"), load_model(base, "cpu"), tokenizer, normalize=one)
        for one in how
    }
    turns = {one: [*judge.turn_scores([dialogue], None)[0].values()] for one, judge in by.items()}
    total = {one: judge.score_dialogues([dialogue], None)[0] for one, judge in by.items()}
    spans = [span for row in by["turn"].reader.dialogue(dialogue, None) for span in row.spans]
    tokens = [span.stop - span.start for span in spans]
    assert turns["trajectory"] == turns["turn"]
    assert turns["none"] == pytest.approx([mean * n for mean, n in zip(turns["turn"], tokens, strict=True)])
    assert total["turn"] == pytest.approx(sum(turns["turn"]))
    assert total["none"] == pytest.approx(sum(turns["none"]))
    assert total["trajectory"] == pytest.approx(sum(turns["none"]) / sum(tokens))


def test_plain_sequences_give_the_same_credit(tmp_path: Path) -> None:
    critic, base = make_agent(tmp_path / "critic", seed=1), make_agent(tmp_path / "base", seed=0)
    tokenizer = load_tokenizer(critic)
    dialogues = [dialogue for dialogue, _ in make_dialogues(tasks=2, samples=2)]
    tree, plain = (
        AdvantageCritic(load_model(critic, "cpu"), load_model(base, "cpu"), tokenizer, share=share).turn_scores(
            dialogues, None
        )
        for share in (True, False)
    )
    for one, other in zip(tree, plain, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
