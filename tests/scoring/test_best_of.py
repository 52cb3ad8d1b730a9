"""Best of N by the critic: the critic's credit is the ranking's, the stage tells it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from sweet.errors import InputError, Interrupted, SweetError, UsageError
from sweet.learn.critic import AdvantageCritic
from sweet.llm.base import Reply
from sweet.llm.connect import open_client
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.run import Run
from sweet.runs.tokens import tokens_of_run
from sweet.scoring import best_of
from sweet.scoring.best_of import JudgedDialogues, ScoredDialogue, at, measure_best_of, measure_best_of_by_model
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks.base import ProtocolName
from tests import programs
from tests.learn.turns import asked_turn
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


def test_a_language_model_chooses_among_finished_dialogues(tmp_path: Path) -> None:
    """The stand-in prefers the dialogues that solve their tasks, those of sample 0, and gives one no score."""
    run = make_run(tmp_path, "nobody", tasks=3, samples=4)
    graded = [score(t, reward) for t, reward in make_dialogues(tasks=3, samples=4)]

    def answer(body: dict[str, Any]) -> Response:
        [(task, sample)] = re.findall(r"return hours \* \d-(\d)-(\d)", body["messages"][0]["content"])
        return said("I cannot say." if (task, sample) == ("2", "3") else f"SCORE: {9 - 2 * int(sample)}")

    server, reporter = ChatServer("judge", answer), Heard()
    with server.running() as url, JsonlWriter(tmp_path / "log.jsonl") as log:
        config = EvalConfig(best_of_by="llm", judge_model="judge", judge_url=[url])
        rollouts, recorded = run.artifact("rollouts-1"), partial(JudgedDialogues, run, "scores-2", config, rows=log)
        found = measure_best_of_by_model(run, rollouts, graded, config, reporter, recorded).as_json()
        evaluated = run_eval(run, config, Silent()).metrics.as_json()["best_of"]
    assert (found["judge_model"], found["informed"], found["left_out"]) == ("judge", True, 1)
    assert "critic" not in found
    assert {n: row["tasks"] for n, row in found["n"].items()} == {"1": 3, "2": 3, "4": 2}
    assert all(row["llm"] == row["oracle"] > row["random"] for n, row in found["n"].items() if n != "1")
    assert "cost" not in found
    assert any("Without a score, and so no candidates: 1 dialogue" in text for text in reporter.warnings)
    question = server.asked[0]["messages"][0]["content"]
    assert question.count("return hours * 5\n") == 1, "the reference"
    assert "THE REPLY TO JUDGE" not in question
    assert {**evaluated, "n": {}} == {**found, "n": {}}
    for options in ({"best_of_by": "llm"}, {"best_of_by": "critic", "judge_model": "m"}, {"judge_url": ["u"]}):
        with pytest.raises(UsageError, match="llm"):
            run_eval(run, EvalConfig.model_validate(options), Silent())


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """An answer of `said` costs 1: it reads 10 tokens and writes 4."""
    file = tmp_path / "prices.toml"
    file.write_text("[judge]\nprompt = 50000\ncompletion = 125000\n")
    return file


def by_sample(body: dict[str, Any]) -> Response:
    [(_, sample)] = re.findall(r"return hours \* \d-(\d)-(\d)", body["messages"][0]["content"])
    return said(f"SCORE: {9 - 2 * int(sample)}")


def test_a_model_that_chooses_stops_at_the_limit_and_is_asked_once_about_each_dialogue(
    tmp_path: Path, prices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_of, "_REQUESTS", 1)
    run = make_run(tmp_path, "nobody", tasks=3, samples=4)
    server, reporter = ChatServer("judge", by_sample), Heard()
    with server.running() as url:
        config = EvalConfig(best_of_by="llm", judge_model="judge", judge_url=[url], prices=prices, max_cost=4.5)
        with pytest.raises(Interrupted, match=r"cost is 5, and the limit is 4\.5\. .*Judged: 5 dialogues; missing: 7"):
            run_eval(run, config, Silent())
        with pytest.raises(Interrupted, match="Judged: 5 dialogues; missing: 7"):
            run_eval(run, config, reporter)
        assert len(server.asked) == 5, "nothing is asked above the limit"
        assert "Judged already: 5 dialogues; missing: 7." in reporter.said
        found = run_eval(run, config.model_copy(update={"max_cost": 100.0}), Silent()).metrics.as_json()["best_of"]
        assert len({body["messages"][0]["content"] for body in server.asked}) == len(server.asked) == 12
        whole = run_eval(run, config.model_copy(update={"max_cost": None}), Silent()).metrics.as_json()["best_of"]
    assert found == whole, "as without an interruption"
    assert found["cost"] == 12.0
    assert tokens_of_run(run.path, run.manifest())["judge"].completion == 2 * 12 * 4
    made = run.manifest().of_kind("scores")
    assert [(one.attempt, one.status) for one in made][1:] == [("eval-4", "done"), ("eval-5", "done")]


def test_answers_to_another_question_do_not_count(
    tmp_path: Path, prices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge's options are no part of the digest of an evaluation, which is therefore the same one."""
    monkeypatch.setattr(best_of, "_REQUESTS", 1)
    run = make_run(tmp_path, "nobody", tasks=2, samples=2)
    server, other = ChatServer("judge", by_sample), tmp_path / "judge.txt"
    other.write_text("{reference}\n{dialogue}\nIs it good? End with SCORE: and a digit.\n")
    with server.running() as url:
        config = EvalConfig(best_of_by="llm", judge_model="judge", judge_url=[url], prices=prices, max_cost=2)
        with pytest.raises(Interrupted):
            run_eval(run, config, Silent())
        changed = config.model_copy(update={"judge_prompt": other, "max_cost": 100.0})
        assert run_eval(run, changed, Silent()).metrics.as_json()["best_of"]["cost"] == 6.0
    assert sum("Is it good?" in body["messages"][0]["content"] for body in server.asked) == 4


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone is asked again for a second, not for twenty."""
    monkeypatch.setattr(best_of, "open_client", partial(open_client, retry_timeout=1.0))


@pytest.mark.usefixtures("impatient")
def test_a_model_that_fails_half_way_is_not_asked_again_what_it_answered(tmp_path: Path) -> None:
    run = make_run(tmp_path, "nobody", tasks=2, samples=2)
    server = ChatServer("judge", by_sample, lasts=2)
    with server.running() as url, pytest.raises(SweetError):
        run_eval(run, EvalConfig(best_of_by="llm", judge_model="judge", judge_url=[url]), Silent())
    again = ChatServer("judge", by_sample)
    with again.running() as url:
        run_eval(run, EvalConfig(best_of_by="llm", judge_model="judge", judge_url=[url]), Silent())
    assert len(again.asked) == 2


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("damaged", ['{"dialogue": "x"}\n', "\x1b[31m\n", '{"dialogue":"x","judge":"y","digit":0}\n'])
def test_a_damaged_log_of_scores_is_named(tmp_path: Path, damaged: str) -> None:
    run = make_run(tmp_path, "nobody", tasks=2, samples=2)

    def evaluate(server: ChatServer) -> None:
        with server.running() as url:
            run_eval(run, EvalConfig(best_of_by="llm", judge_model="judge", judge_url=[url]), Silent())

    with pytest.raises(SweetError):
        evaluate(ChatServer("judge", by_sample, lasts=2))
    log = run.path / "logs" / "eval-2.jsonl"
    assert log.exists()
    log.write_text(damaged)
    again = ChatServer("judge", by_sample)
    with pytest.raises(InputError, match="line 1") as raised:
        evaluate(again)
    assert str(log) in str(raised.value)
    assert "delete" in str(raised.value.fix)
    assert again.asked == []
    log.unlink()
    log.symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="link"):
        evaluate(ChatServer("judge", by_sample))


def test_the_command_stops_at_the_limit_and_names_the_one_that_goes_on(tmp_path: Path, prices: Path) -> None:
    run = make_run(tmp_path, "nobody", tasks=2, samples=2)
    server = ChatServer("judge", by_sample)
    with server.running() as url:
        words: list[str | Path] = ["-m", "sweet", "eval", run.path, "--best-of-by", "llm", "--judge-model", "judge"]
        words += ["--judge-url", url, "--prices", prices]
        whole = programs.run([*words, "--max-cost", "0.000001"])
        assert whole.returncode == 0, "what is under way ends: all four are asked at once"
        stopped = programs.run([*words, "--max-cost", "3"])
        assert stopped.returncode == 130, stopped.stderr
        shown = " ".join(stopped.stderr.replace("│", " ").split())
        assert "The cost is 4, and the limit is 3." in shown
        assert f"sweet eval {run.path} --resume --max-cost MORE" in shown
        again = programs.run(["-m", "sweet", "eval", run.path, "--resume", "--max-cost", "50"])
    assert again.returncode == 0, again.stderr
    assert "Cost of the model's answers: 4.00" in again.stdout
    for options in (["--prices", str(prices)], ["--best-of-by", "critic", "--prices", str(prices)]):
        refused = programs.run(["-m", "sweet", "eval", run.path, *options])
        assert (refused.returncode, "--best-of-by llm" in refused.stderr) == (2, True), refused.stderr
    alone = programs.run(
        ["-m", "sweet", "eval", run.path, "--best-of-by", "llm", "--judge-model", "m", "--max-cost", "1"]
    )
    assert (alone.returncode, "needs the prices" in alone.stderr) == (2, True), alone.stderr


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
