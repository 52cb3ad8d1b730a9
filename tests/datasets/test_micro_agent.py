"""The command that rebuilds the packaged agent; the agent is tested with the micro dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.datasets.micro_agent import MicroAgentConfig, run_data_micro_agent
from sweet.errors import UsageError
from sweet.inspection.doctor import checkpoint_problem
from sweet.stages.base import Silent

SMALL = MicroAgentConfig(dialogues=40, width=16, layers=1, heads=2, feed_forward=16, vocabulary=300, threads=1)


def test_it_builds_a_whole_checkpoint(tmp_path: Path) -> None:
    result = run_data_micro_agent(tmp_path / "agent", SMALL, Silent())
    assert result.metrics.parameters > 0
    assert checkpoint_problem(tmp_path / "agent") is None


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    for folder in (tmp_path, tmp_path / "mine"):
        with pytest.raises(UsageError):
            run_data_micro_agent(folder, SMALL, Silent())
    with pytest.raises(UsageError, match="heads"):
        run_data_micro_agent(tmp_path / "agent", SMALL.model_copy(update={"heads": 3}), Silent())
