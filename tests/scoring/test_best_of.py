"""Best of N by the critic: the critic's credit is the ranking's, the stage tells it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from sweet.errors import SweetError, UsageError
from sweet.learn.critic import AdvantageCritic, TurnReplies
from sweet.learn.replies import ReplyText
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.runs.run import Run
from sweet.scoring.best_of import ScoredDialogue, at, measure_best_of, measure_best_of_by_model
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks.base import Recipe
from tests.stages.chat_server import ChatServer, said
from tests.stages.heard import Heard
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


@pytest.mark.parametrize("recipe", ["paper", "upstream"])
def test_credit_along_a_dialogue_is_what_ranking_gives_each_turn(tmp_path: Path, recipe: Recipe) -> None:
    critic, base = make_agent(tmp_path / "critic", seed=1), make_agent(tmp_path / "base", seed=0)
    tokenizer = load_tokenizer(critic)
    judge = AdvantageCritic(load_model(critic, "cpu"), load_model(base, "cpu"), tokenizer, recipe=recipe)
    dialogues = [dialogue for dialogue, _ in make_dialogues(tasks=2, samples=2)]
    for dialogue, credit in zip(dialogues, judge.turn_scores(dialogues, "Ask."), strict=True):
        assert list(credit) == dialogue.agent_turns
        for turn, advantage in credit.items():
            said = dialogue.dialogue_history[turn]
            told = ReplyText(said.said, said.token_ids, said.finish_reason != "length")
            replies = TurnReplies("", turn, dialogue.observation(turn, "Ask."), dialogue.task.hidden, [told], [None])
            assert advantage == pytest.approx(judge.judge([replies])[0][0].advantage, abs=1e-5)


def test_the_stage_tells_it_and_says_what_is_missing(tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent")
    run = make_run(tmp_path, agent, tasks=3, samples=4)
    with pytest.raises(UsageError, match="critic"):
        run_eval(run, EvalConfig(best_of="critic"), Silent())
    with run.attempt("train-critic", EvalConfig(), inputs=[]) as attempt:
        draft = attempt.start_artifact("critic", suffix="", meta={"base": agent})
        for file in Path(make_agent(tmp_path / "trained", seed=3)).iterdir():
            (draft.path / file.name).write_bytes(file.read_bytes())
        attempt.finish_artifact(draft)
    told = run_eval(run, EvalConfig(best_of="critic"), Silent()).metrics.as_json()["best_of"]
    assert told["critic"] == "critic-1"
    assert list(told["n"]) == ["1", "2", "4"]
    assert told["n"]["1"]["critic"] == told["n"]["1"]["random"]
    assert told["reference_context"] == "hidden"
    asked = EvalConfig(best_of="critic", reference_context="dialogue")
    assert run_eval(run, asked, Silent()).metrics.as_json()["best_of"]["reference_context"] == "dialogue"
    with pytest.raises(UsageError, match="best_of='critic'"):
        run_eval(run, EvalConfig(reference_context="dialogue"), Silent())


def test_a_language_model_chooses_among_finished_dialogues(tmp_path: Path) -> None:
    """The stand-in prefers the dialogues that solve their tasks, those of sample 0, and gives one no score."""
    run = make_run(tmp_path, "nobody", tasks=3, samples=4)
    graded = [score(t, reward) for t, reward in make_dialogues(tasks=3, samples=4)]

    def answer(body: dict[str, Any]) -> Response:
        [(task, sample)] = re.findall(r"return hours \* \d-(\d)-(\d)", body["messages"][0]["content"])
        return said("I cannot say." if (task, sample) == ("2", "3") else f"SCORE: {9 - 2 * int(sample)}")

    server, reporter = ChatServer("judge", answer), Heard()
    with server.running() as url:
        config = EvalConfig(best_of="llm", judge_model="judge", judge_url=[url])
        rollouts = run.artifact("rollouts-1")
        found = measure_best_of_by_model(run, rollouts, graded, config, reporter).as_json()
        evaluated = run_eval(run, config, Silent()).metrics.as_json()["best_of"]
    assert (found["judge_model"], found["informed"], found["left_out"]) == ("judge", True, 1)
    assert "critic" not in found
    assert {n: row["tasks"] for n, row in found["n"].items()} == {"1": 3, "2": 3, "4": 2}
    assert all(row["llm"] == row["oracle"] > row["random"] for n, row in found["n"].items() if n != "1")
    assert any("Without a score, and so no candidates: 1 dialogue" in text for text in reporter.warnings)
    question = server.asked[0]["messages"][0]["content"]
    assert question.count("return hours * 5\n") == 1, "the reference"
    assert "THE REPLY TO JUDGE" not in question
    assert {**evaluated, "n": {}} == {**found, "n": {}}
    for options in ({"best_of": "llm"}, {"best_of": "critic", "judge_model": "m"}, {"judge_url": ["u"]}):
        with pytest.raises(UsageError, match="llm"):
            run_eval(run, EvalConfig.model_validate(options), Silent())


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
    with pytest.raises(SweetError, match="two dialogues"):
        measure_best_of(run, rollouts, [score(t, r) for t, r in dialogues], None, "cpu", Silent()).as_json()


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
