"""tau2-bench: the tasks, tools and verdicts of a checkout, by its own process; a stand-in, and the real one if it is
here (`TAU2_DATA_DIR`)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sweet.errors import SweetError, UsageError
from sweet.learn.rows import Candidate, CandidateTurn
from sweet.llm.base import Reply
from sweet.stages.tool_calls import final_state, opened, result_of, with_results
from sweet.tasks.base import Message, Task, ToolCall
from sweet.tasks.desk.generator import DESK
from sweet.tasks.kind import TaskKind, opening
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score, ScoringRequest
from sweet.tasks.tau2.kind import _RUNNING, DATA, NOTHING_MORE, OPENING, about, row_of
from sweet.tasks.tools import rest_of
from sweet.tasks.trajectory import Outcome, Trajectory, Turn
from tests.ranking.test_lookahead import judged
from tests.tasks.tau2_checkout import write_checkout

REAL = os.environ.get(DATA)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskKind:
    monkeypatch.setenv(DATA, str(write_checkout(tmp_path / "tau2-bench")))
    return task_kind("tau2:library")


@pytest.fixture(autouse=True)
def ended_processes() -> Iterator[None]:
    yield
    for running in _RUNNING.values():
        with suppress(OSError), running.process as process:
            process.kill()
    _RUNNING.clear()


def played(
    kind: TaskKind, task: Task, calls: Sequence[ToolCall], last: str, outcome: Outcome = "answered"
) -> tuple[list[str], Trajectory]:
    """Return the results of calls, and the dialogue in which they are made."""

    async def play() -> tuple[list[str], Trajectory]:
        turns, results = [Turn(role="user", content=task.problem_description)], []
        async with opened(kind, task) as toolbox:
            assert toolbox is not None
            for place, call in enumerate(calls):
                named = call.model_copy(update={"id": f"call-{place}"})
                result = await result_of(toolbox, named, 1)
                results.append(result.content)
                turns.append(Turn(role="assistant", content="", output="", tool_calls=(named,)))
                turns.append(Turn(role="tool", content=result.content, tool_call_id=named.id))
            turns.append(Turn(role="assistant", content=last, output=last))
            state = await final_state(toolbox)
        name = f"{task.id}-s0-r0"
        history = tuple(turns)
        trajectory = Trajectory(
            id=name, task=task, dialogue_history=history, answer=last, sample=0, outcome=outcome, tool_state=state
        )
        return results, trajectory

    return asyncio.run(play())


def score_of(kind: TaskKind, trajectory: Trajectory, folder: Path) -> Score:
    with kind.open_scorer(ScoringRequest(run=folder, say=print)) as scorer:
        ((_, score),) = scorer.score([trajectory])
    return score


def lend(to: str) -> ToolCall:
    return ToolCall.of("lend", book="Emma", to=to)


def test_tasks_and_prompts_are_those_of_the_checkout(library: TaskKind) -> None:
    task, polite = library.load("library", "train")
    assert (task.id, polite.id, task.problem_description) == ("library-plain", "library-polite", OPENING)
    assert "Lend every book once." in library.agent_system()
    (asked,) = library.human_prompt(task, [Message(role="assistant", content="Yes?")])
    assert "You want Emma." in asked.content
    assert "lend" not in asked.content, "the human does not read the reference"
    assert 'lend {"book": "Emma", "to": "Ann"}\nSay: May' in task.hidden, "the critic does"
    assert [found.id for found in library.load("library", "test")] == ["library-plain-test"], "no customer has tools"


def test_the_verdict_is_that_of_its_evaluator(library: TaskKind, tmp_path: Path) -> None:
    task, polite = library.load("library", "train")
    results, right = played(library, task, [lend("Ann"), lend("Bob")], "It is due in May.")
    assert results == ["lent", "Error: it is lent"]
    assert score_of(library, right, tmp_path).reward == 1
    unsaid = score_of(library, played(library, task, [lend("Ann")], "Done.")[1], tmp_path)
    assert (unsaid.reward, unsaid.passed, unsaid.total) == (0, 1, 2)
    assert unsaid.detail["why"] == "got not said: May, expected met"
    assert score_of(library, played(library, task, [lend("Bob")], "In May.")[1], tmp_path).reward == 0
    refused = [ToolCall.of("lend", to="Ann"), lend("Ann")]
    assert score_of(library, played(library, task, refused, "In May.")[1], tmp_path).reward == 1, "it was not made"
    late = played(library, task, [lend("Ann")], "In May.", "out_of_turns")[1]
    assert score_of(library, late, tmp_path).reward == 0, "tau2 gives nothing for a dialogue that has not ended"
    judged = score_of(library, played(library, polite, [lend("Ann")], "Done.")[1], tmp_path)
    assert (judged.reward, judged.detail["not judged"]) == (1, "NL_ASSERTION"), "no model is asked"


def solved_from_any_point(kind: TaskKind, task: Task, folder: Path) -> None:
    """Check that the reference solves the task, whichever of its first calls a dialogue has."""
    *calls, last = kind.reference_from(task, ())
    for made in range(len(calls) + 1):
        said = [*opening(kind, task, 5), *calls[:made]]
        before = asyncio.run(with_results(kind.toolbox(task), said))
        *left, answer = kind.reference_from(task, before)
        assert (left, answer) == (calls[made:], last)
        whole = asyncio.run(with_results(kind.toolbox(task), left, before))
        made_calls = [call for message in whole for call in message.tool_calls or ()]
        right = played(kind, task, made_calls, kind.move(last.content, last=True).answer or "")[1]
        assert score_of(kind, right, folder).reward == 1, row_of(task)["evaluation_criteria"]


def test_the_reference_solves_the_task_from_any_point(library: TaskKind, tmp_path: Path) -> None:
    task = library.load("library", "train")[0]
    solved_from_any_point(library, task, tmp_path)
    refused = Message(role="assistant", content="", tool_calls=(ToolCall.of("lend", to="Ann"),))
    before = asyncio.run(with_results(library.toolbox(task), [refused]))
    assert len(library.reference_from(task, before)) == 2, "a call that failed was not made"
    said = [Message(role="assistant", content="", tool_calls=(lend("Ann"),))]
    failed = Message(role="tool", content="Error: it is lent", tool_call_id="a")
    named = said[0].model_copy(update={"tool_calls": (lend("Ann").model_copy(update={"id": "a"}),)})
    assert len(library.reference_from(task, [named, failed])) == 2
    before = asyncio.run(with_results(library.toolbox(task), said))
    assert [message.content for message in library.reference_from(task, before)] == [f"{ANSWER_MARKER}\nDone. May"]


def test_a_call_that_the_reference_makes_twice_is_left_once_where_it_was_made_once(library: TaskKind) -> None:
    made = lend("Ann").model_copy(update={"id": "a"})
    before = [
        Message(role="assistant", content="", tool_calls=(made,)),
        Message(role="tool", content="lent", tool_call_id="a"),
    ]
    twice = [("lend", {"book": "Emma", "to": "Ann"})] * 2
    left, _ = rest_of(twice, "Done.", before, about("library")["tools"])
    assert left.tool_calls == (lend("Ann"),)


def test_a_look_ahead_judges_calls_and_answers(library: TaskKind, tmp_path: Path) -> None:
    task = library.load("library", "train")[0]
    tools = tuple(about("library")["tools"])
    said = ["", "", f"{ANSWER_MARKER}\nIn May.", f"{ANSWER_MARKER}\nNo."]
    calls = [(lend("Ann"),), (lend("Bob"),), None, None]
    replies = tuple(Reply(text, tool_calls=made) for text, made in zip(said, calls, strict=True))

    def scores(*before: Message) -> list[float | None]:
        messages = asyncio.run(with_results(library.toolbox(task), [*opening(library, task, 5), *before]))
        turn = CandidateTurn("d", task, len(messages) - 1, tuple(messages), replies, tools=tools)
        _, found = judged(turn, tmp_path, family=DESK["desk"], kind=library)
        return [one.score for one in found if isinstance(one, Candidate)]

    right, wrong, early, no = scores()
    assert right is not None
    assert right > 0
    assert wrong == early == no == -0.75, "nothing makes it good"
    assert scores(Message(role="assistant", content="", tool_calls=(lend("Ann"),)))[2:] == [3, -0.75]


def test_what_fails_says_where(library: TaskKind, monkeypatch: pytest.MonkeyPatch) -> None:
    task = library.load("library", "train")[0]
    with pytest.raises(SweetError, match="tau2 failed in 'call'"):
        played(library, task, [ToolCall.of("end", book="Emma")], "In May.")
    assert played(library, task, [lend("Ann")], "In May.")[0] == ["lent"], "a new process takes over"
    with pytest.raises(SweetError, match="KeyError: 'post'"):
        task_kind("tau2:post").load("post", "test")
    with pytest.raises(UsageError, match="named as tau2:DOMAIN"):
        task_kind("tau2")
    with pytest.raises(UsageError, match="named as code"):
        task_kind("code:python")
    monkeypatch.delenv(DATA)
    with pytest.raises(UsageError, match=DATA):
        task_kind("tau2:library").agent_system()


def test_the_scripted_customer_reads_the_scenario_out(library: TaskKind) -> None:
    task = library.load("library", "train")[0]
    said = [Message(role="user", content=OPENING), Message(role="assistant", content="Yes?")]
    assert library.scripted_reply(task, said) == "You want Emma."
    said += [Message(role="user", content="…"), Message(role="assistant", content="Who are you?")]
    assert library.scripted_reply(task, said) == "You are Ann."
    assert library.scripted_reply(task, said * 3) == NOTHING_MORE


@pytest.mark.skipif(not REAL, reason=f"{DATA} names no checkout of tau2-bench")
@pytest.mark.parametrize("domain", ["mock", "retail"])
def test_the_references_of_the_real_one_succeed(domain: str, tmp_path: Path) -> None:
    kind = task_kind(f"tau2:{domain}")
    for task in kind.load(domain, "test")[:3]:
        solved_from_any_point(kind, task, tmp_path)
