"""tau2-bench: the tasks, tools and verdicts of a checkout, by its own process; a stand-in, and the real one if it is
here (`TAU2_DATA_DIR`)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sweet.errors import SweetError, UsageError
from sweet.stages.tool_calls import final_state, opened, result_of
from sweet.tasks.base import Message, Task, ToolCall
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score, ScoringRequest
from sweet.tasks.tau2.kind import _RUNNING, DATA, NOTHING_MORE, OPENING, row_of
from sweet.tasks.trajectory import Outcome, Trajectory, Turn
from tests.tasks.tau2_checkout import write_checkout

REAL = os.environ.get(DATA)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskKind]:
    monkeypatch.setenv(DATA, str(write_checkout(tmp_path / "tau2-bench")))
    yield task_kind("tau2:library")
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
        criteria = row_of(task)["evaluation_criteria"]
        calls = [ToolCall.of(action["name"], **action["arguments"]) for action in criteria["actions"] or ()]
        last = "Done. " + " ".join(criteria["communicate_info"] or ())
        right = played(kind, task, calls, last)[1]
        assert score_of(kind, right, tmp_path).reward == 1, json.dumps(criteria)
