"""One trajectory, and two side by side: everything is shown in words and marks, at any width."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Group

from sweet.learn.rows import Candidate, CandidateRow, Pair
from sweet.results import dialogue as html
from sweet.runs.run import Run
from sweet.tasks.base import Task, ToolCall
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import JudgedTest, Score
from sweet.tasks.trajectory import Choice, Trajectory, Turn
from sweet.view.dialogue_view import DisplayOptions, dialogue, dialogue_parts
from sweet.view.records import Record, Records, Summary
from sweet.view.side_by_side import difference, side_by_side_parts
from sweet.view.text import printable
from tests.view.conftest import HOSTILE, trajectory
from tests.view.test_code import MARKDOWN, check_segments, visible
from tests.view.test_terminal import ESCAPES, drawn, record

CODE = DisplayOptions(task_kind("code"))


class QueryKind(CodeKind):
    """A kind of another package."""

    name = "query"
    language = "sql"


def candidate(text: str, advantage: float, **fields: Any) -> Candidate:
    return Candidate(text=text, advantage=advantage, logprob=-1.0, reference=-1.0, tokens=1, **fields)


def ranked(*candidates: Candidate, taken: Candidate | None, **fields: Any) -> Record:
    row = CandidateRow(
        trajectory_id="t", task_id="t", turn=1, observation=(), candidates=candidates, taken=taken, **fields
    )
    return Record(trajectory(1), None, {1: row})


def test_a_reply_that_is_kept_alone_has_no_rejected_one_beside_it() -> None:
    pair = Pair(
        id="p",
        task_id="t",
        trajectory_id="t",
        turn=1,
        observation=(),
        chosen=candidate("kept", 0.5),
        rejected=None,
    )
    found = Record(trajectory(1), None, {}, {1: [pair]})
    summary = Summary("t", "t", "answered", "passed", 1.0, 1, 1, 1, 3, 0.5, "", 0, None)
    for shown in (drawn(dialogue(found, CODE), 100), html.dialogue(summary, found, CODE)):
        assert "kept without a pair" in shown
        assert "+0.500" in shown
        assert "rejected" not in shown
        assert "1 pair" not in shown


def words(text: str) -> str:
    return " ".join(text.split())


@given(MARKDOWN | st.just(HOSTILE) | st.text(), st.integers(12, 100))
@example("\U0001f3fb", 12)
@settings(deadline=None)
def test_no_text_is_lost_or_wider_than_the_terminal(text: str, width: int) -> None:
    turns = (Turn(role="user", content=text), Turn(role="assistant", content=text, output=f"thought {text}"))
    found = Record(trajectory(1, dialogue_history=turns, answer=text, error=text))
    shown = drawn(dialogue(found, DisplayOptions(task_kind("code"))), width)
    assert visible(re.sub("[─┊ ]", "", shown)).count(visible(re.sub("[─┊]", "", printable(text)))) >= 3 or not text
    assert all(cell_len(line) <= width for line in shown.splitlines())


@given(MARKDOWN | st.just(HOSTILE) | st.text(), st.integers(12, 120))
@settings(deadline=None)
def test_side_by_side_no_text_is_more_than_text(text: str, width: int) -> None:
    left, right = record(text), record(text + "x")
    shown = Group(*side_by_side_parts(left, right, CODE))
    check_segments(shown, width)
    assert all(cell_len(line) <= width for line in drawn(shown, width).splitlines())
    check_segments(dialogue(left, CODE), width)


def test_text_that_the_human_does_not_see_is_marked() -> None:
    turn = Turn(role="assistant", content="Which?", output="Hm.\nOUTPUT: Which?\nbye")
    found = Record(trajectory(1, dialogue_history=(Turn(role="user", content="Hi."), turn)))
    lines = [line.strip() for line in drawn(dialogue(found)).splitlines()]
    place = lines.index("┊ Hm.")
    assert lines[place : place + 4] == ["┊ Hm.", "┊ OUTPUT:", "Which?", "┊ bye"]


def test_candidates_best_first_with_the_taken_one_marked() -> None:
    best, worst = candidate("best", 0.5), candidate("worst\nof all", -1.0, ended=False)
    shown = drawn(dialogue(ranked(worst, best, best, taken=best, basis="expected", unjudged=2)), 80)
    assert "3 candidates ─" in shown
    assert "by a language model, mean points · 2 not judged" in shown
    best_line, worst_line = re.findall(r"(.*?[+-]\d\.\d{3} [ █]{4}│.*)", shown.partition("3 candidates")[2])
    assert best_line.rstrip() == "    ● +0.500     │██   2× best"
    assert worst_line.rstrip() == "      -1.000 ████│        worst"
    assert re.search(r"\n +of all … cut at the token limit", shown)
    narrow = drawn(dialogue(ranked(worst, best, taken=best)), 40)
    assert re.search(r"● \+0\.500 +│██ +best", narrow)


@pytest.mark.parametrize(
    ("advantages", "note"),
    [
        ((-0.5, 0.25, None), "best of 3: +0.250 of -0.500 to +0.250"),
        ((None, None), "best of 2: none was judged, the first was taken"),
    ],
)
def test_a_reply_that_a_judge_chose_says_of_how_many(advantages: tuple[float | None, ...], note: str) -> None:
    choice = Choice(index=int(advantages[0] is not None), advantages=advantages, basis="critic")
    history = (Turn(role="user", content="Hi."), Turn(role="assistant", content="Which?", choice=choice))
    found = Record(trajectory(1, dialogue_history=history))
    assert note in drawn(dialogue(found), 100)
    summary = Summary("t", "t", "answered", "passed", 1.0, 1, 1, 1, 3, 0.5, "", 0, None)
    assert note in html.dialogue(summary, found, CODE)


def test_a_reply_that_was_not_a_candidate_is_marked() -> None:
    shown = drawn(dialogue(ranked(candidate("one", 0.5), taken=candidate("two", 0.25))), 80)
    assert words("● +0.250 │██ two (given, not a candidate)") in words(shown)


def scored(**tests: Any) -> Record:
    score = Score(id="t", task_id="t", reward=0.5, passed=1, total=2, outcome="failed", detail={"tests": tests})
    return Record(trajectory(1), score)


def test_each_test_with_its_call_what_was_expected_and_what_came() -> None:
    passed = JudgedTest(passed=True, expected="2", got="2").model_dump()
    failed = JudgedTest(passed=False, expected="(3, 'b')", got=f"raised ValueError: {HOSTILE}").model_dump()
    wide = drawn(dialogue(scored(test1=passed, test2=failed)), 120)
    assert re.search(r"pass +add\(1\) *\n", wide)
    assert re.search(r"FAIL +add\(2\) *\n +got raised ValueError: ␛\[31mred", wide)
    narrow = words(drawn(dialogue(scored(test1=passed, test2=failed)), 40))
    assert "FAIL add(2) got raised ValueError:" in narrow
    assert "expected (3, 'b')" in narrow


@pytest.mark.parametrize("damaged", [{"passed": "perhaps"}, ["x"], None, {"passed": True, "expected": 1, "got": "x"}])
def test_the_result_of_a_damaged_detail_is_not_known(damaged: Any) -> None:
    assert "? add(1)" in words(drawn(dialogue(scored(test1=damaged))))


def test_the_human_of_the_dialogue_is_shown_as_text() -> None:
    found = trajectory(1, human="scripted:terse \x1b[31m[bold]")
    shown = words(drawn(dialogue(Record(found)), 200))
    assert "human scripted:terse ␛[31m[bold]" in shown
    assert "human scripted" not in words(drawn(dialogue(Record(trajectory(1))), 200))


def test_the_head_shows_usage_settings_and_faults(run: Run) -> None:
    records = Records(run)
    options = DisplayOptions.of(records)
    found = trajectory(1, outcome="human_error", fault="echo", error="it repeats", seed=3)
    shown = drawn(dialogue(Record(found), options))
    assert "human_error  reward –  fault: human_error (echo)" in shown
    assert "task task-0 · sample 0 · seed 3 · 2 turns" in shown
    assert re.search(r"fault ─+ human_error \(echo\)\n +it repeats", shown)
    result = {"agent": "me", "sim": HOSTILE, "max_turns": 10, "protocol": "paper"}
    records.rollouts = records.rollouts.model_copy(update={"meta": result})
    line = drawn(dialogue(Record(found), DisplayOptions.of(records)), 200).splitlines()[3]
    assert line.startswith("agent me · human ␛[31mred")
    assert line.rstrip().endswith("protocol paper · at most 10 turns")


def test_a_kind_of_another_package_shows_in_its_own_language() -> None:
    answer = "SELECT name FROM pets"
    turns = (Turn(role="user", content="Pets?"), Turn(role="assistant", content=f"I WANT TO ANSWER:\n{answer}"))
    task = Task(id="t", problem_description="Pets?", ground_truth=answer)
    found = Record(Trajectory(id="t", task=task, dialogue_history=turns, answer=answer))
    coloured = drawn(dialogue(found, DisplayOptions(QueryKind())), color=True)
    assert coloured.count("\x1b[94;49mSELECT") == 2, "in the turn, and as the answer"
    plain = drawn(dialogue(found, DisplayOptions()), color=True)
    assert "SELECT name FROM pets" in plain
    assert words(ESCAPES.sub("", plain)) == words(ESCAPES.sub("", coloured))


def test_the_hidden_text_and_the_reference_are_both_shown_if_they_differ() -> None:
    task = trajectory(1).task.model_copy(update={"hidden_information": "It is 5."})
    found = Record(trajectory(1, task=task))
    assert "It is 5." not in drawn(dialogue(found))
    kinds = [part.title.plain for part in dialogue_parts(found, DisplayOptions(hidden=True)) if part.kind == "hidden"]
    assert kinds == ["hidden from the agent", "reference"]
    kinds = [part.title.plain for part in dialogue_parts(Record(trajectory(1)), DisplayOptions(hidden=True))]
    assert "reference" not in kinds


def test_likeness_of_pages_is_shown() -> None:
    detail = {"diagnostics": {"block_match": 0.5, "te\x1bxt": "?"}}
    score = Score(id="t", task_id="t", reward=0.75, passed=0, total=0, outcome="passed", detail=detail)
    shown = drawn(dialogue(Record(trajectory(1, task=Task(id="t", problem_description="p", ground_truth="g")), score)))
    assert re.search(r"likeness ─+\n +reward +0.750\s+block match +0.500\s+te␛xt +\?", shown)


def pair() -> tuple[Record, Record]:
    said = [Turn(role="user", content="Add."), Turn(role="assistant", content="To what?")]
    more = [Turn(role="user", content="To one."), Turn(role="assistant", content="Done.")]
    return (
        Record(trajectory(1, dialogue_history=tuple(said), answer="def f(x):\n    return x")),
        Record(trajectory(2, dialogue_history=tuple(said + more), answer="def f(x):\n    return x + 1")),
    )


def test_two_trajectories_side_by_side() -> None:
    left, right = pair()
    shown = drawn(Group(*side_by_side_parts(left, right, CODE)), 100)
    assert re.search(r"^  A t001 .*│ B t002", shown)
    assert re.search(r"agent 1 ─+ the same\n +To what\?\s*\n", shown)
    assert re.search(r"human ─+\n +│ To one\.", shown)
    assert re.search(r"- +return x *\n +\+ +return x \+ 1", shown)
    lines = difference(left.trajectory.answer, right.trajectory.answer)
    assert list(lines) == [(" ", "def f(x):"), ("-", "    return x"), ("+", "    return x + 1")]


def test_with_few_columns_one_below_the_other() -> None:
    left, right = pair()
    shown = drawn(Group(*side_by_side_parts(left, right, CODE)), 40)
    assert "│" not in shown
    assert shown.index("A t001") < shown.index("B t002")
    assert re.search(r"human ─+\n +B To one\.", shown)


def test_rewards_of_turns_stand_at_the_turn_and_their_sums_at_the_reward() -> None:
    left, right = pair()
    rewarded = right.trajectory.with_rewards({1: {"facts": 0.5, "cost": -0.125}, 3: {"facts": 1.0}})
    right = Record(rewarded, right.score)
    summary = Summary("t", "t", "answered", "passed", 1.0, 1, 1, 1, 3, 0.5, "", 0, None)
    for shown in (drawn(dialogue(right, CODE), 100), html.dialogue(summary, right, CODE)):
        assert re.search(r"of turns: facts \+1\.500, cost -0\.125", shown)
        assert re.search(r"agent.*facts \+0\.500, cost -0\.125", shown)
        assert re.search(r"agent.*facts \+1\.000", shown)
    beside = drawn(Group(*side_by_side_parts(left, right, CODE)), 100)
    assert re.search(r"agent 1 ─+ the same\n +│ facts \+0\.500, cost -0\.125\s*\n +To what\?", beside)


def thoughtful(thought: str) -> Record:
    turn = Turn(role="assistant", content="Which?", output="Which?", thought=thought, thought_tokens=12)
    return Record(trajectory(1, dialogue_history=(Turn(role="user", content="Hi."), turn)))


def test_a_thought_is_below_its_turn_marked_as_unseen() -> None:
    lines = [line.strip() for line in drawn(dialogue(thoughtful("Hm.\nI ask.")), 60).splitlines()]
    place = lines.index("Which?")
    assert re.fullmatch(r"thought ─+ 12 tokens", lines[place + 1])
    assert lines[place + 2 : place + 4] == ["┊ Hm.", "┊ I ask."]
    assert [part.kind for part in dialogue_parts(thoughtful(""), CODE)].count("thought") == 0


@given(st.just(HOSTILE) | st.text(min_size=1))
@settings(deadline=None)
def test_no_thought_is_more_than_text(thought: str) -> None:
    check_segments(dialogue(thoughtful(thought), DisplayOptions(task_kind("code"))), 60)


def with_tools(**turn: Any) -> Trajectory:
    calls = (ToolCall(id="a", name="find", arguments='{"title": "\x1b[31mEmma"}'),)
    called = Turn(role="assistant", content="I look.", output="I look.", tool_calls=calls)
    result = Turn(**{"role": "tool", "content": f"found {HOSTILE}", "tool_call_id": "a", "is_error": True, **turn})
    played = trajectory(0)
    request, *rest = played.dialogue_history
    return played.model_copy(update={"dialogue_history": (request, called, result, *rest)})


def test_calls_and_their_results_are_parts_that_the_human_does_not_see() -> None:
    parts = dialogue_parts(Record(with_tools()), CODE)
    kinds = [part.kind for part in parts if part.turn in (1, 2)]
    assert kinds == ["agent", "calls", "result"]
    shown = {part.kind: drawn(part.content()) for part in parts if part.turn in (1, 2)}
    assert "┊ I look." in shown["agent"]
    assert '┊ find({"title": ' in shown["calls"]
    assert "┊ found" in shown["result"]
    assert not any(ESCAPES.search(text) for text in shown.values())
    assert next(part.note for part in parts if part.kind == "result") == "error"


def test_calls_are_compared_side_by_side() -> None:
    left, right = Record(with_tools()), Record(with_tools(content="nothing"))
    same = [part.note for part in side_by_side_parts(left, left, CODE) if part.turn in (1, 2)]
    assert same == ["the same", "the same"]
    differing = [part.differs for part in side_by_side_parts(left, right, CODE) if part.turn in (1, 2)]
    assert differing == [False, True]
    text = "".join(drawn(part.content()) for part in side_by_side_parts(left, right, CODE))
    assert text.count("nothing") == 1
    assert '┊ find({"title": ' in text


def test_calls_are_folded_on_a_page() -> None:
    one = with_tools()
    summary = Summary("t", "t", "answered", "passed", 1.0, 1, 1, 1, 3, 0.5, "", 0, None)
    page = str(html.dialogue(summary, Record(one), CODE))
    assert "<details><summary>result, error</summary><pre>found " in page
    assert "1 call of tools</summary><pre>find({" in page
    assert "\x1b" not in page
