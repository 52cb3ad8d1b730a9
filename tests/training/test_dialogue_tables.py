"""Tables of dialogues in logs: which dialogues, how they are cut, and that no text in them is read as markup."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sweet.online.config import TrainOnlineConfig
from sweet.online.stage import run_train_online
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.stage import run_train
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from sweet.training.dialogue_tables import COLUMNS, LONGEST_DIALOGUE, dialogue_table, harmless, pairs
from tests.pipeline.test_loop import SETS, TINY
from tests.training.test_loggers import leveldb_records, needs, trackio_database

ONLINE: dict[str, Any] = {
    "tasks": "micro",
    "steps": 2,
    "tasks_per_step": 3,
    "group": 2,
    "max_turns": 4,
    "max_tokens": 48,
    "validate_every": 1,
    "validation_tasks": 6,
    "log_dialogues": 4,
}


def dialogue(task: str, sample: int, *said: str) -> Trajectory:
    roles = ("user", "assistant")
    turns = [{"role": roles[place % 2], "content": text} for place, text in enumerate(said)]
    about = {"id": task, "problem_description": said[0], "ground_truth": "def f(): pass", "test_cases": {"a": "f()"}}
    row = {"id": f"{task}-s{sample}-r0", "task": about, "sample": sample, "dialogue_history": turns}
    return Trajectory.model_validate(row)


def score(of: Trajectory, reward: float) -> Score:
    outcome = "passed" if reward == 1 else "failed"
    return Score(id=of.id, task_id=of.task_id, reward=reward, passed=int(reward), total=1, outcome=outcome)


def test_a_table_has_the_same_tasks_whatever_the_order_and_each_task_once_first() -> None:
    played = [dialogue(f"t{number}", sample, "Hi", "Hello") for number in range(6) for sample in range(2)]
    scored = pairs(played, [score(one, 1.0) for one in played[:-1]])
    table = dialogue_table("test_dialogues", 3, scored, 4)
    again = dialogue_table("test_dialogues", 4, scored[::-1], 4)
    assert [row[1] for row in table.rows] == [row[1] for row in again.rows]
    assert len({row[1] for row in table.rows}) == 4
    everything = dialogue_table("dialogues", 0, scored, 100).rows
    assert len(everything) == 12
    assert len({row[1] for row in everything[:6]}) == 6
    assert sorted(str(row[5]) for row in everything) == ["answered", *["passed"] * 11]
    row = dict(zip(COLUMNS, table.rows[0], strict=True))
    assert row == {
        "step": 3,
        "task": row["task"],
        "human": "",
        "request": "Hi",
        "reward": 1.0,
        "outcome": "passed",
        "turns": 1,
        "dialogue": "HUMAN:\nHi\n\nAGENT:\nHello",
    }


def test_a_long_dialogue_has_its_beginning_and_its_end() -> None:
    long = dialogue("t", 0, "begins", "x" * 100_000, "ends")
    ((*_, text),) = dialogue_table("dialogues", 1, [(long, None)], 1).rows
    assert isinstance(text, str)
    assert len(text) < LONGEST_DIALOGUE + 100
    assert text.startswith("HUMAN:\nbegins")
    assert text.endswith("ends")
    assert "characters left out" in text
    assert "def f(): pass" not in text, "the reference is not sent"


HOSTILE = (
    "<img src=x onerror=a()> </td><script>b()</script> ![x](http://evil/p.png) [y](javascript:c()) <!-- <?p \ud800"
)


def tags(text: str) -> set[str]:
    """Return what a reader of Markdown and HTML makes of a text besides paragraphs, emphasis and code."""
    return {
        token.type
        for outer in MarkdownIt("commonmark").parse(text)
        for token in (outer, *(outer.children or ()))
        if token.type in ("image", "link_open", "html_inline", "html_block")
    }


def test_no_text_becomes_markup() -> None:
    assert tags(HOSTILE.encode(errors="replace").decode()) == {"html_inline", "image"}
    cell = harmless(HOSTILE, 1000)
    assert tags(cell) == set()
    assert cell.replace("\u200b", "")[:-1] == HOSTILE[:-1], "nothing else is changed"
    cell.encode()
    assert harmless("if a < b and x[i] > 3: return '<='", 100) == "if a < b and x[i] > 3: return '<='"


@given(st.text(alphabet="<>![]()/:ab \n\"'=", max_size=60))
def test_no_text_of_marks_becomes_markup(text: str) -> None:
    assert tags(harmless(text, 1000)) == set()


@pytest.fixture
def wandb_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")


def wandb_tables(run: Run) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the tables of all offline logs of a run, by name and step."""
    from importlib import import_module

    messages = import_module("wandb.proto.wandb_internal_pb2")
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for file in sorted((run.path / "logs" / "wandb").glob("offline-run-*/run-*.wandb")):
        for raw in leveldb_records(file.read_bytes()[7:], at=7):
            record = messages.Record()
            record.ParseFromString(raw)
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name in [key.removesuffix("/_type") for key, value in items.items() if value == "table-file"]:
                table = json.loads((file.parent / "files" / items[f"{name}/path"]).read_text())
                found.setdefault(name, {})[items["step"]] = table
    return found


@needs("wandb")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("wandb_offline")
def test_wandb_has_a_table_of_each_step_and_of_the_same_tasks_at_each_validation(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "code")
    run_train_online(run, TrainOnlineConfig.model_validate(ONLINE | {"log_to": ("wandb",)}), Silent())
    tables = wandb_tables(run)
    assert {name: sorted(steps) for name, steps in tables.items()} == {
        "dialogues": [1, 2],
        "validation_dialogues": [1, 2],
    }
    assert all(table["columns"] == list(COLUMNS) for steps in tables.values() for table in steps.values())
    first, second = (tables["validation_dialogues"][step]["data"] for step in (1, 2))
    assert len(first) == 4
    assert [row[1] for row in first] == [row[1] for row in second]
    rows = [json.loads(line) for line in (run.path / "rollouts" / "rollouts-1.jsonl").read_text().splitlines()]
    rewards = [json.loads(line) for line in (run.path / "scores" / "scores-1.jsonl").read_text().splitlines()]
    of_step = {(row["task"]["id"], row["sample"]): row["id"] for row in rows if row["step"] == 1}
    known = {score["id"]: score["reward"] for score in rewards}
    for row in tables["dialogues"][1]["data"]:
        same = [known[id] for (task, _), id in of_step.items() if task == row[1]]
        assert row[4] in same


@needs("wandb")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("wandb_offline")
def test_a_run_logs_each_round_once_and_its_trainings(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    run_train(run, LoopConfig(**TINY, set_=SETS, log_to=("wandb",), log_dialogues=3), Silent())
    tables = wandb_tables(run)
    assert {name: sorted(steps) for name, steps in tables.items()} == {"test_dialogues": [0, 1]}
    before, after = (tables["test_dialogues"][step]["data"] for step in (0, 1))
    assert len(before) == 3
    assert [row[1] for row in before] == [row[1] for row in after]
    logs = {file.name for file in (run.path / "logs" / "wandb").glob("offline-run-*/run-*.wandb")}
    assert len(logs) == 3, "the run, its critic and its actor"
    count = len(list((run.path / "logs" / "wandb").glob("offline-run-*/files/media/table/*")))
    run_train(run, LoopConfig(), Silent())
    assert len(list((run.path / "logs" / "wandb").glob("offline-run-*/files/media/table/*"))) == count


@needs("trackio")
@pytest.mark.filterwarnings("ignore")
def test_trackio_has_the_tables_and_no_texts_where_none_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = trackio_database(tmp_path, monkeypatch)
    for name, most in (("shown", 4), ("silent", 0)):
        run = Run.create(tmp_path / name, "code")
        options = ONLINE | {"log_to": ("trackio",), "log_dialogues": most}
        run_train_online(run, TrainOnlineConfig.model_validate(options), Silent())
    assert capsys.readouterr().out == ""
    with sqlite3.connect(database) as opened:
        found = opened.execute("select run_name, step, metrics from metrics order by id").fetchall()
    tables: dict[str, dict[str, list[int]]] = {"shown": {}, "silent": {}}
    for name, step, text in found:
        for key, value in json.loads(text).items():
            if isinstance(value, dict) and value.get("_type") == "trackio.table":
                tables[str(name).partition("-")[0]].setdefault(key, []).append(step)
                assert list(value["_value"][0]) == list(COLUMNS)
    assert tables == {"shown": {"dialogues": [1, 2], "validation_dialogues": [1, 2]}, "silent": {}}
