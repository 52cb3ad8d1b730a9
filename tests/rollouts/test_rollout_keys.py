"""A server that repeats the key that it was sent: no file of the run and no message has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from tests.stages.chat_server import ChatServer, refused
from tests.stages.heard import Heard

KEY = "kQ7-vvw93-hidden"


def repeat(body: dict[str, Any]) -> Response:
    if sum(message["role"] == "assistant" for message in body["messages"]) == 2:
        return refused(400, f"no more for Bearer {KEY}")
    if "top_k" in body:
        return refused(400, f"Unsupported parameter: '{KEY}'")
    choice = {"message": {"content": f"Your key is Bearer {KEY}. What else?"}, "finish_reason": KEY}
    return JSONResponse({"choices": [choice]})


def test_a_repeated_key_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_AGENT_API_KEY", KEY)
    run, reporter = Run.create(tmp_path / "run", task="code"), Heard()
    with ChatServer(KEY, repeat).running() as url:
        settings = {"num_tasks": 2, "samples": 1, "agent": "./some-model", "agent_url": [url], "fail_on_error": 10}
        finished = run_rollout(run, RolloutConfig(**settings, max_turns=2), reporter)
        failed = run_rollout(run, RolloutConfig(**settings, max_turns=3), reporter)
    assert (finished.metrics.episodes, failed.metrics.failed) == (2, 2)
    files = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert [path for path, content in files.items() if b"vvw93" in content] == []
    assert not [text for text in (*reporter.said, *reporter.warnings) if "vvw93" in text]
    written = b"".join(files.values())
    assert b"Your key is Bearer ***. What else?" in written
    assert b"no more for Bearer ***" in written
