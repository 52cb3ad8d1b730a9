"""Best of N within a dialogue: the choice, its record, and rollouts with each judge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import ServerError, UsageError
from sweet.gathering import Gathering
from sweet.judges.base import Judged
from sweet.judges.control import CreditScorer, RandomJudge
from sweet.learn.rows import Candidate, CandidateTurn
from sweet.llm.base import Reply, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import choose
from sweet.rollouts.plan import plan_rollout
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings, load_critic
from sweet.tasks.base import Task
from sweet.tasks.kind import system_prompt
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from sweet.units import count
from tests.learn.turns import asked_turn
from tests.stages.chat_server import ChatServer, said
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, put

TASK = Task(id="t", problem_description="A fee.", ground_truth="def f(): pass", test_cases={"1": "f()"})


def config(**changes: Any) -> RolloutConfig:
    small = {"agent": "micro", "split": "validation", "num_tasks": 5, "max_tokens": 64, "max_turns": 8}
    return RolloutConfig.model_validate({**small, **changes})


def played(run: Run, number: int = 1) -> dict[str, Trajectory]:
    return {t.id: t for t in read_jsonl(run.file(run.artifact(f"rollouts-{number}")), Trajectory)}


def texts(dialogues: dict[str, Trajectory]) -> dict[str, list[str]]:
    return {name: [turn.said for turn in dialogue.dialogue_history] for name, dialogue in dialogues.items()}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


# The choice ---------------------------------------------------------------------------------------------------------


def judged(*advantages: float | None) -> Judged:
    return "critic", ["too long" if value is None else Candidate(text="x", advantage=value) for value in advantages]


@pytest.mark.parametrize(
    ("advantages", "index", "unjudged"),
    [
        ((0.1, 0.3, 0.2), 1, None),
        ((0.3, 0.1, 0.3), 0, None),
        ((None, -2.0, -1.0), 2, "too long"),
        ((None, None), 0, "too long"),
    ],
)
def test_the_first_of_the_best_candidates_is_chosen(
    advantages: tuple[float | None, ...], index: int, unjudged: str | None
) -> None:
    choice = choose(judged(*advantages))
    assert (choice.index, choice.advantages, choice.unjudged) == (index, advantages, unjudged)
    assert choice.advantage == advantages[index]


def turn(number: int, *replies: str) -> CandidateTurn:
    given = tuple(Reply(text, "stop") for text in replies or ("a", "b"))
    return CandidateTurn(f"d{number}", TASK, 1, (), given)


class CountingJudge:
    """Judges by the number in the dialogue's id; each call takes until `free` is set."""

    batch_size, max_calls = 4, 1

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.free = asyncio.Event()

    async def judge(self, turns: Sequence[CandidateTurn]) -> list[Judged]:
        self.batches.append([turn.trajectory_id for turn in turns])
        await self.free.wait()
        if any(turn.trajectory_id == "d13" for turn in turns):
            raise ServerError("The judge is gone.", where="there")
        return [judged(float(turn.trajectory_id[1:])) for turn in turns]


def test_turns_that_wait_at_the_same_time_are_judged_in_one_call() -> None:
    async def main() -> None:
        judge = CountingJudge()
        gathering = Gathering(judge.judge, batch_size=judge.batch_size, max_calls=judge.max_calls)
        asked = [asyncio.create_task(gathering.submit(turn(number))) for number in range(8)]
        await asyncio.sleep(0.01)
        asked[2].cancel()
        judge.free.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(answers.pop(2), asyncio.CancelledError)
        values = [answer[1][0].advantage for answer in answers]  # type: ignore[index, union-attr]
        assert values == [0, 1, 3, 4, 5, 6, 7], "each turn gets its own answer"
        assert judge.batches == [["d0", "d1", "d2", "d3"], ["d4", "d5", "d6", "d7"]]
        assert (await gathering.submit(turn(9)))[1][0].advantage == 9, "it judges again after a pause"  # type: ignore[union-attr]
        with pytest.raises(ServerError, match="gone"):
            await gathering.submit(turn(13))
        assert (await gathering.submit(turn(8)))[1], "an error does not end it"

    asyncio.run(main())


def test_the_random_judge_of_a_rollout_does_not_prefer_rare_replies() -> None:
    turns = [turn(number, "a", "a", "a", "b") for number in range(400)]
    by_place = asyncio.run(RandomJudge(0, by_place=True).judge(turns))
    rare = sum(choose(one).index == 3 for one in by_place)
    assert 70 < rare < 130, "a quarter of 400, as the agent says it"


# Rollouts -----------------------------------------------------------------------------------------------------------


def test_the_best_of_one_is_the_ordinary_rollout(run: Run, tmp_path: Path) -> None:
    assert config(best_of=1, judge="random").digest() == config().digest()
    run_rollout(run, config(), Silent())
    other = Run.create(tmp_path / "other", task="code")
    result = run_rollout(other, config(best_of=1, judge="random"), Silent())
    assert texts(played(run)) == texts(played(other))
    assert result.artifacts[0].meta["best_of"] is result.artifacts[0].meta["judge"] is None
    assert "candidates" not in result.metrics.as_json()
    assert not any(turn.choice for t in played(other).values() for turn in t.dialogue_history)


def test_the_oracle_finds_out_more_than_chance(run: Run) -> None:
    results = [run_rollout(run, config(best_of=4, judge=judge), Silent()) for judge in ("oracle", "random")]
    scorer = CreditScorer(task_kind("code"), 8)
    worth = []
    for number in (1, 2):
        worth.append(0.0)
        for dialogue in played(run, number).values():
            for index in dialogue.agent_turns:
                said = dialogue.dialogue_history[index]
                [credit] = scorer.score(dialogue.task, dialogue.observation(index, None), [Reply.of(said)])
                assert credit is not None
                assert said.choice is not None
                worth[-1] += credit.value
                assert said.choice.advantage == max(a for a in said.choice.advantages if a is not None)
    assert worth[0] > worth[1] + 5
    meta, metrics = results[0].artifacts[0].meta, results[0].metrics
    assert (meta["best_of"], meta["judge"], meta["informed"]) == (4, "oracle", True)
    assert results[1].artifacts[0].meta["informed"] is False
    assert metrics.choices is not None
    assert (metrics.choices.candidates, metrics.choices.unjudged_turns) == (4 * metrics.turns, 0)
    assert (metrics.choices.mean_gain or 0) > 0


def test_the_seed_gives_the_candidates_again(run: Run) -> None:
    """So a choice can be checked though the other candidates are not kept."""
    run_rollout(run, config(num_tasks=2, best_of=4, judge="random"), Silent())
    system = system_prompt(task_kind("code"), 8)

    async def check() -> None:
        client = EmbeddedClient.load("micro", device="cpu")
        try:
            for dialogue in played(run).values():
                tokens = 0
                for index in dialogue.agent_turns:
                    said = dialogue.dialogue_history[index]
                    sampling = Sampling(max_tokens=64, n=4, seed=said.sampling_seed)
                    again = await client.chat(dialogue.observation(index, system), sampling)
                    assert said.choice is not None
                    assert again.replies[said.choice.index].text == said.output
                    assert again.replies[said.choice.index].token_ids == said.token_ids
                    tokens += again.completion_tokens
                assert dialogue.usage.completion_tokens == tokens, "of all candidates"
        finally:
            await client.aclose()

    asyncio.run(check())


def test_a_dialogue_does_not_depend_on_the_others_and_an_interrupted_rollout_resumes(run: Run) -> None:
    run_rollout(run, config(best_of=4, judge="oracle"), Silent())
    whole = texts(played(run))
    path = run.file(run.artifact("rollouts-1"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    with_one = config(best_of=4, judge="oracle", concurrency=1)
    plan = plan_rollout(run, with_one, Silent()).as_json()
    assert (plan["dialogues"], plan["missing"]) == (5, 3)
    result = run_rollout(run, with_one, Silent())
    assert result.artifacts[0].id == "rollouts-1"
    assert path.read_bytes().startswith(b"".join(lines[:2]))
    assert texts(played(run)) == whole
    assert result.metrics.choices is not None
    assert result.metrics.choices.candidates == 4 * result.metrics.turns, "those of earlier calls included"
    assert run_rollout(run, config(best_of=3, judge="oracle"), Silent()).artifacts[0].id == "rollouts-2"


# Critics ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A tiny random agent, and another as its critic."""
    folder = tmp_path_factory.mktemp("models")
    return make_agent(folder / "agent"), make_agent(folder / "critic", seed=1)


@pytest.fixture
def with_critic(run: Run, models: tuple[str, str]) -> Run:
    agent, critic = models
    learned_from = put(run, "rollout", "rollouts", [], agent=agent, tasks="micro", split="train")
    for variant in ("advantage", "no-info"):
        with run.attempt("train-critic", config(), inputs=[learned_from]) as attempt:
            draft = attempt.start_artifact("critic", suffix="", meta={"base": agent, "variant": variant})
            for file in Path(critic).iterdir():
                (draft.path / file.name).write_bytes(file.read_bytes())
            attempt.finish_artifact(draft)
    return run


def test_the_critic_of_a_run_chooses(with_critic: Run, models: tuple[str, str]) -> None:
    run, small = with_critic, {"agent": models[0], "num_tasks": 3, "max_tokens": 8, "max_turns": 3, "device": "cpu"}
    result = run_rollout(run, config(**small, best_of=4, judge="critic", critic="critic-1"), Silent())
    [artifact] = result.artifacts
    assert (artifact.meta["critic"], artifact.meta["informed"]) == ("critic-1", True)
    assert [ref.id for ref in artifact.inputs] == ["critic-1"]
    critic = load_critic(run, run.artifact("critic-1"), Silent(), CriticSettings("cpu"))
    system = system_prompt(task_kind("code"), 3)
    for dialogue in played(run, 2).values():
        for index in dialogue.agent_turns:
            said = dialogue.dialogue_history[index]
            replies = asked_turn(
                dialogue.observation(index, system), dialogue.task.hidden, [Reply.of(said)], turn=index
            )
            assert said.choice is not None
            assert said.choice.basis == "critic"
            assert len(set(said.choice.advantages)) > 1
            assert said.choice.advantage == pytest.approx(critic.judge([replies])[0][0].advantage, abs=1e-5)
    uninformed = run_rollout(run, config(**small, best_of=4, critic="critic-2"), Silent())
    assert uninformed.artifacts[0].meta["informed"] is False
    settings = run.file(run.artifact("critic-1")) / "config.json"
    settings.write_text(settings.read_text() + "\n")
    assert "critic-1 was changed" in str(run.stale(run.artifact(artifact.id)))


def test_turns_that_are_too_long_for_the_critic_take_the_first_candidate_and_are_counted(
    with_critic: Run, models: tuple[str, str]
) -> None:
    reporter = Heard()
    small = {"agent": models[0], "num_tasks": 2, "max_tokens": 8, "max_turns": 3, "device": "cpu"}
    result = run_rollout(with_critic, config(**small, best_of=3, max_length=16), reporter)
    for dialogue in played(with_critic, 2).values():
        for index in dialogue.agent_turns:
            choice = dialogue.dialogue_history[index].choice
            assert choice is not None
            assert (choice.index, choice.advantages) == (0, (None, None, None))
            assert "--max-length" in str(choice.unjudged)
    choices = result.metrics.choices
    assert choices is not None
    assert (choices.unjudged_turns, choices.mean_gain) == (result.metrics.turns, None)
    assert choices.unjudged_candidates == choices.candidates == 3 * result.metrics.turns
    turns = count(result.metrics.turns, "turn")
    assert any(f"At {turns} the judge could judge no candidate" in text for text in reporter.warnings)


def test_the_untrained_judge_is_the_agent_itself_and_can_be_another_model(run: Run, models: tuple[str, str]) -> None:
    small = {"agent": models[0], "num_tasks": 2, "max_tokens": 8, "max_turns": 2, "device": "cpu", "best_of": 3}
    made = [
        run_rollout(run, config(**small, judge="untrained", reference=reference), Silent()).artifacts[0]
        for reference in (None, models[1])
    ]
    assert [artifact.meta["reference"] for artifact in made] == list(models)
    assert texts(played(run, 1)) != texts(played(run, 2))


# A language model ---------------------------------------------------------------------------------------------------


def test_a_language_model_chooses_by_the_same_prompt_as_in_rank(run: Run) -> None:
    def answer(body: dict[str, Any]) -> Any:
        question = body["messages"][0]["content"]
        reply = question.split("THE REPLY TO JUDGE")[1]
        return said(f"SCORE: {min(9, 1 + len(reply) % 9)}")

    server = ChatServer("judge", answer)
    with server.running() as url:
        asked = config(num_tasks=3, best_of=4, judge="llm", judge_model="judge", judge_url=[url])
        result = run_rollout(run, asked, Silent())
    for dialogue in played(run).values():
        for index in dialogue.agent_turns:
            choice = dialogue.dialogue_history[index].choice
            assert choice is not None
            assert choice.basis == "number"
            assert choice.advantage == max(a for a in choice.advantages if a is not None)
    assert "THE SOLUTION" in json.dumps(server.asked[0])
    assert result.artifacts[0].meta["judge_model"] == "judge"
    assert run.manifest().attempts[-1].environment["judge_model"] == "judge"


def test_a_judge_without_a_server_ends_the_rollout_which_resumes_later(run: Run) -> None:
    server = ChatServer("judge", lambda _: said("SCORE: 5"), lasts=20)
    small = {"num_tasks": 3, "best_of": 4, "judge": "llm", "judge_model": "judge", "retry_timeout": 0.2}
    with server.running() as url, pytest.raises(ServerError):
        run_rollout(run, config(**small, judge_url=[url]), Silent())
    assert run.artifact("rollouts-1").status == "partial"
    with ChatServer("judge", lambda _: said("SCORE: 5")).running() as url:
        result = run_rollout(run, config(**small, judge_url=[url]), Silent())
    assert (result.artifacts[0].id, result.metrics.episodes) == ("rollouts-1", 3)


# Options and plans --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judge": "random"}, "one is sampled at each turn"),
        ({"judge_model": "m"}, "one is sampled at each turn"),
        ({"best_of": 4, "judge": "llm"}, "needs a model"),
        ({"best_of": 4, "judge": "lookahead"}, "What comes next is not known"),
        ({"best_of": 4, "judge": "random", "critic": "critic-1"}, "--critic is an option of --judge critic"),
        ({"best_of": 4, "judge": "random", "temperature": 0.0}, "same reply"),
        ({"best_of": 4}, "critic"),
        ({"task": "html", "agent": "scripted", "best_of": 4, "judge": "oracle"}, "do not know what a reply is worth"),
        ({"task": "html", "agent": "scripted", "best_of": 4, "judge": "untrained"}, "the agent is scripted"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    run = Run.create(tmp_path / "run", task=options.get("task", "code"))
    with pytest.raises(UsageError, match=message):
        run_rollout(run, RolloutConfig.model_validate({"num_tasks": 1, **options}), Silent())


def test_a_plan_counts_the_tokens_of_all_candidates_and_of_the_judge(run: Run) -> None:
    run_rollout(run, config(), Silent())
    plain = plan_rollout(run, config(num_tasks=20), Silent()).as_json()
    best = plan_rollout(run, config(num_tasks=20, best_of=8, judge="untrained"), Silent()).as_json()
    assert best["tokens_read"] == plain["tokens_read"]
    assert best["tokens_written"] == pytest.approx(8 * plain["tokens_written"], abs=8)
    assert best["tokens_judged"] == pytest.approx(best["tokens_read"] + best["tokens_written"], abs=2)
    assert plain["tokens_judged"] is None
    run_rollout(run, config(best_of=4, judge="random"), Silent())
    measured = plan_rollout(run, config(num_tasks=20, best_of=8, judge="random"), Silent()).as_json()
    assert measured["tokens_judged"] == 0
    assert measured["assumed"][0].endswith("rollouts-2.")
    assert measured["tokens_written"] == pytest.approx(best["tokens_written"], rel=0.2), "of 4 candidates twice as many"
