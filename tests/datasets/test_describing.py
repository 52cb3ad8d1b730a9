"""`sweet data describe` with a real server: what is kept, what is written again, what is listed, and resuming."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from sweet.datasets.describing import TEMPERATURE, DescribeConfig, run_data_describe
from sweet.errors import InputError, Interrupted, ServerError, UsageError
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from tests.cli.processes import started, sweet
from tests.humans.leaking import AGENT, HUMAN, Leaky, agent, tasks
from tests.stages.chat_server import ChatServer, refused, said
from tests.stages.heard import Heard

MODEL = "writer"
GOOD = "Each hour costs {rate}. There is a fixed charge of 17. From ten hours on the whole amount doubles."


class Writer:
    """Describes the tasks of `leaking` and solves them from a description.

    Args:
        scripts: by rate, what it writes at its first tries, before the good specification; None for ever.

    Attributes:
        asked: requests by rate and by what they ask for, `describe` or `solve`.
    """

    def __init__(self, scripts: dict[int, list[str | Response] | None] | None = None, pause: float = 0) -> None:
        self.scripts, self.pause = scripts or {}, pause
        self.asked: Counter[tuple[int, str]] = Counter()
        self.bodies: list[tuple[int, str, dict[str, Any]]] = []

    def __call__(self, body: dict[str, Any]) -> Response:
        time.sleep(self.pause)
        first = body["messages"][0]["content"]
        rate = int(re.search(r"This is variant (\d+)", first)[1])  # type: ignore[index]
        kind = "solve" if "THE SPECIFICATION" in first else "describe"
        self.bodies.append((rate, kind, body))
        number = self.asked[rate, kind]
        self.asked[rate, kind] += 1
        if kind == "solve":
            known = re.search(r"costs (\d+).*fixed charge of 17.*doubles", first, re.DOTALL)
            return said(f"```python\n{reference(int(known[1]) if known else 99)}\n```")
        script = self.scripts.get(rate, [])
        if script is None:
            return said("It costs something.")
        written = script[number] if number < len(script) else GOOD.format(rate=rate)
        return written if isinstance(written, Response) else said(written)

    def server(self) -> ChatServer:
        return ChatServer(MODEL, self)


def reference(rate: int) -> str:
    return f"def fee(hours):\n    total = {rate} * hours + 17\n    return total if hours < 10 else 2 * total"


def described(file: Path, writer: Writer, reporter: Silent | None = None, **changes: Any) -> Any:
    with writer.server().running() as url:
        config = DescribeConfig(**{"model": MODEL, "url": [url], "sandbox": "unsafe", "workers": 1, **changes})
        return run_data_describe(str(file), config, reporter or Silent()).metrics


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_task_gets_a_specification_that_gives_nothing_away_and_says_enough(tmp_path: Path) -> None:
    file = tasks(tmp_path)
    writer = Writer()
    metrics = described(file, writer)
    out = tmp_path / "fees-described.jsonl"
    assert (metrics.tasks, metrics.written, metrics.kept, metrics.failed, metrics.tries) == (4, 4, 0, 0, 4)
    assert metrics.out == str(out)
    assert (metrics.prompt_tokens, metrics.completion_tokens) == (80, 32)
    before, after = rows(file), rows(out)
    assert [
        row | {"specification": GOOD.format(rate=n), "specification_by": MODEL} for n, row in enumerate(before)
    ] == [{key: row[key] for key in (*before[0], "specification", "specification_by")} for row in after]
    loaded = task_kind("code").load(str(out), "train")
    assert [task.specification for task in loaded] == [row["specification"] for row in after]
    assert [task.hidden for task in loaded] == [row["ground_truth"] for row in before]
    for _, kind, body in writer.bodies:
        text = body["messages"][0]["content"]
        assert ("total = " in text) == (kind == "describe"), "who checks sees request and specification alone"
        assert body["temperature"] == 0.0
    assert not list(tmp_path.glob("*.part"))


def test_the_work_stops_at_the_limit_of_the_cost_and_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    """An answer costs 1; a task has two, a specification and a solution."""
    file, prices, writer = tasks(tmp_path), tmp_path / "prices.toml", Writer()
    prices.write_text("[writer]\nprompt = 100000\n")
    options: dict[str, Any] = {"prices": prices, "concurrency": 1}
    with pytest.raises(Interrupted, match=r"cost is 4, and the limit is 3\. Done: 2 tasks; missing: 2"):
        described(file, writer, max_cost=3, **options)
    out = tmp_path / "fees-described.jsonl"
    assert not out.exists()
    with pytest.raises(Interrupted, match="Done: 0 tasks; missing: 2"):
        described(file, writer, max_cost=4, **options)
    metrics = described(file, writer, max_cost=100, **options)
    assert (metrics.kept, metrics.written, metrics.cost) == (2, 2, 8.0)
    assert len(writer.bodies) == 8, "nothing is asked twice"
    assert sorted(one.name for one in tmp_path.glob("fees-*")) == [out.name]
    assert "cost" not in described(file, writer).as_json()
    with pytest.raises(UsageError, match="needs the prices"):
        described(file, writer, max_cost=1)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (reference(1), "gives away source"),
        (f"It is computed thus:\n```python\n{reference(1)}\n```", "gives away source"),
        ("Each hour costs 1. There is a fixed charge of 17.", "fails the hidden tests: test1: got 116, expected 18"),
        ("", "no specification"),
        ("x" * 9000, "no specification"),
    ],
)
def test_what_fails_is_written_again_and_told_why(tmp_path: Path, first: str, why: str) -> None:
    writer = Writer({1: [first]})
    metrics = described(tasks(tmp_path), writer)
    assert (metrics.written, metrics.failed, metrics.tries) == (4, 0, 5)
    again = [body for rate, kind, body in writer.bodies if (rate, kind) == (1, "describe")][1]
    assert again["temperature"] == TEMPERATURE
    assert again["messages"][-1]["role"] == "user"
    told = again["messages"][-1]["content"]
    assert any(part in told for part in (why, "hidden tests")) if "hidden" in why else why in told
    if first:
        assert again["messages"][1] == {"role": "assistant", "content": first[:8000]}


def test_a_task_that_cannot_be_described_is_listed_and_keeps_its_row(tmp_path: Path) -> None:
    file, heard = tasks(tmp_path), Heard()
    scripts: dict[int, Any] = {0: [reference(0)] * 9, 2: None, 3: [refused(400, "no")] * 99}
    metrics = described(file, Writer(scripts), heard, tries=3)
    assert (metrics.written, metrics.failed, metrics.tries) == (1, 3, 3 + 1 + 3 + 1)
    found = {one.task: (one.problem, one.what) for one in metrics.failures}
    assert list(found) == ["fee-0", "fee-2", "fee-3"]
    assert found["fee-0"][0] == "leaked"
    assert found["fee-2"][0] == "failed"
    assert "expected" in found["fee-2"][1]
    assert found["fee-3"][0] == "request"
    assert any("3 of 4 tasks have no specification" in text for text in heard.warnings)
    written = rows(tmp_path / "fees-described.jsonl")
    assert ["specification" in row for row in written] == [False, True, False, False]
    assert [row["id"] for row in written] == [row["id"] for row in rows(file)]

    writer = Writer()
    metrics = described(file, writer)
    assert (metrics.written, metrics.kept) == (3, 1)
    assert not writer.asked[1, "describe"], "what is described already costs nothing"


def test_where_no_task_can_be_described_it_is_an_error(tmp_path: Path) -> None:
    with Writer(dict.fromkeys(range(4))).server().running() as url:
        words = ["data", "describe", str(tasks(tmp_path)), "--model", MODEL, "--url", url, "--tries", "1"]
        shown = sweet(*words, "--sandbox", "unsafe", "--workers", "1")
        printed = sweet(*words, "--sandbox", "unsafe", "--workers", "1", "--json")
    assert shown.returncode == printed.returncode == 1
    assert "4 of 4 tasks have no specification; fee-0" in " ".join(shown.stderr.replace("│", " ").split())
    assert all(f"fee-{number}" in shown.stdout for number in range(4)), "each with its reason"
    found = json.loads(printed.stdout)
    assert len(found["metrics"]["failures"]) == 4
    assert "4 of 4" in found["error"]


def test_a_task_that_no_answer_can_pass_is_not_tried_again(tmp_path: Path) -> None:
    file = tasks(tmp_path)
    broken = rows(file)
    broken[0]["test_cases"] = {"test1": "no_such_function(1)"}
    file.write_text("".join(json.dumps(row) + "\n" for row in broken))
    writer = Writer()
    (one,) = described(file, writer).failures
    assert (one.task, one.problem) == ("fee-0", "invalid")
    assert writer.asked[0, "describe"] == 1


def test_another_model_at_another_server_may_check(tmp_path: Path) -> None:
    writer, checker = Writer(), Writer()
    with ChatServer("checker", checker).running() as url:
        described(tasks(tmp_path), writer, check_model="checker", check_url=[url], effort="low")
    assert {kind for _, kind, _ in writer.bodies} == {"describe"}
    assert {kind for _, kind, _ in checker.bodies} == {"solve"}
    assert {body["reasoning_effort"] for _, _, body in writer.bodies + checker.bodies} == {"low"}


def test_the_rest_of_a_file_is_not_lost(tmp_path: Path) -> None:
    file = tasks(tmp_path)
    out = tmp_path / "out.jsonl"
    described(file, Writer(), out=out)
    metrics = described(file, Writer(), out=out, num_tasks=2)
    assert (metrics.tasks, metrics.kept, metrics.written) == (4, 2, 0)
    metrics = described(file, Writer(), out=out, num_tasks=2, redo=True)
    assert (metrics.kept, metrics.written) == (0, 2)
    assert all("specification" in row for row in rows(out))
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "mine", "problem_description": "x", "ground_truth": "y"}\n')
    with pytest.raises(InputError, match="which is none of these"):
        described(file, Writer(), out=other, redo=True)
    assert "mine" in other.read_text()


def test_a_reference_that_changed_is_described_again(tmp_path: Path) -> None:
    file = tasks(tmp_path)
    described(file, Writer())
    changed = rows(file)
    changed[1]["ground_truth"] = reference(7)
    file.write_text("".join(json.dumps(row) + "\n" for row in changed))
    writer = Writer({1: [GOOD.format(rate=7)]})
    assert described(file, writer).written == 1
    assert "costs 7" in rows(tmp_path / "fees-described.jsonl")[1]["specification"]


def test_in_the_same_file_and_again(tmp_path: Path) -> None:
    file = tasks(tmp_path)
    assert described(file, Writer(), out=file).written == 4
    assert described(file, Writer(), out=file).kept == 4
    assert described(file, Writer(), out=file, redo=True).written == 4


def test_a_server_that_goes_away_keeps_what_was_described(tmp_path: Path) -> None:
    file = tasks(tmp_path)
    writer = Writer()
    server = ChatServer(MODEL, writer, lasts=5)
    options: dict[str, Any] = {"sandbox": "unsafe", "workers": 1, "concurrency": 1, "retry_timeout": 0.2}
    with server.running() as url:
        config = DescribeConfig(model=MODEL, url=[url], **options)
        with pytest.raises(ServerError):
            run_data_describe(str(file), config, Silent())
    assert len(rows(tmp_path / "fees-described.jsonl.part")) == 2
    assert not (tmp_path / "fees-described.jsonl").exists()
    assert described(file, Writer()).kept == 2


def test_a_call_that_was_killed_goes_on(tmp_path: Path) -> None:
    file = tasks(tmp_path, 12)
    slow = Writer(pause=0.15)
    part = tmp_path / "fees-described.jsonl.part"
    with slow.server().running() as url:
        words = ["data", "describe", str(file), "--model", MODEL, "--url", url, "--concurrency", "1"]
        with started([*words, "--sandbox", "unsafe", "--workers", "1"]) as process:
            until = time.monotonic() + 60
            while time.monotonic() < until and not (part.exists() and part.read_bytes().count(b"\n") >= 3):
                time.sleep(0.05)
            process.kill()
            process.communicate()
    with part.open("ab") as journal:
        journal.write(b'{"id":"fee-9","problem_desc')  # a torn line, as a kill may leave it
    done = part.read_bytes().count(b"\n")
    assert 3 <= done < 12
    writer = Writer()
    metrics = described(file, writer)
    assert (metrics.kept, metrics.written, metrics.failed) == (done, 12 - done, 0)
    assert len({rate for rate, _, _ in writer.bodies}) == 12 - done
    assert not part.exists()
    assert [row["id"] for row in rows(tmp_path / "fees-described.jsonl")] == [f"fee-{number}" for number in range(12)]


def test_pages_have_no_code_to_describe(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sees pages"):
        run_data_describe("pages", DescribeConfig(model=MODEL, task="html"), Silent())


def test_the_described_tasks_are_played_and_the_human_has_no_code(tmp_path: Path) -> None:
    described(tasks(tmp_path), Writer())
    human = Leaky(0)
    run = Run.create(tmp_path / "run", task="code")
    with human.server().running() as url, agent().running() as agent_url:
        models = {"sim": HUMAN, "sim_url": [url], "agent": AGENT, "agent_url": [agent_url]}
        config = RolloutConfig(tasks=str(tmp_path / "fees-described.jsonl"), human="spec", max_turns=3, **models)
        run_rollout(run, config, Silent())
    assert {prompt.hidden for prompt, _ in human.prompts} == {GOOD.format(rate=rate) for rate in range(4)}


def test_text_of_a_model_is_not_printed_raw(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07[red]It costs something."
    with Writer({2: [hostile] * 9}).server().running() as url:
        words = ["data", "describe", str(tasks(tmp_path)), "--model", MODEL, "--url", url, "--tries", "1"]
        done = sweet(*words, "--sandbox", "unsafe", "--workers", "1")
    assert "fee-2" in done.stdout
    assert "\x1b]0" not in done.stdout + done.stderr


def test_a_redirect_to_another_host_is_not_followed(tmp_path: Path) -> None:
    file, writer = tasks(tmp_path), Writer()
    with writer.server().running() as elsewhere:

        def moved(_: dict[str, Any]) -> Response:
            return Response(status_code=307, headers={"location": f"{elsewhere}/chat/completions"})

        with ChatServer(MODEL, moved).running() as url:
            config = DescribeConfig(model=MODEL, url=[url], sandbox="unsafe", workers=1, retry_timeout=0)
            assert run_data_describe(str(file), config, Silent()).metrics.written == 0
            assert not writer.asked
