"""The judge that looks one step ahead: what it asks the human, what it scores, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from docs.tools.micro_dialogues import USELESS_QUESTIONS
from sweet.errors import Interrupted, SweetError, UsageError
from sweet.humans.asking import LLMHuman
from sweet.humans.base import Human, HumanReply
from sweet.humans.scripted import ScriptedHuman, ScriptedResponder
from sweet.judges.base import Judged
from sweet.judges.lookahead import LookaheadJudge, check_lookahead
from sweet.learn.rows import Candidate, CandidateRow, CandidateTurn
from sweet.llm.base import Reply, RequestFailed
from sweet.llm.scripted import SCRIPTED
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings, load_solution_logprob
from sweet.tasks.base import Message, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.markers import ANSWER_MARKER, PART_MARKER
from sweet.tasks.micro.family import FAMILIES, Family
from sweet.tasks.micro.generator import as_task, instances
from sweet.tasks.micro.rules import RULES
from sweet.tasks.prompts import fill_turns
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import ScoringRequest, for_event_loop
from sweet.tasks.shops import Dataset
from tests.stages.chat_server import ChatServer
from tests.stages.chat_server import said as response
from tests.stages.learn_runs import make_dialogues, make_run, put

KIND = task_kind("code")
FAMILY = FAMILIES["micro"]


@pytest.fixture(scope="module")
def task() -> Task:
    [instance] = islice(instances("train", FAMILY), 1)
    return as_task(instance, "t", FAMILY)


def turn_of(task: Task, texts: Sequence[str], *, asked: Sequence[str] = ()) -> CandidateTurn:
    """The turn of a dialogue in which some questions were asked."""
    messages = [
        Message(role="system", content=fill_turns(KIND.agent_system(), FAMILY.turns)),
        Message(role="user", content=task.problem_description),
    ]
    for question in asked:
        messages.append(Message(role="assistant", content=question))
        messages.append(Message(role="user", content=KIND.scripted_reply(task, messages)))
    replies = tuple(Reply(text, "stop") for text in texts)
    return CandidateTurn("d", task, len(messages) - 1, tuple(messages), replies)


def judged(
    turn: CandidateTurn,
    folder: Path,
    human: Human | None = None,
    family: Family | Dataset = FAMILY,
    kind: TaskKind = KIND,
    **limits: Any,
) -> Judged:
    assert family.agent is not None
    agent = family.agent

    async def judge() -> Judged:
        async with AsyncExitStack() as stack:
            request = ScoringRequest(run=folder, say=print, workers=1)
            scorer = await stack.enter_async_context(for_event_loop(kind.open_scorer(request)))
            solution_logprob = load_solution_logprob(agent, CriticSettings(device="cpu", **limits))
            judge = LookaheadJudge(
                solution_logprob, human or ScriptedHuman(kind), scorer, kind, family.turns, 8, asks_model=False
            )
            return (await judge.judge([turn]))[0]

    return asyncio.run(judge())


def values(judged: Judged) -> list[float]:
    assert all(isinstance(reply, Candidate) for reply in judged[1]), judged
    return [reply.score or 0.0 for reply in judged[1] if isinstance(reply, Candidate)]


def questions(task: Task) -> tuple[str, str]:
    """A question that reveals a fact of the task, and one about a rule that it does not have."""
    useful = next(rule.question for rule in RULES if KIND.scripted_reply(task, [said(rule.question)]) in answers(task))
    return useful, USELESS_QUESTIONS[0]


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def answers(task: Task) -> set[str]:
    return {fact.answer for fact in task.facts}


def answer(code: str) -> str:
    return f"{ANSWER_MARKER}\n{code}"


def part(*lines: str) -> str:
    return "\n".join([PART_MARKER, *lines])


def test_questions_are_worth_what_the_human_says_and_answers_their_reward(task: Task, tmp_path: Path) -> None:
    useful, useless = questions(task)
    wrong = f"{task.ground_truth.splitlines()[0]}\n    return 0"
    texts = [useful, useless, answer(task.ground_truth), answer(wrong), useful]
    found = judged(turn_of(task, texts), tmp_path)
    assert found[0] == "lookahead"
    of_useful, of_useless, of_right, of_wrong, again = values(found)
    assert 3 == of_right >= of_useful > of_useless + 0.5
    assert of_useless > of_wrong
    assert -0.75 <= of_wrong <= -0.5
    assert again == of_useful, "replies that say the same are worth the same"
    advantages = [reply.advantage for reply in found[1] if isinstance(reply, Candidate)]
    mean = sum(values(found)) / len(texts)
    assert advantages == pytest.approx([value - mean for value in values(found)], abs=1e-5)
    asked_before = judged(turn_of(task, [useful, useless], asked=[useful]), tmp_path)
    assert values(asked_before)[0] < of_useful - 0.5, "what is known already brings nothing"


def test_the_last_turn_is_scored_whatever_it_says(task: Task, tmp_path: Path) -> None:
    asked = [rule.question for rule in RULES[: FAMILY.turns - 1]]
    lines = task.ground_truth.splitlines()
    half = "\n".join([*lines[:-2], lines[-1]])
    found = judged(turn_of(task, [questions(task)[0], answer(half), answer(task.ground_truth)], asked=asked), tmp_path)
    of_question, of_half, of_right = values(found)
    assert of_question == -0.75, "a question at the last turn is no answer"
    assert of_question <= of_half <= -0.5 < of_right == 3


def test_a_part_is_judged_by_what_the_reference_makes_of_it(tmp_path: Path) -> None:
    family = FAMILIES["micro-parts"]
    [instance] = islice(instances("train", family), 1)
    task = as_task(instance, "t", family)
    lines = task.ground_truth.split("\n")
    share = 3 / len(lines)
    useful, useless = questions(task)
    texts = [
        useful,
        useless,
        part(*lines[:2]),
        part(lines[0]),
        part(lines[0], lines[2]),
        part(lines[0], "    return 0"),
        part(),
    ]
    of_useful, of_useless, two, one, too_early, wrong, nothing = values(
        judged(turn_of(task, texts), tmp_path, family=family)
    )
    assert (two, one, nothing) == pytest.approx((2 * share, share, 0.0))
    assert of_useful > of_useless
    assert -0.75 <= too_early <= -0.5, "the line above it is lost"
    assert -0.75 <= wrong <= -0.5
    delivered = [part(*lines[start : start + 2]) for start in range(0, len(lines) - 2, 2)]
    left = lines[2 * len(delivered) :]
    texts = [answer("\n".join(left)), part(*left), answer("    return 0")]
    ended, sent, wrong = values(judged(turn_of(task, texts, asked=delivered), tmp_path, family=family))
    assert ended == 3.0
    assert sent == pytest.approx(share * len(left))
    assert wrong <= -0.5


def test_a_model_that_plays_the_human_is_asked_the_same(task: Task, tmp_path: Path) -> None:
    prompts: list[str] = []

    class Noting(ScriptedResponder):
        async def chat(self, messages: Any, sampling: Any) -> Any:
            prompts.append(messages[-1].content)
            return await super().chat(messages, sampling)

    useful, useless = questions(task)
    turn = turn_of(task, [useful, useless, answer(task.ground_truth), useful], asked=[USELESS_QUESTIONS[1]])
    model = Noting(KIND, [task])
    by_model = judged(turn, tmp_path, LLMHuman(model, KIND, "paper"))
    assert values(by_model) == pytest.approx(values(judged(turn, tmp_path)), abs=1e-6)
    assert len(prompts) == 2, "an answer is not put to the human, and equal questions once"


class Failing:
    name = "failing"

    def __init__(self, result: HumanReply | Exception) -> None:
        self.result = result

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        assert dialogue[0].role == "user", "the human does not read the agent's system prompt"
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    ("human", "why"),
    [
        (Failing(RequestFailed("It is gone.")), "what follows is not known: It is gone."),
        (Failing(HumanReply("def f(): return 1", fault="leaked")), "the simulated human's reply is not usable: leaked"),
        (Failing(HumanReply("  ")), "the simulated human's reply is not usable: empty"),
    ],
)
def test_a_reply_that_the_human_fails_on_is_not_judged(task: Task, tmp_path: Path, human: Human, why: str) -> None:
    found = judged(turn_of(task, ["Which rate?", answer(task.ground_truth)]), tmp_path, human)
    _, (failed, right) = found
    assert failed == why
    assert isinstance(right, Candidate)
    assert (right.score, right.advantage) == (3.0, 0.0)


def test_what_is_too_long_is_not_judged(task: Task, tmp_path: Path) -> None:
    found = judged(turn_of(task, ["Which rate?"]), tmp_path, max_length=12)
    assert found[1] == ["what the agent would see next is longer than --max-length"]


def test_a_ranking(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    run_rollout(run, RolloutConfig(tasks="micro", split="train", num_tasks=6, max_turns=FAMILY.turns), Silent())
    result = run_rank(
        run, RankConfig(judge="lookahead", candidates=8, fraction=1.0, limit=16, max_tokens=128), Silent()
    )
    [artifact] = result.artifacts
    meta = artifact.meta
    assert (meta["judge"], meta["sim"], meta["reference"], meta["agent"]) == ("lookahead", SCRIPTED, "micro", "micro")
    rows = list(read_jsonl(run.file(artifact), CandidateRow))
    assert {row.basis for row in rows} == {"lookahead"}
    assert all(-1 <= (reply.score or 0) <= 3 for row in rows for reply in row.candidates)
    ordered = result.metrics.known.agreement
    assert ordered is not None
    assert ordered.value > 0.7, "questions that reveal a fact are above those that do not"
    again = run_rank(run, RankConfig(judge="lookahead", replies=artifact.id), Silent())
    before = {row.key: [reply.score for reply in row.candidates] for row in rows}
    for row in read_jsonl(run.file(again.artifacts[0]), CandidateRow):
        assert [reply.score for reply in row.candidates] == pytest.approx(before[row.key], abs=1e-4)


def test_little_is_asked_of_a_model_beyond_the_limit_of_the_cost_and_what_was_judged_is_kept(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    run_rollout(run, RolloutConfig(tasks="micro", split="train", num_tasks=6, max_turns=FAMILY.turns), Silent())
    human, prices = ChatServer("human", lambda body: response("I do not mind.")), tmp_path / "prices.toml"
    prices.write_text("[sim]\nprompt = 100000\n")  # 1 for a question
    with human.running() as url:
        config = RankConfig(
            **{"judge": "lookahead", "sim": "human", "sim_url": [url], "candidates": 4, "fraction": 1.0, "limit": 16},
            **{"max_tokens": 128, "concurrency": 2, "prices": prices, "max_cost": 8},
        )
        with pytest.raises(Interrupted, match="the limit is 8"):
            run_rank(run, config, Silent())
        assert 8 <= len(human.asked) < 8 + 4, "the turn that was being judged has four candidates"
        (kept,) = run.manifest().of_kind("candidates")
        assert len(list(read_jsonl(run.file(kept), CandidateRow))) >= 2
        result = run_rank(run, config.model_copy(update={"max_cost": 1000}), Silent())
    assert [artifact.id for artifact in result.artifacts] == [kept.id]
    assert result.metrics.cost == len(human.asked), "no question was asked again"


def refused(run: Run, match: str, **changes: Any) -> None:
    with pytest.raises(SweetError, match=match):
        run_rank(run, RankConfig(**{"judge": "lookahead", **changes}), Silent())


def test_tasks_that_it_cannot_judge_are_refused(task: Task, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="those of the kind html are degrees"):
        check_lookahead(task_kind("html"), [task], scripted=True)
    check_lookahead(KIND, [task.model_copy(update={"part_lines": 1})], scripted=True)
    with pytest.raises(UsageError, match="speaks from a task's facts"):
        check_lookahead(KIND, [task.model_copy(update={"facts": ()})], scripted=True)
    check_lookahead(KIND, [task.model_copy(update={"facts": ()})], scripted=False)


def test_options_and_humans_that_it_does_not_have_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "micro", tasks=1, samples=1)
    refused(run, "--sim is an option of --judge lookahead", judge="random", sim="org/model")
    refused(run, "--protocol is an option of --judge critic", protocol="upstream")
    refused(run, "--ray is an option of --judge critic", ray="local")
    dialogues = [trajectory for trajectory, _ in make_dialogues()]
    put(run, "rollout", "rollouts", dialogues, agent="micro", sim="imported", split="train", max_turns=3)
    refused(run, "asks one human, without a persona")
    put(run, "rollout", "rollouts", dialogues, agent="micro", sim=SCRIPTED, humans=["scripted+terse"], max_turns=3)
    refused(run, "asks one human, without a persona")


def test_questions_are_asked_at_the_same_time(task: Task, tmp_path: Path) -> None:
    class Together(ScriptedHuman):
        """Replies once all have been asked."""

        async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
            await everybody.wait()
            return await super().reply(task, dialogue)

    everybody = asyncio.Barrier(8)
    texts = [f"{questions(task)[0]} {number}" for number in range(8)]
    assert len(values(judged(turn_of(task, texts), tmp_path, Together(KIND)))) == 8
