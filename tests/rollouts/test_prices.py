"""What dialogues cost by the user's prices: the cost of a rollout, of a solved task, and the limit that stops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from sweet.errors import InputError, Interrupted, UsageError
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.stages.prices import read_prices, spending
from sweet.tasks.code.kind import CodeKind
from tests import programs
from tests.stages.chat_server import ChatServer, said
from tests.stages.heard import Heard

TASKS = 6
PRICES = "[agent]\nprompt = 50000\ncompletion = 125000\n"
"""A reply of `said` costs 1: it reads 10 tokens and writes 4."""


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    """Solves the first and the second of the tasks, in one turn each."""
    tasks = CodeKind().load("micro", "test")[:TASKS]
    solved = {task.problem_description: task.ground_truth for task in tasks[:2]}

    def answer(body: dict[str, Any]) -> Response:
        return said("I WANT TO ANSWER:\n" + solved.get(body["messages"][1]["content"], "def f(): pass"))

    running = ChatServer("agent", answer)
    with running.running():
        yield running


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.toml"
    file.write_text(PRICES)
    return file


def options(server: ChatServer, **more: Any) -> RolloutConfig:
    common = {"tasks": "micro", "split": "test", "num_tasks": TASKS, "agent": "agent", "agent_url": [server.url]}
    return RolloutConfig(**(common | {"concurrency": 1} | more))


def test_a_rollout_stops_at_its_limit_and_goes_on_with_a_higher_one(
    server: ChatServer, prices: Path, tmp_path: Path
) -> None:
    run = Run.create(tmp_path / "run")
    with pytest.raises(Interrupted, match=r"cost is 3, and the limit is 2\.5\. Done: 3 dialogues; missing: 3"):
        run_rollout(run, options(server, prices=prices, max_cost=2.5), Silent())
    with pytest.raises(Interrupted, match="Done: 3 dialogues; missing: 3"):
        run_rollout(run, options(server, prices=prices, max_cost=3), Silent())
    metrics = run_rollout(run, options(server, prices=prices, max_cost=7), Silent()).metrics
    assert (metrics.episodes, metrics.cost) == (6, 6.0), "one dialogue costs 1, and those of earlier calls count"
    assert [artifact.id for artifact in run.manifest().of_kind("rollouts", "done")] == ["rollouts-1"]
    scored = run_eval(run, EvalConfig(), Silent()).metrics
    assert scored.cost_per_solved_task == 3.0, "6 for the 2 tasks that were solved"
    assert scored.as_json()["cost_per_solved_task"] == 3.0


def test_dialogues_that_are_played_at_the_limit_end_at_their_next_turn(prices: Path, tmp_path: Path) -> None:
    """What is spent beyond the limit is one reply for each dialogue, and they are played again later."""
    server = ChatServer("agent", lambda body: said("What is the rate?"))
    with server.running() as url:
        many = {"agent_url": [url], "prices": prices, "concurrency": 6, "max_turns": 9}
        run = Run.create(tmp_path / "run")
        with pytest.raises(Interrupted, match=r"limit is 2\. Done: 0 dialogues; missing: 6"):
            run_rollout(run, options(server, max_cost=2, **many), Silent())
        spent = spending(run, run.manifest()).cost
        assert spent is not None
        assert 2 <= spent <= 2 + 6
        metrics = run_rollout(run, options(server, max_cost=99, **many), Silent()).metrics
    assert (metrics.episodes, metrics.turns) == (6, 54)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": None, "completion_tokens": None}, {}])
def test_tokens_that_a_server_does_not_report_are_estimated(prices: Path, tmp_path: Path, usage: Any) -> None:
    choice = {"message": {"content": "I WANT TO ANSWER:\n" + "x = 1\n" * 50}, "finish_reason": "stop"}
    server = ChatServer("agent", lambda body: JSONResponse({"choices": [choice], "usage": usage}))
    listening = Heard()
    with server.running() as url:
        config = options(server, agent_url=[url], prices=prices, max_cost=1)
        with pytest.raises(Interrupted, match="limit is 1"):
            run_rollout(Run.create(tmp_path / "run"), config, listening)
    assert any("agent reports no usage" in text for text in listening.warnings)


def test_without_prices_there_is_no_cost(server: ChatServer, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    metrics = run_rollout(run, options(server, num_tasks=2), Silent()).metrics
    assert metrics.cost is None
    assert run_eval(run, EvalConfig(), Silent()).metrics.cost_per_solved_task is None
    with pytest.raises(UsageError, match="needs the prices"):
        run_rollout(run, options(server, max_cost=1), Silent())


def test_prices_do_not_tell_rollouts_apart(server: ChatServer, prices: Path) -> None:
    plain = options(server)
    assert options(server, prices=prices, max_cost=1).digest() == plain.digest()


def test_the_command_stops_like_ctrl_c(server: ChatServer, prices: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words: list[str | Path] = ["-m", "sweet", "rollout", run, "--tasks", "micro", "--split", "test", "--num-tasks", "6"]
    words += [
        "--agent",
        "agent",
        "--agent-url",
        server.url,
        "--concurrency",
        "1",
        "--prices",
        prices,
        "--max-cost",
        "2",
    ]
    done = programs.run(words)
    assert done.returncode == 130, done.stderr
    assert "missing: 4" in done.stderr
    assert "--resume --max-cost MORE" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[agent]\nprompt = -1\n", "agent.prompt"),
        ("[agent]\nprompt = nan\n", "agent.prompt"),
        ('[agent]\nprompt = "1"\n', "agent.prompt"),
        ("[agent]\nprompt = true\n", "agent.prompt"),
        ("[agent]\nread = 1\n", r"agent: there is no read\. .*Known here: prompt, completion"),
        ("[agen]\nprompt = 1\n", r"there is no agen\. Did you mean agent\?"),
        ("agent = 3\n", "agent"),
        ("", "no price"),
        ("[agent\n", "TOML"),
    ],
)
def test_files_of_prices_are_checked(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=what) as raised:
        read_prices(file)
    assert str(file) in str(raised.value.where)
    with pytest.raises(InputError):
        read_prices(tmp_path / "none.toml")


def test_a_plan_reads_the_prices(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text("[agen]\nprompt = 1\n")
    for options, what in ((["--prices", file], "there is no agen"), (["--max-cost", "1"], "needs the prices")):
        done = programs.run(["-m", "sweet", "rollout", tmp_path / "run", "--tasks", "micro", "--dry-run", *options])
        assert done.returncode == 2
        assert what in done.stderr
