"""The coroutine of a command: a signal at any moment is an interruption."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

from sweet.gathering import run_main

CHILDREN = ("gathering.py", "llm/engine_processes.py", "rollouts/gateway/relay.py")
"""The helper itself, and what runs in processes that no user stops."""


@pytest.mark.parametrize("own", [0, 1, 2])
def test_a_signal_while_something_is_closed_is_an_interruption(own: int) -> None:
    """Also after the work has cancelled itself and has handled that, as a rollout at its second Ctrl-C."""

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(own):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(5)
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(5)  # a client is closed

    with pytest.raises(KeyboardInterrupt):
        run_main(work())


def test_every_command_runs_its_coroutine_so() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in Path("sweet").rglob("*.py")}
    assert len(sources) > 100
    used = [str(path.relative_to("sweet")) for path, text in sources.items() if re.search(r"\basyncio\.run\(", text)]
    assert sorted(used) == sorted(CHILDREN)
