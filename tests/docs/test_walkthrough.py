"""The pipeline of docs/stages.md, run with smaller numbers; its metrics are documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.tools.commands import metrics_of
from sweet.cli.app import run
from sweet.tasks.registry import task_kind
from tests.docs.command_lines import simple_commands
from tests.docs.pages import PAGES, ROOT, Piece, read_page

SMALLER = {"--num-tasks": "12", "--samples": "4"}
ENVIRONMENT = {
    "SWEET_ROLLOUT_NUM_TASKS": "12",
    "SWEET_TRAIN_CRITIC_EPOCHS": "1",
    "SWEET_RANK_CANDIDATES": "3",
    "SWEET_TRAIN_ACTOR_EPOCHS": "1",
}
"""Options that the page leaves at their defaults, for a short test."""


def _pipeline() -> Piece:
    blocks = read_page(ROOT / "docs" / "stages.md").blocks
    return next(block for block in blocks if "sweet train-critic runs/first" in block.text)


def test_the_pipeline_of_the_docs_runs(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    seen: list[str] = []
    for command in simple_commands(_pipeline()):
        words = [SMALLER.get(flag, word) for flag, word in zip(["", *command.words], command.words, strict=False)]
        code, captured = run([*words[1:], "--json"]), capsys.readouterr()
        assert code == 0, f"{command}: {captured.err}"
        output = json.loads(captured.out)
        seen.append(output["stage"])
        assert _unknown(output) == [], "docs/tools/commands.py describes each metric"
        assert not output["metrics"].get("warnings"), "the page compares comparable runs"
    assert " ".join(seen) == (
        "rollout eval rollout eval label train-critic rank pair train-actor rollout eval compare report view"
    )


def _unknown(output: dict[str, Any]) -> list[str]:
    known = metrics_of(output["stage"]).keys()
    return [name for name in output["metrics"] if name.removesuffix("_ci_low").removesuffix("_ci_high") not in known]


def test_tasks_in_the_docs_are_valid(tmp_path: Path) -> None:
    seen = 0
    for path in PAGES:
        for block in read_page(path).blocks:
            if block.language in ("json", "jsonl") and '"test_cases"' in block.text:
                file = tmp_path / f"tasks-{seen}.jsonl"
                file.write_text(block.text, encoding="utf-8")
                assert task_kind("code").load(str(file), "train"), block.where
                seen += 1
    assert seen
