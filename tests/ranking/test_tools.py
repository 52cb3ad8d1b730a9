"""Replies that call tools, where replies are sampled, judged, paired and exported: calls tell them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sweet.datasets.trl import _reply
from sweet.judges.control import CreditScorer, OracleJudge, RandomJudge
from sweet.judges.llm import JudgePrompt
from sweet.learn.rows import Candidate, CandidateRow, CandidateTurn, Pair
from sweet.llm.base import Completion, Reply, Sampling
from sweet.preferences.config import PairConfig
from sweet.preferences.pair import turn_pairs
from sweet.ranking.pipeline import CandidateSampler
from sweet.tasks.base import Credit, Message, Task, Tool, ToolCall
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.trajectory import Trajectory, Turn

TASK = Task(id="t", problem_description="Lend me Emma.", ground_truth="Emma", test_cases={})
TOOLS = (Tool(name="lend"),)
EMMA, EMIL = (ToolCall(id=title, name="lend", arguments=f'{{"title": "{title}"}}') for title in ("Emma", "Emil"))
CALLED = Message(role="assistant", content="", tool_calls=(EMIL,))
SEEN = (
    Message(role="user", content=TASK.problem_description),
    CALLED,
    Message(role="tool", content="no Emil", tool_call_id="Emil"),
)


def reply(*calls: ToolCall, text: str = "") -> Reply:
    return Reply(text, "stop", tool_calls=calls or None)


class Known(CodeKind):
    """Knows what replies are worth."""

    def credit(self, task: Task, observation: Sequence[Message], reply: str, *, last: bool) -> Credit:
        return Credit("last" if last else "early", float(last))

    def call_credit(self, task: Task, observation: Sequence[Message], calls: Sequence[ToolCall]) -> Credit:
        return Credit("call", 2.0 if calls[0].arguments == EMMA.arguments else -2.0)


def turn(*replies: Reply) -> CandidateTurn:
    return CandidateTurn("d", TASK, 3, SEEN, replies, tools=TOOLS)


def test_the_oracle_asks_for_the_worth_of_calls_and_counts_messages_alone() -> None:
    replies = [reply(EMMA), reply(EMIL), reply(text="Emma?"), reply(EMMA.model_copy(update={"id": "other"}))]
    for turns, kind, value in ((2, "early", 0.0), (1, "last", 1.0)):
        found = CreditScorer(Known(), turns).score(TASK, SEEN, replies)
        assert [(one.kind, one.value) for one in found if one] == [
            ("call", 2.0),
            ("call", -2.0),
            (kind, value),
            ("call", 2.0),
        ]
    _, judged = OracleJudge(CreditScorer(Known(), 2)).judged(turn(*replies[:2]))
    assert [one.advantage for one in judged if isinstance(one, Candidate)] == [2.0, -2.0]
    assert [one.reply for one in judged if isinstance(one, Candidate)] == replies[:2]


def test_replies_with_other_calls_are_other_replies() -> None:
    _, judged = RandomJudge(0).judged(turn(reply(EMMA), reply(EMIL), reply(EMMA.model_copy(update={"id": "x"}))))
    advantages = [one.advantage for one in judged if isinstance(one, Candidate)]
    assert advantages[0] == advantages[2] != advantages[1]
    candidates = tuple(Candidate.of(reply(call), value) for call, value in ((EMMA, 1.0), (EMIL, -1.0)))
    row = CandidateRow(
        trajectory_id="d", task_id="t", turn=3, observation=SEEN, candidates=candidates, taken=None, tools=TOOLS
    )
    assert CandidateRow.model_validate_json(row.model_dump_json()) == row
    (pair,) = turn_pairs(row, PairConfig())
    assert isinstance(pair, Pair)
    assert (pair.chosen.tool_calls, pair.tools) == ((EMMA,), TOOLS)
    assert _reply(pair.chosen, thoughts=False)["tool_calls"][0]["function"]["arguments"] == EMMA.arguments


def test_a_judge_reads_calls_and_results() -> None:
    prompt = JudgePrompt.of(None).fill(SEEN, "Emma", reply(EMMA, text="I lend it.").whole)
    for line in ('    lend({"title": "Emil"})', "Tool:\n    no Emil", '    I lend it.\n    lend({"title": "Emma"})'):
        assert line in prompt


def test_candidates_are_sampled_with_the_tools_of_their_dialogue() -> None:
    asked: list[tuple[Sequence[Message], Sampling]] = []

    class Client:
        model = "one"

        async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
            asked.append((messages, sampling))
            return Completion((reply(EMMA), reply(EMIL)), 1, 1, "one")

        async def aclose(self) -> None:
            pass

    turns = [Turn(**message.model_dump()) for message in SEEN] + [
        Turn(role="assistant", content="", tool_calls=(EMMA,))
    ]
    dialogue = Trajectory(id="d", task=TASK, dialogue_history=tuple(turns), tools=TOOLS)
    found = asyncio.run(CandidateSampler({"d": dialogue}, "", {}, Client()).sample(("d", 3)))
    ((messages, sampling),) = asked
    assert (tuple(messages), sampling.tools, found.tools) == (SEEN, TOOLS, TOOLS)
    assert found.taken is not None
    assert found.taken.tool_calls == (EMMA,)
