"""The record of a dialogue: what is stored of the prompts that the agent read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import Trajectory, Turn, dump, shared_prompts

TASK = Task(id="t", problem_description="Please help.", ground_truth="def f(): pass")


def turns(agent_turns: int) -> list[Turn]:
    said = [Turn(role="assistant", content="What?"), Turn(role="user", content="That.")] * agent_turns
    return [Turn(role="user", content="Please help."), *said[: 2 * agent_turns - 1]]


def trajectory(history: tuple[Turn, ...], **fields: object) -> Trajectory:
    return Trajectory.model_validate({"id": "d", "task": TASK, "dialogue_history": history, **fields})


@given(st.lists(st.none() | st.lists(st.integers(0, 2), max_size=6).map(tuple), min_size=1, max_size=5))
def test_the_prompts_of_all_turns_are_read_back_from_a_written_row(prompts: list[tuple[int, ...] | None]) -> None:
    known = {2 * number + 1: ids for number, ids in enumerate(prompts) if ids is not None}
    row = dump(trajectory(shared_prompts(turns(len(prompts)), known)))
    read = Trajectory.model_validate(row)
    assert [read.prompt_ids(index) for index in read.agent_turns] == prompts


def test_a_prompt_that_is_the_beginning_of_the_next_one_is_not_repeated() -> None:
    first, second = shared_prompts(turns(2), {1: (1, 2), 3: (1, 2, 3, 4)})[1::2]
    assert (first.prompt_shared, first.prompt_token_ids) == (2, None)
    assert (second.prompt_shared, second.prompt_token_ids) == (None, (1, 2, 3, 4))


def test_a_turn_without_a_record_of_its_prompt_has_none() -> None:
    history = turns(2)
    history[3] = history[3].model_copy(update={"prompt_token_ids": (1, 2)})
    partly = trajectory(tuple(history))
    assert [partly.prompt_ids(1), partly.prompt_ids(3)] == [None, (1, 2)]


def test_a_prompt_cannot_share_more_than_the_next_one_has() -> None:
    history = shared_prompts(turns(2), {1: (1, 2), 3: (1, 2, 3)})
    wrong = [history[0], history[1].model_copy(update={"prompt_shared": 4}), *history[2:]]
    with pytest.raises(ValidationError, match=r"dialogue_history\.1\.prompt_shared is 4, .* has 3 ids"):
        trajectory(tuple(wrong))


def test_the_human_has_no_prompt() -> None:
    with pytest.raises(ValueError, match="not the agent's"):
        trajectory(tuple(turns(1))).prompt_ids(0)


@pytest.mark.parametrize(("kept", "thought"), [({"thoughts": "keep"}, "hm"), ({}, None)])
def test_the_agent_sees_its_earlier_thoughts_only_where_they_are_kept(
    kept: dict[str, str], thought: str | None
) -> None:
    history = turns(2)
    history[1] = history[1].model_copy(update={"thought": "hm"})
    seen = trajectory(tuple(history), **kept).observation(3, "You help.")
    assert seen[2] == Message(role="assistant", content="What?", thought=thought)
    assert ("thought" in seen[2].model_dump()) == (thought is not None)
