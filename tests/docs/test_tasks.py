"""docs/tasks.md: its example task is played and scored, and it documents every member of a kind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sweet.cli.app import run
from sweet.tasks.kind import TaskKind
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "tasks.md").read_text("utf-8")


@pytest.mark.usefixtures("workplace")
def test_the_example_file_of_tasks_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    Path("parking.jsonl").write_text(row)
    assert run(["rollout", "runs/mine", "--tasks", "parking.jsonl", "--max-turns", "2"]) == 0
    capsys.readouterr()
    assert run(["eval", "runs/mine", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert (metrics["trajectories"], metrics["invalid_tasks"]) == (1, 0)


def test_every_member_of_a_kind_is_documented() -> None:
    head = PAGE.split("## What a kind brings")[1].split("### The scorer")[0]
    named = set(re.findall(r"`(\w+)(?:\([\w, ]*\))?`", head))
    members = {name for name in (*vars(TaskKind), *TaskKind.__annotations__) if not name.startswith("_")}
    assert members - {"prompts"} <= named
