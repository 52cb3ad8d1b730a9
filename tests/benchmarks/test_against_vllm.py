"""`benchmarks.against_vllm`, with a stand-in for vLLM."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import against_vllm
from sweet.tasks.micro import PACKAGED
from tests.llm.stand_in import install


def test_both_are_asked_for_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = install(tmp_path, monkeypatch)
    sizes = ["--requests", "1,3", "--rounds", "2", "--prompt", "8", "--tokens", "4"]
    monkeypatch.setattr(sys, "argv", ["against_vllm", "--model", str(PACKAGED["micro"]), *sizes])
    against_vllm.main()
    found = json.loads(capsys.readouterr().out)
    assert found["rounds"] == 2
    assert [row["requests"] for row in found["results"]] == [1, 3]
    for row in found["results"]:
        assert row["embedded_tokens_per_second"] > 0
        assert row["vllm_tokens_per_second"] > 0
        low, high = row["ratios"]
        assert low <= row["ratio"] <= high
    assert len(stand_in.asked()) == 6, "a round before those that count"
    assert stand_in.all_gone()
