"""Generated scripted dialogues are rollouts like any others, on tasks that are in no split."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pytest

from docs.tools.micro_dialogues import scripted_trajectories
from sweet.datasets.layout import published_line, published_row
from sweet.datasets.published import read_trajectories
from sweet.tasks.base import NO_ANSWER
from sweet.tasks.micro.family import FAMILIES, LONG, MICRO, Family
from sweet.tasks.micro.generator import load

COUNT = 40

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def test_those_of_micro_are_unchanged() -> None:
    rows = "\n".join(
        t.model_dump_json(exclude_defaults=True) for t in scripted_trajectories(200, seed=0, told_share=0.3)
    )
    digest = "fb2bfc26fc84ec3a524fe7e73f3c5996f199ec4f53fb547c5611b535cd04b287"
    assert hashlib.sha256(rows.encode()).hexdigest() == digest
    assert next(scripted_trajectories(1, seed=0, told_share=0.3, family=LONG)).task_id == "micro-long-scripted-00000"


def test_dialogues_follow_the_protocol_and_are_seeded() -> None:
    made = list(scripted_trajectories(COUNT, seed=3, told_share=0.0))
    assert made == list(scripted_trajectories(COUNT, seed=3, told_share=0.0))
    assert made != list(scripted_trajectories(COUNT, seed=4, told_share=0.0))
    assert len({trajectory.id for trajectory in made}) == len({t.task_id for t in made}) == COUNT
    for trajectory in made:
        roles = [turn.role for turn in trajectory.dialogue_history]
        assert roles[0] == "user"
        assert roles[-1] == "assistant"
        assert all(one != other for one, other in pairwise(roles))
        assert trajectory.dialogue_history[0].content == trajectory.task.problem_description
        assert trajectory.answer.startswith("def ")
        assert trajectory.answer != NO_ANSWER
        assert trajectory.answer in trajectory.dialogue_history[-1].content


def test_a_share_of_the_requests_contains_the_reference() -> None:
    made = list(scripted_trajectories(COUNT, seed=0, told_share=0.5))
    with_reference = [t for t in made if t.task.hidden in t.dialogue_history[0].content]
    assert 0 < len(with_reference) < COUNT
    assert all(t.task.problem_description in t.dialogue_history[0].content for t in made)


@families
def test_their_tasks_are_in_no_split(family: Family) -> None:
    made = scripted_trajectories(COUNT, seed=0, told_share=0.0, family=family)
    ours = {trajectory.task.ground_truth for trajectory in made}
    theirs = {task.ground_truth for one in (MICRO, LONG) for split in one.splits for task in load(split, one)}
    assert not ours & theirs


def test_they_are_written_and_read_back_unchanged(tmp_path: Path) -> None:
    made = list(scripted_trajectories(COUNT, seed=0, told_share=0.3))
    file = tmp_path / "scripted.jsonl"
    file.write_bytes(b"".join(published_line(published_row(trajectory, None)) for trajectory in made))
    assert list(read_trajectories(file)) == made
